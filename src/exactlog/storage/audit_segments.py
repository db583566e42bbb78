"""A walk through the batches of one segment, from byte 0 to where a version says it ends: a bounded read at a time."""

import logging
from collections.abc import Iterator
from typing import Final

import crc32c

from exactlog.core.deltalog.table_segments import is_rewritten
from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import NO_TIMESTAMP
from exactlog.core.record.batch_format import ATTRIBUTES_POSITION, BATCH_OVERHEAD, BatchHeader, decode_header
from exactlog.storage.audit_findings import Findings, Kind, make_finding
from exactlog.storage.audit_indexes import NO_ABORTED_ROWS, AbortedRows, CountedRows, SegmentIndexes
from exactlog.storage.filesystem import File, Filesystem

_logger = logging.getLogger(__name__)

_WINDOW_BYTES: Final = 1024 * 1024

_ABSENCES: Final = frozenset({Kind.SEGMENT_MISSING, Kind.BYTES_MISSING, Kind.BYTES_LOST, Kind.FILE_UNREADABLE})
"""Told once for a segment: it goes on like that."""


class _BrokenOffError(Exception):
    """The batches cannot be followed any further."""

    def __init__(self, kind: Kind, position: int | None, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.position = position


class SegmentWalk:
    """One segment, walked as far as the versions have come.

    Attributes:
        name: of its file.
        base_offset: its first offset.
        position: how far the versions have come, in bytes.
        next_offset: how far they have come, in offsets.
        max_timestamp: the greatest one so far.
        data_crc: CRC-32C of the bytes walked since it was last set.
        batches: how many whole ones there were.
        records: how many records those hold, transaction markers not counted.
        findings: what was wrong with it and its indexes.
        faults: how many findings so far are about its bytes.
        is_sound: whether every byte so far was there and was part of a whole batch.
        aborted: the rows that its index of aborted transactions must have; None where they are not known.
    """

    def __init__(
        self, filesystem: Filesystem, directory: str, name: str, base_offset: int, counted: CountedRows
    ) -> None:
        self._filesystem = filesystem
        self._path = f"{directory}/{name}"
        self._file: File | None = None
        self._window = memoryview(b"")
        self._window_position = 0
        self._is_absence_told = False
        self._damaged_offset: int | None = None  # of the batch before, where that one's header cannot be trusted
        self.name = name
        self.base_offset = base_offset
        self.position = 0
        self.next_offset = base_offset
        self._may_have_gaps = is_rewritten(name)
        self.max_timestamp: int = NO_TIMESTAMP
        self._data_max_timestamp: int = NO_TIMESTAMP
        self.data_crc = 0
        self.batches = 0
        self.records = 0
        self.findings = Findings()
        self.faults = 0
        self.is_sound = True
        self.aborted: AbortedRows | None = NO_ABORTED_ROWS
        self.indexes: SegmentIndexes | None = SegmentIndexes(filesystem, directory, name, counted)

    def walk(
        self, end: int, end_offset: int, *, version: int | None, is_loss_allowed: bool
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The whole batches from where the walk has come to up to `end`, with their positions.

        Args:
            end: in bytes, exclusive.
            end_offset: the offset the batches must end before.
            version: whose bytes these are; None where that is not known any more.
            is_loss_allowed: whether bytes may be missing at the end of the file.
        """
        try:
            self._check_size(end, version, is_loss_allowed=is_loss_allowed)
            while self.position < end:
                yield from self._next_batch(end, end_offset, version)
            if self._damaged_offset is not None:
                self.skip_to(end, end_offset)
            if self.next_offset != end_offset:
                message = f"the batches before byte {end} end before offset {self.next_offset}, not {end_offset}"
                raise _BrokenOffError(Kind.OFFSETS_BROKEN, end, message)
        except _BrokenOffError as error:
            if self._damaged_offset is None:  # else it follows from what was told before
                self._tell(error, version)
            self.skip_to(end, end_offset)
        except OSError as error:
            self._tell(_BrokenOffError(Kind.FILE_UNREADABLE, self.position, f"it cannot be read: {error}"), version)
            self.skip_to(end, end_offset)

    def take_abort(self, aborted: AbortedTransaction) -> None:
        """The batch that was walked last is the marker that aborts this transaction."""
        if self.aborted is not None:
            self.aborted = self.aborted.followed_by(aborted)
        if self.indexes is not None:
            self.indexes.meet_abort(aborted)

    def take_unknown_abort(self, offset: int) -> None:
        """A marker aborts a transaction, if there was one, of which nothing is known."""
        self.aborted = None
        if self.indexes is not None:
            self.indexes.meet_unknown_abort(offset)

    def skip_to(self, position: int, offset: int) -> None:
        """Goes on from there, whatever lies before it."""
        self.is_sound = False
        self._damaged_offset = None
        self.position = position
        self.next_offset = offset
        if self.indexes is not None:
            self.indexes.skip_to(position, offset)

    def read_batch(self, position: int, header: BatchHeader) -> memoryview:
        """The bytes of one batch, as a whole."""
        return self._bytes(position, header.size_bytes)

    def tell(self, kind: Kind, message: str, *, version: int | None, position: int | None) -> None:
        """One more finding about this segment's bytes."""
        self.faults += 1
        self.findings.add(make_finding(kind, self.name, message, version=version, position=position))

    def finish(self, *, is_active: bool) -> None:
        """Nothing more comes: says what is wrong with the indexes, and lets go of the files."""
        if self.indexes is None:
            return
        _logger.info("%s: %d batches", self._path, self.batches)
        if not self._is_absence_told:
            for finding in self.indexes.finish(is_active=is_active):
                self.findings.add(finding)
            surplus = 0 if self._file is None else self._file.size() - self.position
            if surplus > 0:
                message = f"{surplus} bytes behind those that a version names"
                self.tell(Kind.BYTES_BEHIND, message, version=None, position=self.position)
        self.indexes = self._file = None
        self._window = memoryview(b"")

    def _check_size(self, end: int, version: int | None, *, is_loss_allowed: bool) -> None:
        try:
            if self._file is None:
                self._file = self._filesystem.open(self._path, read_only=True)
        except FileNotFoundError:
            kind = Kind.BYTES_LOST if is_loss_allowed else Kind.SEGMENT_MISSING
            raise _BrokenOffError(kind, None, f"it is missing, and {_namer(version)} names bytes of it") from None
        size = self._file.size()
        if size < end:
            kind = Kind.BYTES_LOST if is_loss_allowed else Kind.BYTES_MISSING
            raise _BrokenOffError(kind, size, f"it has {size} bytes, {_namer(version)} names bytes up to {end}")

    def _tell(self, error: _BrokenOffError, version: int | None) -> None:
        if error.kind in _ABSENCES:
            if self._is_absence_told:
                self.faults += 1
                return
            self._is_absence_told = True
        self.tell(error.kind, str(error), version=version, position=error.position)

    def _next_batch(self, end: int, end_offset: int, version: int | None) -> Iterator[tuple[int, BatchHeader]]:
        position = self.position
        try:
            header = decode_header(self._bytes(position, min(BATCH_OVERHEAD, end - position)))
        except DecodeError as error:
            raise _BrokenOffError(Kind.BATCH_DAMAGED, position, str(error)) from error
        if position + header.size_bytes > end:
            message = f"a batch claims {header.size_bytes} bytes, {end - position} are left"
            raise _BrokenOffError(Kind.BATCH_DAMAGED, position, message)
        is_behind_gap = self._may_have_gaps and self.next_offset < header.base_offset < end_offset
        is_in_line = header.base_offset == self.next_offset or is_behind_gap
        is_behind_damage = self._damaged_offset is not None and self._damaged_offset < header.base_offset < end_offset
        if is_behind_gap or is_behind_damage:
            self.next_offset = header.base_offset
        if header.base_offset != self.next_offset or header.last_offset_delta < 0:
            message = f"a batch has offsets {header.base_offset} to {header.last_offset}, {self.next_offset} was due"
            raise _BrokenOffError(Kind.OFFSETS_BROKEN, position, message)
        crc = self._take_crc(position, header.size_bytes)
        if crc != header.crc:
            if is_in_line:  # else it follows from what was told before
                message = f"the batch at offset {header.base_offset} has CRC {crc:08x}, not {header.crc:08x} as it says"
                self.tell(Kind.BATCH_DAMAGED, message, version=version, position=position)
            self.skip_to(position + header.size_bytes, header.next_offset)
            self._damaged_offset = header.base_offset  # its own header may be what is wrong
            return
        self.position = position + header.size_bytes
        self.next_offset = header.next_offset
        self._damaged_offset = None
        self.batches += 1
        self.records += 0 if header.is_control else header.record_count
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        if not header.is_control and header.record_count:
            self._data_max_timestamp = max(self._data_max_timestamp, header.max_timestamp)
        if self.indexes is not None:
            self.indexes.meet_batch(position, header, self._data_max_timestamp)
        yield position, header

    def _take_crc(self, position: int, size: int) -> int:
        """The CRC of a batch; its bytes count towards `data_crc`."""
        crc, end, skipped = 0, position + size, ATTRIBUTES_POSITION
        while position < end:
            piece = self._bytes(position, min(_WINDOW_BYTES, end - position))
            self.data_crc = crc32c.crc32c(piece, self.data_crc)
            crc = crc32c.crc32c(piece[skipped:], crc)
            position, skipped = position + len(piece), 0
        return crc

    def _bytes(self, position: int, size: int) -> memoryview:
        """Bytes of the file; those near the last ones are there already."""
        start = position - self._window_position
        if start < 0 or start + size > len(self._window):
            assert self._file is not None
            self._window = memoryview(self._file.read_at(max(size, _WINDOW_BYTES), position))
            self._window_position, start = position, 0
        if len(self._window) - start < size:
            raise _BrokenOffError(Kind.BYTES_MISSING, position, "it became shorter while it was read")
        return self._window[start : start + size]


def _namer(version: int | None) -> str:
    return "a checkpoint" if version is None else f"version {version}"
