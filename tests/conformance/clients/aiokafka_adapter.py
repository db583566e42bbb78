"""aiokafka; each call runs an event loop of its own."""

import asyncio
import contextlib

import aiokafka
import aiokafka.admin
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.conformance.clients.face import (
    BYTES_MAX,
    PATIENCE_S,
    TRANSACTION_TIMEOUT_MS,
    GroupDescription,
    Received,
    Refused,
    nothing,
)
from tests.support.transactional_clients import AiokafkaTransactions


def check(error_code, message=None):
    """Raises what an error code of an answer stands for."""
    if error_code != 0:
        raise Refused(error_code, message or "")


@contextlib.contextmanager
def refusals():
    """Turns the errors of aiokafka that stand for an answer of the broker into `Refused`."""
    try:
        yield
    except aiokafka.errors.BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


class Aiokafka:
    """aiokafka; each call runs an event loop of its own."""

    def __init__(self, bootstrap_servers):
        self._connection = {"bootstrap_servers": bootstrap_servers}

    # --- records ----------------------------------------------------------------------------------------------

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

    def consume(self, topic, start, count, *, partition=0, isolation="read_uncommitted"):
        async def consume_from(consumer):
            assigned = TopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, start)
            return await _take(consumer, count)

        return asyncio.run(self._with_consumer(consume_from, isolation_level=isolation))

    def ends(self, topic, *, partition=0):
        async def find_ends(consumer):
            asked = TopicPartition(topic, partition)
            return (await consumer.beginning_offsets([asked]))[asked], (await consumer.end_offsets([asked]))[asked]

        return asyncio.run(self._with_consumer(find_ends))

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        async def find(consumer):
            asked = TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({asked: timestamp_ms}))[asked]
            return None if found is None else found.offset

        return asyncio.run(self._with_consumer(find))

    async def _with_consumer(self, use, **more):
        settings = self._connection | {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "max_partition_fetch_bytes": BYTES_MAX,
        }
        async with aiokafka.AIOKafkaConsumer(**(settings | more)) as consumer:
            with refusals():
                return await use(consumer)

    # --- transactions -----------------------------------------------------------------------------------------

    def transactional(self, transactional_id, *, timeout_ms=TRANSACTION_TIMEOUT_MS):
        return AiokafkaTransactions(self._connection["bootstrap_servers"], transactional_id, timeout_ms=timeout_ms)

    # --- topics -----------------------------------------------------------------------------------------------

    def create_topic(self, name, *, partitions=1, config=None):
        async def create(admin):
            new = aiokafka.admin.NewTopic(name, partitions, 1, topic_configs=config or {})
            for _, *outcome in (await admin.create_topics([new])).topic_errors:
                check(*outcome)

        self._administer(create)

    def delete_topic(self, name):
        async def delete(admin):
            for _, error_code in (await admin.delete_topics([name])).topic_error_codes:
                check(error_code)

        self._administer(delete)

    def delete_records(self, topic, offset, *, partition=0):
        async def delete(admin):
            asked = TopicPartition(topic, partition)
            return (await admin.delete_records({asked: aiokafka.admin.RecordsToDelete(offset)}))[asked]

        return self._administer(delete)

    def partition_counts(self):
        async def count(admin):
            return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}

        return self._administer(count)

    def settings(self, topic):
        async def describe(admin):
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (response,) = await admin.describe_configs([resource])
            (error_code, message, *_, entries) = response.resources[0]
            check(error_code, message)
            return {entry[0]: entry[1] for entry in entries}

        return self._administer(describe)

    def alter_settings(self, topic, settings):
        """AlterConfigs, not incremental: what is not named goes back to its default."""

        async def alter(admin):
            changes = {name: value for name, value in settings.items() if value is not None}
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=changes)
            for response in await admin.alter_configs([resource]):
                for error_code, message, *_ in response.resources:
                    check(error_code, message)

        self._administer(alter)

    def create_partitions(self, topic, count):
        async def create(admin):
            response = await admin.create_partitions({topic: aiokafka.admin.NewPartitions(count)})
            for _, *outcome in response.topic_errors:
                check(*outcome)

        self._administer(create)

    def describe_cluster(self):
        async def describe(admin):
            return await admin.describe_cluster()

        cluster = self._administer(describe)
        return {
            "cluster_id": cluster["cluster_id"],
            "controller": cluster["controller_id"],
            "brokers": [f"{node['host']}:{node['port']}" for node in cluster["brokers"]],
        }

    # --- groups -----------------------------------------------------------------------------------------------

    def commit(self, group, topic, offsets, *, asynchronous=False):
        asked = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)
            for partition, (offset, metadata) in offsets.items()
        }

        async def commit(consumer):
            consumer.assign(list(asked))
            await asyncio.create_task(consumer.commit(asked))

        asyncio.run(self._with_consumer(commit, group_id=group))

    def committed(self, group, topic):
        async def find(admin):
            found = await admin.list_consumer_group_offsets(group)
            return {asked.partition: (at.offset, at.metadata) for asked, at in found.items() if asked.topic == topic}

        return self._administer(find)

    def consume_in_group(self, group, topic, count):
        async def consume(consumer):
            consumer.subscribe([topic])
            received = await _take(consumer, count)
            await consumer.commit()
            return received

        settings = {"group_id": group, "auto_offset_reset": "earliest"}
        return asyncio.run(self._with_consumer(consume, **settings))

    def groups(self):
        async def find(admin):
            return {group: "" for group, _ in await admin.list_consumer_groups()}

        return self._administer(find)

    def describe_group(self, group):
        async def describe(admin):
            (response,) = await admin.describe_consumer_groups([group])
            (described,) = response.to_object()["groups"]
            check(described["error_code"])
            return described

        described = self._administer(describe)
        members = {}
        for member in described["members"]:
            data = member["member_assignment"]
            assignment = aiokafka.coordinator.protocol.ConsumerProtocolMemberAssignment.decode(data)
            members[member["client_id"]] = {(owned.topic, owned.partition) for owned in assignment.partitions()}
        return GroupDescription(described["state"], described["protocol"], members)

    def _administer(self, use):
        async def with_admin():
            admin = aiokafka.admin.AIOKafkaAdminClient(**self._connection)
            await admin.start()
            try:
                with refusals():
                    return await use(admin)
            finally:
                await admin.close()

        return asyncio.run(with_admin())


async def _take(consumer, count):
    received = []
    while len(received) < count:
        message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
        received.append(Received(message.offset, message.value, message.key, tuple(message.headers), message.timestamp))
    return received
