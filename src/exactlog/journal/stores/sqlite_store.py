"""A store in one SQLite file: the one that is used where none is named.

One thread writes and one reads (`sqlite_thread.py`), so that a reader waits for no writer; the file is in WAL mode, so
that other programs may read it too, and write to it in turn. All that one poll makes of a journal is one transaction,
its head row read within it; those of several journals that are written at one time share one commit, and one sync.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
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
    DueJournal,
    HeadRow,
    PointerRow,
    SnapshotRow,
    Step,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.stores import sqlite_tables as tables
from exactlog.journal.stores.counted_rows import CountedRows, range_within
from exactlog.journal.stores.errors import StoreSchemaError
from exactlog.journal.stores.sqlite_schema import migrate_schema, schema_version
from exactlog.journal.stores.sqlite_thread import SqliteThread
from exactlog.journal.stores.write_path import TopicTier, check_segment_size

BUSY_MS_MAX: Final = 10_000
"""How long a writer waits for another program that writes to the file, before it is told to come again."""
_TIMESTAMP_MIN: Final = -(2**63)


class SqliteJournalStore:
    """A `JournalStore` in a file.

    Args:
        path: of the file; it is made where there is none, its folder is not.
        segment_size: of journals that begin in it.
        busy_ms_max: how long to wait for another program that writes, milliseconds.
    """

    def __init__(
        self, path: str | Path, *, segment_size: int = SEGMENT_SIZE_DEFAULT, busy_ms_max: int = BUSY_MS_MAX
    ) -> None:
        self._path = Path(path).absolute()
        self._segment_size = check_segment_size(segment_size)
        self._busy_ms_max = busy_ms_max
        self._threads: tuple[SqliteThread, SqliteThread] | None = None

    # --- opening ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the file and bring its tables up to date.

        Raises:
            NewerSchemaError: a newer version made them; the file is left as it is.
            StoreSchemaError: the file has tables of another program under such names.
            Retriable: the file cannot be opened or written for now.
            DamageError: it is no database, or a broken one.
        """
        place = str(self._path)
        writer = SqliteThread(place, self._open_for_writing, is_writer=True)
        reader = SqliteThread(place, self._open_for_reading, is_writer=False)
        await writer.start()
        try:
            await reader.start()
        except BaseException:
            await writer.close()
            raise
        self._threads = writer, reader
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Do what was asked, and close the file."""
        if self._threads is not None:
            writer, reader = self._threads
            self._threads = None
            await reader.close()
            await writer.close()

    def _open_for_writing(self) -> sqlite3.Connection:
        place = str(self._path)
        if self._path.exists():
            self._look_before_it_is_touched(place)
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=self._busy_ms_max / 1_000)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreSchemaError(
                    f"{place}: this file system does not allow SQLite's WAL mode, only {mode!r}",
                    hint="keep the file on a local disk",
                )
            connection.execute("PRAGMA synchronous = FULL")  # what is answered outlives a power cut
            migrate_schema(connection, place=place)
        except BaseException:
            connection.close()
            raise
        return connection

    def _look_before_it_is_touched(self, place: str) -> None:
        """WAL mode is written into a file: not into one that is newer than we are."""
        connection = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=self._busy_ms_max / 1_000)
        try:
            schema_version(connection, place=place)
        finally:
            connection.close()

    def _open_for_reading(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=self._busy_ms_max / 1_000
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    @property
    def _writer(self) -> SqliteThread:
        return self._opened[0]

    @property
    def _reader(self) -> SqliteThread:
        return self._opened[1]

    @property
    def _opened(self) -> tuple[SqliteThread, SqliteThread]:
        if self._threads is None:
            raise Retriable(f"{self._path} is not open", hint="enter the context of the store first")
        return self._threads

    # --- reading ------------------------------------------------------------------------------------------------------

    async def pointer(self, topic_partition: TopicPartition) -> PointerRow | None:
        """How far a partition is replicated."""
        return await self._reader.ask(lambda connection: tables.select_pointer(connection, topic_partition))

    async def pointers(self, topic: str) -> Mapping[int, PointerRow]:
        """How far each partition of a topic is replicated."""
        return await self._reader.ask(lambda connection: tables.select_pointers(connection, topic))

    async def head(self, key: JournalKey) -> HeadRow | None:
        """Where a journal stands."""
        return await self._reader.ask(lambda connection: tables.select_head(connection, key))

    async def rows(self, key: JournalKey, head: HeadRow, seq_range: SeqRange) -> AsyncIterator[EventRow]:
        """The events of a journal within these numbers, ascending, a page at a time."""
        within = range_within(head, seq_range)
        if within is None:
            return
        counted = CountedRows(key, head)
        after, has_more = (within.first, _TIMESTAMP_MIN), True
        while has_more:
            page, has_more = await self._reader.ask(_page(key, within, after))
            for row in counted.of(page):
                yield row
            if page:
                after = page[-1].seq_nr, page[-1].timestamp_ms

    async def ids(self, topic: str) -> AsyncIterator[str]:
        """The ids of all journals of a topic that have a head row."""
        after: str | None = None
        while page := await self._reader.ask(_page_of_ids(topic, after)):
            for key_id in page:
                yield key_id
            after = page[-1]

    async def due(self, topic: str, *, through: date) -> AsyncIterator[DueJournal]:
        """The journals of a topic whose last day is this one or was before, by day."""
        after = ("", "")
        while page := await self._reader.ask(_page_of_due(topic, through, after)):
            for found in page:
                yield found
            after = page[-1].expire_on.isoformat(), page[-1].key.id

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
        return await self._reader.ask(
            lambda connection: tables.select_snapshot(
                connection, key, record_id=record_id, to_seq_nr=to, to_timestamp_ms=until_ms
            )
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    async def topics(self) -> frozenset[str]:
        """The topics that have a pointer."""
        return await self._reader.ask(tables.select_topics)

    def topic(self, topic: str) -> TopicTier:
        """The journals of one topic."""
        return TopicTier(self, topic, segment_size=self._segment_size)

    async def raise_pointer(self, topic_partition: TopicPartition, offset: int, *, now_ms: int) -> None:
        """Create the pointer, or move it."""
        await self._writer.ask(
            lambda connection: tables.raise_pointer(connection, topic_partition, offset, now_ms=now_ms)
        )

    def key_journal(self, key: JournalKey, terms_at: Callable[[int], Terms]) -> "_SqliteKeyJournal":
        """One journal."""
        return _SqliteKeyJournal(self, key, terms_at)

    async def apply_batches(self, key: JournalKey, batches: Sequence[Batch], terms: Terms) -> KeyPlan:
        """Head row and all steps in one transaction."""

        def planned_and_carried_out(connection: sqlite3.Connection) -> KeyPlan:
            plan = plan_batches(tables.select_head(connection, key), batches, terms)
            for step in plan.steps:
                tables.carry_out_step(connection, key, step)
            return plan

        return await self._writer.ask(planned_and_carried_out)

    async def carry_out(self, key: JournalKey, steps: Sequence[Step]) -> None:
        """Carry out steps of a plan, or of a test, in one transaction."""

        def carried_out(connection: sqlite3.Connection) -> None:
            for step in steps:
                tables.carry_out_step(connection, key, step)

        await self._writer.ask(carried_out)

    async def save_snapshot(self, key: JournalKey, snapshot: SnapshotRow) -> None:
        """Keep a snapshot; one of the same life and number is replaced."""
        await self._writer.ask(lambda connection: tables.put_snapshot(connection, key, snapshot))

    async def delete_snapshots(
        self, key: JournalKey, *, to_seq_nr: int, from_seq_nr: int = SEQ_NR_MIN, to_timestamp_ms: int | None = None
    ) -> None:
        """Drop the snapshots with these numbers, taken at this time or before, of whichever life."""
        until_ms = TIMESTAMP_MS_MAX if to_timestamp_ms is None else to_timestamp_ms
        await self._writer.ask(
            lambda connection: tables.drop_snapshots(
                connection, key, from_seq_nr=from_seq_nr, to_seq_nr=to_seq_nr, to_timestamp_ms=until_ms
            )
        )


class _SqliteKeyJournal:
    def __init__(self, store: SqliteJournalStore, key: JournalKey, terms_at: Callable[[int], Terms]) -> None:
        self._store = store
        self._key = key
        self._terms_at = terms_at

    async def apply(self, batches: Sequence[Batch], *, now_ms: int) -> KeyPlan:
        return await self._store.apply_batches(self._key, batches, self._terms_at(now_ms))


def _page(
    key: JournalKey, within: SeqRange, after: tuple[int, int]
) -> Callable[[sqlite3.Connection], tuple[Sequence[EventRow], bool]]:
    return lambda connection: tables.select_rows(connection, key, within, after=after)


def _page_of_ids(topic: str, after: str | None) -> Callable[[sqlite3.Connection], Sequence[str]]:
    return lambda connection: tables.select_ids(connection, topic, after=after)


def _page_of_due(
    topic: str, through: date, after: tuple[str, str]
) -> Callable[[sqlite3.Connection], Sequence[DueJournal]]:
    return lambda connection: tables.select_due(connection, topic, through=through, after=after)
