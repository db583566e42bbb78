"""One segment of a partition: a file of record batches, and the sparse indexes that find an offset or a time in it.

A lookup takes the nearest index row at or below what is asked and walks batch headers from there, over no more bytes
than the index interval: O(log n) whatever the size of the log. Rows of what was appended since the segment was opened
are in memory; older ones are read from the index file row by row. A row is trusted only when the batch it points to
has the offset it says, so a damaged index costs a rebuild of itself and never a wrong answer.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import UNSET

from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.log_path import print_segment_file_name
from exactlog.core.deltalog.table_segments import is_rewritten
from exactlog.core.deltalog.table_state import SegmentDetails, TableSegment
from exactlog.core.log.index_format import IndexRow, TimeIndexRow
from exactlog.core.model.errors import DamageError, DecodeError, InvariantError
from exactlog.core.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from exactlog.core.model.limits import INDEX_INTERVAL_BYTES
from exactlog.core.record.batch_format import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    BatchHeader,
    batch_size,
    decode_header,
)
from exactlog.core.record.record_format import decode_records
from exactlog.storage.aborted_index import AbortedIndex
from exactlog.storage.filesystem import Buffer, File, Filesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment_index import NewRows, SegmentIndex

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_STRIDES_MAX = 8
"""How many index intervals a walk may take before the index is thought to lack rows."""


class SegmentFiles:
    """Makes segments, and reads their files through one bounded set of open files."""

    def __init__(
        self,
        filesystem: Filesystem,
        open_files: OpenFiles,
        *,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        is_read_only: bool = False,
    ) -> None:
        self.filesystem = filesystem
        self.is_read_only = is_read_only
        self.open_files = open_files
        self.index_interval_bytes = index_interval_bytes

    def new(self, directory: str, *, base_offset: int) -> "Segment":
        """A segment that begins at an offset; its file appears with its first bytes."""
        return Segment(self, directory, print_segment_file_name(Offset(base_offset)), base_offset)

    def named(self, directory: str, name: str, *, base_offset: int) -> "Segment":
        """A segment by its name, which a rewritten one has of its own."""
        return Segment(self, directory, name, base_offset)

    def attach(self, directory: str, entry: SegmentEntry) -> "Segment":
        """A segment as a checkpoint describes it."""
        segment = Segment(self, directory, entry.name, entry.base)
        segment.size = entry.size
        segment.next_offset = entry.next_offset
        segment.max_timestamp = segment.data_max_timestamp = entry.max_timestamp
        segment.index.attach(rows=entry.index_entries, time_rows=entry.time_index_entries)
        if entry.aborted_entries is not UNSET and entry.aborted_crc is not UNSET:
            segment.aborted.attach(rows=entry.aborted_entries, crc=int(entry.aborted_crc, 16))
        return segment

    def open(self, path: str) -> File:
        """The file at a path."""
        return self.open_files.get(path)

    def read(self, path: str, *, size: int, position: int) -> bytes:
        """Bytes of a file."""
        return self.open_files.get(path).read_at(size, position)

    def forget(self, path: str) -> None:
        """Lets go of a file that is about to be removed."""
        self.open_files.forget(path)


class Segment:
    """One segment. `size` and `next_offset` are what is committed: bytes behind them do not exist for readers.

    `is_rewritten`: compaction has made it, so there may be gaps between its batches, and batches without records.
    `max_timestamp` is the greatest of all its batches, `data_max_timestamp` that of those that are no markers; where
    that is not known, since the segment was opened, it is as high as the other one.
    """

    __slots__ = (
        "_files",
        "_indexed_position",
        "_youngest",
        "aborted",
        "base_offset",
        "data_max_timestamp",
        "directory",
        "index",
        "is_rewritten",
        "max_timestamp",
        "name",
        "next_offset",
        "path",
        "size",
    )

    def __init__(self, files: SegmentFiles, directory: str, name: str, base_offset: int) -> None:
        self._files = files
        self.directory = directory
        self.name = name
        self.is_rewritten = is_rewritten(name)
        self.path = f"{directory}/{name}"
        self.base_offset = base_offset
        self.size = 0
        self.next_offset = base_offset
        self.max_timestamp: int = NO_TIMESTAMP
        self.data_max_timestamp: int = NO_TIMESTAMP
        self._youngest: TimeIndexRow | None = None  # where `data_max_timestamp` is from, when that has been seen
        self._indexed_position: int | None = None  # where the last row of the index points to; None: not looked up yet
        self.index = SegmentIndex(files.open_files, directory, name)
        self.aborted = AbortedIndex(files.open_files, directory, name)

    # --- growing ----------------------------------------------------------------------------------------------

    def on_appended(self, header: BatchHeader, position: int) -> None:
        """A batch is committed at the end of the segment."""
        if position != self.size:
            raise InvariantError(f"{self.path}: a batch is committed at {position}, the segment ends at {self.size}")
        indexed_position = self._indexed_position
        if indexed_position is None:
            indexed_position = self._indexed_position = self._last_indexed_position()
        timestamp = header.max_timestamp
        if timestamp > self.data_max_timestamp and header.record_count and not header.attributes & CONTROL_BIT:
            self.data_max_timestamp = timestamp
            self._youngest = TimeIndexRow(timestamp, header.last_offset - self.base_offset)
        self.max_timestamp = max(self.max_timestamp, timestamp)
        if position - indexed_position >= self._files.index_interval_bytes:
            self.index.append(IndexRow(header.base_offset - self.base_offset, position), self._youngest)
            self._indexed_position = position
        self.size = position + header.batch_length + LENGTH_OVERHEAD
        self.next_offset = header.base_offset + header.last_offset_delta + 1

    def in_table(self) -> TableSegment:
        """What the delta log knows of it."""
        base, next_offset = Offset(self.base_offset), Offset(self.next_offset)
        return TableSegment(name=self.name, base=base, next_offset=next_offset, size=self.size)

    # --- reading ----------------------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, end_position: int, at_least_one_batch: bool) -> Buffer:
        """Whole batches from the one that holds `offset` on, as many as fit `bytes_max`.

        Args:
            offset: one that this segment holds.
            end_position: where to stop at the latest; a boundary between batches.
            at_least_one_batch: whether the first batch is returned whatever its size.
        """
        position, first = self.locate(offset)
        size = min(bytes_max, end_position - position)
        if size < first.size_bytes:
            if not at_least_one_batch or position >= end_position:
                return b""
            size = first.size_bytes
        content = self._file().read_at(size, position)
        if position + size == end_position or size == first.size_bytes:
            return content
        return memoryview(content)[: self._last_boundary(content, position)]

    def _last_boundary(self, content: bytes, position: int) -> int:
        """Where the last whole batch of `content`, which was read from `position`, ends."""
        end = len(content)
        boundary = max(0, self._ask_index(lambda: self._floor_by_position(position + end)) - position)
        while boundary + BATCH_OVERHEAD <= end:
            size = batch_size(content, boundary)
            if size < BATCH_OVERHEAD:
                raise self._damage(position + boundary, f"a batch of {size} bytes")
            if boundary + size > end:
                break
            boundary += size
        return boundary

    def locate(self, offset: int) -> tuple[int, BatchHeader]:
        """The position and header of the batch that holds an offset (or the next one, where compaction left a gap).

        Raises:
            DamageError: the segment's bytes are not batches.
        """
        start = self._ask_index(lambda: self._floor(offset))
        for position, header in self.headers_from(start):
            if header.next_offset > offset:
                if position - start > _STRIDES_MAX * self._files.index_interval_bytes:
                    self._rebuild_index("it has too few rows")
                return position, header
        raise DamageError(f"{self.path}: no batch holds offset {offset}, though the segment ends at {self.next_offset}")

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batch headers from a boundary on, with their positions; a bounded read at a time.

        Raises:
            DamageError: there is something else than batches.
        """
        file = self._file()
        chunk_size = self._files.index_interval_bytes + BATCH_OVERHEAD
        chunk, chunk_start = b"", position
        next_offset = self.base_offset
        while position < self.size:
            within = position - chunk_start
            if within + BATCH_OVERHEAD > len(chunk):
                chunk, chunk_start, within = file.read_at(chunk_size, position), position, 0
            try:
                header = decode_header(chunk, within)
            except DecodeError as error:
                raise self._damage(position, str(error)) from error
            end, following = position + header.size_bytes, header.next_offset
            if not next_offset <= header.base_offset < following <= self.next_offset or end > self.size:
                raise self._damage(position, f"a batch of offsets {header.base_offset} to {header.last_offset}")
            yield position, header
            position, next_offset = end, following

    def first_at_or_after(self, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
        """Batches with a record that is not older than a time, in order; the first of them is found by the index."""
        if timestamp_ms > self.max_timestamp:
            return
        start = self._ask_index(lambda: self._floor_by_time(timestamp_ms))
        for position, header in self.headers_from(start):
            if header.max_timestamp >= timestamp_ms:
                yield position, header

    def latest_time(self, *, start_offset: int, end_offset: int) -> int:
        """The greatest timestamp of the records in a range of offsets; -1 where there are none.

        Transaction markers do not count. The range ends between two batches.
        """
        latest, position = self._ask_index(lambda: self._youngest_below(start_offset, end_offset))
        for at, header in self.headers_from(position):
            if header.base_offset >= end_offset:
                break
            if header.is_control or not header.record_count:
                continue
            if header.last_offset < start_offset or header.max_timestamp <= latest:
                continue
            if header.base_offset >= start_offset:
                latest = header.max_timestamp
                continue
            records = decode_records(self.read_batch(at, header))
            latest = max(latest, *(record.timestamp_ms for record in records if record.offset >= start_offset))
        return latest

    def offset_at(self, position: int) -> int:
        """The first offset behind a boundary between batches."""
        if position >= self.size:
            return self.next_offset
        return next(self.headers_from(position))[1].base_offset

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The bytes of one batch."""
        return self._file().read_at(header.size_bytes, position)

    def read_file(self, position: int) -> bytes:
        """All bytes of the file from a position on, committed or not: recovery only."""
        file = self._file()
        return file.read_at(max(0, file.size() - position), position)

    # --- files ------------------------------------------------------------------------------------------------

    def truncate_file(self) -> None:
        """Cuts off what is behind the committed end."""
        self._file().truncate(self.size)

    def sync(self) -> None:
        """Makes the segment's bytes durable; blocks."""
        self._file().sync()

    def seal_now(self) -> None:
        """Completes the index files of a segment that will not grow any more; blocks."""
        for rows in self.take_new_rows(is_last=True):
            rows.write(self._files.filesystem)
        self.drop_memory()

    @property
    def has_new_rows(self) -> bool:
        """Whether there are rows that no index file has yet."""
        return self.index.has_new_rows or self.aborted.has_new_rows

    def take_new_rows(self, *, is_last: bool = False) -> list[NewRows]:
        """The rows that no index file has yet, for the caller to write; with trailers when the segment is sealed."""
        return self.index.take_new_rows(is_last=is_last) + self.aborted.take_new_rows(is_last=is_last)

    def drop_memory(self) -> None:
        """All rows are in the index files of a sealed segment: from now on they are read there."""
        self.index.drop_memory()
        self.aborted.drop_memory()

    def details(self) -> SegmentDetails:
        """What a checkpoint says of this segment besides what the delta log knows."""
        rows, time_rows = self.index.row_counts
        return SegmentDetails(
            max_timestamp=TimestampMs(self.max_timestamp),
            index_entries=rows,
            time_index_entries=time_rows,
            aborted_entries=len(self.aborted),
            aborted_crc=self.aborted.crc,
        )

    def _file(self) -> File:
        return self._files.open(self.path)

    def _damage(self, position: int, found: str) -> DamageError:
        return DamageError(
            f"{self.path}, byte {position}: {found}", hint="check the directory with `exactlog log inspect`"
        )

    # --- the index, which is believed only as far as it fits the batches ---------------------------------------------

    def _ask_index(self, find: Callable[[], T | None]) -> T:
        """What `find` gives; the index is rebuilt when it cannot be read or says what is not so (None)."""
        try:
            position = find()
            reason = "a row fits no batch"
        except (OSError, DecodeError, DamageError) as error:
            position, reason = None, str(error)
        if position is None:
            self._rebuild_index(reason)
            position = find()
        if position is None:
            raise InvariantError(f"{self.path}: the index does not fit the segment it was just built from")
        return position

    def _floor(self, offset: int) -> int | None:
        """A boundary at or before the batch that holds an offset, near it."""
        return self._check(self.index.floor(offset - self.base_offset))

    def _floor_by_position(self, position: int) -> int | None:
        """A boundary at or before a position, near it."""
        return self._check(self.index.floor_by_position(position))

    def _floor_by_time(self, timestamp_ms: int) -> int | None:
        """A boundary before which no record is as young as a time, near the first that is."""
        row = self.index.floor_by_time(timestamp_ms - 1)
        return 0 if row is None else self._position_of(row)

    def _youngest_below(self, start_offset: int, end_offset: int) -> tuple[int, int] | None:
        """The greatest time in a range, as far as the index knows; and a boundary before which there is none greater.

        -1 where it does not know of any in the range.
        """
        row = self.index.floor_time_by_offset(end_offset - 1 - self.base_offset)
        if row is None or self.base_offset + row.relative_offset < start_offset:
            return NO_TIMESTAMP, self.locate(start_offset)[0] if start_offset > self.base_offset else 0
        position = self._position_of(row)
        if position is None:
            return None
        is_whole = start_offset <= self.base_offset or self.locate(start_offset)[0] < position
        return (row.timestamp if is_whole else NO_TIMESTAMP), position

    def _position_of(self, row: TimeIndexRow) -> int | None:
        """Where the batch is that a row of times points to, if it is the one it says."""
        offset = self.base_offset + row.relative_offset
        if offset >= self.next_offset:
            return None
        position, header = self.locate(offset)
        return position if header.last_offset == offset and header.max_timestamp == row.timestamp else None

    def _check(self, row: IndexRow | None) -> int | None:
        """The position a row points to, if there is the batch it says; 0 without a row."""
        if row is None:
            return 0
        if row.position >= self.size:
            return None
        header = decode_header(self._file().read_at(BATCH_OVERHEAD, row.position))
        return row.position if header.base_offset == self.base_offset + row.relative_offset else None

    def _last_indexed_position(self) -> int:
        try:
            return self.index.last_position
        except (OSError, DamageError) as error:
            self._rebuild_index(str(error))
            return self.index.last_position

    def _rebuild_index(self, reason: str) -> None:
        # Beside a broker rows are expected to be missing: the youngest ones are in the broker's memory.
        level = logging.INFO if self._files.is_read_only else logging.WARNING
        _logger.log(level, "%s: the index is rebuilt: %s", self.path, reason)
        batches = list(self.headers_from(0))
        self.index.clear()
        self.size, self._youngest, self._indexed_position = 0, None, None
        self.max_timestamp = self.data_max_timestamp = NO_TIMESTAMP
        for position, header in batches:
            self.on_appended(header, position)
