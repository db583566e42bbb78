"""Verifying a store of journals against its log on Spark: whether it is what a replicator makes of the log.

A task takes a partition, replicates it into a file of its own up to the pointer of the store, by the replicator's own
code, and compares: head rows and events of every journal, and which journals there are. What the store's replicator has
done since is seen by the offset in a head row, and not judged. Where retention took the beginning of the log, a journal
that began there is judged by its newest actions alone. Disk: as much as the store has of the partition.
"""

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from exactlog.client.adapters import connect
from exactlog.client.ports import Client
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.errors import ForkedJournalError
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.rows import HeadRow
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.action_log import ActionLog
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.partition_replicator import PartitionReplicator
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.settings import JournalSettings
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.node.clock import SystemClock
from exactlog.pipeline.upkeep_purge import CLIENT, require_same_topic
from exactlog.pipeline.upkeep_stores import EVERY_EVENT, open_share, reachable_url, replicated_topics
from exactlog.pipeline.upkeep_tasks import Progress, carry_out, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDINGS_MAX: Final = 1_000
"""Of one partition; the rest is counted."""


class StoreFault(StrEnum):
    """What can be wrong with a journal in a store."""

    MISSING = "journal-missing"
    UNEXPECTED = "journal-unexpected"
    HEAD_DIFFERS = "head-differs"
    EVENT_MISSING = "event-missing"
    EVENT_UNEXPECTED = "event-unexpected"
    EVENT_DIFFERS = "event-differs"
    FORKED = "journal-forked"
    UNREADABLE = "event-unreadable"
    SKIPPED = "record-skipped"


class StoreFinding(Struct, frozen=True):
    """One thing that was found.

    Attributes:
        kind: what; `SKIPPED` is no damage: somebody had the replicator pass over a record.
        id: the journal; None: a record of which not even the id can be read.
        seq_nr: the event; None: the journal as a whole.
        message: what is there, and what should be.
    """

    kind: StoreFault
    topic: str
    partition: int
    id: str | None
    seq_nr: int | None
    message: str

    @property
    def is_damage(self) -> bool:
        """Whether the store is not what the log makes of it."""
        return self.kind is not StoreFault.SKIPPED


class VerifiedPartition(Struct, frozen=True, kw_only=True):
    """What was compared of a partition.

    Attributes:
        from_offset: the first that the log still has; above 0, journals may have begun before it.
        pointer: up to which offset the two were compared.
        journals, events: how many the log makes, up to there.
        equal: how many journals are the same in both.
        moved_on: how many the store's replicator has changed since; they were not judged.
        unjudged: how many began before what is left of the log.
        damage: how many findings are damage.
    """

    topic: str
    partition: int
    from_offset: int
    pointer: int
    journals: int
    events: int
    equal: int
    moved_on: int
    unjudged: int
    damage: int
    findings: tuple[StoreFinding, ...]


class StoreReport(Struct, frozen=True, kw_only=True):
    """What was compared of a store.

    Attributes:
        partitions_left: how many were not, for the run was told to stop.
        journals, events, equal, moved_on, unjudged, damage: of all partitions together.
        is_stopped: whether it was told to stop before all was done.
        partitions: one by one.
    """

    journals: int
    events: int
    equal: int
    moved_on: int
    unjudged: int
    damage: int
    partitions_left: int
    is_stopped: bool
    partitions: tuple[VerifiedPartition, ...]


