"""Where the fields of many records lie: what `core.record.record_format` reads one by one, for thousands at once.

One loop in Python finds where each record ends; all else is done by vectors over as many records as there are: about
a quarter of a microsecond a record, where one by one it takes several. Keys and values are not touched, only located.

What is found is what `decode_records` finds. Where a record is not plain (a number of ten bytes), or not right, `Odd`
says so, and the caller goes through the records one by one: it gets the same values, or the error in its own words.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s: TypeAlias = npt.NDArray[np.int64]
    Bytes: TypeAlias = npt.NDArray[np.uint8]

_INT32_BITS: Final = 32
_VARINT_SHIFT_MAX: Final = 28  # of the fifth byte
_VARLONG_SHIFT_MAX: Final = 56  # of the ninth byte; a tenth is left to the reader of single records
_RECORD_BYTES_MIN: Final = 7  # without key, value and headers
_HALF_AND_TWO: Final = tuple(((first & 0x7F) >> 1) + 2 for first in range(256))
"""What the first byte of a length of two bytes says, zigzag undone, and those two bytes."""


class Odd(Exception):  # noqa: N818  no error: another way is taken
    """Some record is not plain, or not right."""


class RecordPositions(msgspec.Struct, frozen=True):
    """The fields of records that follow each other in one buffer; each a vector with one number a record.

    Attributes:
        timestamp_delta: to the base timestamp of the batch, in milliseconds.
        offset_delta: to the base offset of the batch.
        key_start: where the key begins.
        key_length: its length in bytes; below 0: null.
        value_start: where the value begins.
        value_length: its length in bytes; below 0: null.
        header_count: how many headers it has.
        headers_start: where the first header begins.
        end: where the record ends.
    """

    timestamp_delta: "Int64s"
    offset_delta: "Int64s"
    key_start: "Int64s"
    key_length: "Int64s"
    value_start: "Int64s"
    value_length: "Int64s"
    header_count: "Int64s"
    headers_start: "Int64s"
    end: "Int64s"


def find_ends(content: bytes, count: int) -> list[int]:
    """Where each of a batch's records ends.

    Args:
        content: the records of one batch, decompressed.
        count: how many they are, by the batch's header.

    Raises:
        Odd: they do not fill it.
    """
    if not 0 <= count * _RECORD_BYTES_MIN <= len(content):
        raise Odd
    ends = [0] * count
    at = 0
    try:
        for index in range(count):
            length = content[at]
            if length < 0x80:
                at += (length >> 1) + 1
            else:
                second = content[at + 1]
                if second < 0x80:
                    at += (second << 6) + _HALF_AND_TWO[length]
                else:
                    raw, size = _long_length(content, at)
                    at += (raw >> 1) + size
            ends[index] = at
    except IndexError:
        raise Odd from None
    if at != len(content):
        raise Odd
    return ends


def locate_fields(content: bytes, ends: "Int64s") -> RecordPositions:
    """The fields of all records of a buffer.

    Args:
        content: records that follow each other, of one batch or of many.
        ends: where each of them ends, the last one with the buffer.

    Raises:
        Odd: one is not plain, or does not end where its length says. Headers are not looked into.
    """
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    buffer = np.frombuffer(content, dtype=np.uint8)
    at = np.empty_like(ends)
    at[0] = 0
    at[1:] = ends[:-1]
    length, at = _numbers(buffer, at, shift_max=_VARINT_SHIFT_MAX)
    at += 1  # the attributes
    timestamp_delta, at = _numbers(buffer, at, shift_max=_VARLONG_SHIFT_MAX)
    offset_delta, at = _numbers(buffer, at, shift_max=_VARINT_SHIFT_MAX)
    key_length, key_start = _numbers(buffer, at, shift_max=_VARINT_SHIFT_MAX)
    at = key_start + np.maximum(key_length, 0)
    value_length, value_start = _numbers(buffer, at, shift_max=_VARINT_SHIFT_MAX)
    at = value_start + np.maximum(value_length, 0)
    header_count, at = _numbers(buffer, at, shift_max=_VARINT_SHIFT_MAX)
    # Nothing before can lie behind the end of its record when this does not: a field is no shorter than nothing.
    if (length < 0).any() or (header_count < 0).any() or np.where(header_count == 0, at != ends, at > ends).any():
        raise Odd
    return RecordPositions(
        timestamp_delta,
        offset_delta,
        key_start,
        key_length,
        value_start,
        value_length,
        header_count,
        headers_start=at,
        end=ends,
    )


def join_ends(contents: Sequence[bytes], counts: Iterable[int]) -> "Int64s":
    """Where the records of several batches end in the buffer that these make one after the other.

    Raises:
        Odd: as `find_ends`.
    """
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    base = 0
    parts = []
    for content, count in zip(contents, counts, strict=True):
        parts.append(np.array(find_ends(content, count), dtype=np.int64) + base)
        base += len(content)
    return np.concatenate(parts)


def _numbers(buffer: "Bytes", at: "Int64s", *, shift_max: int) -> "tuple[Int64s, Int64s]":
    """The numbers at some positions, zigzag undone, and the positions behind them.

    Positions behind the buffer are taken for its last one: whoever follows them ends behind the record, and says so.
    """
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    first = buffer.take(at, mode="clip")
    has_more = first > 0x7F
    raw = (first & 0x7F).astype(np.int64)
    at = at + 1
    if has_more.any():
        second = buffer.take(at, mode="clip")
        raw |= np.where(has_more, (second & 0x7F).astype(np.int64) << 7, 0)
        at += has_more
        has_more &= second > 0x7F
        _add_further_bytes(buffer, raw, at, np.flatnonzero(has_more), shift_max=shift_max)
    if shift_max == _VARINT_SHIFT_MAX and (raw >> _INT32_BITS).any():
        raise Odd
    return (raw >> 1) ^ -(raw & 1), at


def _add_further_bytes(
    buffer: "Bytes", raw: "Int64s", at: "Int64s", rows: "npt.NDArray[np.intp]", *, shift_max: int
) -> None:
    """Adds what follows the second byte of the numbers of some rows."""
    shift = 14
    while rows.size:
        if shift > shift_max:
            raise Odd
        group = buffer.take(at[rows], mode="clip")
        raw[rows] |= (group & 0x7F).astype(raw.dtype) << shift
        at[rows] += 1
        rows = rows[group > 0x7F]
        shift += 7


def _long_length(content: bytes, at: int) -> tuple[int, int]:
    """The number at a position, of three bytes or more, zigzag not undone, and how many bytes it takes."""
    raw = 0
    for size, shift in enumerate(range(0, _VARINT_SHIFT_MAX + 1, 7), start=1):
        group = content[at + size - 1]
        raw |= (group & 0x7F) << shift
        if group < 0x80:
            if raw >> _INT32_BITS:
                break
            return raw, size
    raise Odd
