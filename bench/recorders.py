"""Recorders of the library `eventsourcing`, measured as journals are: it must be installed."""

import asyncio
import itertools
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID, uuid5

from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, StoredEvent, TrackingRecorder
from eventsourcing.utils import Environment

from bench import journal_cases as bench
from bench.workloads import MeasurementError
from exactlog.client.adapters import connect
from exactlog.journal.stores.store_url import journal_store

APPLICATION: Final = "bench"
NAMESPACE: Final = UUID(int=1)


class Aggregates:
    """Aggregates of one application, each with its versions."""

    def __init__(self, recorder: ApplicationRecorder) -> None:
        self._recorder = recorder
        self._last: dict[int, int] = {}

    def insert(self, aggregate: int, count: int) -> None:
        """So many events; durable when this returns."""
        first = self._last.get(aggregate, -1) + 1
        events = [
            StoredEvent(uuid5(NAMESPACE, str(aggregate)), version, "event", bench.EVENT)
            for version in range(first, first + count)
        ]
        self._recorder.insert_events(events)
        self._last[aggregate] = first + count - 1

    def count(self, aggregate: int) -> int:
        """How many events there are, all of them read."""
        return len(self._recorder.select_events(uuid5(NAMESPACE, str(aggregate))))


def measure_recorder(env: dict[str, str], note: bench.Note, sizes: bench.Sizes) -> None:
    """All cases on the persistence module that an environment names."""
    factory = InfrastructureFactory[TrackingRecorder].construct(Environment(name=APPLICATION, env=env))
    try:
        aggregates = Aggregates(factory.application_recorder())
        measure_inserts(aggregates, note, sizes)
        measure_recovery(aggregates, env, note, sizes)
    finally:
        factory.close()


def measure_inserts(aggregates: Aggregates, note: bench.Note, sizes: bench.Sizes) -> None:
    """One aggregate after the other, in batches, and many at once, each in a thread of its own."""
    for aggregate in range(bench.ENTITIES):
        aggregates.insert(aggregate, 1)
    for batch in bench.BATCH_EVENTS:
        times = []
        end = time.monotonic() + sizes.seconds
        for aggregate in itertools.cycle(range(bench.ENTITIES)):
            began = time.monotonic()
            if began >= end:
                break
            aggregates.insert(aggregate, batch)
            times.append(time.monotonic() - began)
        bench.note_times(note, bench.append_row(batch), times)
    times = []

    def insert_until(aggregate: int, end: float) -> None:
        while (began := time.monotonic()) < end:
            aggregates.insert(aggregate, 1)
            times.append(time.monotonic() - began)

    began = time.monotonic()
    with ThreadPoolExecutor(bench.ENTITIES) as threads:
        for inserting in [threads.submit(insert_until, each, began + sizes.seconds) for each in range(bench.ENTITIES)]:
            inserting.result()
    note(f"{bench.AT_ONCE}, appends/s", len(times) / (time.monotonic() - began))
    bench.note_percentiles(note, bench.AT_ONCE, times)


def measure_recovery(aggregates: Aggregates, env: dict[str, str], note: bench.Note, sizes: bench.Sizes) -> None:
    """One aggregate, read by its recorder once all of it is in the database.

    Raises:
        MeasurementError: not every event was told.
    """
    recovered = bench.ENTITIES  # a new one
    for _ in range(sizes.events // bench.EVENTS_IN_APPEND):
        aggregates.insert(recovered, bench.EVENTS_IN_APPEND)
    if "EXACTLOG_URL" in env:
        asyncio.run(until_replicated(env))
    times = []
    for _ in range(sizes.reads):
        began = time.monotonic()
        found = aggregates.count(recovered)
        times.append(time.monotonic() - began)
        if found != sizes.events:
            raise MeasurementError(f"{found} events in place of {sizes.events}")
    note(bench.recovery_row(bench.IN_STORE, bench.WARM), 1000 * statistics.median(times))


async def until_replicated(env: dict[str, str]) -> None:
    """Wait until the store of a recorder has what is in its log now."""
    async with connect(env["EXACTLOG_URL"]) as client, journal_store(env["EXACTLOG_STORE_URL"]) as store:
        await bench.until_replicated(client, store, APPLICATION)
