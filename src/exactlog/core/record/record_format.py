"""One record inside a batch (magic 2, KIP-98), and the records of a whole batch.

    type      field
    varint    length             of the rest of the record, in bytes
    int8      attributes         none defined: written 0, not looked at
    varlong   timestamp_delta    timestamp - base_timestamp of the batch
    varint    offset_delta       offset - base_offset of the batch
    varint    key_length         -1: null
    bytes     key
    varint    value_length       -1: null
    bytes     value
    varint    header_count
              then for each header:
    varint    name_length        0 or more
    bytes     name               UTF-8
    varint    header_value_length  -1: null
    bytes     header_value

As Kafka's readers do, any negative length is read as null, and bytes of a header's name that are not UTF-8 as U+FFFD.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from exactlog.core.codec.compression import decompress
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.codec.zigzag import decode_varint, decode_varlong, encode_varint, encode_varlong
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import Offset, TimestampMs
from exactlog.core.record.batch_format import BATCH_OVERHEAD, BatchHeader, decode_header

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_NO_ATTRIBUTES = b"\x00"


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as read: its place in the log, its time in milliseconds since 1970, and what the producer sent."""

    offset: Offset
    timestamp_ms: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_record(
    *, offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """Encode one record; ``ValueError`` if a delta or a length does not fit its type."""
    parts = [_NO_ATTRIBUTES, encode_varlong(timestamp_delta), encode_varint(offset_delta)]
    parts += (_NULL,) if key is None else (encode_varint(len(key)), key)
    parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    if headers:
        parts.append(encode_varint(len(headers)))
        for name, header_value in headers:
            encoded_name = name.encode()
            parts += (encode_varint(len(encoded_name)), encoded_name)
            parts += (_NULL,) if header_value is None else (encode_varint(len(header_value)), header_value)
    else:
        parts.append(_NO_HEADERS)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def decode_records(buffer: Buffer, position: int = 0, *, header: BatchHeader | None = None) -> Iterator[Record]:
    """Yield the records of the batch at ``position``, decompressing them first where need be.

    Nothing happens before the first record is asked for. The CRC is not checked.

    Args:
        buffer: holds the whole batch.
        position: where the batch starts.
        header: the batch's header where it is known already.

    Raises:
        DecodeError: malformed, cut short, longer or shorter than the header says, or too large when decompressed
            (`RECORDS_DECOMPRESSED_BYTES_MAX`).
    """
    header = header or decode_header(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise DecodeError(f"the batch takes {header.size_bytes} bytes, {len(buffer) - position} are left")
    if header.record_count < 0:
        raise DecodeError(f"the batch claims {header.record_count} records")
    stored = memoryview(buffer)[position + BATCH_OVERHEAD : end]
    # A batch that the cleaner has emptied has nothing to decompress.
    content = decompress(header.compression, stored) if stored else b""
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for index in range(header.record_count):
        try:
            record, at = _decode_record(content, at, header, append_time_ms)
        except IndexError:
            raise DecodeError(f"the batch ends inside record {index} of {header.record_count}") from None
        yield record
    if at != len(content):
        raise DecodeError(f"{len(content) - at} bytes follow the last of {header.record_count} records")


def _decode_record(
    content: bytes, at: int, batch: BatchHeader, append_time_ms: TimestampMs | None
) -> tuple[Record, int]:
    length, at = decode_varint(content, at)
    end = at + length
    timestamp_delta, at = decode_varlong(content, at + len(_NO_ATTRIBUTES))
    offset_delta, at = decode_varint(content, at)
    key, at = _decode_nullable(content, at)
    value, at = _decode_nullable(content, at)
    header_count, at = decode_varint(content, at)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if header_count:
        headers, at = _decode_headers(content, at, count=header_count)
    if at != end or at > len(content):
        raise DecodeError(f"a record of offset delta {offset_delta} does not end where its length says")
    timestamp_ms = TimestampMs(batch.base_timestamp + timestamp_delta) if append_time_ms is None else append_time_ms
    return Record(Offset(batch.base_offset + offset_delta), timestamp_ms, key, value, headers), at


def _decode_nullable(content: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(content, at)
    if length < 0:
        return None, at
    end = at + length
    return content[at:end], end


def _decode_headers(content: bytes, at: int, *, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    # A header takes two bytes at least: a count that lies is found before anything is made of it.
    if not 0 <= 2 * count <= len(content) - at:
        raise DecodeError(f"a record claims {count} headers, {len(content) - at} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _decode_nullable(content, at)
        if name is None:
            raise DecodeError("a record header has no name")
        value, at = _decode_nullable(content, at)
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), at
