"""What the three Python clients have in common, behind one face. What one of them cannot do, its adapter says."""

import asyncio
import contextlib
import warnings
from typing import NamedTuple

import aiokafka
import aiokafka.admin
import confluent_kafka as confluent
from aiokafka.structs import TopicPartition as AiokafkaTopicPartition
from confluent_kafka import admin as confluent_admin

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka
    import kafka.admin

PATIENCE_S = 30
BYTES_MAX = 32 * 1024 * 1024
"""Above the largest record of any test; clients have limits of their own."""


class Sent(NamedTuple):
    """A record to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 1_700_000_000_000
    partition: int = 0


class Received(NamedTuple):
    """A record as a client hands it out."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class TopicExists(Exception):  # noqa: N818  what a test asks for
    """There is such a topic."""


class OffsetOutOfRange(Exception):  # noqa: N818  what a test asks for
    """The client was told that its offset is outside of the log."""


def nothing():
    """What happens while records are on their way, unless a test wants something to."""


class ConfluentKafka:
    """librdkafka, through confluent-kafka."""

    def __init__(self, bootstrap_servers):
        self._connection = {"bootstrap.servers": bootstrap_servers}
        self._admin = confluent_admin.AdminClient(self._connection)  # its calls end with it

    def produce(self, topic, records, *, acks="all", compression="none", idempotent=False, meanwhile=nothing):
        producer = confluent.Producer(
            self._connection
            | {
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "linger.ms": 20,
                "message.max.bytes": BYTES_MAX,
            }
        )
        offsets = [None] * len(records)

        def keep_offset(index):
            def on_delivery(error, message):
                offsets[index] = error or message.offset()

            return on_delivery

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=keep_offset(index),
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        meanwhile()
        assert producer.flush(PATIENCE_S) == 0, "not everything was delivered"
        return offsets

    def consume(self, topic, start, count, *, partition=0):
        with self._consumer() as consumer:
            consumer.assign([confluent.TopicPartition(topic, partition, start)])
            received = []
            while len(received) < count:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"only {len(received)} of {count} records came"
                if message.error():
                    if message.error().code() == confluent.KafkaError._AUTO_OFFSET_RESET:
                        raise OffsetOutOfRange
                    raise confluent.KafkaException(message.error())
                received.append(
                    Received(
                        message.offset(),
                        message.value(),
                        message.key(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                )
            return received

    def ends(self, topic, *, partition=0):
        with self._consumer() as consumer:
            return consumer.get_watermark_offsets(confluent.TopicPartition(topic, partition), PATIENCE_S)

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        with self._consumer() as consumer:
            asked = confluent.TopicPartition(topic, partition, timestamp_ms)
            (found,) = consumer.offsets_for_times([asked], PATIENCE_S)
            return None if found.offset == confluent.OFFSET_END else found.offset

    @contextlib.contextmanager
    def _consumer(self):
        consumer = confluent.Consumer(
            self._connection
            | {
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": BYTES_MAX,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def create_topic(self, name, *, partitions=1, config=None):
        new = confluent_admin.NewTopic(name, partitions, 1, config=config or {})
        (created,) = self._admin.create_topics([new]).values()
        try:
            created.result(PATIENCE_S)
        except confluent.KafkaException as error:
            if error.args[0].code() == confluent.KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExists from error
            raise

    def delete_topic(self, name):
        (deleted,) = self._admin.delete_topics([name]).values()
        deleted.result(PATIENCE_S)

    def delete_records(self, topic, offset, *, partition=0):
        asked = confluent.TopicPartition(topic, partition, offset)
        (deleted,) = self._admin.delete_records([asked]).values()
        try:
            return deleted.result(PATIENCE_S).low_watermark
        except confluent.KafkaException as error:
            if error.args[0].code() == confluent.KafkaError.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRange from error
            raise

    def partition_counts(self):
        topics = self._admin.list_topics(timeout=PATIENCE_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def settings(self, topic):
        resource = confluent_admin.ConfigResource(confluent_admin.ConfigResource.Type.TOPIC, topic)
        (described,) = self._admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in described.result(PATIENCE_S).items()}


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap_servers):
        self._connection = {"bootstrap_servers": bootstrap_servers}

    def produce(self, topic, records, *, acks="all", compression="none", idempotent=False, meanwhile=nothing):
        producer = kafka.KafkaProducer(
            **self._connection,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=20,
            max_request_size=BYTES_MAX,
        )
        with contextlib.closing(producer):
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            meanwhile()
            return [future.get(PATIENCE_S).offset for future in sent]

    def consume(self, topic, start, count, *, partition=0):
        with self._consumer() as consumer:
            assigned = kafka.TopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, start)
            received = []
            while len(received) < count:
                try:
                    found = consumer.poll(timeout_ms=PATIENCE_S * 1_000)
                except kafka.errors.OffsetOutOfRangeError as error:
                    raise OffsetOutOfRange from error
                assert found, f"only {len(received)} of {count} records came"
                received += [
                    Received(message.offset, message.value, message.key, tuple(message.headers), message.timestamp)
                    for message in found[assigned]
                ]
            return received[:count]

    def ends(self, topic, *, partition=0):
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([asked])[asked], consumer.end_offsets([asked])[asked]

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
            return None if found is None else found.offset

    def _consumer(self):
        return contextlib.closing(
            kafka.KafkaConsumer(
                **self._connection,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=BYTES_MAX,
            )
        )

    def create_topic(self, name, *, partitions=1, config=None):
        new = {name: {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}}
        with self._admin() as admin:
            try:
                admin.create_topics(new)
            except kafka.errors.TopicAlreadyExistsError as error:
                raise TopicExists from error

    def delete_topic(self, name):
        with self._admin() as admin:
            admin.delete_topics([name])

    def delete_records(self, topic, offset, *, partition=0):
        asked = kafka.TopicPartition(topic, partition)
        with self._admin() as admin:
            try:
                return admin.delete_records({asked: offset})[asked]["low_watermark"]
            except kafka.errors.OffsetOutOfRangeError as error:
                raise OffsetOutOfRange from error

    def partition_counts(self):
        with self._admin() as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    def settings(self, topic):
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        with self._admin() as admin:
            (of_topics,) = admin.describe_configs([resource], config_filter="all").values()
        return {name: entry["value"] for name, entry in of_topics[topic].items()}

    def _admin(self):
        return contextlib.closing(kafka.KafkaAdminClient(**self._connection))


class Aiokafka:
    """aiokafka; each call runs an event loop of its own."""

    def __init__(self, bootstrap_servers):
        self._connection = {"bootstrap_servers": bootstrap_servers}

    def produce(self, topic, records, *, acks="all", compression="none", idempotent=False, meanwhile=nothing):
        settings = {
            "acks": acks if acks == "all" else int(acks),
            "compression_type": None if compression == "none" else compression,
            "enable_idempotence": idempotent,
        }
        return asyncio.run(self._produce(topic, records, settings, meanwhile))

    async def _produce(self, topic, records, settings, meanwhile):
        producer = aiokafka.AIOKafkaProducer(**self._connection, **settings, linger_ms=20, max_request_size=BYTES_MAX)
        async with producer:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await asyncio.to_thread(meanwhile)
            stored = [await asyncio.wait_for(future, PATIENCE_S) for future in sent]
            return [getattr(record, "offset", -1) for record in stored]

    def consume(self, topic, start, count, *, partition=0):
        async def consume_from(consumer):
            assigned = AiokafkaTopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, start)
            received = []
            while len(received) < count:
                try:
                    message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                except aiokafka.errors.OffsetOutOfRangeError as error:
                    raise OffsetOutOfRange from error
                received.append(
                    Received(message.offset, message.value, message.key, tuple(message.headers), message.timestamp)
                )
            return received

        return asyncio.run(self._with_consumer(consume_from))

    def ends(self, topic, *, partition=0):
        async def find_ends(consumer):
            asked = AiokafkaTopicPartition(topic, partition)
            return (await consumer.beginning_offsets([asked]))[asked], (await consumer.end_offsets([asked]))[asked]

        return asyncio.run(self._with_consumer(find_ends))

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        async def find(consumer):
            asked = AiokafkaTopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({asked: timestamp_ms}))[asked]
            return None if found is None else found.offset

        return asyncio.run(self._with_consumer(find))

    async def _with_consumer(self, use):
        consumer = aiokafka.AIOKafkaConsumer(
            **self._connection,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=BYTES_MAX,
        )
        async with consumer:
            return await use(consumer)

    def create_topic(self, name, *, partitions=1, config=None):
        async def create(admin):
            new = aiokafka.admin.NewTopic(name, partitions, 1, topic_configs=config or {})
            response = await admin.create_topics([new])
            for _, error_code, *message in response.topic_errors:
                error = aiokafka.errors.for_code(error_code)
                if error is aiokafka.errors.TopicAlreadyExistsError:
                    raise TopicExists
                if error is not aiokafka.errors.NoError:
                    raise error(*message)

        asyncio.run(self._with_admin(create))

    def delete_topic(self, name):
        async def delete(admin):
            response = await admin.delete_topics([name])
            assert [code for _, code in response.topic_error_codes] == [0]

        asyncio.run(self._with_admin(delete))

    def delete_records(self, topic, offset, *, partition=0):
        async def delete(admin):
            asked = AiokafkaTopicPartition(topic, partition)
            try:
                return (await admin.delete_records({asked: aiokafka.admin.RecordsToDelete(offset)}))[asked]
            except aiokafka.errors.OffsetOutOfRangeError as error:
                raise OffsetOutOfRange from error

        return asyncio.run(self._with_admin(delete))

    def partition_counts(self):
        async def count(admin):
            return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}

        return asyncio.run(self._with_admin(count))

    def settings(self, topic):
        async def describe(admin):
            resource = aiokafka.admin.config_resource.ConfigResource(
                aiokafka.admin.config_resource.ConfigResourceType.TOPIC, topic
            )
            (response,) = await admin.describe_configs([resource])
            ((error_code, _, _, _, entries),) = response.resources
            assert error_code == 0
            return {name: value for name, value, *_ in entries}

        return asyncio.run(self._with_admin(describe))

    async def _with_admin(self, use):
        admin = aiokafka.admin.AIOKafkaAdminClient(**self._connection)
        await admin.start()
        try:
            return await use(admin)
        finally:
            await admin.close()


ADAPTERS = {"confluent-kafka": ConfluentKafka, "kafka-python": KafkaPython, "aiokafka": Aiokafka}
