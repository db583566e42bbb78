"""Idempotent producers that live through whatever happens to their broker, and what is checked afterwards."""

import time
from collections import defaultdict

from confluent_kafka import Consumer, Producer, TopicPartition

from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from exactlog.storage.table_reader import find_tables, open_table

PATIENCE_S = 60


class IdempotentLoad:
    """Producers of one topic, and what they were told.

    Args:
        in_flight_max: how many messages of one producer wait for their answer.
        batch_size: how many messages a batch has at most.
    """

    def __init__(self, address, topic, *, partitions, producers, in_flight_max=2_000, batch_size=50):
        self.topic = topic
        self.partitions = partitions
        self.errors = []
        self.sent = [0] * producers
        self.acknowledged = {}  # (producer, number) -> (partition, offset)
        self._in_flight_max = in_flight_max
        self._producers = [Producer(self._config(address, batch_size)) for _ in range(producers)]

    def _config(self, address, batch_size):
        return {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": batch_size,
            "message.timeout.ms": 0,  # never given up
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
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

    def go_on(self, *, until, is_over=lambda: False):
        """Sends as fast as it goes until so many are acknowledged, or it is over."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < until and not is_over():
            assert not self.errors, self.errors[:3]
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {until} acknowledged"
            self.send(100)

    def send(self, count):
        """Sends up to so many more, by each producer."""
        for index, producer in enumerate(self._producers):
            last = self.sent[index] + min(count, self._in_flight_max - len(producer))
            for number in range(self.sent[index], last):
                producer.produce(
                    self.topic,
                    value_of(index, number),
                    partition=number % self.partitions,
                    on_delivery=self._on_delivery,
                )
                self.sent[index] += 1
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

    def check(self, found, *, may_be_trimmed=False):
        """Each record is there at most once and whole, in order per producer; the acknowledged ones where they should.

        Where the oldest may have been removed, all this holds from the first one on that is found. Returns the
        partition and offset of every record.
        """
        places, starts = {}, {}
        for partition, records in found.items():
            starts[partition] = start = records[0][0] if may_be_trimmed and records else 0
            assert [offset for offset, _ in records] == list(range(start, start + len(records)))
            last = [-1] * len(self.sent)
            for offset, value in records:
                producer, number = (int(part) for part in value.split(b":")[:2])
                assert value == value_of(producer, number)
                assert number % self.partitions == partition
                assert number > last[producer], f"producer {producer}: {number} behind {last[producer]} in {partition}"
                last[producer] = number
                places[producer, number] = partition, offset
        for key, (partition, offset) in self.acknowledged.items():
            assert offset < starts.get(partition, 0) or places.get(key) == (partition, offset)
        assert all(number < self.sent[producer] for producer, number in places)
        return places

    def check_complete(self, found):
        """The same, and all that was ever sent is there and was acknowledged."""
        everything = {(producer, number) for producer, sent in enumerate(self.sent) for number in range(sent)}
        assert self.check(found).keys() == self.acknowledged.keys() == everything


def value_of(producer, number):
    return b"%d:%d:%s" % (producer, number, b"x" * (number % 97))


def consume(address, topic, *, partitions):
    """Offset and value of every record of a topic, by partition, as a consumer finds them from the start."""
    config = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": address, **config})
    assigned = [TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = {part.partition: consumer.get_watermark_offsets(part, timeout=PATIENCE_S)[1] for part in assigned}
    consumer.assign(assigned)
    found = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    while any(end > 0 and (not found[part] or found[part][-1][0] < end - 1) for part, end in ends.items()):
        assert time.monotonic() < deadline, {partition: len(records) for partition, records in found.items()}
        for message in consumer.consume(5_000, timeout=0.1):
            assert message.error() is None
            found[message.partition()].append((message.offset(), message.value()))
    consumer.close()
    return found


def read_directory(data_dir):
    """The same from the directory of a broker that was stopped and that has one topic of its users."""
    paths = [path for path in find_tables(data_dir) if CONSUMER_OFFSETS not in str(path)]
    return {
        number: [(record.offset, record.value) for record in open_table(path).read()]
        for number, path in enumerate(paths)
    }
