"""A region: a log that many tables share, as its owner or a reader sees it."""

import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from exactlog.core.model.errors import ExactlogError
from exactlog.core.wal.bounds import Bound, Max, Min, resolve_bounds
from exactlog.core.wal.cleaning import Cleaning, decide_cleaning, snapshot_is_due
from exactlog.core.wal.errors import RegionClosedError, RegionReadOnlyError
from exactlog.core.wal.limits import SCAN_BATCH_ENTRIES
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.core.wal.table_meta import TableMeta
from exactlog.core.wal.write_batches import WriteBatch, check_batch
from exactlog.wal.entries import CleanResult, OnProgress, RegionStats, TableStats, WalEntry
from exactlog.wal.ports import PayloadCodec, WalBackend
from exactlog.wal.region_opening import OpenedRegion
from exactlog.wal.region_reader import RegionReader, check_batch_size
from exactlog.wal.region_writer import RegionWriter
from exactlog.wal.write_queue import WriteQueue, Written

_log = logging.getLogger(__name__)

Payload = TypeVar("Payload")


class Region(Generic[Payload]):
    """A region that is open. Its methods may be called from many tasks at once.

    Attributes:
        region: its id.
        findings: what was not as it should be when it was opened, as sentences.
    """

    def __init__(
        self, backend: WalBackend, topics: RegionTopics, opened: OpenedRegion, codec: PayloadCodec[Payload]
    ) -> None:
        self.region = topics.region
        self.findings = opened.findings
        self._backend = backend
        self._topics = topics
        self._meta = opened.meta
        self._codec = codec
        self._reader = RegionReader(backend, topics, opened.meta, codec)
        self._replayed_count = opened.replayed_count
        self._writer: RegionWriter | None = None
        self._is_closed = False
        if opened.writer is not None:
            self._writer = RegionWriter(backend, topics, opened.writer, opened.meta)
            self._writer.replayed_since = opened.replayed_count
            self._queue = WriteQueue(topics.region, self._writer)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, nobody else has taken it since, and its topics are still there."""
        has_failed = self._writer is not None and self._writer.failure is not None
        return not self._is_closed and not self.is_fenced and not has_failed

    @property
    def is_fenced(self) -> bool:
        """Whether somebody else is known to have taken it since."""
        return self._writer is not None and self._writer.is_fenced

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened to be looked at only."""
        return self._writer is None

    # --- writing ---------------------------------------------------------------------------------------------

    async def write(self, table: int, entries: Sequence[Payload], *, expected_last: int | None = None) -> int:
        """Write entries of one table, all of them or none; the sequence of the last one, once it is durable.

        Args:
            table: which; it comes into being with its first entry.
            entries: one or more.
            expected_last: write only if this is the table's last sequence (0: it has none), so that a write of which
                one does not know whether it came through can be done again.

        Raises:
            EmptyBatchError, EntryTooLargeError, TableDroppedError, SequenceConflictError: nothing was written.
            RegionFenced: somebody else has opened the region since; what was being committed counts if they found it.
            WriteOutcomeUnknownError: the entries may be there.
            UnavailableError: nothing was written; it may be tried again.
        """
        payloads = tuple(self._encode(entry) for entry in entries)
        return (await self._write(WriteBatch(((table, payloads),), expected_last)))[table]

    async def write_batch(self, batch: Mapping[int, Sequence[Payload]]) -> Written:
        """Write entries of several tables, all of them or none; the last sequence of each table. Raises as `write`."""
        tables = tuple((table, tuple(map(self._encode, entries))) for table, entries in batch.items())
        return await self._write(WriteBatch(tables))

    async def _write(self, batch: WriteBatch) -> Written:
        self._owner()
        check_batch(self.region, batch)
        return await self._queue.write(batch)

    def _encode(self, entry: Payload) -> bytes:
        return bytes(self._codec.encode(entry))

    # --- reading ---------------------------------------------------------------------------------------------

    async def sequence_num(self, table: int) -> int:
        """The sequence of the last entry of a table; 0: it has none, or never had."""
        self._check_open()
        if self._writer is not None:
            await self._writer.settle()
        known = self._meta.tables.get(table)
        return 0 if known is None else known.last_sequence

    def read(self, table: int, start: Bound = Min, end: Bound = Max) -> AsyncGenerator[WalEntry[Payload], None]:
        """The entries of a table between two bounds that are not marked, in order.

        Raises:
            TableNotFoundError: nothing was ever written to it.
            InvalidBoundsError: they are the wrong way round.
            UnreadableRecordError: a record on the way is no entry.
        """
        self._check_open()
        sequences = resolve_bounds(start, end, region=self.region, table=table)
        self._meta.table(table)
        return self._reader.read(table, sequences)

    def scan(
        self,
        tables: Collection[int] | None = None,
        *,
        batch_size: int = SCAN_BATCH_ENTRIES,
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[WalEntry[Payload], None]:
        """Every entry that is not marked, in the order they were written: what a store replays when it starts.

        To leave the loop ends the scan; `aclose()` does so at once. Until then no clean-up deletes what lies before it.

        Args:
            tables: of these alone; None: of all.
            batch_size: progress is told after so many entries, and at the end.
            on_progress: is told.

        Raises:
            UnreadableRecordError: a record on the way is no entry.
            RegionTrimmedError: the region has another owner, who has deleted what was to be read.
        """
        self._check_open()
        return self._reader.scan(tables, every=check_batch_size(batch_size), on_progress=on_progress)

    def scan_batches(
        self,
        tables: Collection[int] | None = None,
        *,
        batch_size: int = SCAN_BATCH_ENTRIES,
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[list[WalEntry[Payload]], None]:
        """As `scan`, in lists of at most `batch_size` entries."""
        self._check_open()
        size = check_batch_size(batch_size)
        return self._reader.scan_batches(tables, batch_size=size, on_progress=on_progress)

    # --- deleting --------------------------------------------------------------------------------------------

    async def mark_deleted(self, table: int, up_to: int, *, durable: bool = False) -> None:
        """Let entries of a table up to this one, inclusive, be deleted: they are flushed elsewhere.

        Args:
            table: which.
            up_to: the last of them.
            durable: write a snapshot before this returns. Else the mark is durable with the next snapshot; after a
                crash before that, the entries are replayed once more.

        Raises:
            TableNotFoundError: nothing was ever written to it.
            MarkOutOfRangeError: beyond the last entry, or below the present mark.
            RegionFenced: somebody else has the region (told where `durable`, or known already).
        """
        writer = self._owner()
        mark = self._meta.table(table).decide_mark(up_to, region=self.region)
        self._meta.replay_mark(table, mark)
        writer.marks_since += 1
        if durable:
            await writer.write_snapshot()

    async def drop_table(self, table: int) -> None:
        """Let all entries of a table be deleted, and refuse further ones; durable when this returns.

        Raises as `mark_deleted`.
        """
        writer = self._owner()
        self._meta.table(table).check_is_live(region=self.region)
        self._meta.replay_drop(table)
        writer.marks_since += 1
        await writer.write_snapshot()

    async def write_snapshot(self) -> None:
        """Write a snapshot of the metadata: recovery goes on from there."""
        await self._owner().write_snapshot()

    async def plan_clean(self) -> Cleaning:
        """What a clean-up would delete now, and what keeps the rest; nothing is changed."""
        self._check_open()
        bounds = await self._backend.bounds(self._topics.data)
        readers = tuple(self._reader.reader_offsets.values())
        return decide_cleaning(self._meta, log_start=bounds.start, reader_offsets=readers)

    async def clean(self) -> CleanResult:
        """Delete what no table and no reader needs any more; a snapshot is durable before anything goes.

        Raises:
            RegionFenced: somebody else has the region; nothing was deleted.
        """
        writer = self._owner()
        cleaning = await self.plan_clean()
        is_due = snapshot_is_due(
            replayed_since=writer.replayed_since,
            marks_since=writer.marks_since,
            is_cleaning=cleaning.delete_before is not None,
        )
        if is_due:
            await writer.write_snapshot()
        if cleaning.delete_before is not None:
            await self._backend.delete_before(self._topics.data, cleaning.delete_before)
            self._meta.replay_trim(cleaning.delete_before)
        return CleanResult(
            region=self.region,
            deleted_before=cleaning.delete_before,
            log_start=cleaning.keep_from,
            kept_by=cleaning.kept_by,
            pin=cleaning.pin,
            has_snapshot=is_due,
        )

    # --- telling, closing ------------------------------------------------------------------------------------

    async def stats(self) -> RegionStats:
        """How the region is, and which table keeps its log from being deleted."""
        self._check_open()
        bounds = await self._backend.bounds(self._topics.data)
        pin = self._meta.pin()
        return RegionStats(
            region=self.region,
            tables=tuple(_table_stats(self._meta.tables[table]) for table in sorted(self._meta.tables)),
            log_start=bounds.start,
            end=bounds.end,
            pin=pin,
            pinned_offsets=0 if pin is None else bounds.end - pin.offset,
            reader_offsets=tuple(sorted(self._reader.reader_offsets.values())),
            replay_count=self._replayed_count if self._writer is None else self._writer.replayed_since,
            findings=self.findings,
        )

    async def close(self) -> None:
        """Write what was taken, and a snapshot if one is worth it, and let the region go. Again: nothing happens."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._writer is None:
            return
        await self._queue.close()
        try:
            if self._writer.replayed_since or self._writer.marks_since:
                await self._writer.write_snapshot()
        except ExactlogError as error:  # nothing is lost: what was marked is replayed, or it is somebody else's now
            _log.warning("region %s was closed without a snapshot: %s", self.region, error)
        finally:
            await self._writer.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RegionClosedError(
                f"region {self.region} is closed", region=self.region, hint="open_region opens it again"
            )

    def _owner(self) -> RegionWriter:
        self._check_open()
        if self._writer is None:
            raise RegionReadOnlyError(f"region {self.region} was opened to be read only", region=self.region)
        self._writer.check_may_write()
        return self._writer


def _table_stats(table: TableMeta) -> TableStats:
    return TableStats(
        table=table.table,
        last_sequence=table.last_sequence,
        marked_up_to=table.latest_mark_deleted - 1,
        kept_count=max(0, table.next_seq_num - table.latest_mark_deleted),
        first_offset=table.safe_delete_offset,
        is_dropped=table.is_dropped,
    )
