"""What is measured of jobs of journals, on Spark and in one process: commands of exactlog, watched from outside.

A job counts from the start of its process, and from when it is up: Spark runs, or the replicator says that it begins.
What is replicated is seen by the pointers of the store, which move when all before them is there.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.journal_cases import EVENTS_IN_APPEND, Note
from bench.journal_jobs import WAIT_S_MAX, Job
from bench.journal_load import Appended, Load, read_times
from bench.spark_progress import micro_batches, settings_of_progress
from bench.workloads import MeasurementError
from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.store_url import journal_store
from tests.peers import PROJECT

PARTITIONS: Final = 4
BACKLOG: Final = "backlog"
LOOK_S: Final = 0.01
"""Between two looks at the pointers: a lag is told that much too long at most."""
WARM_UP_SHARE: Final = 10
SPARK_IS_UP: Final = " runs on "
FROM_ITS_START: Final = "from its start"
FROM_WHEN_IT_IS_UP: Final = "from when it is up"


class Engine(StrEnum):
    """Where a job runs: in one process of Python, or on Spark with a local master."""

    EMBEDDED = "one process"
    SPARK = "Spark"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    events: int = 200_000
    journals: int = 4_000
    """Half of them have expired."""
    rate: int = 1_000
    """Appends of one event, a second."""
    seconds: int = 60
    """Of the steady load."""
    warm_seconds: int = 10
    """Of the same load before that: when it is replicated, the measurement begins."""


QUICK: Final = Sizes(events=2_000, journals=40, rate=100, seconds=5, warm_seconds=3)


class Look(NamedTuple):
    """What the pointers of a topic were at a time, as offsets by partition."""

    at_s: float
    pointers: Mapping[int, int]


def lags_of(appended: Sequence[Appended], looks: Sequence[Look]) -> list[float]:
    """How long after each append a look first found it in the store, in seconds.

    Raises:
        MeasurementError: no look found one of them.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    reached: defaultdict[int, list[int]] = defaultdict(list)
    for look in looks:
        for partition, offset in look.pointers.items():
            times[partition].append(look.at_s)
            reached[partition].append(offset)
    lags = []
    for append in appended:
        index = bisect_left(reached[append.partition], append.offset)
        if index == len(reached[append.partition]):
            raise MeasurementError(f"offset {append.offset} of partition {append.partition} was never in the store")
        lags.append(times[append.partition][index] - append.at_s)
    return lags


