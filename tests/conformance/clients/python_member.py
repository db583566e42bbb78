"""A member of a group, with one of the Python clients: ``python -m ... CLIENT BOOTSTRAP MEMBERSHIP``.

It commits each batch of records after it told them, and leaves when its input ends.
"""

import asyncio
import faulthandler
import logging
import sys
import warnings

import aiokafka
import confluent_kafka as confluent
from aiokafka.coordinator.assignors import range as aiokafka_range
from aiokafka.coordinator.assignors import roundrobin as aiokafka_roundrobin

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka
    from kafka.coordinator.assignors import cooperative_sticky, range, roundrobin  # noqa: A004  kafka-python's names

from tests.conformance.clients.member_events import Wanted, membership, say, say_records

HEARTBEAT_MS = 500
POLL_MS = 100
STANDS_STILL_S = 50  # in one poll; then a member tells where it is, for whoever reads why a test has failed


def be_confluent(bootstrap_servers, wanted):
    def tell(what):
        return lambda _, partitions: say(what, [[partition.topic, partition.partition] for partition in partitions])

    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": wanted.group,
        "client.id": wanted.client_id,
        "partition.assignment.strategy": wanted.assignor,
        "session.timeout.ms": wanted.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": POLL_MS,
        "log_level": 0,
    }
    if wanted.instance_id is not None:
        settings["group.instance.id"] = wanted.instance_id
    consumer = confluent.Consumer(settings)
    consumer.subscribe(wanted.topics, on_assign=tell("assigned"), on_revoke=tell("revoked"), on_lost=tell("lost"))
    is_wanted = Wanted()
    while is_wanted:
        messages = [message for message in consumer.consume(100, POLL_MS / 1_000) if not message.error()]
        if messages:
            say_records([(each.topic(), each.partition(), each.offset(), each.value()) for each in messages])
            consumer.commit(asynchronous=False)
            say("committed", len(messages))
    consumer.close()


class Telling(kafka.ConsumerRebalanceListener):
    """Tells what a kafka-python consumer is given and loses."""

    def on_partitions_assigned(self, assigned):
        say("assigned", [list(partition) for partition in assigned])

    def on_partitions_revoked(self, revoked):
        say("revoked", [list(partition) for partition in revoked])

    def on_partitions_lost(self, lost):
        say("lost", [list(partition) for partition in lost])


def be_kafka_python(bootstrap_servers, wanted):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")  # shown where a test fails
    assignors = {
        "range": range.RangePartitionAssignor,
        "roundrobin": roundrobin.RoundRobinPartitionAssignor,
        "cooperative-sticky": cooperative_sticky.CooperativeStickyAssignor,
    }
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=wanted.group,
        client_id=wanted.client_id,
        group_instance_id=wanted.instance_id,
        partition_assignment_strategy=[assignors[wanted.assignor]],
        session_timeout_ms=wanted.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe(wanted.topics, listener=Telling())
    # A leader that learns of partitions after it has joined may fall silent for good (KNOWN_GAPS.md). What was known
    # before it subscribed does not count: its coordinator looks at answers that come later only.
    consumer.topics()
    is_wanted = Wanted()
    while is_wanted:
        faulthandler.dump_traceback_later(STANDS_STILL_S)  # anew, since the last poll has returned
        found = consumer.poll(timeout_ms=POLL_MS)
        messages = [message for messages in found.values() for message in messages]
        if messages:
            say_records([(each.topic, each.partition, each.offset, each.value) for each in messages])
            consumer.commit()
            say("committed", len(messages))
    consumer.close()


class AsyncTelling(aiokafka.ConsumerRebalanceListener):
    """Tells what an aiokafka consumer is given and loses."""

    async def on_partitions_assigned(self, assigned):
        say("assigned", [list(partition) for partition in assigned])

    async def on_partitions_revoked(self, revoked):
        say("revoked", [list(partition) for partition in revoked])


async def be_aiokafka(bootstrap_servers, wanted):
    assignors = {
        "range": aiokafka_range.RangePartitionAssignor,
        "roundrobin": aiokafka_roundrobin.RoundRobinPartitionAssignor,
    }
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=wanted.group,
        client_id=wanted.client_id,
        group_instance_id=wanted.instance_id,
        partition_assignment_strategy=[assignors[wanted.assignor]],
        session_timeout_ms=wanted.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe(wanted.topics, listener=AsyncTelling())
    await consumer.start()
    is_wanted = Wanted()
    while is_wanted:
        found = await consumer.getmany(timeout_ms=POLL_MS)
        messages = [message for messages in found.values() for message in messages]
        if messages:
            say_records([(each.topic, each.partition, each.offset, each.value) for each in messages])
            await consumer.commit()
            say("committed", len(messages))
    await consumer.stop()


def main(name, bootstrap_servers, *arguments):
    """Be a member until the input ends."""
    wanted = membership(arguments)
    match name:
        case "confluent-kafka":
            be_confluent(bootstrap_servers, wanted)
        case "kafka-python":
            be_kafka_python(bootstrap_servers, wanted)
        case "aiokafka":
            asyncio.run(be_aiokafka(bootstrap_servers, wanted))
    say("closed", told=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
