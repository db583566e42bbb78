"""A broker that is killed again and again under load, as a process of its own, with clients as people have them."""

import random
import time
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from demo.served_broker import ServedBroker
from exactlog.core.record.record_format import Record
from exactlog.storage.table_reader import find_tables, open_table

TOPIC = "killed"
PARTITIONS = 5
PRODUCERS = 4
IN_FLIGHT_MAX = 2_000  # messages of one producer that wait for their answer
PATIENCE_S = 60

pytestmark = pytest.mark.slow


class Load:
    """Idempotent producers that live through everything, and what they were told."""

    def __init__(self, address):
        self.errors = []
        self.sent = [0] * PRODUCERS
        self.acknowledged = {}  # (producer, number) -> (partition, offset)
        self._producers = [Producer(self._config(address)) for _ in range(PRODUCERS)]

    def _config(self, address):
        return {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 50,
            "message.timeout.ms": 0,  # never given up
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "error_cb": self._on_error,
            "log_level": 0,
        }

    def _on_error(self, error):
        if error.fatal():
            self.errors.append(error)

    def _on_delivery(self, error, message):
        key = tuple(int(part) for part in message.value().split(b":")[:2])
        if error is not None:
            self.errors.append((key, error))
        else:
            assert key not in self.acknowledged, "told twice"
            self.acknowledged[key] = message.partition(), message.offset()

    def go_on(self, *, until):
        """Sends as fast as it goes until so many more are acknowledged."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < until:
            assert not self.errors, self.errors[:3]
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {until} acknowledged"
            self.send(100)

    def send(self, count):
        for index, producer in enumerate(self._producers):
            if len(producer) < IN_FLIGHT_MAX:
                for number in range(self.sent[index], self.sent[index] + count):
                    value = b"%d:%d:%s" % (index, number, b"x" * (number % 97))
                    producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._on_delivery)
                self.sent[index] += count
            producer.poll(0)

    def finish(self):
        """Waits for every answer."""
        for producer in self._producers:
            assert producer.flush(PATIENCE_S) == 0
        assert not self.errors, self.errors[:3]

    def abandon(self):
        """What has no answer yet never gets one."""
        for producer in self._producers:
            producer.purge()
        self._producers.clear()


def consume(address):
    """Every record of the topic, by partition, as a consumer finds it from the start."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    ends = {part.partition: consumer.get_watermark_offsets(part, timeout=PATIENCE_S)[1] for part in partitions}
    consumer.assign(partitions)
    found = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    while any(len(found[partition]) < end for partition, end in ends.items()):
        assert time.monotonic() < deadline, {partition: len(records) for partition, records in found.items()}
        for message in consumer.consume(5_000, timeout=1):
            assert message.error() is None
            found[message.partition()].append((message.offset(), message.value()))
    consumer.close()
    return found


def read_directory(data_dir):
    """The same from the directory of a broker that was stopped."""
    return {
        number: [_as_consumed(record) for record in open_table(path).read()]
        for number, path in enumerate(find_tables(data_dir))
    }


def _as_consumed(record: Record):
    return record.offset, record.value


def check(found, load):
    """Each at most once and whole, in order per producer and partition; the acknowledged ones where they should be."""
    places = {}
    for partition, records in found.items():
        assert [offset for offset, _ in records] == list(range(len(records)))
        last = [-1] * PRODUCERS
        for offset, value in records:
            producer, number = (int(part) for part in value.split(b":")[:2])
            assert value == b"%d:%d:%s" % (producer, number, b"x" * (number % 97))
            assert number % PARTITIONS == partition
            assert number > last[producer], f"producer {producer}: {number} behind {last[producer]} in {partition}"
            last[producer] = number
            places[producer, number] = partition, offset
    assert load.acknowledged.items() <= places.items()
    assert all(number < load.sent[producer] for producer, number in places)
    return places


def kill_again_and_again(tmp_path, *, times, flush_mode):
    chance = random.Random(times)
    options = ["--flush-mode", flush_mode, "--set", f"num.partitions={PARTITIONS}", "--set", "segment.bytes=100000"]
    with ServedBroker(tmp_path / "data", log=tmp_path / "broker.log", options=options) as broker:
        load = Load(broker.address)
        for _ in range(times):
            load.go_on(until=len(load.acknowledged) + chance.choice([1, 200, 1_000, 3_000]))
            broker.kill()
            load.send(chance.randrange(200))
            broker.start()
        load.finish()
        places = check(consume(broker.address), load)
        assert (
            places.keys()
            == load.acknowledged.keys()
            == {(producer, number) for producer, sent in enumerate(load.sent) for number in range(sent)}
        )

        load.go_on(until=len(load.acknowledged) + 1_000)
        broker.kill()
        load.abandon()
        broker.start()
        consumed = consume(broker.address)
        check(consumed, load)
        broker.stop()
        assert read_directory(tmp_path / "data") == consumed
    segments = list((tmp_path / "data" / f"topic={TOPIC}-part=0").glob("*.log"))
    assert len(segments) > 2


def test_twenty_kills_in_a_row_lose_nothing_double_nothing_and_mix_nothing_up(tmp_path):
    kill_again_and_again(tmp_path, times=20, flush_mode="commit")


@pytest.mark.parametrize("flush_mode", ["none", "interval"])
def test_what_the_operating_system_has_outlives_the_process(tmp_path, flush_mode):
    kill_again_and_again(tmp_path, times=6, flush_mode=flush_mode)
