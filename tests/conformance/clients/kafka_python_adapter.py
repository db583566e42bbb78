"""kafka-python."""

import contextlib
import re
import time
import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka
    import kafka.admin

from tests.conformance.clients.face import (
    BYTES_MAX,
    PATIENCE_S,
    TRANSACTION_TIMEOUT_MS,
    GroupDescription,
    Received,
    Refused,
    nothing,
)
from tests.support.transactional_clients import KafkaPythonTransactions


@contextlib.contextmanager
def refusals():
    """Turns the errors of kafka-python that stand for an answer of the broker into `Refused`."""
    try:
        yield
    except kafka.errors.BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from error


def check(answers):
    """Raises what an answer by element holds in the place of a result: the class of an error, its name, or its text."""
    for answer in answers.values():
        error = answer
        if isinstance(answer, str):
            numbered = re.match(r"\[Error (\d+)\]", answer)
            error = kafka.errors.for_code(int(numbered[1])) if numbered else getattr(kafka.errors, answer, None)
        if error not in {None, kafka.errors.NoError}:
            raise error


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap_servers):
        self._connection = {"bootstrap_servers": bootstrap_servers}

    # --- records ----------------------------------------------------------------------------------------------

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

    def consume(self, topic, start, count, *, partition=0, isolation="read_uncommitted"):
        with self._consumer(isolation_level=isolation) as consumer, refusals():
            assigned = kafka.TopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, start)
            return _take(consumer, count)

    def ends(self, topic, *, partition=0):
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            return consumer.beginning_offsets([asked])[asked], consumer.end_offsets([asked])[asked]

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        with self._consumer() as consumer:
            asked = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
            return None if found is None else found.offset

    def list_offset(self, topic, spec, *, partition=0):
        asked = kafka.TopicPartition(topic, partition)
        with self._admin() as admin:
            found = admin.list_partition_offsets({asked: kafka.admin.OffsetSpec[spec.upper()]})[asked]
            return found.offset, found.timestamp

    def _consumer(self, **more):
        settings = self._connection | {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "max_partition_fetch_bytes": BYTES_MAX,
        }
        return contextlib.closing(kafka.KafkaConsumer(**(settings | more)))

    # --- transactions -----------------------------------------------------------------------------------------

    def transactional(self, transactional_id, *, timeout_ms=TRANSACTION_TIMEOUT_MS):
        return KafkaPythonTransactions(self._connection["bootstrap_servers"], transactional_id, timeout_ms=timeout_ms)

    # --- topics -----------------------------------------------------------------------------------------------

    def create_topic(self, name, *, partitions=1, config=None):
        new = {name: {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}}
        with self._admin() as admin:
            admin.create_topics(new)

    def delete_topic(self, name):
        with self._admin() as admin:
            admin.delete_topics([name])

    def delete_records(self, topic, offset, *, partition=0):
        asked = kafka.TopicPartition(topic, partition)
        with self._admin() as admin:
            return admin.delete_records({asked: offset})[asked]["low_watermark"]

    def partition_counts(self):
        with self._admin() as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    def settings(self, topic):
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        with self._admin() as admin:
            (of_topics,) = admin.describe_configs([resource], config_filter="all").values()
        return {name: entry["value"] for name, entry in of_topics[topic].items()}

    def alter_settings(self, topic, settings):
        changes = {name: ("DELETE", None) if value is None else ("SET", value) for name, value in settings.items()}
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, changes)
        with self._admin() as admin:
            # A key that is not known is the broker's to refuse.
            (of_topics,) = admin.alter_configs([resource], raise_on_unknown=False).values()
            check(of_topics)

    def create_partitions(self, topic, count):
        with self._admin() as admin:
            admin.create_partitions({topic: count})

    def describe_cluster(self):
        with self._admin() as admin:
            cluster = admin.describe_cluster()
        return {
            "cluster_id": cluster["cluster_id"],
            "controller": cluster["controller_id"],
            "brokers": [f"{node['host']}:{node['port']}" for node in cluster["brokers"]],
        }

    def log_sizes(self, topic):
        with self._admin() as admin:
            return {
                partition["partition_index"]: partition["partition_size"]
                for broker in admin.describe_log_dirs([topic])
                for folder in broker["log_dirs"]
                for found in folder["topics"]
                for partition in found["partitions"]
            }

    def producers(self, topic, *, partition=0):
        asked = kafka.TopicPartition(topic, partition)
        with self._admin() as admin:
            states = admin.describe_producers([asked])[asked].active_producers
        return [(state.producer_id, state.producer_epoch, state.last_sequence) for state in states]

    @contextlib.contextmanager
    def _admin(self):
        with contextlib.closing(kafka.KafkaAdminClient(**self._connection)) as admin, refusals():
            yield admin

    # --- groups -----------------------------------------------------------------------------------------------

    def commit(self, group, topic, offsets, *, asynchronous=False):
        asked = {
            kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, metadata, -1)
            for partition, (offset, metadata) in offsets.items()
        }
        with self._consumer(group_id=group) as consumer, refusals():
            consumer.assign(list(asked))
            if not asynchronous:
                consumer.commit(asked)
                return
            outcomes = []
            consumer.commit_async(asked, callback=lambda _, outcome: outcomes.append(outcome))
            deadline = time.monotonic() + PATIENCE_S
            while not outcomes:
                assert time.monotonic() < deadline, "no word of the commit"
                consumer.poll(timeout_ms=10)
            if isinstance(outcomes[0], Exception):
                raise outcomes[0]

    def committed(self, group, topic):
        with self._admin() as admin:
            found = admin.list_group_offsets([group])[group]
        return {asked.partition: (at.offset, at.metadata) for asked, at in found.items() if asked.topic == topic}

    def consume_in_group(self, group, topic, count):
        with self._consumer(group_id=group, auto_offset_reset="earliest", max_poll_records=count) as consumer:
            consumer.subscribe([topic])
            consumer.topics()  # so that it knows the partitions before it joins: KNOWN_GAPS.md
            received = _take(consumer, count)
            consumer.commit()
            return received

    def alter_group_offsets(self, group, topic, offsets):
        asked = {
            kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        with self._admin() as admin:
            check(admin.alter_group_offsets(group, asked))

    def delete_group_offsets(self, group, topic, partitions):
        with self._admin() as admin:
            check(admin.delete_group_offsets(group, [kafka.TopicPartition(topic, index) for index in partitions]))

    def groups(self):
        with self._admin() as admin:
            return {group["group_id"]: group["group_state"] for group in admin.list_groups()}

    def describe_group(self, group):
        with self._admin() as admin:
            described = admin.describe_groups([group])[group]
        members = {}
        for member in described["members"]:
            assignment = member["member_assignment"] or {"assigned_partitions": []}
            members[member["client_id"]] = {
                (topic["topic"], index) for topic in assignment["assigned_partitions"] for index in topic["partitions"]
            }
        return GroupDescription(described["group_state"], described["protocol_data"], members)

    def delete_group(self, group):
        with self._admin() as admin:
            check(admin.delete_groups([group]))


def _take(consumer, count):
    received = []
    deadline = time.monotonic() + PATIENCE_S
    while len(received) < count:
        found = consumer.poll(timeout_ms=1_000)
        assert time.monotonic() < deadline, f"only {len(received)} of {count} records came"
        received += [
            Received(message.offset, message.value, message.key, tuple(message.headers), message.timestamp)
            for messages in found.values()
            for message in messages
        ]
    return received[:count]
