"""The aborted transactions of one segment: older rows in its `.txnindex`, the newest ones in memory.

Rows go to the file when a checkpoint is written and when the segment is sealed; until it is sealed those since it was
opened stay in memory too, packed as in the file. A reader cannot see from the log near by that a row is missing or
wrong, so a checkpoint says how many there are and their CRC-32C, and the rows it counts are synced before it.
"""

from collections.abc import Callable, Iterable
from typing import Final

import crc32c

from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name, print_segment_file_name
from exactlog.core.log.aborted_index_format import (
    ABORTED_INDEX_ROW_SIZE,
    AbortedInRange,
    AbortedTransaction,
    encode_aborted_transaction,
    find_aborted_in_range,
)
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import Offset
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment_index import NewRows

_ROWS_PER_READ: Final = 128  # one disk page


class AbortedIndex:
    """Finds the aborted transactions whose markers a segment holds.

    Attributes:
        crc: CRC-32C of all rows.
    """

    __slots__ = ("_file_crc", "_file_rows", "_files", "_memory", "_path", "_written", "crc")

    def __init__(self, files: OpenFiles, directory: str, segment_name: str) -> None:
        parsed = parse_segment_file_name(segment_name)
        if parsed is None:
            raise InvariantError(f"{segment_name!r} is not the name of a segment")
        name = print_segment_file_name(parsed.base, generation=parsed.generation, kind=SegmentFileKind.ABORTED_INDEX)
        self._files = files
        self._path = f"{directory}/{name}"
        self._memory = bytearray()
        self.attach(rows=0, crc=0)

    def attach(self, *, rows: int, crc: int) -> None:
        """So many rows of the file are good, with that CRC-32C, and there are no others."""
        self._file_rows, self._file_crc, self.crc = rows, crc, crc
        self._memory.clear()
        self._written = 0  # of the bytes in memory

    def __len__(self) -> int:
        return self._file_rows + len(self._memory) // ABORTED_INDEX_ROW_SIZE

    def append(self, aborted: AbortedTransaction) -> None:
        """A marker that aborts a transaction is committed at the end of the segment."""
        row = encode_aborted_transaction(aborted)
        self._memory += row
        self.crc = crc32c.crc32c(row, self.crc)

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """These are all there are, whatever the file says."""
        self.attach(rows=0, crc=0)
        for aborted in transactions:
            self.append(aborted)

    def find(self, start_offset: Offset, end_offset: Offset) -> AbortedInRange:
        """Those that reach into a range of offsets; see `find_aborted_in_range`.

        Raises:
            DamageError, OSError: the file cannot be read, or does not hold what it should.
        """
        read_row = _RowWindow(self._read_rows).read_row
        return find_aborted_in_range(read_row, row_count=len(self), start_offset=start_offset, end_offset=end_offset)

    def is_good(self) -> bool:
        """Whether the file holds the rows that it should; reads all of them."""
        if not self._file_rows:
            return True
        size = self._file_rows * ABORTED_INDEX_ROW_SIZE
        try:
            content = self._files.get(self._path).read_at(size, 0)
        except OSError:
            return False
        return len(content) == size and crc32c.crc32c(content) == self._file_crc

    @property
    def has_new_rows(self) -> bool:
        """Whether there are rows that the file does not have yet."""
        return len(self._memory) > self._written

    def take_new_rows(self, *, is_last: bool = False) -> list[NewRows]:
        """The rows that the file does not have yet, for the caller to write; with the trailer when it is sealed.

        Nothing where there are no rows at all: then there is no file either.
        """
        if not len(self):
            return []
        first_row = self._file_rows + self._written // ABORTED_INDEX_ROW_SIZE
        content = bytes(memoryview(self._memory)[self._written :])
        self._written = len(self._memory)
        return [NewRows(self._path, ABORTED_INDEX_ROW_SIZE, first_row, content, is_last, is_synced=True)]

    def drop_memory(self) -> None:
        """All rows are in the file of a sealed segment: from now on they are read there."""
        self.attach(rows=len(self), crc=self.crc)

    def write_anew(self, filesystem: Filesystem, *, is_sealed: bool) -> None:
        """Puts the rows in the place of whatever the file holds, once `replace` has made them.

        Raises:
            SyncFailedError, OSError: they could not be written.
        """
        for rows in self.take_new_rows(is_last=is_sealed):
            rows.write(filesystem)
        if not len(self) and filesystem.exists(self._path):
            self._files.forget(self._path)
            filesystem.remove(self._path)
        if is_sealed:
            self.drop_memory()

    def cut_file(self, filesystem: Filesystem) -> None:
        """Takes rows out of the file of an active segment that are not counted: their markers never were, or are gone.

        Raises:
            OSError: it could not be done.
        """
        size = self._file_rows * ABORTED_INDEX_ROW_SIZE + self._written
        if filesystem.exists(self._path) and filesystem.file_size(self._path) > size:
            filesystem.open(self._path).truncate(size)

    def _read_rows(self, row: int) -> bytes:
        """A row and some that follow it."""
        if row < self._file_rows:
            size = min(_ROWS_PER_READ, self._file_rows - row) * ABORTED_INDEX_ROW_SIZE
            return self._files.get(self._path).read_at(size, row * ABORTED_INDEX_ROW_SIZE)
        position = (row - self._file_rows) * ABORTED_INDEX_ROW_SIZE
        return bytes(self._memory[position : position + _ROWS_PER_READ * ABORTED_INDEX_ROW_SIZE])


class _RowWindow:
    """Reads row by row, from what was read at once: behind a long transaction there may be many to look at."""

    def __init__(self, read_rows: Callable[[int], bytes]) -> None:
        self._read_rows = read_rows
        self._first_row = 0
        self._rows = b""

    def read_row(self, row: int) -> bytes:
        position = (row - self._first_row) * ABORTED_INDEX_ROW_SIZE
        if not 0 <= position < len(self._rows):
            self._first_row, self._rows, position = row, self._read_rows(row), 0
        return self._rows[position : position + ABORTED_INDEX_ROW_SIZE]
