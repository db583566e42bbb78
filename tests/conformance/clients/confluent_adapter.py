"""librdkafka, through confluent-kafka."""

import contextlib
import time

import confluent_kafka as confluent
from confluent_kafka import ConsumerGroupTopicPartitions, admin

from tests.conformance.clients.face import (
    BYTES_MAX,
    PATIENCE_S,
    TRANSACTION_TIMEOUT_MS,
    GroupDescription,
    Received,
    Refused,
    nothing,
)
from tests.support.transactional_clients import ConfluentTransactions

SPECS = {
    "earliest": admin.OffsetSpec.earliest(),
    "latest": admin.OffsetSpec.latest(),
    "max_timestamp": admin.OffsetSpec.max_timestamp(),
}
STATES = {  # as Kafka spells them
    confluent.ConsumerGroupState.STABLE: "Stable",
    confluent.ConsumerGroupState.EMPTY: "Empty",
    confluent.ConsumerGroupState.DEAD: "Dead",
    confluent.ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    confluent.ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}


@contextlib.contextmanager
def refusals():
    """Turns what librdkafka raises for an answer of the broker into `Refused`."""
    try:
        yield
    except confluent.KafkaException as error:
        _raise(error.args[0])


def outcome(futures):
    """What came of a call of the administration that asked for one thing."""
    (future,) = futures.values()
    with refusals():
        return future.result(PATIENCE_S)


def _raise(error):
    if error.code() == confluent.KafkaError._AUTO_OFFSET_RESET:
        raise Refused(confluent.KafkaError.OFFSET_OUT_OF_RANGE, error.str())
    if error.code() == confluent.KafkaError._UNSUPPORTED_FEATURE:
        raise Refused(confluent.KafkaError.UNSUPPORTED_VERSION, error.str())
    if error.code() < 0:
        raise confluent.KafkaException(error)
    raise Refused(error.code(), error.str())


class ConfluentKafka:
    """librdkafka, through confluent-kafka."""

    def __init__(self, bootstrap_servers):
        self._connection = {"bootstrap.servers": bootstrap_servers}
        self._admin = admin.AdminClient(self._connection)  # its calls end with it

    # --- records ----------------------------------------------------------------------------------------------

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

    def consume(self, topic, start, count, *, partition=0, isolation="read_uncommitted"):
        with self._consumer(isolation_level=isolation) as consumer:
            consumer.assign([confluent.TopicPartition(topic, partition, start)])
            return _take(consumer, count)

    def ends(self, topic, *, partition=0):
        with self._consumer() as consumer:
            return consumer.get_watermark_offsets(confluent.TopicPartition(topic, partition), PATIENCE_S)

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        with self._consumer() as consumer:
            asked = confluent.TopicPartition(topic, partition, timestamp_ms)
            (found,) = consumer.offsets_for_times([asked], PATIENCE_S)
            return None if found.offset == confluent.OFFSET_END else found.offset

    def list_offset(self, topic, spec, *, partition=0):
        asked = confluent.TopicPartition(topic, partition)
        (listed,) = self._admin.list_offsets({asked: SPECS[spec]}).values()
        with refusals():
            found = listed.result(PATIENCE_S)
        return found.offset, found.timestamp

    @contextlib.contextmanager
    def _consumer(self, *, on_commit=None, **more):
        consumer = confluent.Consumer(
            self._connection
            | {
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": BYTES_MAX,
            }
            | {name.replace("_", "."): value for name, value in more.items()}
            | ({"on_commit": on_commit} if on_commit else {})
        )
        try:
            yield consumer
        finally:
            consumer.close()

    # --- transactions -----------------------------------------------------------------------------------------

    def transactional(self, transactional_id, *, timeout_ms=TRANSACTION_TIMEOUT_MS):
        return ConfluentTransactions(self._connection["bootstrap.servers"], transactional_id, timeout_ms=timeout_ms)

    # --- topics -----------------------------------------------------------------------------------------------

    def create_topic(self, name, *, partitions=1, config=None):
        outcome(self._admin.create_topics([admin.NewTopic(name, partitions, 1, config=config or {})]))

    def delete_topic(self, name):
        outcome(self._admin.delete_topics([name]))

    def delete_records(self, topic, offset, *, partition=0):
        return outcome(self._admin.delete_records([confluent.TopicPartition(topic, partition, offset)])).low_watermark

    def partition_counts(self):
        topics = self._admin.list_topics(timeout=PATIENCE_S).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def settings(self, topic):
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic)
        described = outcome(self._admin.describe_configs([resource]))
        return {name: entry.value for name, entry in described.items()}

    def alter_settings(self, topic, settings):
        changes = [
            admin.ConfigEntry(
                name,
                value,
                incremental_operation=admin.AlterConfigOpType.DELETE if value is None else admin.AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        outcome(self._admin.incremental_alter_configs([resource]))

    def create_partitions(self, topic, count):
        outcome(self._admin.create_partitions([admin.NewPartitions(topic, count)]))

    def describe_cluster(self):
        cluster = self._admin.describe_cluster().result(PATIENCE_S)
        return {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller.id,
            "brokers": [f"{node.host}:{node.port}" for node in cluster.nodes],
        }

    # --- groups -----------------------------------------------------------------------------------------------

    def commit(self, group, topic, offsets, *, asynchronous=False):
        committed = []
        with self._consumer(group_id=group, on_commit=lambda error, _: committed.append(error)) as consumer, refusals():
            asked = [
                confluent.TopicPartition(topic, partition, offset, metadata)
                for partition, (offset, metadata) in offsets.items()
            ]
            consumer.commit(offsets=asked, asynchronous=asynchronous)
            deadline = time.monotonic() + PATIENCE_S
            while asynchronous and not committed:
                assert time.monotonic() < deadline, "no word of the commit"
                consumer.poll(0.01)
            if any(committed):
                _raise(committed[0])

    def committed(self, group, topic):
        """The offsets; the metadata is not looked at, since confluent-kafka reads past its end."""
        found = outcome(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {each.partition: (each.offset, None) for each in found.topic_partitions if each.topic == topic}

    def consume_in_group(self, group, topic, count):
        with self._consumer(group_id=group, auto_offset_reset="earliest", enable_auto_offset_store=False) as consumer:
            consumer.subscribe([topic])
            messages = []
            received = _take(consumer, count, messages)
            for message in messages:
                consumer.store_offsets(message)
            consumer.commit(asynchronous=False)
            return received

    def alter_group_offsets(self, group, topic, offsets):
        asked = [confluent.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        wanted = ConsumerGroupTopicPartitions(group, asked)
        altered = outcome(self._admin.alter_consumer_group_offsets([wanted]))
        for partition in altered.topic_partitions:
            if partition.error:
                _raise(partition.error)

    def groups(self):
        listed = self._admin.list_consumer_groups().result(PATIENCE_S)
        return {group.group_id: STATES[group.state] for group in listed.valid}

    def describe_group(self, group):
        described = outcome(self._admin.describe_consumer_groups([group]))
        members = {
            member.client_id: {(owned.topic, owned.partition) for owned in member.assignment.topic_partitions}
            for member in described.members
        }
        return GroupDescription(STATES[described.state], described.partition_assignor, members)

    def delete_group(self, group):
        outcome(self._admin.delete_consumer_groups([group]))


def _take(consumer, count, messages=None):
    received = []
    while len(received) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {len(received)} of {count} records came"
        if message.error():
            _raise(message.error())
        if messages is not None:
            messages.append(message)
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
