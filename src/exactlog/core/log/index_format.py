"""The sparse indexes of a segment: `.index` finds an offset, `.timeindex` finds a time. All integers big-endian.

    .index      8-byte rows     0  4  relative offset: of a batch, less the segment's base offset
                                4  4  position: where that batch begins in the segment, in bytes
    .timeindex  12-byte rows    0  8  timestamp: the greatest one up to that offset, milliseconds since 1970
                                8  4  relative offset: of the record that has it

Rows stand in rising order, a few for each `index.interval.bytes` of log, and are as Kafka's. A segment that will not
grow any more is sealed: its index files (`.txnindex` too) end with a trailer of 16 bytes, by which a check of the whole
directory tells a damaged one. Whoever only looks something up needs no more than the number of rows.

    trailer     0  4  magic: "XIDX"
                4  2  version: 1
                6  2  row size, in bytes
                8  4  row count
                12 4  CRC-32C of the rows and of the trailer's first 12 bytes

Layout: docs/formats/index_format.md.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from exactlog.core.model.errors import DamageError, InvariantError

INDEX_ROW_SIZE: Final = 8
TIME_INDEX_ROW_SIZE: Final = 12
TRAILER_SIZE: Final = 16
RELATIVE_OFFSET_MAX: Final = 2**32 - 1
POSITION_MAX: Final = 2**32 - 1

_MAGIC: Final = b"XIDX"
_TRAILER_VERSION: Final = 1
_INDEX_ROW: Final = struct.Struct(">II")
_TIME_INDEX_ROW: Final = struct.Struct(">qI")
_TRAILER: Final = struct.Struct(">4sHHII")

ReadRow = Callable[[int], bytes]
"""Gives the bytes of a file's n-th row, counted from 0."""


class IndexRow(NamedTuple):
    """A batch of a segment: its offset, less the segment's base, and where it begins, in bytes."""

    relative_offset: int
    position: int


class TimeIndexRow(NamedTuple):
    """The greatest timestamp up to a record, and that record's offset, less the segment's base."""

    timestamp: int
    relative_offset: int


class OffsetIndex:
    """The rows of an `.index` in memory, in arrays: 8 bytes a row."""

    __slots__ = ("_positions", "_relative_offsets")

    def __init__(self) -> None:
        self._relative_offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, row: int) -> IndexRow:
        return IndexRow(self._relative_offsets[row], self._positions[row])

    def append(self, *, relative_offset: int, position: int) -> None:
        """Adds a row for the batch at `position`, whose first offset is `relative_offset` above the segment's base.

        Raises:
            InvariantError: it does not lie behind the last row, or is out of an unsigned 32-bit number's range: the
                segment was to be rolled before.
        """
        last = self[-1] if self else IndexRow(-1, -1)
        if not (
            last.relative_offset < relative_offset <= RELATIVE_OFFSET_MAX and last.position < position <= POSITION_MAX
        ):
            raise InvariantError(f"index row ({relative_offset}, {position}) cannot stand behind {tuple(last)}")
        self._relative_offsets.append(relative_offset)
        self._positions.append(position)

    def truncate(self, row_count: int) -> None:
        """Drops all rows but the first `row_count`."""
        del self._relative_offsets[row_count:]
        del self._positions[row_count:]

    def floor(self, relative_offset: int) -> IndexRow | None:
        """The last row at or below an offset: reading from its position on meets that offset. None: from 0 on."""
        row = bisect_right(self._relative_offsets, relative_offset) - 1
        return self[row] if row >= 0 else None

    def encode(self, *, first_row: int = 0) -> bytes:
        """The bytes of the rows from `first_row` on."""
        return b"".join(map(_INDEX_ROW.pack, self._relative_offsets[first_row:], self._positions[first_row:]))

    @classmethod
    def decode(cls, rows: bytes) -> "OffsetIndex":
        """The index that these bytes, without a trailer, hold.

        Raises:
            DamageError: they are no whole number of rows, or not in rising order.
        """
        _check_whole_rows(rows, INDEX_ROW_SIZE)
        index = cls()
        for relative_offset, position in _INDEX_ROW.iter_unpack(rows):
            index._relative_offsets.append(relative_offset)
            index._positions.append(position)
        if not (_is_rising(index._relative_offsets) and _is_rising(index._positions)):
            raise DamageError("the rows of an offset index do not rise")
        return index


