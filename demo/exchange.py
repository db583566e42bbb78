"""What the demo does to the broker, as any Kafka client would: send the flights through a crash, read them back."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.flight_table import Flight
from demo.served_broker import ServedBroker
from demo.story import DemoFailedError, Story

TOPIC = "flights"
PARTITIONS = 6
CLIENT_SECONDS_MAX = 30  # for one request, and for silence
RECORDS_BETWEEN_POLLS = 500
RECORDS_AT_ONCE = 10_000

# A connection that breaks is the point here, no news; delivery reports tell what matters.
SILENT: Final[dict[str, Any]] = {"log_level": 0, "error_cb": lambda _error: None}


def create_topic(broker: ServedBroker, name: str = TOPIC, *, partitions: int = PARTITIONS) -> None:
    """Make a topic of the demo."""
    admin = AdminClient({"bootstrap.servers": broker.address} | SILENT)
    # The flights are of 2013: by the default of a week they would be too old to keep.
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1"})
    created = admin.create_topics([topic])
    created[name].result(CLIENT_SECONDS_MAX)


class Crash(NamedTuple):
    """What the producer had at stake when the broker was killed, and how long it was away."""

    acknowledged: int
    in_flight: int
    away_seconds: float


class Sender:
    """One idempotent producer that lives through a crash of its broker."""

    def __init__(self, broker: ServedBroker, *, story: Story, total: int) -> None:
        self._broker = broker
        self._progress = story.progress("acknowledged", total=total)
        self._acknowledged = 0
        self._first_error: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": broker.address,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # as Kafka's own client: by key, at random without one
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 500,
            }
            | SILENT
        )

    def send(self, flights: Sequence[Flight]) -> None:
        """Hand flights to the producer; it sends them in the background.

        Raises:
            DemoFailedError: an earlier one was given up.
        """
        for count, flight in enumerate(flights):
            while not self._try_send(flight):
                self._listen(0.05)  # its queue is full: wait for answers
            if count % RECORDS_BETWEEN_POLLS == 0:
                self._listen(0)

    def crash_broker(self) -> Crash:
        """Kill the broker while records are on their way to it, and start it again. The producer is told nothing."""
        while self._acknowledged == 0:
            self._listen(0.05)
        crash_at, acknowledged, in_flight = time.monotonic(), self._acknowledged, len(self._producer)
        self._broker.kill()
        self._broker.start()
        return Crash(acknowledged, in_flight, time.monotonic() - crash_at)

    def finish(self) -> None:
        """Wait until every record is acknowledged.

        Raises:
            DemoFailedError: one was given up, or the broker is silent.
        """
        heard_at, heard = time.monotonic(), -1
        while len(self._producer) > 0:
            self._listen(0.1)
            if self._acknowledged != heard:
                heard_at, heard = time.monotonic(), self._acknowledged
            elif time.monotonic() - heard_at > CLIENT_SECONDS_MAX:
                raise DemoFailedError(f"{len(self._producer):,} records are not acknowledged and the broker is silent")
        self._progress.done(self._acknowledged)

    def _try_send(self, flight: Flight) -> bool:
        try:
            self._producer.produce(TOPIC, key=flight.key, value=flight.value, on_delivery=self._on_delivery)
        except BufferError:
            return False
        return True

    def _listen(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._progress.reached(self._acknowledged)
        if self._first_error is not None:
            raise DemoFailedError(f"the producer gave a record up: {self._first_error}")

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._first_error is None:
            self._first_error = error


def read_back(broker: ServedBroker, *, story: Story) -> list[list[Flight]]:
    """Every record of every partition, in offset order, up to the ends of this moment. Nothing is de-duplicated.

    Raises:
        DemoFailedError: the broker is silent before the ends, or offsets have a gap.
    """
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "demo", "enable.auto.commit": False} | SILENT)
    try:
        parts = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(part, timeout=CLIENT_SECONDS_MAX)[1] for part in parts]
        consumer.assign(parts)
        return _read_to(ends, consumer=consumer, story=story)
    finally:
        consumer.close()


def _read_to(ends: Sequence[int], *, consumer: Consumer, story: Story) -> list[list[Flight]]:
    total = sum(ends)
    progress = story.progress("read back", total=total)
    partitions: list[list[Flight]] = [[] for _ in ends]
    count = 0
    while count < total:
        messages = consumer.consume(min(RECORDS_AT_ONCE, total - count), timeout=CLIENT_SECONDS_MAX)
        if not messages:
            raise DemoFailedError(f"the broker is silent after {count:,} of {total:,} records")
        for message in messages:
            _take(message, partitions)
        count += len(messages)
        progress.reached(count)
    progress.done(count)
    return partitions


def _take(message: Message, partitions: list[list[Flight]]) -> None:
    if message.error() is not None:
        raise DemoFailedError(f"reading failed: {message.error()}")
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and value is not None  # noqa: PT018  a record has them all
    if offset != len(partitions[partition]):
        raise DemoFailedError(f"{TOPIC}-{partition} jumps from offset {len(partitions[partition]) - 1} to {offset}")
    partitions[partition].append(Flight(message.key(), value))
