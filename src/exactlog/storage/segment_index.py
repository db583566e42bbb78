"""The two sparse indexes of one segment: older rows in their files, the newest ones in memory.

Rows go to the files when a checkpoint is written and when the segment is sealed, unsynced: whoever reads one back
checks it against the log. Until the segment is sealed all rows since it was opened also stay in memory.
"""

from msgspec import Struct

from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name, print_segment_file_name
from exactlog.core.log.index_format import (
    INDEX_ROW_SIZE,
    TIME_INDEX_ROW_SIZE,
    IndexRow,
    OffsetIndex,
    TimeIndex,
    count_rows,
    encode_trailer,
    floor_index_row,
    floor_time_index_row,
)
from exactlog.core.model.errors import DamageError, InvariantError
from exactlog.storage.filesystem import File, Filesystem
from exactlog.storage.open_files import OpenFiles


class NewRows(Struct, frozen=True):
    """Rows on their way to one index file; they may be written by another thread."""

    path: str
    row_size: int
    first_row: int
    content: bytes
    is_last: bool
    """Whether the segment is sealed: the file ends here, with a trailer."""

    def write(self, filesystem: Filesystem) -> None:
        """Puts the rows behind the good ones of the file, in place of whatever is there."""
        file = filesystem.open(self.path, create=True)
        start = self.first_row * self.row_size
        file.truncate(start)
        content = self.content
        if self.is_last:
            content += encode_trailer(file.read_at(start, 0) + content, row_size=self.row_size)
        file.write_at((content,), start)


class SegmentIndex:
    """Finds a position by offset, by time and by position."""

    __slots__ = (
        "_file_rows",
        "_file_time_rows",
        "_files",
        "_last_position",
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
        self._file_rows = 0
        self._file_time_rows = 0
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self._written_rows = 0  # of those in memory
        self._written_time_rows = 0
        self._last_position: int | None = 0

    def attach(self, *, rows: int, time_rows: int) -> None:
        """So many rows of the files are good."""
        self._file_rows = rows
        self._file_time_rows = time_rows
        self._written_rows = self._written_time_rows = 0
        self._last_position = None if rows else 0

    @property
    def row_counts(self) -> tuple[int, int]:
        """How many rows there are, of offsets and of times."""
        return self._file_rows + len(self._offsets), self._file_time_rows + len(self._times)

    @property
    def last_position(self) -> int:
        """Where the last row points to; 0 without one. Raises `OSError` when the file cannot be read."""
        if self._last_position is None:
            row = floor_index_row(self._read_row, row_count=self._file_rows, relative_offset=2**32)
            self._last_position = 0 if row is None else row.position
        return self._last_position

    def append(self, position: int, *, relative_offset: int, max_timestamp: int, relative_last_offset: int) -> None:
        """A row for the batch at `position`; a time row too, when the greatest timestamp has grown."""
        self._offsets.append(relative_offset=relative_offset, position=position)
        if not len(self._times) or self._times[-1].timestamp < max_timestamp:
            self._times.append(timestamp=max_timestamp, relative_offset=relative_last_offset)
        self._last_position = position

    def clear(self) -> None:
        """Forgets all rows, those of the files too."""
        self._offsets.truncate(0)
        self._times.truncate(0)
        self.attach(rows=0, time_rows=0)

    def floor(self, relative_offset: int) -> IndexRow | None:
        """The last row at or below an offset. Raises `OSError` when the file cannot be read."""
        row = self._offsets.floor(relative_offset)
        if row is None and self._file_rows:
            row = floor_index_row(self._read_row, row_count=self._file_rows, relative_offset=relative_offset)
        return row

    def floor_by_time(self, timestamp_ms: int) -> int:
        """An offset, relative to the base, up to which no record is younger than that; 0 when nothing is known."""
        row = self._times.floor(timestamp_ms)
        if row is None and self._file_time_rows:
            row = floor_time_index_row(self._read_time_row, row_count=self._file_time_rows, timestamp=timestamp_ms)
        return 0 if row is None else row.relative_offset

    def floor_by_position(self, position: int) -> int:
        """The last position at or below `position` that a row points to; 0 without one."""

        def is_at_or_below(row: bytes) -> bool:
            return int.from_bytes(row[4:8], "big") <= position

        rows = self._offsets
        if len(rows) and rows[0].position <= position:
            low, high = 0, len(rows)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if rows[middle].position <= position else (low, middle)
            return rows[low].position
        below = count_rows(self._read_row, row_count=self._file_rows, belongs=is_at_or_below)
        return int.from_bytes(self._read_row(below - 1)[4:8], "big") if below else 0

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
        self._offsets.truncate(0)
        self._times.truncate(0)
        self.attach(rows=rows, time_rows=time_rows)

    def _read_row(self, row: int) -> bytes:
        return _whole(self._file(self._path).read_at(INDEX_ROW_SIZE, row * INDEX_ROW_SIZE), INDEX_ROW_SIZE)

    def _read_time_row(self, row: int) -> bytes:
        content = self._file(self._time_path).read_at(TIME_INDEX_ROW_SIZE, row * TIME_INDEX_ROW_SIZE)
        return _whole(content, TIME_INDEX_ROW_SIZE)

    def _file(self, path: str) -> File:
        return self._files.get(path)


def _whole(row: bytes, size: int) -> bytes:
    if len(row) != size:
        raise DamageError(f"an index row has {len(row)} bytes of {size}")
    return row
