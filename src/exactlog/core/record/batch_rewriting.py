"""A stored batch with fewer records: what is left of it after compaction (KIP-98, KIP-534).

Base offset, last offset delta, base sequence, producer and leader epoch stay, so that every record keeps its offset and
the producer its sequences. Records that stay are copied as they are. With a delete horizon the base timestamp says when
tombstones and markers may go, and the timestamp deltas count from there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from exactlog.core.codec.compression import Compression, compress, decompress
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.codec.zigzag import decode_varint, decode_varlong, encode_varint, encode_varlong
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    TimestampMs,
)
from exactlog.core.record.batch_format import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    checksum,
)

_COMPRESSION_BITS: Final = 0x07
_ATTRIBUTES_SIZE: Final = 1


class RecordSpan(NamedTuple):
    """Where a record stands within the decompressed content of its batch, and what its fate depends on.

    Attributes:
        offset: of the record.
        timestamp_delta: as stored.
        key: None where it is null.
        is_tombstone: whether its value is null.
        start, behind_timestamp, end: positions: of its length, behind its timestamp, behind all of it.
        body: where its attributes stand, behind its length.
    """

    offset: Offset
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool
    start: int
    body: int
    behind_timestamp: int
    end: int


class StoredRecords(NamedTuple):
    """The records of one batch, decompressed and not decoded any further than need be."""

    content: bytes
    spans: Sequence[RecordSpan]


def index_records(batch: Buffer, header: BatchHeader) -> StoredRecords:
    """Where the records of a whole batch stand. The CRC is not checked.

    Raises:
        DecodeError: malformed, or longer or shorter than the header says.
    """
    stored = memoryview(batch)[BATCH_OVERHEAD : header.size_bytes]
    content = decompress(header.compression, stored) if stored else b""
    spans: list[RecordSpan] = []
    at = 0
    for index in range(header.record_count):
        try:
            span = _find_span(content, at, header.base_offset)
        except IndexError:
            raise DecodeError(f"the batch ends inside record {index} of {header.record_count}") from None
        spans.append(span)
        at = span.end
    if at != len(content):
        raise DecodeError(f"{len(content) - at} bytes follow the last of {header.record_count} records")
    return StoredRecords(content, spans)


def keep_records(
    header: BatchHeader, content: bytes, spans: Sequence[RecordSpan], *, delete_horizon_ms: int | None
) -> bytes:
    """The batch with these of its records, one or more.

    Args:
        header: of the batch as it is.
        content: its records, decompressed.
        spans: those that stay, in order.
        delete_horizon_ms: set where the batch is to get one; None where it stays as it is, with one or without.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is None:
        records = b"".join([content[span.start : span.end] for span in spans])
    else:
        shift = header.base_timestamp - delete_horizon_ms
        try:
            records = b"".join([_shift_time(content, span, shift) for span in spans])
        except ValueError:  # so far from any real time that no delta leads there: it goes without a horizon
            return keep_records(header, content, spans, delete_horizon_ms=None)
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, TimestampMs(delete_horizon_ms)
    max_timestamp = header.max_timestamp
    if len(spans) < header.record_count and not header.is_log_append_time:
        max_timestamp = TimestampMs(header.base_timestamp + max(span.timestamp_delta for span in spans))
    stored = compress(header.compression, records)
    return _pack(
        header,
        stored,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(spans),
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records: what is left is its range of offsets, and what its producer's state needs."""
    kept = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return _pack(
        header,
        b"",
        attributes=kept,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        record_count=0,
    )


def filler_batch(header: BatchHeader) -> bytes:
    """An empty batch of nobody, over the offsets of a batch: what ends a segment where it would end otherwise.

    Its time stays: by that retention knows how old the segment is.
    """
    return _pack(
        header,
        b"",
        attributes=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        record_count=0,
        has_producer=False,
    )


def is_filler(header: BatchHeader) -> bool:
    """Whether a batch is one that `filler_batch` makes."""
    return header.record_count == 0 and not header.has_producer_id


def _find_span(content: bytes, start: int, base_offset: int) -> RecordSpan:
    length, body = decode_varint(content, start)
    end = body + length
    timestamp_delta, behind_timestamp = decode_varlong(content, body + _ATTRIBUTES_SIZE)
    offset_delta, at = decode_varint(content, behind_timestamp)
    key_length, at = decode_varint(content, at)
    key = None if key_length < 0 else content[at : at + key_length]
    at += max(0, key_length)
    value_length, at = decode_varint(content, at)
    if not body < at + max(0, value_length) <= end <= len(content):
        raise DecodeError(f"a record of offset delta {offset_delta} does not end where its length says")
    offset = Offset(base_offset + offset_delta)
    return RecordSpan(offset, timestamp_delta, key, value_length < 0, start, body, behind_timestamp, end)


def _shift_time(content: bytes, span: RecordSpan, shift: int) -> bytes:
    """A record whose timestamp counts from another base."""
    body = (
        content[span.body : span.body + _ATTRIBUTES_SIZE]
        + encode_varlong(span.timestamp_delta + shift)
        + content[span.behind_timestamp : span.end]
    )
    return encode_varint(len(body)) + body


def _pack(
    header: BatchHeader,
    stored: bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    has_producer: bool = True,
) -> bytes:
    size_bytes = BATCH_OVERHEAD + len(stored)
    if not stored:
        attributes = attributes & ~_COMPRESSION_BITS | Compression.NONE
    head = HEADER.pack(
        header.base_offset,
        size_bytes - LENGTH_OVERHEAD,
        header.leader_epoch,
        MAGIC,
        0,  # the checksum follows
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id if has_producer else NO_PRODUCER_ID,
        header.producer_epoch if has_producer else NO_PRODUCER_EPOCH,
        header.base_sequence if has_producer else NO_SEQUENCE,
        record_count,
    )
    batch = bytearray(head + stored)
    CRC.pack_into(batch, CRC_POSITION, checksum(batch, 0, size_bytes))
    return bytes(batch)
