"""Copies a topic in transactions, with one of the Python clients: ``python -m ... CLIENT BOOTSTRAP COPYING``.

It says what of a transaction is with the broker, commits when it is given a line, and goes on until it is killed.
"""

import asyncio
import base64
import json
import sys
import warnings

import aiokafka
import confluent_kafka as confluent

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka
    from kafka.structs import OffsetAndMetadata

from tests.conformance.clients.face import PATIENCE_S, Copying
from tests.conformance.clients.member_events import say

HEARTBEAT_MS = 500
POLL_MS = 100


def say_open(values):
    """All of a transaction is with the broker; it is to be committed when this returns."""
    say("open", [base64.b64encode(value).decode() for value in values])
    sys.stdin.readline()


def copy_with_confluent(bootstrap_servers, wanted):
    common = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    producer = confluent.Producer(
        common | {"transactional.id": wanted.transactional_id, "transaction.timeout.ms": wanted.timeout_ms}
    )
    producer.init_transactions(PATIENCE_S)
    consumer = confluent.Consumer(
        common
        | {
            "group.id": wanted.group,
            "session.timeout.ms": wanted.session_timeout_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([wanted.source])
    while True:
        records = [each for each in consumer.consume(wanted.each, POLL_MS / 1_000) if not each.error()]
        if not records:
            continue
        producer.begin_transaction()
        for record in records:
            producer.produce(wanted.target, record.value(), record.key(), record.partition())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0
        say_open([record.value() for record in records])
        producer.commit_transaction(PATIENCE_S)
        say("committed", len(records))


def copy_with_kafka_python(bootstrap_servers, wanted):
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=wanted.transactional_id,
        transaction_timeout_ms=wanted.timeout_ms,
    )
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        wanted.source,
        bootstrap_servers=bootstrap_servers,
        group_id=wanted.group,
        session_timeout_ms=wanted.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=wanted.each,
    )
    consumer.topics()  # so that it knows the partitions before it joins: KNOWN_GAPS.md
    while True:
        found = consumer.poll(timeout_ms=POLL_MS)
        records = [record for records in found.values() for record in records]
        if not records:
            continue
        producer.begin_transaction()
        sent = [
            producer.send(wanted.target, record.value, key=record.key, partition=record.partition) for record in records
        ]
        offsets = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in found.items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        for future in sent:
            future.get(PATIENCE_S)
        say_open([record.value for record in records])
        producer.commit_transaction()
        say("committed", len(records))


async def copy_with_aiokafka(bootstrap_servers, wanted):
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        transactional_id=wanted.transactional_id,
        transaction_timeout_ms=wanted.timeout_ms,
    )
    await producer.start()
    consumer = aiokafka.AIOKafkaConsumer(
        wanted.source,
        bootstrap_servers=bootstrap_servers,
        group_id=wanted.group,
        session_timeout_ms=wanted.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=wanted.each)
        records = [record for records in found.values() for record in records]
        if not records:
            continue
        await producer.begin_transaction()
        sent = [
            await producer.send(wanted.target, record.value, key=record.key, partition=record.partition)
            for record in records
        ]
        offsets = {place: records[-1].offset + 1 for place, records in found.items()}
        await producer.send_offsets_to_transaction(offsets, wanted.group)
        for future in sent:
            await asyncio.wait_for(future, PATIENCE_S)
        await asyncio.to_thread(say_open, [record.value for record in records])
        await producer.commit_transaction()
        say("committed", len(records))


def main(name, bootstrap_servers, how):
    """Copy until killed."""
    wanted = Copying(**json.loads(how))
    match name:
        case "confluent-kafka":
            copy_with_confluent(bootstrap_servers, wanted)
        case "kafka-python":
            copy_with_kafka_python(bootstrap_servers, wanted)
        case "aiokafka":
            asyncio.run(copy_with_aiokafka(bootstrap_servers, wanted))


if __name__ == "__main__":
    main(*sys.argv[1:])
