"""A store in the memory of the program: for tests, and for journals that need not outlive it."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Self, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from exactlog.core.journal.batches import Batch
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import KeyPlan, Terms
from exactlog.core.journal.keys import SEQ_NR_MIN, JournalKey, SeqRange
from exactlog.core.journal.rows import (
    SEGMENT_SIZE_DEFAULT,
    TIMESTAMP_MS_MAX,
    DeleteRows,
    DropHead,
    DropSnapshots,
    DueJournal,
    HeadRow,
    PointerRow,
    PutHead,
    SnapshotRow,
    Step,
    WriteRows,
)
from exactlog.core.journal.segments import event_segment
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.stores.counted_rows import CountedRows, range_within
from exactlog.journal.stores.sorted_rows import SortedRows
from exactlog.journal.stores.write_path import TopicTier, check_segment_size

_Segments: TypeAlias = dict[int, SortedRows]
"""Of one journal."""
_Snapshots: TypeAlias = dict[tuple[int, UUID | None], SnapshotRow]


class MemoryJournalStore:
    """A `JournalStore` of dictionaries. It is empty when made, and keeps what it has when its context is left.

    Args:
        segment_size: of journals that begin in it.
    """

    def __init__(self, *, segment_size: int = SEGMENT_SIZE_DEFAULT) -> None:
        self._segment_size = check_segment_size(segment_size)
        self._heads: dict[JournalKey, HeadRow] = {}
        self._rows: dict[JournalKey, _Segments] = {}
        self._pointers: dict[TopicPartition, PointerRow] = {}
        self._snapshots: dict[JournalKey, _Snapshots] = {}

    # --- reading ------------------------------------------------------------------------------------------------------

    async def pointer(self, topic_partition: TopicPartition) -> PointerRow | None:
        """How far a partition is replicated."""
        return self._pointers.get(topic_partition)

    async def pointers(self, topic: str) -> Mapping[int, PointerRow]:
        """How far each partition of a topic is replicated."""
        return {place.partition: pointer for place, pointer in self._pointers.items() if place.topic == topic}

    async def head(self, key: JournalKey) -> HeadRow | None:
        """Where a journal stands."""
        return self._heads.get(key)

    async def rows(self, key: JournalKey, head: HeadRow, seq_range: SeqRange) -> AsyncIterator[EventRow]:
        """The events of a journal within these numbers, ascending."""
        within = range_within(head, seq_range)
        if within is None:
            return
        for row in CountedRows(key, head).of(self._rows_in(key, within)):
            yield row

    async def ids(self, topic: str) -> AsyncIterator[str]:
        """The ids of all journals of a topic that have a head row."""
        for key in [key for key in self._heads if key.topic == topic]:
            yield key.id

    async def due(self, topic: str, *, through: date) -> AsyncIterator[DueJournal]:
        """The journals of a topic whose last day is this one or was before."""
        for key, head in list(self._heads.items()):
            if key.topic == topic and head.expiry is not None and head.expiry.on <= through:
                yield DueJournal(key=key, expire_on=head.expiry.on, seq_nr=head.seq_nr, record_id=head.record_id)

    async def latest_snapshot(
        self,
        key: JournalKey,
        *,
        record_id: UUID | None,
        to_seq_nr: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> SnapshotRow | None:
        """The snapshot of this life with the greatest number."""
        wanted = [
            snapshot
            for snapshot in self._snapshots.get(key, {}).values()
            if snapshot.record_id == record_id
            and (to_seq_nr is None or snapshot.seq_nr <= to_seq_nr)
            and (to_timestamp_ms is None or snapshot.timestamp_ms <= to_timestamp_ms)
        ]
        return max(wanted, key=lambda snapshot: snapshot.seq_nr, default=None)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def topics(self) -> frozenset[str]:
        """The topics that have a pointer."""
        return frozenset(place.topic for place in self._pointers)

    def topic(self, topic: str) -> TopicTier:
        """The journals of one topic."""
        return TopicTier(self, topic, segment_size=self._segment_size)

    async def raise_pointer(self, topic_partition: TopicPartition, offset: int, *, now_ms: int) -> None:
        """Create the pointer, or move it."""
        pointer = self._pointers.get(topic_partition)
        if pointer is None:
            self._pointers[topic_partition] = PointerRow(offset=offset, created_ms=now_ms, updated_ms=now_ms)
        elif pointer.offset < offset:
            self._pointers[topic_partition] = replace(pointer, offset=offset, updated_ms=now_ms)

    def key_journal(self, key: JournalKey, terms_at: Callable[[int], Terms]) -> "_MemoryKeyJournal":
        """One journal."""
        return _MemoryKeyJournal(self, key, terms_at)

    async def carry_out(self, key: JournalKey, steps: Sequence[Step]) -> None:
        """Carry out steps of a plan, or of a test."""
        for step in steps:
            self._carry_out(key, step)

    async def save_snapshot(self, key: JournalKey, snapshot: SnapshotRow) -> None:
        """Keep a snapshot; one of the same life and number is replaced."""
        self._snapshots.setdefault(key, {})[snapshot.seq_nr, snapshot.record_id] = snapshot

    async def delete_snapshots(
        self, key: JournalKey, *, to_seq_nr: int, from_seq_nr: int = SEQ_NR_MIN, to_timestamp_ms: int | None = None
    ) -> None:
        """Drop the snapshots with these numbers, taken at this time or before, of whichever life."""
        until_ms = TIMESTAMP_MS_MAX if to_timestamp_ms is None else to_timestamp_ms
        self._drop_snapshots(
            key,
            lambda snapshot: from_seq_nr <= snapshot.seq_nr <= to_seq_nr and snapshot.timestamp_ms <= until_ms,
        )

    async def close(self) -> None:
        """Nothing to give back."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # --- steps --------------------------------------------------------------------------------------------------------

    def _carry_out(self, key: JournalKey, step: Step) -> None:
        match step:
            case WriteRows(rows=rows, segment_size=segment_size):
                segments = self._rows.setdefault(key, {})
                for row in rows:
                    number = event_segment(row.seq_nr, segment_size)
                    if number not in segments:
                        segments[number] = SortedRows()
                    segments[number].put(row)
            case DeleteRows(range=deleted):
                self._delete_rows(key, deleted)
            case PutHead(head=head):
                self._heads[key] = head
            case DropHead():
                self._heads.pop(key, None)
            case DropSnapshots(place=place):
                self._drop_snapshots(
                    key,
                    lambda snapshot: (
                        snapshot.place.partition == place.partition and snapshot.place.offset <= place.offset
                    ),
                )

    def _delete_rows(self, key: JournalKey, deleted: SeqRange) -> None:
        segments = self._rows.get(key, {})
        for number in [number for number, rows in segments.items() if rows.has_any(deleted)]:
            segments[number].drop(deleted)
            if not segments[number]:
                del segments[number]

    def _drop_snapshots(self, key: JournalKey, is_dropped: Callable[[SnapshotRow], bool]) -> None:
        snapshots = self._snapshots.get(key, {})
        self._snapshots[key] = {place: row for place, row in snapshots.items() if not is_dropped(row)}

    def _rows_in(self, key: JournalKey, within: SeqRange) -> Iterator[EventRow]:
        """By and by: what is written or goes meanwhile is seen, or not."""
        segments = self._rows.get(key, {})
        for number in sorted(number for number, rows in segments.items() if rows.has_any(within)):
            yield from segments.get(number, SortedRows()).within(within)


class _MemoryKeyJournal:
    def __init__(self, store: MemoryJournalStore, key: JournalKey, terms_at: Callable[[int], Terms]) -> None:
        self._store = store
        self._key = key
        self._terms_at = terms_at

    async def apply(self, batches: Sequence[Batch], *, now_ms: int) -> KeyPlan:
        plan = plan_batches(await self._store.head(self._key), batches, self._terms_at(now_ms))
        await self._store.carry_out(self._key, plan.steps)
        return plan
