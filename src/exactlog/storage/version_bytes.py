"""The bytes of segments as recovery looks at them: whole batch by whole batch, a bounded read at a time."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import crc32c

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation
from exactlog.core.deltalog.table_segments import is_rewritten
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_format import BATCH_OVERHEAD, BatchHeader, crc_is_valid, decode_header
from exactlog.core.record.control_record_format import TransactionMarker, decode_marker_batch
from exactlog.storage.filesystem import File
from exactlog.storage.segment import SegmentFiles

_WINDOW_BYTES: Final = 1024 * 1024


class UnusableBytesError(Exception):
    """The bytes of a version are not there, or not what its delta commit says.

    Attributes:
        missing_segment: the segment whose file is not there at all; None where it is.
    """

    def __init__(self, message: str, *, missing_segment: str | None = None) -> None:
        super().__init__(message)
        self.missing_segment = missing_segment


class FoundBatch(NamedTuple):
    """A batch in a file; the content is valid until the next one is asked for."""

    position: int
    header: BatchHeader
    content: memoryview


class PlacedBatch(NamedTuple):
    """A batch that a version adds: in which segment, and where; and what it says if it is a transaction marker."""

    segment: str
    position: int
    header: BatchHeader
    marker: TransactionMarker | None


def marker_of(found: FoundBatch) -> TransactionMarker | None:
    """The transaction marker that a batch is; None for another one.

    Raises:
        DecodeError: it should be one, and its record is malformed.
    """
    return decode_marker_batch(found.content) if found.header.is_control else None


def walk_batches(file: File, start: int, end: int) -> Iterator[FoundBatch]:
    """The batches between two positions of a file; ends before one that is not whole.

    Raises:
        DecodeError: something else is there.
    """
    window, window_start, position = memoryview(b""), start, start
    while end - position >= BATCH_OVERHEAD:
        if position + BATCH_OVERHEAD > window_start + len(window):
            window, window_start = _read(file, position, min(_WINDOW_BYTES, end - position)), position
        header = decode_header(window, position - window_start)
        following = position + header.size_bytes
        if following > end:
            return
        if following > window_start + len(window):
            size = min(max(_WINDOW_BYTES, header.size_bytes), end - position)
            window, window_start = _read(file, position, size), position
        yield FoundBatch(position, header, window[position - window_start : following - window_start])
        position = following


def find_valid_tail(file: File, start: int, *, next_offset: int, leader_epoch: int) -> Iterator[FoundBatch]:
    """The batches behind a position that are whole, have their CRC, and follow each other and what is before them."""
    try:
        for found in walk_batches(file, start, file.size()):
            header = found.header
            is_next = header.base_offset == next_offset and header.leader_epoch >= leader_epoch
            if not is_next or header.record_count <= 0 or not crc_is_valid(found.content):
                return
            yield found
            next_offset, leader_epoch = header.next_offset, header.leader_epoch
    except DecodeError:
        return  # the first bytes that are no batch end the log: what a crash tore


def find_torn_batch(file: File, segment: SegmentEntry, *, newest_epoch: int) -> str | None:
    """What is wrong with the first batch of a segment that is not whole or not what was written.

    A batch's CRC does not cover its offset and its leader epoch; those follow from the batches around it.

    Args:
        newest_epoch: no batch is of a later leader epoch.
    """
    position, next_offset, leader_epoch = 0, segment.base, -1
    try:
        for found in walk_batches(file, 0, segment.size):
            header = found.header
            if not crc_is_valid(found.content):
                return f"the batch at byte {position} does not match its checksum"
            if not next_offset <= header.base_offset < header.next_offset <= segment.next_offset:
                return f"the batch at byte {position} has offsets {header.base_offset} to {header.last_offset}"
            if not leader_epoch <= header.leader_epoch <= newest_epoch:
                return f"the batch at byte {position} is of leader epoch {header.leader_epoch}"
            position += header.size_bytes
            next_offset, leader_epoch = header.next_offset, header.leader_epoch
    except DecodeError as error:
        return f"behind byte {position}: {error}"
    return None if position == segment.size else f"the batch at byte {position} is not whole"


def check_added_bytes(files: SegmentFiles, directory: str, commit: DeltaCommit) -> list[PlacedBatch]:
    """The batches of a version, which are all there and as they were committed.

    Raises:
        UnusableBytesError: they are not; says in which file.
    """
    return list(walk_added_bytes(files, directory, commit))


def walk_added_bytes(files: SegmentFiles, directory: str, commit: DeltaCommit) -> Iterator[PlacedBatch]:
    """The same one by one: that all of them are as they were committed is known when they end."""
    adds = [operation for operation in commit.operations if operation.type == "add"]
    crc = 0
    for add in adds:
        next_offset: int = add.offset_start
        for found in _batches_of(files, directory, add):
            crc = crc32c.crc32c(found.content, crc)
            next_offset = found.header.next_offset
            try:
                marker = marker_of(found)
            except DecodeError as error:
                where = f"{_where(directory, add)}, the batch at byte {found.position}"
                raise UnusableBytesError(f"{where}: {error}") from error
            yield PlacedBatch(add.segment, found.position, found.header, marker)
        if next_offset != add.offset_end + 1:
            raise UnusableBytesError(
                f"{_where(directory, add)}: the batches end before offset {next_offset}, not with {add.offset_end}"
            )
    if print_crc(crc) != commit.data_crc:
        raise UnusableBytesError(
            f"{', '.join(_where(directory, add) for add in adds)}: they have CRC {print_crc(crc)}, "
            f"the delta commit says {commit.data_crc}"
        )


def _batches_of(files: SegmentFiles, directory: str, add: Operation) -> Iterator[FoundBatch]:
    """The batches of one add, which fill it and follow each other; compaction leaves gaps between them."""
    path = f"{directory}/{add.segment}"
    try:
        file = files.open(path)
    except FileNotFoundError:
        raise UnusableBytesError(f"{path} is missing", missing_segment=add.segment) from None
    size = max(0, min(add.size, file.size() - add.position))
    if size < add.size:
        raise UnusableBytesError(f"{_where(directory, add)}: only {size} bytes are there")
    position, next_offset, may_have_gaps = add.position, add.offset_start, is_rewritten(add.segment)
    try:
        for found in walk_batches(file, position, position + size):
            base_offset = found.header.base_offset
            if base_offset < next_offset or (base_offset > next_offset and not may_have_gaps):
                raise UnusableBytesError(
                    f"{_where(directory, add)}: a batch has offset {base_offset}, not {next_offset}"
                )
            yield found
            position, next_offset = found.position + found.header.size_bytes, found.header.next_offset
    except DecodeError as error:
        raise UnusableBytesError(f"{_where(directory, add)}: {error}") from error
    if position != add.position + size:
        raise UnusableBytesError(f"{_where(directory, add)}: the batch at byte {position} is not whole")


def _read(file: File, position: int, size: int) -> memoryview:
    """Bytes that are there: whoever asks has looked at the size.

    Raises:
        DecodeError: they have gone since.
    """
    content = file.read_at(size, position)
    if len(content) < size:
        raise DecodeError(f"only {len(content)} of {size} bytes could be read at byte {position}")
    return memoryview(content)


def _where(directory: str, add: Operation) -> str:
    return f"{directory}/{add.segment}, bytes {add.position} to {add.position + add.size}"
