"""Whether the index files of a segment fit its batches: row by row, beside a walk through the segment.

Only what a checkpoint counts matters: other rows are written anew before anybody reads them. Rows and batches are met
in step, both in rising order, so neither is ever held as a whole. A row belongs to a *point*: a position for `.index`,
an offset for `.timeindex` and `.txnindex`.
"""

from collections.abc import Iterator
from typing import Final

import crc32c
from msgspec import UNSET, Struct

from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name, print_segment_file_name
from exactlog.core.log.aborted_index_format import (
    ABORTED_INDEX_ROW_SIZE,
    AbortedTransaction,
    decode_aborted_transactions,
    encode_aborted_transaction,
)
from exactlog.core.log.index_format import (
    INDEX_ROW_SIZE,
    TIME_INDEX_ROW_SIZE,
    TRAILER_SIZE,
    IndexTrailer,
    OffsetIndex,
    TimeIndex,
    decode_trailer,
)
from exactlog.core.model.errors import DamageError, InvariantError
from exactlog.core.record.batch_format import BatchHeader
from exactlog.storage.audit_findings import Finding, Kind, make_finding
from exactlog.storage.filesystem import Filesystem

_ROWS_PER_READ: Final = 4096
_CRC_SIZE: Final = 4
_NO_VALUE: Final = object()

_ROW_SIZES: Final = {
    SegmentFileKind.INDEX: INDEX_ROW_SIZE,
    SegmentFileKind.TIME_INDEX: TIME_INDEX_ROW_SIZE,
    SegmentFileKind.ABORTED_INDEX: ABORTED_INDEX_ROW_SIZE,
}


class AbortedRows(Struct, frozen=True):
    """How many aborted transactions a segment has, and the CRC-32C of their rows."""

    count: int
    crc: int

    def followed_by(self, aborted: AbortedTransaction) -> "AbortedRows":
        """With one more."""
        return AbortedRows(self.count + 1, crc32c.crc32c(encode_aborted_transaction(aborted), self.crc))


NO_ABORTED_ROWS: Final = AbortedRows(0, 0)


def aborted_rows_of(entry: SegmentEntry) -> AbortedRows:
    """What a checkpoint says of a segment's aborted transactions."""
    if entry.aborted_entries is UNSET or entry.aborted_crc is UNSET:
        return NO_ABORTED_ROWS
    return AbortedRows(entry.aborted_entries, int(entry.aborted_crc, 16))


class CountedRows(Struct, frozen=True):
    """What the newest checkpoint says of a segment's indexes.

    Attributes:
        rows: how many of its `.index` are good.
        time_rows: how many of its `.timeindex` are good.
        aborted_rows: how many of its `.txnindex` are good.
        is_sealed: whether the segment had ended by then, so that its files have their trailers.
        first_offset: the first one of all segments. Of a transaction that began before it a row may tell that it begins
            later: it was made anew from what was left.
    """

    rows: int
    time_rows: int
    aborted_rows: int
    is_sealed: bool
    first_offset: int


NOTHING_COUNTED: Final = CountedRows(0, 0, 0, is_sealed=False, first_offset=0)


