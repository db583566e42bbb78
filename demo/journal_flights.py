"""4,043 aircraft as journals of their 334,264 flights: the same answers with and without a replicated store.

Run by `make demo-journal`. Ends with one line `DEMO OK {json}`, or with the reason and a non-zero exit.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from demo.exchange import create_topic
from demo.flight_table import Flight
from demo.flights import take_flights, temporary_folder
from demo.journal_spark import replicate_by_spark
from demo.served_broker import ServedBroker
from demo.spark_stage import why_without_spark
from demo.story import DemoFailedError, Story, tell_to_its_end
from exactlog.journal import NO_STREAM, Appended, Conflict, Journal, Journals, NotYetReplicated

TOPIC: Final = "aircraft"
PARTITIONS: Final = 6
AT_ONCE: Final = 32
"""So many journals are written, or read, side by side."""
SAMPLE: Final = 40
REPLICATION_SECONDS_MAX: Final = 300

Fleet = dict[str, list[str]]
"""The flights of each aircraft as JSON, in order."""


class Flown(msgspec.Struct, tag="flown", frozen=True):
    """An event: the aircraft has flown."""

    flight: str


class Aircraft(msgspec.Struct, tag="aircraft", frozen=True):
    """The state of an aircraft."""

    flights: int = 0
    miles: int = 0


def evolve(aircraft: Aircraft, event: object) -> Aircraft:
    """The state behind an event."""
    assert isinstance(event, Flown)
    return Aircraft(aircraft.flights + 1, aircraft.miles + json.loads(event.flight)["distance"])


def main() -> int:
    """Tell the story, and whether it ended well."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    return tell_to_its_end(run)


def run(story: Story) -> dict[str, Any]:
    """The demo; returns what it showed, in numbers.

    Raises:
        DemoFailedError: something is not as promised.
    """
    story.title("exactlog: aircraft as event-sourced journals on the log, with a replicated store.")
    flights = take_flights(story)
    with temporary_folder() as folder, ServedBroker(folder / "data", log=folder / "broker.log") as broker:
        create_topic(broker, TOPIC, partitions=PARTITIONS)
        return asyncio.run(Demo(story, broker, folder / "aircraft.sqlite", fleet_of(flights)).run())


def fleet_of(flights: Iterable[Flight]) -> Fleet:
    """The flights whose aircraft is known, by its tail number."""
    fleet: Fleet = defaultdict(list)
    for flight in flights:
        if flight.key is not None:
            fleet[flight.key.decode()].append(flight.value.decode())
    return dict(fleet)


