"""Signed variable-length integers, as records write their lengths and deltas (protocol guide, KIP-98).

    varint    int32    lengths, offset deltas
    varlong   int64    timestamp deltas

Zigzag interleaves the signs (0, -1, 1, -2 become 0, 1, 2, 3), so that small negative numbers stay short; the result is
written seven bits a byte, the low ones first, with the top bit set where more follows.

Decoders take a buffer and a position and return the value with the position behind it. Where the buffer ends too early
they let ``IndexError`` out: a reader of many fields pays for one ``try`` only, and says what was cut short. One and two
bytes, which is what records are made of, take a short cut; the encoders have those of small numbers in a table.
"""

from typing import Final

from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError

_LEAST_KNOWN: Final = -1  # null, where a length stands
_KNOWN_END: Final = 1_024


def encode_varint(value: int) -> bytes:
    """Encode an int32; ``ValueError`` if it is not one."""
    return _KNOWN[value] if _LEAST_KNOWN <= value < _KNOWN_END else _encode(value, bits=32)


def encode_varlong(value: int) -> bytes:
    """Encode an int64; ``ValueError`` if it is not one."""
    return _KNOWN[value] if _LEAST_KNOWN <= value < _KNOWN_END else _encode(value, bits=64)


def decode_varint(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Return an int32 and the position behind it.

    Raises:
        DecodeError: it is longer than 32 bits.
        IndexError: it is cut short.
    """
    raw = buffer[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    second = buffer[position + 1]
    if second < 0x80:
        raw = raw & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    return _decode(buffer, position, bits=32)


def decode_varlong(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Return an int64 and the position behind it.

    Raises:
        DecodeError: it is longer than 64 bits.
        IndexError: it is cut short.
    """
    raw = buffer[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    second = buffer[position + 1]
    if second < 0x80:
        raw = raw & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    return _decode(buffer, position, bits=64)


def _encode(value: int, *, bits: int) -> bytes:
    raw = (value << 1) ^ (value >> (bits - 1))
    if raw >> bits:
        raise ValueError(f"{value} does not fit {bits} bits")
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def _decode(buffer: Buffer, position: int, *, bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, bits, 7):
        group = buffer[position]
        position += 1
        raw |= (group & 0x7F) << shift
        if group < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
    raise DecodeError(f"a variable-length integer is longer than {bits} bits")


_KNOWN: Final = tuple(_encode(value, bits=32) for value in (*range(_KNOWN_END), _LEAST_KNOWN))
"""By value; the last one is at -1, as Python counts."""