def verify_store(
    spark: "SparkSession",
    *,
    store: str,
    bootstrap: str,
    topics: Sequence[str] = (),
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> StoreReport:
    """Compares a store with the log that it was replicated from.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        store: the url of the store: `sqlite:///FILE`, which all tasks must be able to open, or `cassandra://...`.
        bootstrap: `host:port` of the broker with the journals' topics, of any make.
        topics: to compare; all that are replicated by default.
        progress: told of each round in a line.
        is_stopping: asked between rounds; what was compared so far is told.

    Raises:
        StoreUrlError, NotFoundError: there is no such store, or no such topic.
        ConfigError: it is a file, and tasks run on other machines.
        NewerSchemaError: a newer version made the store.
        Retriable: the store or the log cannot be read for now.
        LogReplacedError, Repartitioned: the topic is not the one that was replicated.
        ExactlogError: `explain` gives what Spark raises.
    """
    url = reachable_url(store, master=spark.sparkContext.master)
    places = wait_for(_replicated(url, bootstrap, topics))
    work = partial(_compare_partition, store=url, bootstrap=bootstrap)
    done: list[VerifiedPartition] = []
    for told_of_round in carry_out(spark, places, work, VerifiedPartition, is_stopping=is_stopping):
        done += told_of_round
        total = _total(done)
        progress(
            f"partition {len(done)} of {len(places)}: {total['journals']} journals so far, {total['equal']} of them "
            f"equal, findings of damage: {total['damage']}"
        )
    left = len(places) - len(done)
    return StoreReport(**_total(done), partitions_left=left, is_stopped=left > 0, partitions=tuple(done))


def _total(partitions: Sequence[VerifiedPartition]) -> Counter[str]:
    names = ("journals", "events", "equal", "moved_on", "unjudged", "damage")
    return Counter({name: sum(getattr(each, name) for each in partitions) for name in names})


async def _replicated(url: str, bootstrap: str, topics: Sequence[str]) -> list[tuple[str, int]]:
    """The partitions that have a pointer."""
    found = []
    async with open_share(url) as store, connect(f"kafka://{bootstrap}", CLIENT) as client:
        for topic in await replicated_topics(store, topics):
            await require_same_topic(store, client, topic)
            found += [(topic, partition) for partition in sorted(await store.pointers(topic))]
    return found


# --- in a task --------------------------------------------------------------------------------------------------------


def _compare_partition(place: tuple[str, int], *, store: str, bootstrap: str) -> VerifiedPartition:
    return wait_for(_compare(TopicPartition(*place), store, bootstrap))


async def _compare(place: TopicPartition, store: str, bootstrap: str) -> VerifiedPartition:
    with tempfile.TemporaryDirectory(prefix="exactlog-verify-") as folder:
        async with (
            open_share(store) as stored,
            SqliteJournalStore(Path(folder) / "made.db") as made,
            connect(f"kafka://{bootstrap}", CLIENT) as client,
        ):
            pointer = await stored.pointer(place)
            end = 0 if pointer is None else pointer.offset + 1
            comparison = Comparison(place, stored, made, end=end)
            await comparison.make_from_log(client)
            return await comparison.run(await client.partition_count(place.topic))


class Comparison:
    """One partition of a store beside what the log makes of it."""

    def __init__(self, place: TopicPartition, stored: JournalStore, made: JournalStore, *, end: int) -> None:
        self._place = place
        self._stored = stored
        self._made = made
        self._end = end
        self._start = 0
        self._findings: list[StoreFinding] = []
        self._counts: Counter[str] = Counter()

    async def make_from_log(self, client: Client) -> None:
        """Replicates what the store has replicated; records that cannot be are passed over, as somebody has decided."""
        clock = SystemClock()
        log = ActionLog(client, clock, no_progress_ms=JournalSettings().no_progress_ms, metrics=JournalMetrics())
        await log.place_of(JournalKey(self._place.topic, ""))  # learns the number of partitions
        self._start = await log.start(self._place)
        journal = self._made.topic(self._place.topic).partition(self._place.partition)
        replicator = PartitionReplicator(self._place, journal, log, clock, ReplicationMetrics())
        await replicator.catch_up(self._end)
        while parked := replicator.parking.parked:
            first = parked[0]
            self._tell(StoreFault.SKIPPED, first.key_id, None, f"offset {first.offset} was passed over: {first.reason}")
            await replicator.skip(first.offset)

    async def run(self, partition_count: int) -> VerifiedPartition:
        """Compares every journal that there is in one of the two."""
        async for key in self._keys_made():
            await self._compare_journal(key)
        async for key_id in self._stored.ids(self._place.topic):
            key = JournalKey(self._place.topic, key_id)
            is_here = partition_of_key(key_id.encode(), partition_count=partition_count) == self._place.partition
            if is_here and await self._made.head(key) is None:
                await self._judge_unexpected(key)
        counts = {name: self._counts[name] for name in ("journals", "events", "equal", "moved_on", "unjudged")}
        return VerifiedPartition(
            topic=self._place.topic,
            partition=self._place.partition,
            from_offset=self._start,
            pointer=self._end - 1,
            damage=self._counts["damage"],
            findings=tuple(self._findings),
            **counts,
        )

    async def _keys_made(self) -> AsyncIterator[JournalKey]:
        async for key_id in self._made.ids(self._place.topic):
            yield JournalKey(self._place.topic, key_id)

    async def _compare_journal(self, key: JournalKey) -> None:
        made, stored = await self._made.head(key), await self._stored.head(key)
        assert made is not None, "its id was listed"
        self._counts["journals"] += 1
        if self._has_moved_on(stored):
            self._counts["moved_on"] += 1
            return
        if stored is None:
            if await self._is_purged_since(key):
                self._counts["moved_on"] += 1
            else:
                self._tell(StoreFault.MISSING, key.id, None, f"the log has come to event {made.seq_nr} of it")
            return
        if made.record_id != stored.record_id and self._start > 0:
            self._counts["unjudged"] += 1
            return
        before = self._counts["damage"]
        difference = _difference(stored, made)
        if difference:
            self._tell(StoreFault.HEAD_DIFFERS, key.id, None, difference)
        try:
            await self._compare_events(key, stored, made)
        except ForkedJournalError as error:
            self._tell(StoreFault.FORKED, key.id, None, str(error))
        except DecodeError as error:
            self._tell(StoreFault.UNREADABLE, key.id, None, str(error))
        if self._counts["damage"] == before:
            self._counts["equal"] += 1
        elif self._has_moved_on(await self._stored.head(key)):  # while it was being compared
            self._take_back(key, before)

    async def _compare_events(self, key: JournalKey, stored: HeadRow, made: HeadRow) -> None:
        theirs, ours = self._stored.rows(key, stored, EVERY_EVENT), self._made.rows(key, made, EVERY_EVENT)
        row, wanted = await anext(theirs, None), await anext(ours, None)
        while row is not None or wanted is not None:
            if wanted is None or (row is not None and row.seq_nr < wanted.seq_nr):
                assert row is not None, "one of the two is there"
                self._tell(StoreFault.EVENT_UNEXPECTED, key.id, row.seq_nr, f"it is from {_shown(row)}, not in the log")
                row = await anext(theirs, None)
                continue
            self._counts["events"] += 1
            if row is None or wanted.seq_nr < row.seq_nr:
                self._tell(StoreFault.EVENT_MISSING, key.id, wanted.seq_nr, f"it is at {_shown(wanted)} of the log")
            else:
                if row != wanted:
                    names = [name for name in row.__struct_fields__ if getattr(row, name) != getattr(wanted, name)]
                    message = f"the log at {_shown(wanted)} says otherwise of its {', '.join(names)}"
                    self._tell(StoreFault.EVENT_DIFFERS, key.id, row.seq_nr, message)
                row = await anext(theirs, None)
            wanted = await anext(ours, None)

    async def _judge_unexpected(self, key: JournalKey) -> None:
        """A journal that the log makes none of."""
        stored = await self._stored.head(key)
        if stored is None:
            return  # purged since it was listed
        if self._has_moved_on(stored):
            self._counts["moved_on"] += 1
        elif stored.offset < self._start:
            self._counts["unjudged"] += 1
        else:
            message = f"it is there up to event {stored.seq_nr}, and the log makes no such journal"
            self._tell(StoreFault.UNEXPECTED, key.id, None, message)

    def _has_moved_on(self, stored: HeadRow | None) -> bool:
        return stored is not None and stored.offset >= self._end

    async def _is_purged_since(self, key: JournalKey) -> bool:
        """Whether the store has gone on, so that a journal may have been purged: then it is not judged."""
        pointer = await self._stored.pointer(self._place)
        return pointer is not None and pointer.offset >= self._end and await self._stored.head(key) is None

    def _take_back(self, key: JournalKey, damage_before: int) -> None:
        self._counts["damage"] = damage_before
        self._findings = [finding for finding in self._findings if finding.id != key.id or not finding.is_damage]
        self._counts["moved_on"] += 1

    def _tell(self, kind: StoreFault, key_id: str | None, seq_nr: int | None, message: str) -> None:
        finding = StoreFinding(kind, self._place.topic, self._place.partition, key_id, seq_nr, message)
        self._counts["damage"] += finding.is_damage
        if len(self._findings) < FINDINGS_MAX:
            self._findings.append(finding)


def _difference(stored: HeadRow, made: HeadRow) -> str:
    """What of a head row differs, but for times and the segments that rows are spread over: those are the store's."""
    alike = replace(made, created_ms=stored.created_ms, updated_ms=stored.updated_ms, segment_size=stored.segment_size)
    names = [name for name in stored.__struct_fields__ if getattr(stored, name) != getattr(alike, name)]
    return "; ".join(f"{name} is {getattr(stored, name)}, not {getattr(alike, name)}" for name in names)


def _shown(row: EventRow) -> str:
    return f"partition {row.place.partition}, offset {row.place.offset}"
