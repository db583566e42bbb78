"""Key and value of a group's membership, as records of `__consumer_offsets` (Kafka's own schemas).

    key, version 2                    value, versions 0 to 4
    type    field                     type    field                    versions
    int16   version                   int16   version
    string  group                     string  protocol_type
                                      int32   generation
                                      string  protocol                 nullable
                                      string  leader                   nullable
                                      int64   current_state_timestamp  2+
                                      array   members

    a member
    string  member_id
    string  group_instance_id         3+, nullable
    string  client_id
    string  client_host
    int32   rebalance_timeout         1+
    int32   session_timeout
    bytes   subscription              what the member sent for the group's protocol
    bytes   assignment

Version 4 of the value is flexible (KIP-482). Written are key version 2 and value version 3, as Apache Kafka 4.4 does.
"""

import struct
from typing import Annotated, Final

from exactlog.core.codec.message_codec import decode, encode_bytes
from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bytes, Field, Int32, Int64, String
from exactlog.core.model.errors import DecodeError

KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
_VERSION: Final = struct.Struct(">h")


class GroupMetadataKey(Message):
    """Which group."""

    versions = "2"
    flexible = "none"

    group: String = ""


class GroupMetadataMember(Structure):
    """One member of a generation, and its share."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Field("3+", ignorable=True)] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, Field("1+", ignorable=True)] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadata(Message):
    """One generation of a group; without members the group is empty."""

    versions = "0-4"
    flexible = "4+"

    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = None
    leader: String | None = None
    current_state_timestamp: Annotated[Int64, Field("2+", ignorable=True)] = -1
    members: tuple[GroupMetadataMember, ...] = ()


def encode_group_metadata_key(group_id: str) -> bytes:
    """The bytes of a key."""
    return _VERSION.pack(KEY_VERSION) + encode_bytes(GroupMetadataKey(group=group_id), KEY_VERSION)


def decode_group_metadata_key(key: bytes) -> str:
    """The group that stands behind the version of a key.

    Raises:
        DecodeError: the bytes are not such a key.
    """
    return decode(GroupMetadataKey, KEY_VERSION, key, _VERSION.size).group


def encode_group_metadata(metadata: GroupMetadata) -> bytes:
    """The bytes of a value."""
    return _VERSION.pack(_VALUE_VERSION) + encode_bytes(metadata, _VALUE_VERSION)


def decode_group_metadata(value: bytes) -> GroupMetadata:
    """What a value says, of any version.

    Raises:
        DecodeError: the bytes are not such a value.
    """
    if len(value) < _VERSION.size:
        raise DecodeError(f"the value of a group's metadata begins with its version; it has {len(value)} bytes")
    return decode(GroupMetadata, _VERSION.unpack_from(value)[0], value, _VERSION.size)
