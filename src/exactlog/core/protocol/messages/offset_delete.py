"""OffsetDelete (key 47), version 0; never flexible (KIP-496)."""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Int16, Int32, String


class OffsetDeleteRequestPartition(Structure):
    """That in one partition."""

    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Structure):
    """Those in one topic."""

    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


class OffsetDeleteRequest(Message):
    """The offsets a group shall forget."""

    api_key = 47
    versions = "0"
    flexible = "none"

    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


class OffsetDeleteResponsePartition(Structure):
    """What became of that in one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Structure):
    """What became of those in one topic."""

    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


class OffsetDeleteResponse(Message):
    """What became of the offsets."""

    api_key = 47
    versions = "0"
    flexible = "none"

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