class Demo:
    """The steps, one after the other, on one log and one store."""

    def __init__(self, story: Story, broker: ServedBroker, store: Path, fleet: Fleet) -> None:
        self._story = story
        self._address = broker.address
        self._log = f"kafka://{broker.address}"
        self._file = store
        self._store = f"sqlite:///{store}"
        self._fleet = fleet
        self._sample = sorted(fleet, key=lambda tail: (-len(fleet[tail]), tail))[:: max(1, len(fleet) // SAMPLE)]
        self._last: dict[str, Appended] = {}

    async def run(self) -> dict[str, Any]:
        """All of it; what it showed, in numbers.

        Raises:
            DemoFailedError: something is not as promised.
        """
        events = sum(map(len, self._fleet.values()))
        self._story.step(f"{len(self._fleet):,} aircraft are journals; each flight is an event of its aircraft")
        async with self._journals() as journals:
            seconds = await self._append_all(journals)
            appends = sum(min(2, len(flown)) for flown in self._fleet.values())
            self._story.tell(f"{events:,} events in {appends:,} appends, {seconds:.1f} s")
            await self._compete(journals)
            self._story.step("Replication is off: the store is empty, and every read comes from the log")
            from_log = await self._recover(journals)
        self._story.step("Replication is on: the log is carried into SQLite")
        async with self._journals(replicate=True) as journals:
            replicated = await self._wait_for_store(journals)
            from_store = await self._recover(journals)
        by_spark = await self._replicate_by_spark()
        self._story.step("Snapshots, deletes, a purge, an expiry, with replication off again")
        async with self._journals() as journals:
            before = await self._end_lives(journals)
        async with self._journals(replicate=True) as journals:
            self._story.tell("replication on once more: the same answers")
            after = await self._answers_after(journals, before)
            expired = await self._expire(journals)
        return {
            "journals": len(self._fleet),
            "events": events,
            "append_events_per_second": round(events / seconds),
            "replicated_events_per_second": round(events / replicated),
            "replicated_by_spark_events_per_second": None if by_spark is None else round(events / by_spark),
            "read_ms_from_log": round(from_log, 1),
            "read_ms_from_store": round(from_store, 1),
            "answers_compared": after,
            "expired": expired,
        }

    @asynccontextmanager
    async def _journals(self, *, replicate: bool = False) -> AsyncIterator[Journals]:
        prefixes = (TOPIC,) if replicate else ()
        async with Journals.open(
            self._log, store=self._store, events=[Flown, Aircraft], replicate=prefixes
        ) as journals:
            yield journals

    # --- writing ---------------------------------------------------------------------------------------------

    async def _append_all(self, journals: Journals) -> float:
        """Each aircraft in two appends, which expect what they should find; how long it took, in seconds."""
        began = time.monotonic()
        progress = self._story.progress("aircraft written", total=len(self._fleet))

        async def write(tail: str) -> None:
            events = [Flown(flight) for flight in self._fleet[tail]]
            half = len(events) // 2
            journal = journals[TOPIC, tail]
            told = await journal.append(events[: half or 1], NO_STREAM)
            if half:
                told = await journal.append(events[half:], told.seq_nr)
            self._last[tail] = told
            progress.reached(len(self._last))

        await _side_by_side(write, self._fleet)
        progress.done(len(self._last))
        return time.monotonic() - began

    async def _compete(self, journals: Journals) -> None:
        """Two writers that have seen the same last event."""
        tail = self._sample[0]
        seen = len(self._fleet[tail])
        endings = await asyncio.gather(
            *(journals[TOPIC, tail].append([Flown('{"distance":0}')], seen) for _ in range(2)), return_exceptions=True
        )
        won = [ending for ending in endings if isinstance(ending, Appended)]
        lost = [ending for ending in endings if isinstance(ending, Conflict)]
        if (len(won), len(lost)) != (1, 1):
            raise DemoFailedError(f"of two writers that expect event {seen} exactly one must win: {endings}")
        self._fleet[tail].append('{"distance":0}')
        self._last[tail] = won[0]
        self._story.tell(f"two writers expect {tail} at event {seen}: one has {won[0].seq_nr}, the other: {lost[0]}")

    # --- reading ---------------------------------------------------------------------------------------------

    async def _recover(self, journals: Journals) -> float:
        """Recover the sample, compare it with a plain computation; the mean time of a read, in ms."""
        began = time.monotonic()
        for tail in self._sample:
            found = await _events(journals[TOPIC, tail])
            if found != self._fleet[tail]:
                raise DemoFailedError(f"{tail} has {len(found)} flights in place of {len(self._fleet[tail])}")
        mean_ms = 1000 * (time.monotonic() - began) / len(self._sample)
        taken = {
            name.partition('path="')[2].rstrip('"}'): round(count)
            for name, count in journals.metrics.snapshot().items()
            if name.startswith("exactlog_journal_reads_total") and count
        }
        paths = ", ".join(f"{count} by {path}" for path, count in taken.items())
        self._story.tell(
            f"{len(self._sample)} aircraft recovered in {mean_ms:.1f} ms each ({paths}); every flight is there, once"
        )
        return mean_ms

    async def _wait_for_store(self, journals: Journals) -> float:
        """Until the store has every append that was answered; how long that took, in seconds."""
        began = time.monotonic()
        behind = set(self._last)
        progress = self._story.progress("aircraft replicated", total=len(behind))
        while behind:
            if time.monotonic() - began > REPLICATION_SECONDS_MAX:
                raise DemoFailedError(f"{len(behind)} aircraft are not replicated")
            for tail in sorted(behind):
                try:
                    async for _ in journals[TOPIC, tail].read_replicated(1, 1, at_least=self._last[tail]):
                        pass
                except NotYetReplicated:
                    await asyncio.sleep(0.2)
                    break
                behind.discard(tail)
                progress.reached(len(self._last) - len(behind))
        progress.done(len(self._last))
        return time.monotonic() - began

    async def _replicate_by_spark(self) -> float | None:
        """The log into a second store, by Spark; how long that took, in seconds. None where there is no Spark."""
        self._story.step("The same log by Spark, from its start into another file")
        missing = why_without_spark()
        if missing is not None:
            self._story.tell(f"not shown here: {missing}")
            return None
        return await asyncio.to_thread(
            replicate_by_spark,
            self._story,
            address=self._address,
            topic=TOPIC,
            embedded=self._file,
            folder=self._file.parent,
        )

    async def _end_lives(self, journals: Journals) -> dict[str, tuple[int | None, list[str]]]:
        """A snapshot and a delete, a purge and a new life, an expiry; what is told of each aircraft then."""
        kept, purged, expiring = self._sample[:3]
        journal = journals[TOPIC, kept]
        async with journal.for_writing(Aircraft, evolve) as aircraft:
            state = aircraft.state
        number = await journal.snapshot(state)
        await journal.delete(number)
        async with journal.for_writing(Aircraft, evolve) as aircraft:
            if aircraft.state != state or state.flights != len(self._fleet[kept]):
                raise DemoFailedError(f"{kept} is not what it was before its events were deleted")
        self._story.tell(f"{kept}: {state.flights} flights, {state.miles:,} miles; snapshot, events deleted, recovered")
        await journals[TOPIC, purged].purge()
        told = await journals[TOPIC, purged].append([Flown(self._fleet[purged][0])], NO_STREAM)
        self._story.tell(f"{purged}: purged, and begun anew with event {told.seq_nr}")
        told = await journals[TOPIC, expiring].append([Flown(self._fleet[expiring][0])], expire_after=timedelta(days=1))
        self._last[expiring] = told
        self._story.tell(f"{expiring}: its last append says that it expires after a day")
        return {tail: await _answer(journals[TOPIC, tail]) for tail in self._sample}

    async def _answers_after(self, journals: Journals, before: dict[str, tuple[int | None, list[str]]]) -> int:
        for _ in range(2):  # while it replicates, and when it has
            for tail, expected in before.items():
                if await _answer(journals[TOPIC, tail]) != expected:
                    raise DemoFailedError(f"{tail} is told otherwise once it is replicated")
            await self._wait_for_store(journals)
        return len(before)

    async def _expire(self, journals: Journals) -> int:
        """Two days later by the calendar that the purge is given."""
        later = datetime.now(UTC).date() + timedelta(days=2)
        count = await journals.purge_expired([TOPIC], today=later)
        expiring = self._sample[2]
        if count != 1 or await journals[TOPIC, expiring].pointer() is not None:
            raise DemoFailedError(f"{expiring} was to be purged, and nothing else: {count}")
        self._story.tell(f"purge-expired, as of {later}: {expiring} is gone, and nothing else")
        return count


async def _events(journal: Journal) -> list[str]:
    return [record.event.flight async for record in journal.read() if isinstance(record.event, Flown)]


async def _answer(journal: Journal) -> tuple[int | None, list[str]]:
    return await journal.pointer(), await _events(journal)


async def _side_by_side(work: Any, items: Iterable[str]) -> None:  # noqa: ANN401
    """A few at a time."""
    left = iter(items)

    async def go_on() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(go_on() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    sys.exit(main())