class SegmentIndexes:
    """The index files of one segment, on the way through its batches."""

    def __init__(self, filesystem: Filesystem, directory: str, segment_name: str, counted: CountedRows) -> None:
        parsed = parse_segment_file_name(segment_name)
        if parsed is None:
            raise InvariantError(f"{segment_name!r} is not the name of a segment")
        self._base = parsed.base
        files = {
            kind: _IndexFile(
                filesystem,
                directory,
                print_segment_file_name(parsed.base, generation=parsed.generation, kind=kind),
                row_size=row_size,
            )
            for kind, row_size in _ROW_SIZES.items()
        }
        self._offsets = _Rows(files[SegmentFileKind.INDEX], SegmentFileKind.INDEX, counted.rows)
        self._times = _Rows(files[SegmentFileKind.TIME_INDEX], SegmentFileKind.TIME_INDEX, counted.time_rows)
        self._aborted = _Rows(files[SegmentFileKind.ABORTED_INDEX], SegmentFileKind.ABORTED_INDEX, counted.aborted_rows)
        self._first_offset = counted.first_offset
        self._is_counted_as_sealed = counted.is_sealed

    def meet_batch(self, position: int, header: BatchHeader, max_timestamp: int) -> None:
        """The next batch of the segment; `max_timestamp` is the greatest of its data so far, this batch's included."""
        is_youngest = header.max_timestamp == max_timestamp and not header.is_control and header.record_count > 0
        self._offsets.meet(position, header.base_offset - self._base)
        self._times.meet(header.last_offset - self._base, max_timestamp if is_youngest else _NO_VALUE)

    def meet_abort(self, aborted: AbortedTransaction) -> None:
        """The marker that aborts a transaction."""
        is_whole = aborted.first_offset >= self._first_offset
        self._aborted.meet(aborted.last_offset, aborted if is_whole else None)

    def meet_unknown_abort(self, offset: int) -> None:
        """A marker at this offset may abort a transaction, which one is not known."""
        self._aborted.meet(offset, None)

    def skip_to(self, position: int, offset: int) -> None:
        """What lies before could not be walked: nothing is said of its rows."""
        self._offsets.skip_to(position)
        self._times.skip_to(offset - self._base)
        self._aborted.skip_to(offset)

    def finish(self, *, is_active: bool) -> Iterator[Finding]:
        """What is wrong, or missing, once all batches have been met.

        Args:
            is_active: whether the segment may still grow.
        """
        for rows in (self._offsets, self._times, self._aborted):
            faults = list(rows.finish())
            yield from faults
            if not faults and not is_active:
                is_due = self._is_counted_as_sealed and (rows is not self._aborted or rows.count > 0)
                yield from rows.file.check_trailer(rows.count, is_due=is_due)


class _IndexFile:
    """One index file, which may be missing; it is opened for each look."""

    def __init__(self, filesystem: Filesystem, directory: str, name: str, *, row_size: int) -> None:
        self._filesystem = filesystem
        self._path = f"{directory}/{name}"
        self.name = name
        self.row_size = row_size
        self.is_there = filesystem.exists(self._path)
        self.size = filesystem.file_size(self._path) if self.is_there else 0

    @property
    def rows_that_are_there(self) -> int:
        """How many whole rows the file has, by its trailer or by its size."""
        trailer = self._trailer()
        return self.size // self.row_size if trailer is None else trailer.row_count

    def chunks(self, size: int, *, chunk_size: int) -> Iterator[bytes]:
        """The first `size` bytes, some at a time."""
        if not self.is_there:
            return
        file = self._filesystem.open(self._path, read_only=True)
        for position in range(0, size, chunk_size):
            yield file.read_at(min(chunk_size, size - position), position)

    def check_trailer(self, row_count: int, *, is_due: bool) -> Iterator[Finding]:
        """What is wrong with the end of the file of a segment that will not grow any more.

        Args:
            row_count: how many rows a checkpoint counts.
            is_due: whether the file was sealed before it was counted.
        """
        if not self.is_there:
            return
        trailer = self._trailer()
        if trailer is not None:
            crc = 0
            for chunk in self.chunks(self.size - _CRC_SIZE, chunk_size=_ROWS_PER_READ * self.row_size):
                crc = crc32c.crc32c(chunk, crc)
            if crc != trailer.crc:
                message = f"its rows have CRC {crc:08x}, its trailer says {trailer.crc:08x}"
                yield make_finding(Kind.INDEX_DAMAGED, self.name, message)
        elif is_due and self.size >= row_count * self.row_size + TRAILER_SIZE:
            position = row_count * self.row_size
            message = f"behind its {row_count} rows should be a trailer, and there is something else"
            yield make_finding(Kind.INDEX_DAMAGED, self.name, message, position=position)
        elif is_due:
            message = "its trailer is missing: the file was being written, or a power cut took its end"
            yield make_finding(Kind.INDEX_INCOMPLETE, self.name, message)

    def _trailer(self) -> IndexTrailer | None:
        if self.size < TRAILER_SIZE:
            return None
        last = self._filesystem.open(self._path, read_only=True).read_at(TRAILER_SIZE, self.size - TRAILER_SIZE)
        return decode_trailer(last, file_size=self.size, row_size=self.row_size)


