"""The record batch of Kafka (magic 2, KIP-98): its 61-byte header, read and patched in place.

All integers are big-endian:

    offset  size  type    field
    0       8     int64   base_offset        offset of the first record; the broker assigns it
    8       4     int32   batch_length       bytes that follow this field: size of the batch - 12
    12      4     int32   leader_epoch       of the leader that appended it; -1 from a client
    16      1     int8    magic              2
    17      4     uint32  crc                CRC-32C of everything from `attributes` to the end of the batch
    21      2     int16   attributes         bits, see below
    23      4     int32   last_offset_delta  offset of the last record - base_offset
    27      8     int64   base_timestamp     of the first record, in ms
    35      8     int64   max_timestamp      the highest of the records, or the append time, in ms
    43      8     int64   producer_id        -1: none
    51      2     int16   producer_epoch     -1: none
    53      4     int32   base_sequence      sequence of the first record; -1: none
    57      4     int32   record_count
    61            records, compressed as one block if the attributes name a codec

    attribute bits
    0-2  compression    0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    3    timestamps     0 set by the producer, 1 the time of the append (in max_timestamp, for all records)
    4    transactional
    5    control        a transaction marker, not data
    6    delete horizon  base_timestamp is when the cleaner may drop tombstones and markers (KIP-534)

The checksum covers nothing that stands before it, so that a broker can assign an offset and a leader epoch
without computing it again. It reads this header and passes everything behind it through.
"""

import struct
from collections.abc import Iterator
from typing import Final

import msgspec
from crc32c import crc32c

from exactlog.core.codec.compression import Compression, compression_of_attributes
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from exactlog.core.model.sequences import add_to_sequence

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD: Final = HEADER.size
"""Size of a batch without its records: 61 bytes."""
MAGIC: Final = 2

LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43

PLACE: Final = struct.Struct(">qii")
"""Base offset, batch length and leader epoch, as they follow each other."""
CRC: Final = struct.Struct(">I")
PRODUCER: Final = struct.Struct(">qh")
"""Producer id and epoch, as they follow each other."""

LOG_APPEND_TIME_BIT: Final = 1 << 3
TRANSACTIONAL_BIT: Final = 1 << 4
CONTROL_BIT: Final = 1 << 5
DELETE_HORIZON_BIT: Final = 1 << 6

LENGTH_OVERHEAD: Final = 12
"""What `batch_length` does not count: the base offset and itself."""

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of one batch, field by field in the order of the bytes; units and bits are in the module's table."""

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, inclusive."""
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        """Offset behind the batch: where the next one starts."""
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; it is below `base_sequence` where the batch straddles 2^31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def has_producer_id(self) -> bool:
        """Whether the producer is idempotent or transactional."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def compression(self) -> Compression:
        """The codec of the records; raises `DecodeError` for an unknown one."""
        return compression_of_attributes(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the time of the append, for every record."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker (or another control record) instead of data."""
        return bool(self.attributes & CONTROL_BIT)


def decode_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch that starts at ``position``; its records need not be there.

    Raises:
        DecodeError: fewer than 61 bytes, another magic than 2, or a length that has no room for a header.
    """
    try:
        header = BatchHeader(*HEADER.unpack_from(buffer, position))
    except struct.error:
        raise DecodeError(f"a batch header takes {BATCH_OVERHEAD} bytes, {len(buffer) - position} are left") from None
    if header.magic != MAGIC:
        raise DecodeError(f"the batch has magic {header.magic}; only magic {MAGIC} is supported")
    if header.batch_length < BATCH_OVERHEAD - LENGTH_OVERHEAD:
        raise DecodeError(f"the batch claims a length of {header.batch_length} bytes, less than its header")
    return header


def batch_size(buffer: Buffer, position: int) -> int:
    """Size of the batch at ``position``, of whose bytes at least the first twelve must be there."""
    length: int = _INT32.unpack_from(buffer, position + 8)[0]
    return length + LENGTH_OVERHEAD


def iter_headers(buffer: Buffer, *, may_be_cut: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each batch in ``buffer``; CRCs are not checked.

    Args:
        buffer: batches one after the other, from its start.
        may_be_cut: end quietly before a last batch that is not whole, as a Fetch response may have one.

    Raises:
        DecodeError: a header is malformed, or the last batch is cut short and may not be.
    """
    position, end = 0, len(buffer)
    while position < end:
        if may_be_cut and end - position < BATCH_OVERHEAD:
            return
        header = decode_header(buffer, position)
        if header.size_bytes > end - position:
            if may_be_cut:
                return
            raise DecodeError(f"the batch at {position} takes {header.size_bytes} bytes, {end - position} are left")
        yield position, header
        position += header.size_bytes


def crc_is_valid(buffer: Buffer, position: int = 0) -> bool:
    """Whether the batch at ``position`` is whole and its bytes are those that the checksum was made of.

    Raises:
        DecodeError: there is no header to check, as `decode_header` says.
    """
    header = decode_header(buffer, position)
    return position + header.size_bytes <= len(buffer) and header.crc == checksum(buffer, position, header.size_bytes)


def checksum(buffer: Buffer, position: int, size_bytes: int) -> int:
    """Return the CRC-32C that belongs into the batch of ``size_bytes`` at ``position``."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size_bytes])


def place(
    batch: bytearray | memoryview, header: BatchHeader, *, base_offset: Offset, leader_epoch: LeaderEpoch
) -> BatchHeader:
    """Write what the leader decides into a batch that has this header; return the header that it has then.

    The checksum covers neither and stays valid.
    """
    PLACE.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
    return BatchHeader(
        base_offset,
        header.batch_length,
        leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def set_log_append_time(buffer: bytearray | memoryview, position: int, *, timestamp_ms: TimestampMs) -> None:
    """Stamp the batch at ``position`` with the time of its append (``message.timestamp.type=LogAppendTime``)."""
    header = decode_header(buffer, position)
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, header.attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    CRC.pack_into(buffer, position + CRC_POSITION, checksum(buffer, position, header.size_bytes))
