"""Records in, one record batch out: for what the broker writes itself, for our own client, and for tests."""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from exactlog.core.codec.compression import Compression, compress
from exactlog.core.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from exactlog.core.record.batch_format import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CRC,
    CRC_POSITION,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    checksum,
)
from exactlog.core.record.record_format import Headers, encode_record

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
FIRST_OFFSET: Final = Offset(0)


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to be written: it has no offset yet. ``timestamp_ms`` is in milliseconds since 1970."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: TimestampMs = NO_TIMESTAMP


def build_batch(
    records: Sequence[NewRecord],
    *,
    compression: Compression = Compression.NONE,
    base_offset: Offset = FIRST_OFFSET,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    append_time_ms: TimestampMs | None = None,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytearray:
    """Return the bytes of one batch, which a broker may then patch in place.

    Args:
        records: one or more; they get consecutive offsets from ``base_offset``.
        compression: the codec for all of them together.
        base_offset: 0 in a Produce request.
        producer_id: with epoch and sequence for an idempotent producer.
        producer_epoch: of the producer.
        base_sequence: sequence of the first record.
        is_transactional: whether the batch belongs to a transaction.
        is_control: whether the records are control records.
        append_time_ms: if given, the batch carries the time of its append instead of the records' own.
        leader_epoch: of the leader that appends.

    Raises:
        ValueError: no record, or a value that its field cannot hold.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp_ms
    content = compress(compression, _encode_records(records, base_timestamp=base_timestamp))
    size_bytes = BATCH_OVERHEAD + len(content)
    bits = LOG_APPEND_TIME_BIT * (append_time_ms is not None)
    bits |= TRANSACTIONAL_BIT * is_transactional | CONTROL_BIT * is_control
    youngest = max([record.timestamp_ms for record in records]) if append_time_ms is None else append_time_ms
    try:
        head = HEADER.pack(
            base_offset,
            size_bytes - LENGTH_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,  # the checksum follows
            compression | bits,
            len(records) - 1,
            base_timestamp,
            youngest,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    except struct.error as error:
        raise ValueError(f"a value does not fit its field of the batch header: {error}") from None
    batch = bytearray(head + content)
    CRC.pack_into(batch, CRC_POSITION, checksum(batch, 0, size_bytes))
    return batch


def _encode_records(records: Sequence[NewRecord], *, base_timestamp: TimestampMs) -> bytes:
    return b"".join(
        [
            encode_record(
                offset_delta=index,
                timestamp_delta=record.timestamp_ms - base_timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
            for index, record in enumerate(records)
        ]
    )
