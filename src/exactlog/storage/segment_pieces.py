"""A segment with some of its batches changed or left out: the file below as long as nothing is, then one beside it."""

from typing import Final

from exactlog.core.record.batch_format import BatchHeader
from exactlog.storage.filesystem import File, Filesystem
from exactlog.storage.segment import Segment

_CHUNK_BYTES: Final = 1024 * 1024


class SegmentPiece:
    """What is left of one segment, batch by batch in order.

    Attributes:
        source: the segment.
        aside: the path of the file beside it, which is there once something has changed.
        size: how many bytes are left.
        is_changed: whether they are others than those of the segment.
        records_removed: how many records of data, or markers, went.
    """

    def __init__(self, filesystem: Filesystem, source: Segment, aside: str) -> None:
        self._filesystem = filesystem
        self._file: File | None = None
        self._waiting = bytearray()
        self._filler_size = 0
        self.source = source
        self.aside = aside
        self.size = 0
        self.records_removed = 0

    @property
    def is_changed(self) -> bool:
        """Whether they are others than those of the segment."""
        return self._file is not None

    @property
    def size_within(self) -> int:
        """How many bytes are left where another segment follows in the same file: it needs no filler."""
        return self.size - self._filler_size

    def keep(self, position: int, header: BatchHeader) -> None:
        """The next batch stays as it is."""
        if self._file is None:
            self.size += header.size_bytes
        else:
            self._add(self.source.read_batch(position, header))

    def replace(self, position: int, header: BatchHeader, batch: bytes, *, kept: int = 0) -> None:
        """Another one stands in the place of the next batch, or nothing; with so many of its records."""
        self.records_removed += header.record_count - kept
        if self._file is None:
            self._file = self._filesystem.open(self.aside, create=True)
            self._file.truncate(0)
            copy_bytes(self.open_source(), self._file, size=position, position=0)
            self.size = position
        self._add(batch)

    def end_with_filler(self, position: int, header: BatchHeader, filler: bytes | None) -> None:
        """The last batch goes; a filler stands in its place, which it may be already (None)."""
        if filler is None:
            self.keep(position, header)
        else:
            self.replace(position, header, filler)
        self._filler_size = header.size_bytes if filler is None else len(filler)

    def finish(self) -> None:
        """There are no more batches."""
        self._write()

    def open(self) -> File:
        """The file that holds what is left, in its first `size` bytes."""
        return self.open_source() if self._file is None else self._file

    def open_source(self) -> File:
        """The file of the segment."""
        return self._filesystem.open(self.source.path, read_only=True)

    def _add(self, batch: bytes) -> None:
        self._waiting += batch
        self.size += len(batch)
        if len(self._waiting) >= _CHUNK_BYTES:
            self._write()

    def _write(self) -> None:
        if self._file is not None and self._waiting:
            self._file.write_at((bytes(self._waiting),), self.size - len(self._waiting))
            self._waiting.clear()


def copy_bytes(source: File, target: File, *, size: int, position: int) -> None:
    """The first bytes of a file, copied into another one from a position on."""
    for start in range(0, size, _CHUNK_BYTES):
        target.write_at((source.read_at(min(_CHUNK_BYTES, size - start), start),), position + start)
