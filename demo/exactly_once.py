"""Sums over the flights in transactions: the worker is killed three times, the broker once, and every sum is right."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition

from demo.delay_worker import delays_by_carrier
from demo.exchange import CLIENT_SECONDS_MAX, RECORDS_AT_ONCE, SILENT, TOPIC, create_topic
from demo.flight_table import Flight
from demo.group_reading import Committed, wait_until
from demo.served_broker import ServedBroker
from demo.story import DemoFailedError, Story
from demo.talking_program import TalkingProgram

GROUP: Final = "delay-statistics"
SUMS_TOPIC: Final = "carrier-delays"
SUMS_PARTITIONS: Final = 3
HOLDS_AT: Final = (5, 3, 7)
"""In which of its transactions each worker is killed, everything done but the commit."""

BROKER_KILLED_AFTER: Final = 0.6
"""Of all flights summed up."""

SILENCE_SECONDS_MAX: Final = 5
SHOWN_CARRIERS: Final = 3
Sums = dict[str, dict[str, int]]


class ExactlyOnce(NamedTuple):
    """What the stage showed."""

    flights: int
    transactions: int
    records_aborted: int
    worker_kills: int
    broker_away_seconds: float


class RunningWorker(TalkingProgram):
    """A worker, and what it has told.

    Attributes:
        committed: the flights of each of its transactions.
        held: the flights of the one that it does not commit; 0 until then.
    """

    def __init__(self, address: str, *, hold_at: int | None = None) -> None:
        self.committed: list[int] = []
        self.held = 0
        hold = [] if hold_at is None else ["--hold-at", str(hold_at)]
        super().__init__("demo.delay_worker", [address, TOPIC, SUMS_TOPIC, GROUP, *hold])

    def holds_or_has_ended(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.held > 0 or self.has_ended

    def on_told(self, told: dict[str, Any]) -> None:
        """It has committed a transaction, or holds one."""
        self.held = told.get("held", self.held)
        if "committed" in told:
            self.committed.append(told["committed"])


class Supervisor:
    """Keeps one worker at work: one that is silent for too long is killed, and another takes over.

    librdkafka may wait for ever in `send_offsets_to_transaction` once its coordinator was away (its issue 5511).
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._workers = [RunningWorker(address)]
        self._heard_at, self._heard = time.monotonic(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers[-1].stop()

    @property
    def restarts(self) -> int:
        """How often another one had to take over."""
        return len(self._workers) - 1

    @property
    def transactions(self) -> int:
        """How many all of them have told of."""
        return sum(len(worker.committed) for worker in self._workers)

    def look(self) -> None:
        """Do what is due."""
        if self.transactions != self._heard:
            self._heard_at, self._heard = time.monotonic(), self.transactions
        elif time.monotonic() - self._heard_at > SILENCE_SECONDS_MAX:
            self._workers[-1].kill()
            self._workers.append(RunningWorker(self._address))
            self._heard_at = time.monotonic()


def sum_up_exactly_once(story: Story, broker: ServedBroker, flights: Sequence[Flight]) -> ExactlyOnce:
    """All flights into sums, whatever is killed meanwhile.

    Raises:
        DemoFailedError: a sum is wrong, or the work does not get on.
    """
    create_topic(broker, SUMS_TOPIC, partitions=SUMS_PARTITIONS)
    committed = Committed(broker.address, GROUP)
    transactions = 0
    for hold_at in HOLDS_AT:
        worker = RunningWorker(broker.address, hold_at=hold_at)
        try:
            wait_until(worker.holds_or_has_ended, "a worker is in a transaction")
        finally:
            worker.kill()
        if not worker.held:
            raise DemoFailedError("a worker ended by itself")
        transactions += len(worker.committed)
        story.tell(
            f"kill -9 of the worker after {sum(worker.committed):,} flights, "
            f"with {worker.held:,} more and their sums in an open transaction"
        )
    with Supervisor(broker.address) as supervisor:
        away_seconds = _finish(story, broker, committed, supervisor, total=len(flights))
    transactions += supervisor.transactions
    sums, aborted = read_sums(broker)
    compare_sums(story, sums, delays_by_carrier(flight.value for flight in flights))
    story.tell(f"{transactions:,} transactions committed; {aborted:,} records of the killed ones were never seen")
    return ExactlyOnce(len(flights), transactions, aborted, len(HOLDS_AT), away_seconds)


def _finish(story: Story, broker: ServedBroker, committed: Committed, supervisor: Supervisor, *, total: int) -> float:
    """The last worker goes on to the end, through a crash of the broker; how long that was away."""
    progress = story.progress("summed up", total=total)
    wait_until(lambda: committed.count() >= BROKER_KILLED_AFTER * total, "the worker gets on")
    killed_at = time.monotonic()
    broker.kill()
    broker.start()
    away_seconds = time.monotonic() - killed_at
    story.tell(f"kill -9 of the broker after {committed.last:,} flights; back after {away_seconds:.2f} s")

    def look() -> None:
        progress.reached(committed.last)
        supervisor.look()

    wait_until(lambda: committed.count() == total, "the worker gets to the end", look)
    progress.done(total)
    if supervisor.restarts:
        story.tell("the worker hung in its client when its coordinator came back, and was started again")
    return away_seconds


def read_sums(broker: ServedBroker, topic: str = SUMS_TOPIC, *, partitions: int = SUMS_PARTITIONS) -> tuple[Sums, int]:
    """The sums by carrier, of committed transactions alone, and how many records others left behind.

    Raises:
        DemoFailedError: the broker is silent.
    """
    places = [TopicPartition(topic, index, 0) for index in range(partitions)]
    seen = _read(broker, places, "read_committed")
    everything = _read(broker, places, "read_uncommitted")
    sums: dict[str, Counter[str]] = {}
    for carrier, value in seen:
        sums.setdefault(carrier.decode(), Counter()).update(json.loads(value))
    return {carrier: dict(counted) for carrier, counted in sums.items()}, len(everything) - len(seen)


def _read(broker: ServedBroker, places: list[TopicPartition], isolation: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": f"{GROUP}-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | SILENT
    )
    consumer.assign(places)
    found: list[tuple[bytes, bytes]] = []
    ended: set[int | None] = set()
    try:
        while len(ended) < len(places):
            messages = consumer.consume(RECORDS_AT_ONCE, CLIENT_SECONDS_MAX)
            if not messages:
                raise DemoFailedError(f"nothing of {places[0].topic} comes any more")
            for message in messages:
                if message.error() is None:
                    found.append((message.key() or b"", message.value() or b""))
                else:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found


def compare_sums(story: Story, sums: Sums, expected: Sums) -> None:
    """Tell that they are the same.

    Raises:
        DemoFailedError: they are not.
    """
    if sums != expected:
        wrong = sorted(carrier for carrier in sums | expected if sums.get(carrier) != expected.get(carrier))
        raise DemoFailedError(f"the sums of {', '.join(wrong)} are wrong: {sums} in place of {expected}")
    largest = sorted(expected, key=lambda carrier: -expected[carrier]["flights"])[:SHOWN_CARRIERS]
    shown = "; ".join(
        f"{carrier} {expected[carrier]['flights']:,} flights, "
        f"{expected[carrier]['minutes'] / max(1, expected[carrier]['arrived']):.1f} minutes late"
        for carrier in largest
    )
    story.tell(f"the sums of all {len(expected)} carriers are those of a plain computation: {shown}")
