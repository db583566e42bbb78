"""librdkafka, as most Python programs use it, against a broker: one JSON line a run.

    librdkafka_load.py produce BROKER TOPIC RECORDS VALUE_BYTES BATCH_BYTES
    librdkafka_load.py consume BROKER TOPIC RECORDS VALUE_BYTES [read_committed|read_uncommitted]

Produces idempotently with acks=all. The value is random, so that nothing gains by compressing it.
"""

import json
import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition, libversion
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

REQUEST_SECONDS = 20
FLUSH_SECONDS = 60
SILENCE_SECONDS = 5
RECORDS_BETWEEN_POLLS = 1024
RECORDS_AT_ONCE = 10_000


def produce(broker: str, topic: str, *, records: int, value: bytes, batch_bytes: int) -> dict[str, Any]:
    """Send records as fast as the client can. No callback for each of them: it would measure Python."""
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(REQUEST_SECONDS)
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": batch_bytes,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1024 * 1024,
        }
    )
    producer.list_topics(topic, timeout=REQUEST_SECONDS)
    failed = []
    began = time.perf_counter()
    for number in range(1, records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % RECORDS_BETWEEN_POLLS == 0:
            producer.poll(0)
    producer.produce(topic, value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    unsent = producer.flush(FLUSH_SECONDS)
    return outcome(records, len(value), time.perf_counter() - began, errors=len(failed) + unsent)


def consume(broker: str, topic: str, *, records: int, value_bytes: int, isolation: str) -> dict[str, Any]:
    """Read a partition from its beginning, in large bites."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "queued.min.messages": 500_000,
            "fetch.message.max.bytes": 4 * 1024 * 1024,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = 0
    began = last = time.perf_counter()
    while received < records and time.perf_counter() - last < SILENCE_SECONDS:
        messages = consumer.consume(RECORDS_AT_ONCE, 0.2)
        if messages:
            received += len(messages)
            last = time.perf_counter()
    consumer.close()
    return outcome(received, value_bytes, last - began, errors=records - received)


def outcome(records: int, value_bytes: int, seconds: float, *, errors: int) -> dict[str, Any]:
    """What a run came to, under the names the other load generator uses."""
    return {
        "client": f"librdkafka {libversion()[0]}",
        "records": records,
        "elapsed_s": round(seconds, 3),
        "records_per_s": round(records / seconds) if seconds else 0,
        "mb_per_s": round(records * value_bytes / 1e6 / seconds, 2) if seconds else 0,
        "errors": errors,
    }


def main(arguments: list[str]) -> None:
    """Run one of the two and print its line."""
    verb, broker, topic, records, value_bytes, last = arguments
    if verb == "produce":
        value = os.urandom(int(value_bytes))
        result = produce(broker, topic, records=int(records), value=value, batch_bytes=int(last))
    else:
        result = consume(broker, topic, records=int(records), value_bytes=int(value_bytes), isolation=last)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