class _Rows:
    """The counted rows of one file, each to be met at its point.

    Attributes:
        fault: whether a row is wrong; those behind it are not looked at.
    """

    def __init__(self, file: _IndexFile, kind: SegmentFileKind, count: int) -> None:
        self.file = file
        self.count = count
        self.fault: Finding | None = None
        self._met = 0
        self._ignored_below = 0
        self._rows = self._read(kind)
        self._row = self._next()

    def meet(self, point: int, value: object) -> None:
        """Something is at this point, and its row, if there is one, says this of it (None: whatever it says)."""
        while (row := self._upcoming()) is not None and row[0] < point:
            self._pass()
        if row is not None and row[0] == point:
            if value is not None and row[1] != value:
                self._fail("what it says of the batch it points to is not so")
            else:
                self._advance()

    def skip_to(self, point: int) -> None:
        """Nothing was met below this point, whatever is there."""
        self._ignored_below = point

    def finish(self) -> Iterator[Finding]:
        """What is wrong or missing where there should be as many rows as were counted."""
        while self._row is not None:
            self._pass()
        missing = self.count - self._met
        if self.fault is not None:
            yield self.fault
        elif missing > 0:
            rows = "1 row" if missing == 1 else f"{missing} rows"
            message = f"{rows} of it missing" if self.file.is_there else f"it is missing, which should have {rows}"
            yield make_finding(Kind.INDEX_INCOMPLETE, self.file.name, message)

    def _upcoming(self) -> tuple[int, object] | None:
        return self._row

    def _pass(self) -> None:
        """A row whose point has gone by."""
        assert self._row is not None
        if self._row[0] < self._ignored_below:
            self._advance()
        else:
            self._fail("it points to where no batch begins")

    def _fail(self, what: str) -> None:
        position = self._met * self.file.row_size
        message = f"row {self._met} of {self.count}: {what}"
        self.fault = make_finding(Kind.INDEX_DAMAGED, self.file.name, message, position=position)
        self._row = None

    def _advance(self) -> None:
        self._met += 1
        self._row = self._next()

    def _next(self) -> tuple[int, object] | None:
        try:
            return next(self._rows, None)
        except (DamageError, OSError) as error:
            self.fault = make_finding(
                Kind.INDEX_DAMAGED, self.file.name, str(error), position=self._met * self.file.row_size
            )
            return None

    def _read(self, kind: SegmentFileKind) -> Iterator[tuple[int, object]]:
        """Point and value of each row."""
        row_size = self.file.row_size
        size = min(self.count, self.file.rows_that_are_there) * row_size
        for chunk in self.file.chunks(size, chunk_size=_ROWS_PER_READ * row_size):
            rows = chunk[: len(chunk) // row_size * row_size]
            match kind:
                case SegmentFileKind.INDEX:
                    index = OffsetIndex.decode(rows)
                    yield from (
                        (row.position, row.relative_offset) for row in map(index.__getitem__, range(len(index)))
                    )
                case SegmentFileKind.TIME_INDEX:
                    times = TimeIndex.decode(rows)
                    yield from (
                        (row.relative_offset, row.timestamp) for row in map(times.__getitem__, range(len(times)))
                    )
                case SegmentFileKind.ABORTED_INDEX:
                    for aborted in decode_aborted_transactions(rows):
                        yield aborted.last_offset, aborted
                case SegmentFileKind.LOG:
                    raise InvariantError("a segment is no index")
