"""What is measured of journals on a log: appends, recovery by where the events are, replication, consumers."""

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.workloads import MeasurementError
from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST, Client
from exactlog.core.journal.read_plan import ReadPath
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal import NO_STREAM, Appended, Journal, Journals, JournalSettings, ReadBarrier
from exactlog.journal.closing import closing
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.store_url import journal_store

EVENT: Final = bytes(100)
BATCH_EVENTS: Final = (1, 10, 100)
ENTITIES: Final = 50
PARTITIONS: Final = 6
EVENTS_IN_APPEND: Final = 10
"""Of what is written to be read, or replicated."""
POLL_RECORDS_MAX: Final = 500
"""That of Kafka's consumer, unless it is told otherwise."""
PACE_S: Final = 0.02
LOOK_S: Final = 0.002
WAIT_S_MAX: Final = 120.0
QUIET: Final = "quiet"
"""A topic with nothing in it."""

AT_ONCE: Final = f"append 1 event, {ENTITIES} entities at once"
LAG: Final = f"from an append to the store, {1 / PACE_S:.0f} appends/s"

Note = Callable[[str, float], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    seconds: float = 2.5
    """Of appending, for each case."""
    events: int = 10_000
    """Of the journal that is recovered."""
    reads: int = 5
    """Of it, on each path."""
    replicated_events: int = 20_000
    lag_appends: int = 400
    consumers: int = 20


QUICK: Final = Sizes(seconds=0.3, events=200, reads=2, replicated_events=1_000, lag_appends=20, consumers=3)


@dataclass(frozen=True)
class Recovery:
    """One place where the events of a journal are."""

    name: str
    path: ReadPath


IN_STORE: Final = Recovery("all in the store", ReadPath.STORE)
IN_HEAD: Final = Recovery("all in the head", ReadPath.LOG)
HALF_AND_HALF: Final = Recovery("half and half", ReadPath.STORE_THEN_LOG)

COLD: Final = "cold head cache"
WARM: Final = "warm head cache"
OTHER_WAYS: Final = {
    "no head cache": JournalSettings(head_cache=False),
    "end offset in place of a mark, cold": JournalSettings(barrier=ReadBarrier.END_OFFSET),
}


def append_row(batch: int) -> str:
    """What the rows of a size of appends begin with."""
    return f"append {batch} event{'s' if batch > 1 else ''}, one entity after the other"


def recovery_row(recovery: Recovery, way: str) -> str:
    """What a row of recovery is called."""
    return f"recovery, {recovery.name}, {way}, P50, ms"


def note_times(note: Note, what: str, times: list[float]) -> None:
    """Of appends that came one after the other, in seconds: how many a second, P50 and P99."""
    note(f"{what}, appends/s", len(times) / sum(times))
    note_percentiles(note, what, times)


def note_percentiles(note: Note, what: str, times: list[float]) -> None:
    """P50 and P99 of times in seconds."""
    note(f"{what}, P50, ms", 1000 * statistics.median(times))
    note(f"{what}, P99, ms", 1000 * statistics.quantiles(times, n=100, method="inclusive")[-1])


async def measure_journals(url: str, folder: Path, note: Note, sizes: Sizes) -> None:
    """All cases on one log; stores are files of the folder."""
    async with connect(url) as client:
        for topic, partitions in {"appends": PARTITIONS, "one": 1, "many": PARTITIONS, "lag": 1, QUIET: 1}.items():
            _ = await client.create_topic(topic, partition_count=partitions, replication_factor=1)
        await measure_appends(url, note, sizes)
        await measure_recovery(url, client, folder, note, sizes)
        await measure_replication(url, client, folder, note, sizes)
        await measure_consumer(url, client, note, sizes)


# --- appending --------------------------------------------------------------------------------------------------------


class Entities:
    """The journals of a topic, each appended to on the expectation that its last event is the one it was."""

    def __init__(self, journals: Journals, topic: str) -> None:
        self._journals = journals
        self._topic = topic
        self._last: dict[int, int] = {}

    async def append(self, entity: int, count: int) -> Appended:
        """So many events; durable, and known to count, when this returns."""
        journal = self._journals[self._topic, f"entity-{entity}"]
        last = self._last.get(entity)
        told = await journal.append([EVENT] * count, NO_STREAM if last is None else last)
        self._last[entity] = told.seq_nr
        return told

    async def fill(self, *, events: int, of: int) -> None:
        """So many events in all, of so many entities at once, some in each append."""
        appends = iter(range(events // EVENTS_IN_APPEND))

        async def write(entity: int) -> None:
            for _ in appends:
                _ = await self.append(entity, EVENTS_IN_APPEND)

        _ = await asyncio.gather(*(write(entity) for entity in range(of)))


async def measure_appends(url: str, note: Note, sizes: Sizes) -> None:
    """One entity after the other, in batches, and many at once; nobody replicates."""
    async with Journals.open(url) as journals:
        entities = Entities(journals, "appends")
        appends = [partial(entities.append, entity, 1) for entity in range(ENTITIES)]
        await append_at_once(appends, seconds=sizes.seconds, times=[])  # a JVM gets faster as it goes
        for batch in BATCH_EVENTS:
            times: list[float] = []
            end = time.monotonic() + sizes.seconds
            for entity in itertools.cycle(range(ENTITIES)):
                began = time.monotonic()
                if began >= end:
                    break
                _ = await entities.append(entity, batch)
                times.append(time.monotonic() - began)
            note_times(note, append_row(batch), times)
        times = []
        began = time.monotonic()
        await append_at_once(appends, seconds=sizes.seconds, times=times)
        note(f"{AT_ONCE}, appends/s", len(times) / (time.monotonic() - began))
        note_percentiles(note, AT_ONCE, times)


async def append_at_once(
    appends: Sequence[Callable[[], Awaitable[Appended]]], *, seconds: float, times: list[float]
) -> None:
    """Each of them again and again, beside the others; how long each append took, in seconds, goes into `times`."""
    end = time.monotonic() + seconds

    async def go_on(append: Callable[[], Awaitable[Appended]]) -> None:
        while (began := time.monotonic()) < end:
            _ = await append()
            times.append(time.monotonic() - began)

    _ = await asyncio.gather(*map(go_on, appends))


# --- recovery ---------------------------------------------------------------------------------------------------------


async def measure_recovery(url: str, client: Client, folder: Path, note: Note, sizes: Sizes) -> None:
    """One journal, read while none of it, half of it, and all of it is in the store."""
    reads = Reads(url, note, sizes)
    store, empty = f"sqlite:///{folder}/one.sqlite", f"sqlite:///{folder}/empty.sqlite"
    async with Journals.open(url, settings=JournalSettings(head_cache=False)) as writing:
        entities = Entities(writing, "one")
        await entities.fill(events=sizes.events // 2, of=1)
        await replicate(url, client, store, "one")
        await entities.fill(events=sizes.events // 2, of=1)
    await reads.measure(empty, IN_HEAD)
    await reads.measure(store, HALF_AND_HALF)
    await replicate(url, client, store, "one")
    await reads.measure(store, IN_STORE)


class Reads:
    """Reads of one long journal."""

    def __init__(self, url: str, note: Note, sizes: Sizes) -> None:
        self._url = url
        self._note = note
        self._sizes = sizes

    async def measure(self, store: str, recovery: Recovery) -> None:
        """The first read of a program, its second, and first ones with other settings."""
        cold, warm = [], []
        for _ in range(self._sizes.reads):
            async with self._connected(store, JournalSettings()) as journals:
                cold.append(await self._seconds(journals, recovery))
                warm.append(await self._seconds(journals, recovery))
        self._note(recovery_row(recovery, COLD), 1000 * statistics.median(cold))
        self._note(recovery_row(recovery, WARM), 1000 * statistics.median(warm))
        for way, settings in OTHER_WAYS.items():
            times = []
            for _ in range(self._sizes.reads):
                async with self._connected(store, settings) as journals:
                    times.append(await self._seconds(journals, recovery))
            self._note(recovery_row(recovery, way), 1000 * statistics.median(times))

    @asynccontextmanager
    async def _connected(self, store: str, settings: JournalSettings) -> AsyncIterator[Journals]:
        """Journals whose connections are open, and who have seen nothing of the topic that is measured."""
        async with Journals.open(self._url, store=store, settings=settings) as journals:
            _ = await journals[QUIET, "nobody"].pointer()
            yield journals

    async def _seconds(self, journals: Journals, recovery: Recovery) -> float:
        """How long a read takes.

        Raises:
            MeasurementError: not every event was told, or they came from elsewhere.
        """
        taken = journals.metrics.reads[recovery.path]
        before = taken.value
        began = time.monotonic()
        found = await count_events(journals["one", "entity-0"])
        seconds = time.monotonic() - began
        if found != self._sizes.events or taken.value != before + 1:
            story = journals.metrics.snapshot()
            raise MeasurementError(f"{recovery.name}: {found} events in place of {self._sizes.events}: {story}")
        return seconds


async def count_events(journal: Journal) -> int:
    """How many there are, each decoded."""
    count = 0
    async for _ in journal.read():
        count += 1
    return count


# --- replicating ------------------------------------------------------------------------------------------------------


async def measure_replication(url: str, client: Client, folder: Path, note: Note, sizes: Sizes) -> None:
    """How fast a backlog is carried into SQLite, and how far the store is behind a steady writer."""
    async with Journals.open(url, settings=JournalSettings(head_cache=False)) as writing:
        await Entities(writing, "many").fill(events=sizes.replicated_events, of=ENTITIES)
    began = time.monotonic()
    await replicate(url, client, f"sqlite:///{folder}/many.sqlite", "many")
    note("replication into SQLite, events/s", sizes.replicated_events / (time.monotonic() - began))
    async with (
        journal_store(f"sqlite:///{folder}/lag.sqlite") as store,
        Journals.open(url, store=store, replicate=("lag",)) as journals,
    ):
        lags = await time_lag(Entities(journals, "lag"), client, store, sizes)
    note(f"{LAG}, P50, ms", 1000 * statistics.median(lags))
    note(f"{LAG}, P95, ms", 1000 * statistics.quantiles(lags, n=20, method="inclusive")[-1])


async def time_lag(entities: Entities, client: Client, store: JournalStore, sizes: Sizes) -> list[float]:
    """From the call of an append until a look at the store shows it, in seconds; one append after the other."""
    for entity in range(ENTITIES):
        _ = await entities.append(entity, 1)
    await until_replicated(client, store, "lag")
    waiting: dict[int, float] = {}
    lags: list[float] = []

    async def look() -> None:
        give_up_at = time.monotonic() + WAIT_S_MAX
        while len(lags) < sizes.lag_appends:
            pointer = await store.pointer(TopicPartition("lag", 0))
            now = time.monotonic()
            if now > give_up_at:
                raise MeasurementError(f"{len(lags)} of {sizes.lag_appends} appends were replicated")
            seen = [offset for offset in waiting if pointer is not None and offset <= pointer.offset]
            lags.extend(now - waiting.pop(offset) for offset in seen)
            await asyncio.sleep(LOOK_S)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        for number in range(sizes.lag_appends):
            began = time.monotonic()
            told = await entities.append(number % ENTITIES, 1)
            waiting[told.offset] = began
            await asyncio.sleep(max(0.0, began + PACE_S - time.monotonic()))
    return lags


async def replicate(url: str, client: Client, store: str, topic: str) -> None:
    """Carry all of a topic into a store: a replicator is started, and ended when that is done."""
    async with journal_store(store) as opened, Journals.open(url, store=opened, replicate=(topic,)):
        await until_replicated(client, opened, topic)


async def until_replicated(client: Client, store: JournalStore, topic: str) -> None:
    """Wait until a store has what a topic has now.

    Raises:
        MeasurementError: it does not come.
    """
    count = await client.partition_count(topic)
    ends = await client.list_offsets({TopicPartition(topic, partition): LATEST for partition in range(count)})
    last = {place.partition: listed.offset - 1 for place, listed in ends.items() if listed.offset}
    give_up_at = time.monotonic() + WAIT_S_MAX
    while True:
        pointers = await store.pointers(topic)
        if all(partition in pointers and pointers[partition].offset >= offset for partition, offset in last.items()):
            return
        if time.monotonic() > give_up_at:
            raise MeasurementError(f"{topic} is replicated to {pointers} in place of {last} after {WAIT_S_MAX:.0f} s")
        await asyncio.sleep(LOOK_S)


# --- consumers --------------------------------------------------------------------------------------------------------


async def measure_consumer(url: str, client: Client, note: Note, sizes: Sizes) -> None:
    """The three things that a read of the log is made of: a consumer, its seek, its polls."""
    place = TopicPartition("one", 0)
    end = int((await client.list_offsets({place: LATEST}))[place].offset or 0)
    count = min(POLL_RECORDS_MAX, end // 2)
    chance = random.Random(1)
    inits, seeks, polls = [], [], []
    for _ in range(sizes.consumers):
        began = time.monotonic()
        async with connect(url) as new:
            _ = await new.list_offsets({place: LATEST})
            inits.append(time.monotonic() - began)
        seeks.append(await time_records(client, place, chance.randrange(end), count=1))
        polls.append(await time_records(client, place, chance.randrange(end - count), count=count))
    note("consumer init: connected, the end offset known, P50, ms", 1000 * statistics.median(inits))
    note("consumer seek: to an offset, its record there, P50, ms", 1000 * statistics.median(seeks))
    note(f"consumer poll: up to {POLL_RECORDS_MAX} records there, P50, ms", 1000 * statistics.median(polls))


async def time_records(client: Client, place: TopicPartition, offset: int, *, count: int) -> float:
    """How long it takes to have so many records from an offset on, in seconds."""
    began = time.monotonic()
    ends = {place: Offset(offset + count)}
    async with closing(client.consume({place: Offset(offset)}, ends=ends)) as records:
        async for _ in records:
            pass
    return time.monotonic() - began