class Measuring:
    """Everything, with the stores of one kind and one broker.

    Args:
        address: of the broker.
        folder: for what jobs keep; the broker's directory is `data` in it.
        stores: the URL of a store by its name.
        notes: told of numbers, for each engine.
        sizes: how much is measured.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        stores: Callable[[str], str],
        notes: Mapping[Engine, Note],
        sizes: Sizes,
    ) -> None:
        self._address = address
        self._folder = folder
        self._stores = stores
        self._notes = notes
        self._sizes = sizes

    async def run(self, engines: Sequence[Engine]) -> None:
        """All cases; of each the engines in this order."""
        await self._warm_up()
        await self._write_backlog()
        for engine in engines:
            await self._measure_backlog(engine)
        self._measure_verify_store()
        for engine in engines:
            self._measure_purge(engine)
        for engine in engines:
            await self._measure_lag(engine)
        for engine in engines:
            self._measure_verify_log(engine)

    # --- a backlog ----------------------------------------------------------------------------------------------------

    async def _warm_up(self) -> None:
        """The node of a store is a JVM, which gets faster as it goes."""
        appends = self._sizes.events // EVENTS_IN_APPEND // WARM_UP_SHARE
        await self._create("warm")
        self._write(self._load("warm", appends=appends, events=EVENTS_IN_APPEND))
        async with journal_store(self._stores("warm")) as store:
            with Job(*self._replicate(Engine.EMBEDDED, "warm", store="warm")) as job:
                await self._until_replicated(store, "warm", job)
                job.stop()

    async def _write_backlog(self) -> None:
        await self._create(BACKLOG)
        appends = self._sizes.events // EVENTS_IN_APPEND
        self._write(self._load(BACKLOG, appends=appends, events=EVENTS_IN_APPEND, expire_every=2))

    async def _measure_backlog(self, engine: Engine) -> None:
        """How fast a backlog is carried into a store that is there and empty, and what that takes of memory."""
        what = f"replicate {self._sizes.events:,} events of {self._sizes.journals:,} journals"
        async with journal_store(self._stores(_store_of(engine))) as store:
            with Job(*self._replicate(engine, BACKLOG, store=_store_of(engine))) as job:
                done_s = await self._until_replicated(store, BACKLOG, job)
                up_s = job.wait_until_said("replicating into" if engine is Engine.EMBEDDED else SPARK_IS_UP)
                if engine is Engine.EMBEDDED:
                    job.stop()
                else:
                    _ = job.wait()
        self._note_rates(
            engine, what, "events/s", count=self._sizes.events, began_s=job.began_s, up_s=up_s, at_s=done_s
        )
        if engine is Engine.SPARK:
            seconds = sum(batch.seconds for batch in micro_batches(self._progress_folder(BACKLOG)))
            self._notes[engine](f"{what}, in its micro-batches, events/s", self._sizes.events / seconds)
        self._notes[engine](f"{what}, resident at most, MB", job.peak.all_mb)
        if engine is Engine.SPARK:
            self._notes[engine](f"{what}, resident at most, of that the JVM, MB", job.peak.jvm_mb)

    # --- a steady load ------------------------------------------------------------------------------------------------

    async def _measure_lag(self, engine: Engine) -> None:
        """How long after an append it is in the store, while others come at a steady rate, as some have before."""
        sizes, topic = self._sizes, f"steady-{engine.name.lower()}"
        what = f"from an append to the store, {sizes.rate:,} appends/s"
        times = self._folder / f"{topic}.json"
        before, rate = sizes.rate * sizes.warm_seconds, float(sizes.rate)
        await self._create(topic)
        looks: list[Look] = []
        async with journal_store(self._stores(_store_of(engine))) as store:
            with Job(*self._replicate(engine, topic, store=_store_of(engine), follow=True)) as job:
                await asyncio.to_thread(self._write, self._load(topic, appends=before, rate=rate))
                _ = await self._until_replicated(store, topic, job)
                looking = asyncio.create_task(self._look(store, topic, looks, job))
                load = self._load(topic, appends=sizes.rate * sizes.seconds, before=before, rate=rate, times=str(times))
                await asyncio.to_thread(self._write, load)
                _ = await self._until_replicated(store, topic, job)
                looking.cancel()
                _ = await asyncio.gather(looking, return_exceptions=True)
                looks.append(await _look(store, topic))
                job.stop()
        lags = lags_of(read_times(times), looks)
        self._notes[engine](f"{what}, P50, ms", 1000 * statistics.median(lags))
        self._notes[engine](f"{what}, P95, ms", 1000 * statistics.quantiles(lags, n=20, method="inclusive")[-1])
        if engine is Engine.SPARK:
            seconds = [batch.seconds for batch in micro_batches(self._progress_folder(topic))]
            self._notes[engine](f"{what}, a micro-batch, P50, ms", 1000 * statistics.median(seconds))
        self._notes[engine](f"{what}, resident at most, MB", job.peak.all_mb)

    async def _look(self, store: JournalStore, topic: str, looks: list[Look], job: Job) -> None:
        """Note the pointers whenever they have moved, until cancelled."""
        while True:
            look = await _look(store, topic)
            if not looks or look.pointers != looks[-1].pointers:
                looks.append(look)
            job.require_running()
            await asyncio.sleep(LOOK_S)

    # --- verifying and purging ----------------------------------------------------------------------------------------

    def _measure_verify_store(self) -> None:
        """What the job on Spark has replicated, held against the log. Nothing in one process does that.

        Raises:
            MeasurementError: it is not what the log makes.
        """
        store = self._stores(_store_of(Engine.SPARK))
        report = self._measure_job(
            Engine.SPARK,
            "verify a store with its log",
            "events/s",
            ("pipeline", "verify", "--store", store, "--topic", BACKLOG),
            count=lambda report: int(report["events"]),
        )
        if (report["events"], report["damage"]) != (self._sizes.events, 0):
            raise MeasurementError(f"the store is not as it should be: {str(report)[:1_000]}")

    def _measure_purge(self, engine: Engine) -> None:
        """Asking for the purge of half of the journals."""
        store = self._stores(_store_of(engine))
        where = "journal" if engine is Engine.EMBEDDED else "pipeline"
        command = (where, "purge-expired", "--store", store, "--topic", BACKLOG)
        report = self._measure_job(
            engine, "purge-expired", "journals/s", command, count=lambda report: int(report["purges"])
        )
        if report["purges"] != self._sizes.journals // 2:
            raise MeasurementError(f"not half of {self._sizes.journals} journals were purged: {str(report)[:1_000]}")

    def _measure_verify_log(self, engine: Engine) -> None:
        """All that was written here, each record decoded."""
        data = str(self._folder / "data")
        command = ("log", "verify", data) if engine is Engine.EMBEDDED else ("pipeline", "verify", "--path", data)
        _ = self._measure_job(engine, "verify a log, each record", "records/s", (*command, "--deep"), count=_records_of)

    def _measure_job(
        self, engine: Engine, what: str, unit: str, command: Sequence[str], *, count: Callable[[Any], int]
    ) -> Any:
        """A job that ends by itself; its report."""
        with Job("-b", self._address, "-o", "json", *command) as job:
            at_s, printed = job.wait()
            up_s = job.wait_until_said(SPARK_IS_UP) if engine is Engine.SPARK else None
        report = msgspec.json.decode(printed)
        self._note_rates(engine, what, unit, count=count(report), began_s=job.began_s, up_s=up_s, at_s=at_s)
        return report

    # ------------------------------------------------------------------------------------------------------------------

    def _note_rates(
        self, engine: Engine, what: str, unit: str, *, count: int, began_s: float, up_s: float | None, at_s: float
    ) -> None:
        self._notes[engine](f"{what}, {FROM_ITS_START}, {unit}", count / (at_s - began_s))
        if up_s is not None:
            self._notes[engine](f"{what}, {FROM_WHEN_IT_IS_UP}, {unit}", count / (at_s - up_s))

    def _load(
        self,
        topic: str,
        *,
        appends: int,
        before: int = 0,
        events: int = 1,
        rate: float | None = None,
        expire_every: int = 0,
        times: str | None = None,
    ) -> Load:
        return Load(
            bootstrap=self._address,
            topic=topic,
            partitions=PARTITIONS,
            journals=self._sizes.journals,
            appends=appends,
            before=before,
            events=events,
            rate=rate,
            expire_every=expire_every,
            times=times,
        )

    def _write(self, load: Load) -> None:
        """In a process of its own, to its end."""
        command = [sys.executable, "-m", "bench.journal_load", msgspec.json.encode(load).decode()]
        subprocess.run(command, check=True, cwd=PROJECT)

    async def _create(self, topic: str) -> None:
        async with connect(f"kafka://{self._address}") as client:
            _ = await client.create_topic(topic, partition_count=PARTITIONS, replication_factor=1)

    def _replicate(self, engine: Engine, topic: str, *, store: str, follow: bool = False) -> list[str]:
        """The command that replicates a topic."""
        begin = ["-b", self._address]
        if engine is Engine.EMBEDDED:
            return [*begin, "journal", "replicate", "--store", self._stores(store), "--topic-prefix", topic]
        checkpoint = str(self._folder / f"checkpoint-{topic}")
        job = [*begin, "pipeline", "replicate-journal", "--store", self._stores(store), "--topic", topic]
        job += ["--checkpoint", checkpoint, *settings_of_progress(self._progress_folder(topic))]
        return [*job, "--follow"] if follow else job

    def _progress_folder(self, topic: str) -> Path:
        return self._folder / f"progress-{topic}"

    async def _until_replicated(self, store: JournalStore, topic: str, job: Job) -> float:
        """When a look has found all that is in the log now.

        Raises:
            MeasurementError: it does not come.
        """
        async with connect(f"kafka://{self._address}") as client:
            places = {TopicPartition(topic, partition): LATEST for partition in range(PARTITIONS)}
            listed = await client.list_offsets(places)
        last = {place.partition: int(found.offset or 0) - 1 for place, found in listed.items()}
        give_up_at = time.monotonic() + WAIT_S_MAX
        while True:
            has_ended = job.has_ended  # before the look: what it has done, it has done by then
            look = await _look(store, topic)
            if all(look.pointers.get(partition, -1) >= offset for partition, offset in last.items()):
                return look.at_s
            if has_ended:
                job.require_running()
            if look.at_s > give_up_at:
                raise MeasurementError(f"{topic} is replicated to {look.pointers} in place of {last}")
            await asyncio.sleep(LOOK_S)


async def _look(store: JournalStore, topic: str) -> Look:
    found = await store.pointers(topic)
    return Look(time.monotonic(), {partition: pointer.offset for partition, pointer in found.items()})


def _store_of(engine: Engine) -> str:
    """The name of a store of its own."""
    return f"by_{engine.name.lower()}"


def _records_of(report: Any) -> int:
    """How many were verified."""
    audit = report.get("audit", report)
    return sum(int(table["records"]) for table in audit["tables"])
