"""Control records: the markers by which a transaction ends in a partition (KIP-98).

A control batch has the transactional and control bits set, the producer's id and epoch, no sequence, no compression,
and one record whose bytes are, big-endian:

    key
    offset  size  type   field
    0       2     int16  version             0
    2       2     int16  type                0 ABORT, 1 COMMIT; 2 and up belong to KRaft's own log

    value of ABORT and COMMIT
    offset  size  type   field
    0       2     int16  version             0
    2       4     int32  coordinator_epoch   of the coordinator that decided

Later versions may only add fields at the end: a reader takes a higher version, or longer bytes, for version 0.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec

from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from exactlog.core.record.batch_builder import FIRST_OFFSET, NO_LEADER_EPOCH, NewRecord, build_batch
from exactlog.core.record.batch_format import (
    BASE_TIMESTAMP_POSITION,
    CRC,
    CRC_POSITION,
    LENGTH_OVERHEAD,
    PLACE,
    checksum,
)
from exactlog.core.record.record_format import Record, decode_records

_VERSION: Final = 0
_TIMES_AND_PRODUCER: Final = struct.Struct(">qqqh")
"""Base and maximum timestamp, producer id and epoch, as they follow each other in the header of a batch."""
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """What a control record says. Only ABORT and COMMIT occur in the partitions of topics."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class TransactionMarker(msgspec.Struct, frozen=True, gc=False):
    """The end of a transaction in one partition: committed or aborted, as the coordinator of that epoch decided."""

    is_commit: bool
    coordinator_epoch: int

    @property
    def control_type(self) -> ControlType:
        """The type as it stands in the key."""
        return ControlType.COMMIT if self.is_commit else ControlType.ABORT


def build_marker_batch(
    marker: TransactionMarker,
    *,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    timestamp_ms: TimestampMs,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch that ends the producer's transaction in a partition."""
    batch = bytearray(_template(marker.is_commit, marker.coordinator_epoch))
    size_bytes = len(batch)
    PLACE.pack_into(batch, 0, base_offset, size_bytes - LENGTH_OVERHEAD, leader_epoch)
    _TIMES_AND_PRODUCER.pack_into(
        batch, BASE_TIMESTAMP_POSITION, timestamp_ms, timestamp_ms, producer_id, producer_epoch
    )
    CRC.pack_into(batch, CRC_POSITION, checksum(batch, 0, size_bytes))
    return batch


@lru_cache(maxsize=64)
def _template(is_commit: bool, coordinator_epoch: int) -> bytes:  # noqa: FBT001  a key of the cache
    """All markers of one outcome and coordinator are alike up to their producer, place and time."""
    marker = TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    key = _KEY.pack(_VERSION, marker.control_type)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    record = NewRecord(key=key, value=value, timestamp_ms=TimestampMs(0))
    return bytes(build_batch([record], is_transactional=True, is_control=True))


def decode_control_type(key: bytes | None) -> ControlType | None:
    """Return what the record of a control batch says by its key; None for a type we do not know, to be ignored.

    Raises:
        DecodeError: no key, fewer than four bytes, or a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise DecodeError(f"the key of a control record takes {_KEY.size} bytes, it has {len(key or b'')}")
    version, type_id = _KEY.unpack_from(key)
    if version < _VERSION:
        raise DecodeError(f"the key of a control record has version {version}")
    return ControlType(type_id) if ControlType.ABORT <= type_id <= ControlType.KRAFT_VOTERS else None


def decode_marker(record: Record) -> TransactionMarker | None:
    """Return the transaction marker that a record of a control batch is; None if it says something else.

    Raises:
        DecodeError: the key is malformed, or that of a marker whose value is missing, cut short or of negative version.
    """
    control_type = decode_control_type(record.key)
    if control_type not in {ControlType.ABORT, ControlType.COMMIT}:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise DecodeError(f"a transaction marker takes {_VALUE.size} bytes, it has {len(record.value or b'')}")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < _VERSION:
        raise DecodeError(f"a transaction marker has version {version}")
    return TransactionMarker(is_commit=control_type is ControlType.COMMIT, coordinator_epoch=coordinator_epoch)


def decode_marker_batch(batch: Buffer) -> TransactionMarker | None:
    """Return the transaction marker that a whole control batch is; None if it says something else.

    Raises:
        DecodeError: its record is malformed.
    """
    return next((decode_marker(record) for record in decode_records(batch)), None)
