"""Unsigned varints, as flexible versions write lengths, counts and tags (KIP-482).

Seven bits a byte, the low ones first; the top bit says that more follows. At most five bytes and 32 bits.
"""

from typing import Final

from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError

UVARINT_MAX: Final = 2**32 - 1
SINGLE_BYTES: Final = tuple(bytes((value,)) for value in range(0x80))
"""The varints of one byte, by value."""


def encode_uvarint(value: int) -> bytes:
    """The varint of a value that is not negative; those of the protocol are at most 2^32 - 1."""
    if value < 0x80:
        return SINGLE_BYTES[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """The varint at `offset`, and the offset behind it.

    Raises:
        DecodeError: it is cut short, or longer than 32 bits.
    """
    try:
        return _read_uvarint(buffer, offset)
    except IndexError as error:
        raise DecodeError("A varint is cut short") from error
    except OverflowError as error:
        raise DecodeError("A varint is longer than 32 bits") from error


def continue_uvarint(buffer: Buffer, offset: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, one of 0x80 and more, has been read, and the offset behind it.

    The decoders turn its errors into words of their own, which name the message.

    Raises:
        IndexError: it is cut short.
        OverflowError: it is longer than 32 bits.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                break
            return value, offset
    raise OverflowError


def skip_tagged_fields(buffer: Buffer, offset: int, count: int) -> int:
    """The offset behind a section of tagged fields, none of which is known; `count` is its first byte, already read.

    Raises:
        IndexError: it is cut short.
        OverflowError: it has a varint longer than 32 bits.
    """
    if count >= 0x80:
        count, offset = continue_uvarint(buffer, offset, count)
    for _ in range(count):
        _, offset = _read_uvarint(buffer, offset)
        size, offset = _read_uvarint(buffer, offset)
        offset += size
        if offset > len(buffer):
            raise IndexError
    return offset


def _read_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    first = buffer[offset]
    return (first, offset + 1) if first < 0x80 else continue_uvarint(buffer, offset + 1, first)
