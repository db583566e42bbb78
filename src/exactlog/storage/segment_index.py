"""The two sparse indexes of one segment: older rows in their files, the newest ones in memory.

Rows go to the files when a checkpoint is written and when the segment is sealed, unsynced: whoever reads one back
checks it against the log. Until the segment is sealed all rows since it was opened also stay in memory.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from msgspec import Struct

from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name, print_segment_file_name
from exactlog.core.log.index_format import (
    INDEX_ROW_SIZE,
    TIME_INDEX_ROW_SIZE,
    IndexRow,
    OffsetIndex,
    TimeIndex,
    TimeIndexRow,
    count_rows,
    encode_trailer,
    floor_index_row,
    floor_time_index_row,
)
from exactlog.core.model.errors import DamageError, InvariantError
from exactlog.storage.filesystem import File, Filesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.whole_files import sync_file, sync_names

_NO_TIME: Final = -(2**63) - 1


class _LastRows(NamedTuple):
    """Where the last row points to, and the greatest time that stands in a time row."""

    position: int
    timestamp: int


class NewRows(Struct, frozen=True):
    """Rows on their way to one index file; they may be written by another thread."""

    path: str
    row_size: int
    first_row: int
    content: bytes
    is_last: bool
    """Whether the segment is sealed: the file ends here, with a trailer."""
    is_synced: bool = False
    """Whether they are to be durable, since whoever reads them back cannot check them."""

    def write(self, filesystem: Filesystem) -> None:
        """Puts the rows behind the good ones of the file, in place of whatever is there.

        Raises:
            SyncFailedError: a sync failed.
            OSError: they could not be written.
        """
        file = filesystem.open(self.path, create=True)
        start = self.first_row * self.row_size
        file.truncate(start)
        content = self.content
        if self.is_last:
            content += encode_trailer(file.read_at(start, 0) + content, row_size=self.row_size)
        file.write_at((content,), start)
        if self.is_synced:
            sync_file(file)
            if not self.first_row:
                sync_names(filesystem, self.path.rpartition("/")[0])


class SegmentIndex:
    """Finds a position by offset, by time and by position.

    Rows of the files are given as they are: whoever uses one checks it. What cannot be read raises `OSError`, or
    `DamageError` for a row that is not there.
    """

    __slots__ = (
        "_file_rows",
        "_file_time_rows",
        "_files",
        "_last",
        "_offsets",
        "_path",
        "_time_path",
        "_times",
        "_written_rows",
        "_written_time_rows",
    )

    def __init__(self, files: OpenFiles, directory: str, segment_name: str) -> None:
        parsed = parse_segment_file_name(segment_name)
        if parsed is None:
            raise InvariantError(f"{segment_name!r} is not the name of a segment")
        self._files = files
        self._path, self._time_path = (
            f"{directory}/{print_segment_file_name(parsed.base, generation=parsed.generation, kind=kind)}"
            for kind in (SegmentFileKind.INDEX, SegmentFileKind.TIME_INDEX)
        )
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self.attach(rows=0, time_rows=0)

    def attach(self, *, rows: int, time_rows: int) -> None:
        """So many rows of the files are good, and there are no others."""
        self._offsets.truncate(0)
        self._times.truncate(0)
        self._file_rows = rows
        self._file_time_rows = time_rows
        self._written_rows = self._written_time_rows = 0  # of those in memory
        self._last: _LastRows | None = None

    @property
    def row_counts(self) -> tuple[int, int]:
        """How many rows there are, of offsets and of times."""
        return self._file_rows + len(self._offsets), self._file_time_rows + len(self._times)

    @property
    def last_position(self) -> int:
        """Where the last row points to; 0 without one."""
        return self._last_rows().position

    def append(self, row: IndexRow, youngest: TimeIndexRow | None) -> None:
        """A row, and a time row of the youngest record so far when it is younger than that of the last one."""
        timestamp = self._last_rows().timestamp
        self._offsets.append(relative_offset=row.relative_offset, position=row.position)
        if youngest is not None and youngest.timestamp > timestamp:
            self._times.append(timestamp=youngest.timestamp, relative_offset=youngest.relative_offset)
            timestamp = youngest.timestamp
        self._last = _LastRows(row.position, timestamp)

    def clear(self) -> None:
        """Forgets all rows, those of the files too."""
        self.attach(rows=0, time_rows=0)

    def floor(self, relative_offset: int) -> IndexRow | None:
        """The last row at or below an offset."""
        row = self._offsets.floor(relative_offset)
        if row is None and self._file_rows:
            row = floor_index_row(self._read_row, row_count=self._file_rows, relative_offset=relative_offset)
        return row

    def floor_by_time(self, timestamp_ms: int) -> TimeIndexRow | None:
        """The last time row at or before a time: up to its offset no record is younger."""
        row = self._times.floor(timestamp_ms)
        if row is None and self._file_time_rows:
            row = floor_time_index_row(self._read_time_row, row_count=self._file_time_rows, timestamp=timestamp_ms)
        return row

    def floor_time_by_offset(self, relative_offset: int) -> TimeIndexRow | None:
        """The last time row at or below an offset: no record up to there is younger."""
        rows = self._times
        if len(rows) and rows[0].relative_offset <= relative_offset:
            return rows[bisect_right(range(len(rows)), relative_offset, key=lambda row: rows[row].relative_offset) - 1]
        below = count_rows(
            self._read_time_row,
            row_count=self._file_time_rows,
            belongs=lambda row: TimeIndex.decode(row)[0].relative_offset <= relative_offset,
        )
        return TimeIndex.decode(self._read_time_row(below - 1))[0] if below else None

    def floor_by_position(self, position: int) -> IndexRow | None:
        """The last row that points to `position` or to a place before it."""
        rows = self._offsets
        if len(rows) and rows[0].position <= position:
            low, high = 0, len(rows)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if rows[middle].position <= position else (low, middle)
            return rows[low]
        below = count_rows(
            self._read_row, row_count=self._file_rows, belongs=lambda row: _decode_row(row).position <= position
        )
        return _decode_row(self._read_row(below - 1)) if below else None

    @property
    def has_new_rows(self) -> bool:
        """Whether there are rows that no file has yet."""
        return len(self._offsets) > self._written_rows or len(self._times) > self._written_time_rows

    def take_new_rows(self, *, is_last: bool = False) -> list[NewRows]:
        """The rows that no file has yet, for the caller to write; with the trailers when the segment is sealed."""
        taken = [
            NewRows(
                self._path,
                INDEX_ROW_SIZE,
                self._file_rows + self._written_rows,
                self._offsets.encode(first_row=self._written_rows),
                is_last,
            ),
            NewRows(
                self._time_path,
                TIME_INDEX_ROW_SIZE,
                self._file_time_rows + self._written_time_rows,
                self._times.encode(first_row=self._written_time_rows),
                is_last,
            ),
        ]
        self._written_rows, self._written_time_rows = len(self._offsets), len(self._times)
        return taken

    def drop_memory(self) -> None:
        """All rows are in the files of a sealed segment: from now on they are read there."""
        rows, time_rows = self.row_counts
        last = self._last
        self.attach(rows=rows, time_rows=time_rows)
        self._last = last

    def _last_rows(self) -> "_LastRows":
        """What the last rows say, read from the files when it is not known yet."""
        if self._last is None:
            position, timestamp = 0, _NO_TIME
            if self._file_rows:
                position = _decode_row(self._read_row(self._file_rows - 1)).position
            if self._file_time_rows:
                timestamp = TimeIndex.decode(self._read_time_row(self._file_time_rows - 1))[0].timestamp
            self._last = _LastRows(position, timestamp)
        return self._last

    def _read_row(self, row: int) -> bytes:
        return _whole(self._file(self._path).read_at(INDEX_ROW_SIZE, row * INDEX_ROW_SIZE), INDEX_ROW_SIZE)

    def _read_time_row(self, row: int) -> bytes:
        content = self._file(self._time_path).read_at(TIME_INDEX_ROW_SIZE, row * TIME_INDEX_ROW_SIZE)
        return _whole(content, TIME_INDEX_ROW_SIZE)

    def _file(self, path: str) -> File:
        return self._files.get(path)


def _decode_row(row: bytes) -> IndexRow:
    return OffsetIndex.decode(row)[0]


def _whole(row: bytes, size: int) -> bytes:
    if len(row) != size:
        raise DamageError(f"an index row has {len(row)} bytes of {size}")
    return row
