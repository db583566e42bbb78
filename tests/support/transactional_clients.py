"""Transactional producers of three Python clients, with one face. Whatever a client raises means: refused."""

import asyncio
import contextlib
import threading
import time
import warnings

import aiokafka
import confluent_kafka

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka
    from kafka.structs import OffsetAndMetadata, TopicPartition

PATIENCE_S = 20
TIMEOUT_MS = 30_000


class ConfluentTransactions:
    """confluent-kafka."""

    def __init__(self, address, transactional_id, *, timeout_ms=TIMEOUT_MS):
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._producer.init_transactions(PATIENCE_S)

    def begin(self):
        self._producer.begin_transaction()

    def send(self, topic, partition, value):
        """The record is with the broker when this returns."""
        errors = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error) if error else None
        )
        self._producer.flush(PATIENCE_S)
        if errors:
            raise confluent_kafka.KafkaException(errors[0])

    def send_offset(self, topic, partition, offset, group):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0})
        try:
            position = confluent_kafka.TopicPartition(topic, partition, offset)
            self._producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), PATIENCE_S)
        finally:
            consumer.close()

    def commit(self):
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self):
        self._producer.abort_transaction(PATIENCE_S)

    def close(self):
        """Goes away without a word about a transaction that is open."""
        self._producer.purge()


class KafkaPythonTransactions:
    """kafka-python."""

    def __init__(self, address, transactional_id, *, timeout_ms=TIMEOUT_MS):
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()

    def begin(self):
        self._producer.begin_transaction()

    def send(self, topic, partition, value):
        """The record is with the broker when this returns."""
        self._producer.send(topic, value, partition=partition).get(PATIENCE_S)

    def send_offset(self, topic, partition, offset, group):
        offsets = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self):
        self._producer.commit_transaction()

    def abort(self):
        self._producer.abort_transaction()

    def close(self):
        """Goes away."""
        sender = self._producer._sender
        try:
            self._producer.close(timeout=0)
        finally:
            sender.force_close()
            sender.join(PATIENCE_S)  # it closes the connections


class AiokafkaTransactions:
    """aiokafka, on an event loop of its own."""

    def __init__(self, address, transactional_id, *, timeout_ms=TIMEOUT_MS):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer = self._do(self._start(address, transactional_id, timeout_ms))

    async def _start(self, address, transactional_id, timeout_ms):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def begin(self):
        self._do(self._producer.begin_transaction())

    def send(self, topic, partition, value):
        """The record is with the broker when this returns."""
        self._do(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, topic, partition, offset, group):
        offsets = {aiokafka.TopicPartition(topic, partition): offset}
        self._do(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self):
        self._do(self._producer.commit_transaction())

    def abort(self):
        self._do(self._producer.abort_transaction())

    def close(self):
        """Goes away."""
        try:
            self._do(self._producer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def consume(address, topic, *, isolation_level="read_committed", partitions=1):
    """All values of a topic up to where such a reader may read now, by partition."""
    found = [[] for _ in range(partitions)]
    with _reader(address, isolation_level) as consumer:
        consumer.assign(_places(topic, partitions))
        at_end = set()
        while len(at_end) < partitions:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "nothing came"
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
            else:
                found[message.partition()].append(message.value())
    return found


def consume_decided(address, topic, *, partitions=1):
    """All values of a topic that count, by partition, once every transaction in it has ended."""
    wait_for_stable_ends(address, topic, partitions=partitions, are_ends=True)
    return consume(address, topic, partitions=partitions)


def wait_for_stable_ends(address, topic, *, partitions=1, are_ends):
    """Waits until all partitions are stable up to their ends, or (`are_ends` false) until one is not."""
    deadline = time.monotonic() + PATIENCE_S
    with _reader(address, "read_committed") as stable, _reader(address, "read_uncommitted") as all_there_is:

        def ends(reader):
            return [reader.get_watermark_offsets(place, PATIENCE_S)[1] for place in _places(topic, partitions)]

        while (ends(stable) == ends(all_there_is)) is not are_ends:
            assert time.monotonic() < deadline, f"transactions in {topic} do not " + ("end" if are_ends else "begin")
            time.sleep(0.02)


def _places(topic, partitions):
    return [confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)]


@contextlib.contextmanager
def _reader(address, isolation_level):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def committed_offset(address, topic, partition, group):
    """The offset that a group has committed; None where it has none."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        (position,) = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], timeout=PATIENCE_S)
    finally:
        consumer.close()
    return position.offset if position.offset >= 0 else None
