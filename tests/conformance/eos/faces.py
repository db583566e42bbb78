"""The two client libraries behind one face, as far as tests of transactions need them."""

import asyncio
import time
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import IllegalStateError, ProducerFenced
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 60
ALL = [b"0", b"1", b"2", b"3", b"4", b"5"]
QUIET = {"log_level": 0}  # errors are what these tests are about
HEARTBEAT_MS = 3_000  # nobody learns of a rebalance by accident while a test wants it unknown


class Read(NamedTuple):
    """A record, whichever client has read it."""

    partition: int
    offset: int
    value: bytes


class ConfluentFace:
    """confluent-kafka."""

    name = "confluent-kafka"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.open = []

    async def producer(self, transactional_id, *, timeout_ms=60_000):
        settings = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET, **settings})
        await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
        return producer

    async def consumer(self, group, topic):
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        settings |= {"heartbeat.interval.ms": HEARTBEAT_MS}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **QUIET, **settings})
        consumer.subscribe([topic])
        self.open.append(consumer)
        await asyncio.to_thread(self._join, consumer)
        return consumer

    def _join(self, consumer):
        """Polls until there are partitions, and gives back what was read by that."""
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.assignment() and time.monotonic() < deadline:
            if (message := consumer.poll(0.1)) is not None:
                consumer.seek(TopicPartition(message.topic(), message.partition(), message.offset()))

    async def read(self, consumer, count):
        return await asyncio.to_thread(self._read, consumer, count)

    def _read(self, consumer, count):
        found = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), 0.1):
                assert message.error() is None, message.error()
                found.append(Read(message.partition(), message.offset(), message.value()))
        return found

    async def take_part(self, consumer):
        """Lets the client see what its group wants of it."""
        await asyncio.to_thread(consumer.poll, 0.05)

    def partitions(self, consumer):
        return {place.partition for place in consumer.assignment()}

    def member_id(self, consumer):
        return consumer.memberid()

    async def leave(self, consumer):
        self.open.remove(consumer)
        await asyncio.to_thread(consumer.close)

    async def close(self):
        for consumer in self.open:
            await asyncio.to_thread(consumer.close)


class AiokafkaFace:
    """aiokafka."""

    name = "aiokafka"

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.open = []

    async def producer(self, transactional_id, *, timeout_ms=60_000):
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self.open.append(producer)
        await producer.start()
        return producer

    async def consumer(self, group, topic):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self.open.append(consumer)
        await consumer.start()
        return consumer

    async def read(self, consumer, count):
        found = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            try:
                batches = await consumer.getmany(timeout_ms=100, max_records=count - len(found))
            except IllegalStateError:  # a rebalance took a partition away in that moment
                continue
            found += [Read(r.partition, r.offset, r.value) for batch in batches.values() for r in batch]
        return found

    async def take_part(self, consumer):
        """It does so by itself."""
        await asyncio.sleep(0.05)

    def partitions(self, consumer):
        return {place.partition for place in consumer.assignment()}

    def member_id(self, consumer):
        return consumer._coordinator.member_id

    async def leave(self, consumer):
        self.open.remove(consumer)
        await consumer.stop()

    async def close(self):
        for client in reversed(self.open):
            try:
                await client.stop()
            except (ProducerFenced, asyncio.CancelledError):  # a zombie is told once more; a fetch waits to be repeated
                if asyncio.current_task().cancelling():
                    raise
                connections = client.client if isinstance(client, AIOKafkaProducer) else client._client
                await connections.close()  # it leaves them open then


FACES = {face.name: face for face in (ConfluentFace, AiokafkaFace)}


class Judge:
    """What a broker holds in the end, read by a client that has no part in the transactions."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    def create_topic(self, topic, partitions=1, **config):
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_S)
        return topic

    def fill(self, topic, values, *, partitions=1):
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % partitions)
        assert producer.flush(PATIENCE_S) == 0

    def values(self, topic, *, isolation="read_committed", partitions=1):
        """All values, sorted, as far as that isolation sees them once no transaction is open."""
        places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
        self._wait_until_decided(places)
        found = []
        with self._reader(isolation) as reader:
            reader.assign(places)
            unfinished = partitions
            while unfinished:
                message = reader.poll(PATIENCE_S)
                assert message is not None, f"{topic} is not read to its end"
                if message.error() is None:
                    found.append(message.value())
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    unfinished -= 1
        return sorted(found)

    def _wait_until_decided(self, places):
        deadline = time.monotonic() + PATIENCE_S
        with self._reader("read_committed") as stable, self._reader("read_uncommitted") as all_there_is:
            for place in places:
                _, end = all_there_is.get_watermark_offsets(place, PATIENCE_S)
                while stable.get_watermark_offsets(place, PATIENCE_S)[1] < end:
                    assert time.monotonic() < deadline, f"a transaction stays open in {place}"
                    time.sleep(0.02)

    def _reader(self, isolation):
        settings = {"group.id": "judge", "isolation.level": isolation, "enable.auto.commit": False}
        return Consumer({"bootstrap.servers": self.bootstrap, **QUIET, "enable.partition.eof": True, **settings})

    def committed(self, group, topic, *, partitions=1):
        """The committed offsets of a group, by partition; those of an open transaction are waited for."""
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        with Consumer(
            {"bootstrap.servers": self.bootstrap, **QUIET, "group.id": group, "enable.auto.commit": False}
        ) as reader:
            return [place.offset for place in reader.committed(places, PATIENCE_S)]


class Shop:
    """Orders are read, and an invoice is written for each; no other test uses its names."""

    def __init__(self, face, judge, name):
        self.face = face
        self.judge = judge
        self.name = name
        self.orders = f"{name}-orders"
        self.invoices = f"{name}-invoices"

    async def producer(self, suffix="", *, timeout_ms=60_000):
        return await self.face.producer(self.name + suffix, timeout_ms=timeout_ms)

    async def consumer(self):
        return await self.face.consumer(self.name, self.orders)

    async def work(self, txn, consumer, *, count=6):
        """Reads orders, sends their invoices, and waits until they are in the log."""
        records = await self.face.read(consumer, count)
        for record in records:
            await txn.send(self.invoices, record.value, key=b"k", headers=[("offset", b"%d" % record.offset)])
        await txn._client.deliver(timeout_s=PATIENCE_S)
        return records

    def sent(self, isolation="read_committed"):
        return self.judge.values(self.invoices, isolation=isolation)

    def committed(self):
        return self.judge.committed(self.name, self.orders, partitions=2)
