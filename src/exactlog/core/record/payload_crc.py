"""The checksum of what a client asks to be appended: by it a retry is told from another payload under the same id.

CRC-32C, as eight lower-case hex digits, over all records, each encoded as

    type      field
    int32     key_length         -1: null
    bytes     key
    int32     value_length       -1: null
    bytes     value
    int64     timestamp_ms       -1 where none was given
    int32     header_count
              then for each header:
    int32     name_length
    bytes     name               UTF-8
    int32     value_length       -1: null
    bytes     value

with all integers big-endian. It is taken of what the client gave: before a record without a timestamp gets the time of
the moment, before offsets, before compression. So a retry has the same checksum, whenever and however it is sent.
"""

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from exactlog.core.record.batch_builder import NewRecord

_LENGTH: Final = struct.Struct(">i")
_TIMESTAMP_AND_HEADER_COUNT: Final = struct.Struct(">qi")
_NULL: Final = _LENGTH.pack(-1)


def payload_crc(records: Iterable[NewRecord]) -> str:
    """The checksum of these records in this order, as `payload_crc` of a delta commit has it."""
    crc = 0
    for record in records:
        crc = crc32c(b"".join(_encode(record)), crc)
    return f"{crc:08x}"


def _encode(record: NewRecord) -> list[bytes]:
    parts = [
        *_encode_nullable(record.key),
        *_encode_nullable(record.value),
        _TIMESTAMP_AND_HEADER_COUNT.pack(record.timestamp_ms, len(record.headers)),
    ]
    for name, value in record.headers:
        parts += [*_encode_nullable(name.encode()), *_encode_nullable(value)]
    return parts


def _encode_nullable(content: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if content is None else (_LENGTH.pack(len(content)), content)
