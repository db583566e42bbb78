"""OffsetForLeaderEpoch (key 23), versions 0 to 4; flexible from 4.

1 the epoch the offset belongs to. 2 the leader epoch of the reader, throttle time (KIP-320). 3 the id of the reader. 4
flexible.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, String


class OffsetForLeaderPartition(Structure):
    """What is asked about one partition."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Field("2+", ignorable=True)] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Structure):
    """What is asked about one topic."""

    topic: String = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


class OffsetForLeaderEpochRequest(Message):
    """Epochs whose end is asked for; `replica_id` is -1 for a consumer."""

    api_key = 23
    versions = "0-4"
    flexible = "4+"

    replica_id: Annotated[Int32, Field("3+", ignorable=True)] = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


class EpochEndOffset(Structure):
    """Where the epoch ends in one partition."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, Field("1+", ignorable=True)] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Structure):
    """Where they end in one topic."""

    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


class OffsetForLeaderEpochResponse(Message):
    """Where the epochs end."""

    api_key = 23
    versions = "0-4"
    flexible = "4+"

    throttle_time_ms: Annotated[Int32, Field("2+", ignorable=True)] = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
