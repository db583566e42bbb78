"""The records of a group coordinator's log, `__consumer_offsets`: key and value to what they say, and back.

The version of a key says what the record is about. Kinds that the classic coordinator does not write (the groups of
KIP-848 and KIP-932, for instance) are kept as bytes.
"""

import struct
from typing import Final, TypeAlias

from msgspec import Struct

from exactlog.core.group.group_metadata_format import (
    KEY_VERSION,
    GroupMetadata,
    decode_group_metadata,
    decode_group_metadata_key,
    encode_group_metadata,
    encode_group_metadata_key,
)
from exactlog.core.group.offset_commit_format import (
    KEY_VERSIONS,
    OffsetCommitKey,
    decode_committed_offset,
    decode_offset_commit_key,
    encode_committed_offset,
    encode_offset_commit_key,
)
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.model.decisions import UnknownRecord
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition

_KEY_KIND: Final = struct.Struct(">h")


class OffsetCommitRecord(Struct, frozen=True):
    """A group's offset in a partition; None says that it has none any more."""

    group_id: str
    topic_partition: TopicPartition
    committed: CommittedOffset | None

    def encode_key(self) -> bytes:
        """The record's key."""
        topic, partition = self.topic_partition
        return encode_offset_commit_key(OffsetCommitKey(group=self.group_id, topic=topic, partition=partition))

    def encode_value(self) -> bytes | None:
        """The record's value; None is a tombstone."""
        return None if self.committed is None else encode_committed_offset(self.committed)


class GroupMetadataRecord(Struct, frozen=True):
    """A generation of a group; None says that there is no such group any more."""

    group_id: str
    metadata: GroupMetadata | None

    def encode_key(self) -> bytes:
        """The record's key."""
        return encode_group_metadata_key(self.group_id)

    def encode_value(self) -> bytes | None:
        """The record's value; None is a tombstone."""
        return None if self.metadata is None else encode_group_metadata(self.metadata)


GroupRecord: TypeAlias = OffsetCommitRecord | GroupMetadataRecord | UnknownRecord


def decode_record(key: bytes, value: bytes | None) -> GroupRecord:
    """What a record of `__consumer_offsets` says.

    Raises:
        DecodeError: the bytes are cut short, or are not what their version says.
    """
    if len(key) < _KEY_KIND.size:
        raise DecodeError(f"the key of a group's record begins with its version; it has {len(key)} bytes")
    kind = _KEY_KIND.unpack_from(key)[0]
    if kind in KEY_VERSIONS:
        parts = decode_offset_commit_key(key, version=kind)
        committed = None if value is None else decode_committed_offset(value)
        return OffsetCommitRecord(parts.group, TopicPartition(parts.topic, parts.partition), committed)
    if kind == KEY_VERSION:
        metadata = None if value is None else decode_group_metadata(value)
        return GroupMetadataRecord(decode_group_metadata_key(key), metadata)
    return UnknownRecord(bytes(key), None if value is None else bytes(value))
