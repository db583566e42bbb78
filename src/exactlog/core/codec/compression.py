"""The five compression codecs of a record batch, by Kafka's numbers: bytes in, bytes out.

Formats are those that Kafka's Java client writes and reads:

- gzip: one or more members.
- snappy: the block stream of the xerial library. Raw snappy, which librdkafka and others may send, is read too.
- lz4: a frame with independent blocks (Kafka cannot read linked ones, KIP-57).
- zstd: one or more frames (KIP-110).

Layout of the xerial stream (big-endian):

    offset  size  field
    0       8     magic                82 53 4e 41 50 50 59 00
    8       4     version              1; not looked at: some producers write it little-endian
    12      4     compatible version   1; not looked at
    16            blocks to the end, each: int32 size, then so many bytes of raw snappy
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.limits import RECORDS_DECOMPRESSED_BYTES_MAX


class Compression(IntEnum):
    """A codec by its number in the attributes of a batch; the names in lower case are Kafka's in configurations."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


COMPRESSION_MASK: Final = 0b111
"""The bits of a batch's attributes that hold the codec."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SIZE: Final = struct.Struct(">i")

# The most that one byte can open to: deflate's and lz4's longest matches, and zstd's 128 KiB block in four bytes.
_EXPANSION_MAX: Final = {Compression.GZIP: 1_032, Compression.LZ4: 255, Compression.ZSTD: 32 * 1024}
_ROOM_BYTES_MIN: Final = 4 * 1024


def compression_of_attributes(attributes: int) -> Compression:
    """Return the codec that a batch's attributes name; raises `DecodeError` for the three unused numbers."""
    codec = attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD:
        raise DecodeError(f"compression codec {codec} is unknown")
    return Compression(codec)


def compress(codec: Compression, content: Buffer) -> bytes:
    """Compress, at the level that Kafka's producer takes by default."""
    match codec:
        case Compression.NONE:
            return bytes(content)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(content, level=6))
        case Compression.SNAPPY:
            return _compress_xerial(content)
        case Compression.LZ4:
            compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            compressor.compress(bytes(content))
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(content, level=3))


def decompress(codec: Compression, compressed: Buffer, *, bytes_max: int = RECORDS_DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress, to ``bytes_max`` bytes at most: a few bytes that open to gigabytes must not take the memory.

    Raises:
        DecodeError: malformed, cut short, or above ``bytes_max``.
    """
    match codec:
        case Compression.NONE:
            return bytes(compressed)
        case Compression.GZIP:
            return _decompress_within(codec, cramjam.gzip.decompress_into, compressed, bytes_max=bytes_max)
        case Compression.SNAPPY:
            return _decompress_snappy(compressed, bytes_max=bytes_max)
        case Compression.LZ4:
            return _decompress_within(codec, cramjam.lz4.decompress_into, compressed, bytes_max=bytes_max)
        case Compression.ZSTD:
            return _decompress_within(codec, cramjam.zstd.decompress_into, compressed, bytes_max=bytes_max)


def _decompress_within(
    codec: Compression,
    decompress_into: Callable[[Buffer, bytearray], int],
    compressed: Buffer,
    *,
    bytes_max: int,
) -> bytes:
    # The size is not known beforehand, and the library tells "no room" and "malformed" apart only in prose: so more
    # room is tried until no input of this length could need it.
    room_max = min(bytes_max, len(compressed) * _EXPANSION_MAX[codec])
    room = min(room_max, max(_ROOM_BYTES_MIN, 8 * len(compressed)))
    while True:
        content = bytearray(room)
        try:
            size = decompress_into(compressed, content)
        except cramjam.DecompressionError as error:
            if room == room_max:
                name = codec.name.lower()
                raise DecodeError(
                    f"{name} data is malformed, or opens to more than {room_max} bytes: {error}"
                ) from error
            room = min(room_max, 8 * room)
        else:
            return bytes(memoryview(content)[:size])


def _compress_xerial(content: Buffer) -> bytes:
    view = memoryview(content)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(compressed: Buffer, *, bytes_max: int) -> bytes:
    view = memoryview(compressed)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, bytes_max=bytes_max)
    if len(view) < len(_XERIAL_HEADER):
        raise DecodeError("snappy data ends inside the header of its stream")
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _SIZE.size
        if start > len(view):
            raise DecodeError("snappy data ends inside the size of a block")
        (size,) = _SIZE.unpack_from(view, position)
        position = start + size
        if size < 0 or position > len(view):
            raise DecodeError(f"a snappy block claims {size} bytes, {len(view) - start} are left")
        blocks.append(_decompress_raw_snappy(view[start:position], bytes_max=bytes_max))
        bytes_max -= len(blocks[-1])
    return b"".join(blocks)


def _decompress_raw_snappy(block: memoryview, *, bytes_max: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > bytes_max:
            raise DecodeError("snappy data opens to more bytes than allowed")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy data is malformed: {error}") from error
