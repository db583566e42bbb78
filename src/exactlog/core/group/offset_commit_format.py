"""Key and value of an offset a group has committed, as records of `__consumer_offsets` (Kafka's own schemas).

    key, versions 0 and 1             value, versions 0 to 4
    type    field                     type    field                 versions
    int16   version                   int16   version
    string  group                     int64   offset
    string  topic                     int32   leader_epoch          3+
    int32   partition                 string  metadata
                                      int64   commit_timestamp
                                      int64   expire_timestamp      1
                                      uuid    topic_id              4+, tag 0

Version 4 of the value is flexible (KIP-482). Written are key version 1, and value version 4, or 1 where the offset has
a time of its own to expire at: what Apache Kafka 4.4 writes.
"""

import struct
from typing import Annotated, Final

from exactlog.core.codec.message_codec import decode, encode_bytes
from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Field, Int32, Int64, String, Uuid
from exactlog.core.group.requests import NO_EXPIRY, CommittedOffset
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import ZERO_UUID, Offset

KEY_VERSIONS: Final = (0, 1)
_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 4
_VALUE_VERSION_WITH_EXPIRY: Final = 1
_VERSION: Final = struct.Struct(">h")


class OffsetCommitKey(Message):
    """Which offset: a group's in a partition."""

    versions = "0-1"
    flexible = "none"

    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Message):
    """The offset, and what was said of it."""

    versions = "0-4"
    flexible = "4+"

    offset: Int64 = 0
    leader_epoch: Annotated[Int32, Field("3+", ignorable=True)] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, Field("1", ignorable=True)] = -1
    topic_id: Annotated[Uuid, Field("4+", tag=0, ignorable=True)] = ZERO_UUID


def encode_offset_commit_key(key: OffsetCommitKey) -> bytes:
    """The bytes of a key."""
    return _VERSION.pack(_KEY_VERSION) + encode_bytes(key, _KEY_VERSION)


def decode_offset_commit_key(key: bytes, *, version: int) -> OffsetCommitKey:
    """The key that stands behind its version.

    Raises:
        DecodeError: the bytes are not such a key.
    """
    return decode(OffsetCommitKey, version, key, _VERSION.size)


def encode_committed_offset(committed: CommittedOffset) -> bytes:
    """The bytes of a value."""
    version = _VALUE_VERSION if committed.expire_timestamp_ms == NO_EXPIRY else _VALUE_VERSION_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return _VERSION.pack(version) + encode_bytes(value, version)


def decode_committed_offset(value: bytes) -> CommittedOffset:
    """What a value says, of any version.

    Raises:
        DecodeError: the bytes are not such a value.
    """
    if len(value) < _VERSION.size:
        raise DecodeError(f"the value of a committed offset begins with its version; it has {len(value)} bytes")
    decoded = decode(OffsetCommitValue, _VERSION.unpack_from(value)[0], value, _VERSION.size)
    return CommittedOffset(
        offset=Offset(decoded.offset),
        leader_epoch=decoded.leader_epoch,
        metadata=decoded.metadata,
        commit_timestamp_ms=decoded.commit_timestamp,
        expire_timestamp_ms=decoded.expire_timestamp,
        topic_id=decoded.topic_id,
    )
