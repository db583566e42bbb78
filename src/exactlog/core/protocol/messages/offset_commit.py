"""OffsetCommit (key 8), versions 0 to 10; flexible from 8.

1 members and generations, a timestamp for each offset. 2 a retention time for all in its place. 3 throttle time. 5 no
retention time. 6 leader epochs (KIP-320). 7 group instance id (KIP-345). 8 flexible. 9 member epochs (KIP-848). 10
topic ids in place of names (KIP-848). Version 4 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class OffsetCommitRequestPartition(Structure):
    """The offset in one partition: that of the next record to read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Field("6+", ignorable=True)] = -1
    commit_timestamp: Annotated[Int64, Field("1")] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Structure):
    """The offsets in one topic."""

    name: Annotated[String, Field("0-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("10+", ignorable=True)] = ZERO_UUID
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


class OffsetCommitRequest(Message):
    """The offsets a group has reached."""

    api_key = 8
    versions = "0-10"
    flexible = "8+"

    group_id: String = ""
    generation_id_or_member_epoch: Annotated[Int32, Field("1+", ignorable=True)] = -1
    member_id: Annotated[String, Field("1+", ignorable=True)] = ""
    group_instance_id: Annotated[String | None, Field("7+")] = None
    retention_time_ms: Annotated[Int64, Field("2-4", ignorable=True)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class OffsetCommitResponsePartition(Structure):
    """What became of the offset in one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Structure):
    """What became of the offsets in one topic."""

    name: Annotated[String, Field("0-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("10+", ignorable=True)] = ZERO_UUID
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


class OffsetCommitResponse(Message):
    """What became of the offsets."""

    api_key = 8
    versions = "0-10"
    flexible = "8+"

    throttle_time_ms: Annotated[Int32, Field("3+", ignorable=True)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()
