"""Reading a file of the commit journal, a part of it at a time: files are long, and memory is to stay small."""

from collections.abc import Iterator

from exactlog.core.deltalog.journal_format import FileHeader, FoundRound, scan_rounds
from exactlog.storage.filesystem import File

WINDOW_BYTES = 1024 * 1024
"""How much is read at once; longer records are read whole."""


def read_rounds(file: File, size_bytes: int, header: FileHeader) -> Iterator[FoundRound]:
    """The rounds of a file, as far as it was so long.

    Raises:
        DamageError: a record is damaged, and later ones are whole: no crash does that.
        OSError: it could not be read.
    """
    return scan_rounds(_Window(file).read, size_bytes, header)


class _Window:
    """The part of a file that was read last."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._view = memoryview(b"")

    def read(self, size: int, position: int) -> memoryview:
        """So many bytes from a position on."""
        start = position - self._start
        if start < 0 or start + size > len(self._view):
            self._view, self._start, start = memoryview(self._read(size, position)), position, 0
        return self._view[start : start + size]

    def _read(self, size: int, position: int) -> bytes:
        found = self._file.read_at(max(size, WINDOW_BYTES), position)
        return found if len(found) >= size else found + bytes(size - len(found))  # the file was cut off meanwhile
