"""Reading a region: its entries from some offset on, as its tables' marks let them be seen."""

import itertools
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from exactlog.core.model.errors import OffsetOutOfRangeError
from exactlog.core.wal.bounds import SequenceRange
from exactlog.core.wal.errors import UnreadableRecordError
from exactlog.core.wal.log_records import LiveEntries, LogEntry, missing_entry_error, read_log_record
from exactlog.core.wal.region_meta import RegionMeta
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.wal.entries import OnProgress, ScanProgress, WalEntry
from exactlog.wal.ports import PayloadCodec, WalBackend
from exactlog.wal.readable_records import readable_records, refuse_unless_skipped
from exactlog.wal.region_opening import trimmed

Payload = TypeVar("Payload")


class RegionReader(Generic[Payload]):
    """Reads of one region. While one is under way no clean-up passes it.

    Attributes:
        reader_offsets: where each open read stands.
    """

    def __init__(
        self, backend: WalBackend, topics: RegionTopics, meta: RegionMeta, codec: PayloadCodec[Payload]
    ) -> None:
        self.reader_offsets: dict[int, int] = {}
        self._backend = backend
        self._topics = topics
        self._meta = meta
        self._codec = codec
        self._tickets = itertools.count()

    async def read(self, table: int, sequences: SequenceRange) -> AsyncGenerator[WalEntry[Payload], None]:
        """The entries of a table with these sequences that are not marked, in order."""
        meta = self._meta.table(table)
        start = meta.seq_offset_mapping.offset_from(max(sequences.first, meta.latest_mark_deleted))
        if start is None:
            return
        end, last = meta.current_high_watermark, min(sequences.last, meta.last_sequence)
        live = LiveEntries(self._mark_of, first=sequences.first)
        async with aclosing(self._live_entries(start, end, due={table: last}, live=live)) as entries:
            async for entry in entries:
                if entry.sequence > last:
                    return
                if entry.sequence >= sequences.first:
                    yield self._decoded(entry)
                if entry.sequence == last:
                    return

    async def scan(
        self, tables: Collection[int] | None, *, every: int, on_progress: OnProgress | None
    ) -> AsyncGenerator[WalEntry[Payload], None]:
        """The entries of all tables, or of some, that are not marked, in the order they were written.

        It ends at what had been written when it began.
        """
        known = self._meta.tables
        due = {table: known[table].last_sequence for table in (known if tables is None else tables) if table in known}
        start, end = self._meta.safe_delete_offset, self._meta.high_watermark
        live = LiveEntries(self._mark_of)
        count = 0

        def tell(offset: int) -> None:
            if on_progress is not None:
                on_progress(ScanProgress(offset, end, count, live.duplicate_count, live.last_duplicate_offset))

        async with aclosing(self._live_entries(start, end, due=due, live=live)) as entries:
            async for entry in entries:
                yield self._decoded(entry)
                count += 1
                if count % every == 0:
                    tell(entry.offset + 1)
        tell(end)

    async def scan_batches(
        self, tables: Collection[int] | None, *, batch_size: int, on_progress: OnProgress | None
    ) -> AsyncGenerator[list[WalEntry[Payload]], None]:
        """As `scan`, in lists of at most so many."""
        batch: list[WalEntry[Payload]] = []
        async with aclosing(self.scan(tables, every=batch_size, on_progress=on_progress)) as entries:
            async for entry in entries:
                batch.append(entry)
                if len(batch) == batch_size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    # ---------------------------------------------------------------------------------------------------------

    async def _live_entries(
        self, start: int, end: int, *, due: Mapping[int, int], live: LiveEntries
    ) -> AsyncGenerator[LogEntry, None]:
        """The entries that `live` sees of the tables that are due, each up to its last sequence."""
        ticket = next(self._tickets)
        self.reader_offsets[ticket] = start
        try:
            refuse = refuse_unless_skipped(self._topics.region, self._meta.skipped_offsets)
            found = readable_records(self._backend, self._topics.data, start, end, on_damage=refuse)
            async with aclosing(found) as records:
                async for record in records:
                    self.reader_offsets[ticket] = record.offset
                    if record.offset in self._meta.skipped_offsets:
                        continue
                    entry = read_log_record(
                        self._topics.region, offset=record.offset, key=record.key, value=record.value
                    )
                    if entry.table in due:
                        self._check_is_complete(live, entry.table, entry.sequence - 1, before=entry.offset)
                        if live.sees(entry.table, entry.sequence, entry.offset):
                            yield entry
            for table, last in due.items():
                self._check_is_complete(live, table, last, before=end)
        except OffsetOutOfRangeError as error:
            raise trimmed(self._topics.region, error) from error
        finally:
            del self.reader_offsets[ticket]

    def _check_is_complete(self, live: LiveEntries, table: int, last: int, *, before: int) -> None:
        """Refuse to pass by entries of a table up to that sequence that were found below this offset once.

        Where something is passed over by an operator's word, it may be they.
        """
        expected = live.expected(table)
        if expected <= last and not self._meta.skipped_offsets and table in self._meta.tables:
            offset = self._meta.table(table).seq_offset_mapping.offset_from(expected)
            if offset is not None and offset < before:
                raise missing_entry_error(self._topics.region, table=table, sequence=expected, offset=offset)

    def _mark_of(self, table: int) -> int:
        known = self._meta.tables.get(table)
        return 1 if known is None else known.latest_mark_deleted

    def _decoded(self, entry: LogEntry) -> WalEntry[Payload]:
        try:
            payload = self._codec.decode(entry.payload)
        except Exception as error:
            raise UnreadableRecordError(
                f"region {self._topics.region}, table {entry.table}: the payload of entry {entry.sequence} at offset "
                f"{entry.offset} cannot be decoded: {error}",
                region=self._topics.region,
                table=entry.table,
                sequence=entry.sequence,
                offset=entry.offset,
                hint=f"look at the codec; skip_offsets=[{entry.offset}] passes the entry over",
            ) from error
        return WalEntry(entry.table, entry.sequence, payload, entry.offset)


def check_batch_size(batch_size: int) -> int:
    """The size, if there can be such batches; `ValueError` else."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; at least 1")
    return batch_size
