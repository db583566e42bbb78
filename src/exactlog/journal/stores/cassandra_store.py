"""A store in Apache Cassandra, in kafka-journal's tables: either program reads what the other has written.

There are no transactions here. The steps of a plan are carried out one after the other, each whole at LOCAL_QUORUM
before the next begins: rows before the head that says they count, and rows gone before the head that says so. Whatever
ends in between is made good by the same batches (`key_journal.py`), since every statement may be carried out twice.

Cassandra lets the later of two writes win, by the clocks of who writes. Replicators that take a partition over from
each other need clocks that differ by less than that takes. What one writes late counts as of when it was decided, so
that it changes nothing of what the next one has written. Pointers are not left to clocks at all: they move by
conditional statements, which a node decides.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Final, Self
from uuid import UUID

from exactlog.core.journal.batches import Batch
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import KeyPlan, Terms
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, JournalKey, SeqRange
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
from exactlog.core.journal.segments import event_segments, head_segments
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.stores.cassandra_place import CassandraPlace
from exactlog.journal.stores.cassandra_schema import CassandraSchema
from exactlog.journal.stores.cassandra_session import CassandraSession
from exactlog.journal.stores.cassandra_tables import (
    CassandraTables,
    FoundSnapshot,
    due_of,
    event_of,
    found_snapshot_of,
    head_of,
    pointer_of,
    pointers_of,
    snapshot_of,
)
from exactlog.journal.stores.counted_rows import CountedRows, range_within
from exactlog.journal.stores.event_journal_store_format import life_in_key
from exactlog.journal.stores.write_path import TopicTier, check_segment_size

SEGMENTS_AT_ONCE_MAX: Final = 32
"""Segments without rows that are looked into together; those of a journal without gaps one by one."""
SEGMENTS_WALKED_MAX: Final = 100_000
"""Of a journal with a gap of so many segments those with rows are looked up: slow, but no walk for ever."""


class CassandraJournalStore:
    """A `JournalStore` in a keyspace.

    Args:
        place: of the keyspace.
        segment_size: of journals that begin in it.
        connect: how to get a session, where not by connecting to the place.
    """

    def __init__(
        self,
        place: CassandraPlace,
        *,
        segment_size: int = SEGMENT_SIZE_DEFAULT,
        connect: Callable[[CassandraPlace], Awaitable[CassandraSession]] = CassandraSession.connect,
    ) -> None:
        self._place = place
        self._segment_size = check_segment_size(segment_size)
        self._connect = connect
        self._opened: tuple[CassandraSession, CassandraTables] | None = None
        self._now_us = 0

    async def __aenter__(self) -> Self:
        """Connect, and bring the tables up to date.

        Raises:
            Retriable: no node answers, or a step of the schema did not succeed for now.
            NewerSchemaError: a newer version made the tables; they are left as they are.
        """
        session = await self._connect(self._place)
        try:
            await CassandraSchema(session).set_up()
            self._opened = session, await CassandraTables.prepare(session)
        except BaseException:
            await session.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the nodes."""
        if self._opened is not None:
            session, _ = self._opened
            self._opened = None
            await session.close()

    @property
    def _session(self) -> CassandraSession:
        return self._session_and_tables[0]

    @property
    def _tables(self) -> CassandraTables:
        return self._session_and_tables[1]

    @property
    def _session_and_tables(self) -> tuple[CassandraSession, CassandraTables]:
        if self._opened is None:
            raise Retriable(f"{self._place} is not open", hint="enter the context of the store first")
        return self._opened

    # --- reading ------------------------------------------------------------------------------------------------------

    async def pointer(self, topic_partition: TopicPartition) -> PointerRow | None:
        """How far a partition is replicated."""
        rows = await self._session.execute(self._tables.bound("pointer", *topic_partition))
        return pointer_of(rows[0]) if rows else None

    async def pointers(self, topic: str) -> Mapping[int, PointerRow]:
        """How far each partition of a topic is replicated."""
        rows = await self._session.execute(self._tables.bound("pointers"))
        return {place.partition: pointer for place, pointer in pointers_of(rows) if place.topic == topic}

    async def head(self, key: JournalKey) -> HeadRow | None:
        """Where a journal stands."""
        _, head = await self.located_head(key)
        return head

    async def located_head(self, key: JournalKey) -> tuple[int, HeadRow | None]:
        """The head row and its segment; where there is none, the segment that it would be written to."""
        segments = self._head_segments(key)
        found = await asyncio.gather(
            *(self._session.execute(self._tables.bound("head", key.topic, segment, key.id)) for segment in segments)
        )
        for segment, rows in zip(segments, found, strict=True):
            if rows:
                return segment, head_of(rows[0])
        return segments[0], None

    async def rows(self, key: JournalKey, head: HeadRow, seq_range: SeqRange) -> AsyncIterator[EventRow]:
        """The events of a journal within these numbers, ascending, a page at a time."""
        within = range_within(head, seq_range)
        if within is None:
            return
        counted = CountedRows(key, head)
        segments = await self._segments(key, within, head.segment_size)
        at, together = 0, 1
        while at < len(segments):
            ahead = [self._pages(key, segment, within) for segment in segments[at : at + together]]
            at += together
            is_empty = True
            for first_page, pages in zip(await asyncio.gather(*map(anext, ahead)), ahead, strict=True):
                is_empty = is_empty and not first_page
                for row in counted.of(first_page):
                    yield row
                async for page in pages:
                    for row in counted.of(page):
                        yield row
            together = min(together * 2, SEGMENTS_AT_ONCE_MAX) if is_empty else 1

    async def ids(self, topic: str) -> AsyncIterator[str]:
        """The ids of all journals of a topic that have a head row."""
        for segments in _together(await self._head_segments_of(topic)):
            asked = (self._session.execute(self._tables.bound("ids", topic, segment)) for segment in segments)
            for segment, rows in zip(segments, await asyncio.gather(*asked), strict=True):
                for (key_id,) in rows:
                    if await self._is_first(JournalKey(topic, key_id), segment):
                        yield key_id

    async def due(self, topic: str, *, through: date) -> AsyncIterator[DueJournal]:
        """The journals of a topic whose last day is this one or was before."""
        for segments in _together(await self._head_segments_of(topic)):
            asked = (self._session.execute(self._tables.bound("due", topic, segment, through)) for segment in segments)
            for segment, rows in zip(segments, await asyncio.gather(*asked), strict=True):
                for row in rows:
                    found = due_of(topic, row)
                    if await self._is_first(found.key, segment):
                        yield found

    async def latest_snapshot(
        self,
        key: JournalKey,
        *,
        record_id: UUID | None,
        to_seq_nr: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> SnapshotRow | None:
        """The snapshot of this life with the greatest number."""
        to = SEQ_NR_MAX if to_seq_nr is None else to_seq_nr
        until_ms = TIMESTAMP_MS_MAX if to_timestamp_ms is None else to_timestamp_ms
        rows = await self._session.execute(
            self._tables.bound("latest_snapshot", key.id, key.topic, life_in_key(record_id), to, until_ms)
        )
        return snapshot_of(rows[0]) if rows else None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def topics(self) -> frozenset[str]:
        """The topics that have a pointer."""
        return frozenset(topic for topic, _ in await self._session.execute(self._tables.bound("topics")))

    def topic(self, topic: str) -> TopicTier:
        """The journals of one topic."""
        return TopicTier(self, topic, segment_size=self._segment_size)

    async def raise_pointer(self, topic_partition: TopicPartition, offset: int, *, now_ms: int) -> None:
        """Create the pointer, or move it, on the condition that it is not as far yet.

        One replicator at a time has the partition; but one that has lost it may not know, and come with what it had
        looked up before. The node decides then, not the clocks.
        """
        tables, session = self._tables, self._session
        pointer = await self.pointer(topic_partition)
        if pointer is None:
            created = tables.bound("create_pointer", *topic_partition, offset, now_ms, now_ms)
            ((is_created, *_),) = await session.execute(created)
            if is_created:
                return
        elif pointer.offset >= offset:
            return
        await session.execute(tables.bound("move_pointer", offset, now_ms, *topic_partition, offset))

    def key_journal(self, key: JournalKey, terms_at: Callable[[int], Terms]) -> "_CassandraKeyJournal":
        """One journal."""
        return _CassandraKeyJournal(self, key, terms_at)

    async def carry_out(self, key: JournalKey, steps: Sequence[Step]) -> None:
        """Carry out steps of a plan, or of a test, each whole before the next."""
        at_us = self.now_us()
        segment, _ = await self.located_head(key)
        for after_us, step in enumerate(steps):
            await self.carry_out_step(key, segment, at_us + after_us, step)

    async def carry_out_step(self, key: JournalKey, segment: int, at_us: int, step: Step) -> None:
        """One step, as of a time; the head row is in this segment."""
        tables, session = self._tables, self._session
        match step:
            case WriteRows():
                await session.execute_all(list(tables.put_rows(key, step, at_us=at_us)))
            case DeleteRows(range=deleted, segment_size=size):
                segments = await self._segments(key, deleted, size)
                for some in _together(segments):
                    await session.execute_all(
                        [tables.drop_segment(key, number, size, deleted, at_us=at_us) for number in some]
                    )
            case PutHead(head=head):
                await session.execute(tables.put_head(key, segment, head, at_us=at_us))
            case DropHead():  # in both: one that is hidden by the other is not to come to light
                places = [(at_us, key.topic, number, key.id) for number in self._head_segments(key)]
                await session.execute_all([tables.bound("drop_head", *place) for place in places])
            case DropSnapshots(place=place):
                await self._drop_snapshots(
                    key, lambda found: found.partition == place.partition and found.offset <= place.offset
                )

    async def save_snapshot(self, key: JournalKey, snapshot: SnapshotRow) -> None:
        """Keep a snapshot; one of the same life and number is replaced."""
        await self._session.execute(self._tables.put_snapshot(key, snapshot))

    async def delete_snapshots(
        self, key: JournalKey, *, to_seq_nr: int, from_seq_nr: int = SEQ_NR_MIN, to_timestamp_ms: int | None = None
    ) -> None:
        """Drop the snapshots with these numbers, taken at this time or before, of whichever life."""
        until_ms = TIMESTAMP_MS_MAX if to_timestamp_ms is None else to_timestamp_ms
        await self._drop_snapshots(
            key, lambda found: from_seq_nr <= found.seq_nr <= to_seq_nr and found.timestamp_ms <= until_ms
        )

    def now_us(self) -> int:
        """The present time for what is decided now, microseconds since 1970; it never goes back."""
        self._now_us = max(self._now_us + 1, time.time_ns() // 1_000)
        return self._now_us

    # --- where rows are -----------------------------------------------------------------------------------------------

    def _head_segments(self, key: JournalKey) -> tuple[int, ...]:
        first, second = self._place.segments
        return tuple(dict.fromkeys(head_segments(key.id, first=first, second=second)))

    async def _is_first(self, key: JournalKey, segment: int) -> bool:
        """Whether a head row that was found there is the one that counts."""
        first, *rest = self._head_segments(key)
        if segment == first:
            return True
        return segment in rest and (await self.located_head(key))[0] == segment

    async def _head_segments_of(self, topic: str) -> Sequence[int]:
        found: list[int] = []
        async for page in self._session.pages(self._tables.bound("head_segments")):
            found += (segment for name, segment in page if name == topic)
        return sorted(found)

    async def _segments(self, key: JournalKey, seq_range: SeqRange, segment_size: int) -> Sequence[int]:
        """Those in which rows of a range can be, ascending."""
        segments = event_segments(seq_range, segment_size)
        if len(segments) <= SEGMENTS_WALKED_MAX:
            return segments
        found: list[int] = []
        async for page in self._session.pages(self._tables.bound("event_segments")):
            found += (number for key_id, topic, number in page if (topic, key_id) == key and number in segments)
        return sorted(found)

    async def _pages(self, key: JournalKey, segment: int, within: SeqRange) -> AsyncIterator[Sequence[EventRow]]:
        """The first page is there, though it may be empty."""
        statement = self._tables.bound("events", key.id, key.topic, segment, within.first, within.last)
        async for page in self._session.pages(statement):
            yield [event_of(row) for row in page]

    async def _drop_snapshots(self, key: JournalKey, is_dropped: Callable[[FoundSnapshot], bool]) -> None:
        rows = await self._session.execute(self._tables.bound("snapshots", key.id, key.topic))
        await self._session.execute_all(
            [
                self._tables.bound("drop_snapshot", key.id, key.topic, found.record_id, found.seq_nr)
                for found in map(found_snapshot_of, rows)
                if is_dropped(found)
            ]
        )


def _together(segments: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(segments), SEGMENTS_AT_ONCE_MAX):
        yield segments[start : start + SEGMENTS_AT_ONCE_MAX]


class _CassandraKeyJournal:
    """It remembers the head row that it wrote last: a partition has one replicator at a time.

    One that has lost its partition, and does not know, may still come with what it made of a head row that it read
    before. So everything is written as of the time when that was read: whoever has read it since has the last word.
    """

    def __init__(self, store: CassandraJournalStore, key: JournalKey, terms_at: Callable[[int], Terms]) -> None:
        self._store = store
        self._key = key
        self._terms_at = terms_at
        self._located: tuple[int, HeadRow | None] | None = None
        self._at_us = 0

    async def apply(self, batches: Sequence[Batch], *, now_ms: int) -> KeyPlan:
        if self._located is None:
            self._at_us = self._store.now_us()
        segment, head = self._located or await self._store.located_head(self._key)
        self._located = None  # until this has gone well
        plan = plan_batches(head, batches, self._terms_at(now_ms))
        for step in plan.steps:
            self._at_us += 1
            await self._store.carry_out_step(self._key, segment, self._at_us, step)
        if plan.head is not None:
            self._located = segment, plan.head
        return plan