class TimeIndex:
    """The rows of a `.timeindex` in memory, in arrays: 12 bytes a row."""

    __slots__ = ("_relative_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._relative_offsets = array("I")

    def __len__(self) -> int:
        return len(self._timestamps)

    def __getitem__(self, row: int) -> TimeIndexRow:
        return TimeIndexRow(self._timestamps[row], self._relative_offsets[row])

    def append(self, *, timestamp: int, relative_offset: int) -> None:
        """Adds a row: no record up to `relative_offset` has a greater timestamp than this one.

        Raises:
            InvariantError: it does not lie behind the last row in both, or is out of an unsigned 32-bit number's range.
        """
        last = self[-1] if self else TimeIndexRow(-(2**63) - 1, -1)
        if not (last.timestamp < timestamp < 2**63 and last.relative_offset < relative_offset <= RELATIVE_OFFSET_MAX):
            raise InvariantError(f"time index row ({timestamp}, {relative_offset}) cannot stand behind {tuple(last)}")
        self._timestamps.append(timestamp)
        self._relative_offsets.append(relative_offset)

    def truncate(self, row_count: int) -> None:
        """Drops all rows but the first `row_count`."""
        del self._timestamps[row_count:]
        del self._relative_offsets[row_count:]

    def floor(self, timestamp: int) -> TimeIndexRow | None:
        """The last row at or before a time: all records up to its offset are that old or older. None: unknown."""
        row = bisect_right(self._timestamps, timestamp) - 1
        return self[row] if row >= 0 else None

    def encode(self, *, first_row: int = 0) -> bytes:
        """The bytes of the rows from `first_row` on."""
        return b"".join(map(_TIME_INDEX_ROW.pack, self._timestamps[first_row:], self._relative_offsets[first_row:]))

    @classmethod
    def decode(cls, rows: bytes) -> "TimeIndex":
        """The index that these bytes, without a trailer, hold.

        Raises:
            DamageError: they are no whole number of rows, or not in rising order.
        """
        _check_whole_rows(rows, TIME_INDEX_ROW_SIZE)
        index = cls()
        for timestamp, relative_offset in _TIME_INDEX_ROW.iter_unpack(rows):
            index._timestamps.append(timestamp)
            index._relative_offsets.append(relative_offset)
        if not (_is_rising(index._timestamps) and _is_rising(index._relative_offsets)):
            raise DamageError("the rows of a time index do not rise")
        return index


def floor_index_row(read_row: ReadRow, *, row_count: int, relative_offset: int) -> IndexRow | None:
    """`OffsetIndex.floor` on a file: reads about log2 of `row_count` rows."""
    below = count_rows(read_row, row_count=row_count, belongs=lambda row: _INDEX_ROW.unpack(row)[0] <= relative_offset)
    return IndexRow._make(_INDEX_ROW.unpack(read_row(below - 1))) if below else None


def floor_time_index_row(read_row: ReadRow, *, row_count: int, timestamp: int) -> TimeIndexRow | None:
    """`TimeIndex.floor` on a file: reads about log2 of `row_count` rows."""
    before = count_rows(read_row, row_count=row_count, belongs=lambda row: _TIME_INDEX_ROW.unpack(row)[0] <= timestamp)
    return TimeIndexRow._make(_TIME_INDEX_ROW.unpack(read_row(before - 1))) if before else None


def count_rows(read_row: ReadRow, *, row_count: int, belongs: Callable[[bytes], bool]) -> int:
    """How many rows belong to the first part of a file, where all that do stand before all that do not."""
    low, high = 0, row_count
    while low < high:
        middle = (low + high) // 2
        if belongs(read_row(middle)):
            low = middle + 1
        else:
            high = middle
    return low


class IndexTrailer(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a sealed index file."""

    row_size: int
    row_count: int
    crc: int


def encode_trailer(rows: bytes, *, row_size: int) -> bytes:
    """What to write behind the rows of an index file when its segment is sealed."""
    _check_whole_rows(rows, row_size)
    head = _TRAILER.pack(_MAGIC, _TRAILER_VERSION, row_size, len(rows) // row_size, 0)[:-4]
    return head + crc32c(head, crc32c(rows)).to_bytes(4, "big")


def decode_trailer(last_bytes: bytes, *, file_size: int, row_size: int) -> IndexTrailer | None:
    """The trailer at the end of an index file, from its last 16 bytes; None: the file has no (whole) one.

    It tells the number of rows without reading them. Whether they are good, `decode_sealed_rows` tells.

    Args:
        last_bytes: the last `TRAILER_SIZE` bytes of the file, or all of a shorter one.
        file_size: the size of the whole file, in bytes.
        row_size: the size of a row of this kind of index, in bytes.
    """
    if len(last_bytes) != TRAILER_SIZE:
        return None
    magic, version, stated_row_size, row_count, crc = _TRAILER.unpack(last_bytes)
    if (magic, version, stated_row_size) != (_MAGIC, _TRAILER_VERSION, row_size):
        return None
    if row_count * row_size + TRAILER_SIZE != file_size:
        return None
    return IndexTrailer(row_size=row_size, row_count=row_count, crc=crc)


def decode_sealed_rows(content: bytes, *, row_size: int) -> bytes:
    """The rows of a sealed index file, verified.

    Args:
        content: the whole file.
        row_size: the size of a row of this kind of index, in bytes.

    Raises:
        DamageError: there is no whole trailer, or the rows are not those it was written for.
    """
    trailer = decode_trailer(content[-TRAILER_SIZE:], file_size=len(content), row_size=row_size)
    if trailer is None:
        raise DamageError("the index has no whole trailer")
    if crc32c(content[:-4]) != trailer.crc:
        raise DamageError("the index is not as it was sealed: its CRC differs")
    return content[:-TRAILER_SIZE]


def _check_whole_rows(rows: bytes, row_size: int) -> None:
    if len(rows) % row_size:
        raise DamageError(f"{len(rows)} bytes of index are no whole number of {row_size}-byte rows")


def _is_rising(numbers: "array[int]") -> bool:
    return all(earlier < later for earlier, later in pairwise(numbers))
