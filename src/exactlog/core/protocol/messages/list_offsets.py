"""ListOffsets (key 2), versions 0 to 11; flexible from 6.

1 one offset with its timestamp in place of a list of offsets. 2 isolation level (KIP-98). 4 leader epochs (KIP-320). 6
flexible. 7 timestamp -3: the record of the largest timestamp (KIP-734). 8 timestamp -4: the local log start (KIP-405).
9 timestamp -5: the last offset in tiered storage (KIP-1005). 10 a time limit (KIP-1075). 11 timestamp -6: the earliest
offset not yet in tiered storage (KIP-1023). Timestamps -1 and -2 are the end and the start of the log. Versions 3 and
5 changed errors and throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int8, Int16, Int32, Int64, String


class ListOffsetsPartition(Structure):
    """What is asked about one partition."""

    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Field("4+", ignorable=True)] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, Field("0")] = 1


class ListOffsetsTopic(Structure):
    """What is asked about one topic."""

    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(Message):
    """Timestamps whose offsets are asked for; `replica_id` is -1 for a consumer."""

    api_key = 2
    versions = "0-11"
    flexible = "6+"

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Field("2+")] = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: Annotated[Int32, Field("10+", ignorable=True)] = 0


class ListOffsetsPartitionResponse(Structure):
    """The offset of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: Annotated[tuple[Int64, ...], Field("0")] = ()
    timestamp: Annotated[Int64, Field("1+")] = -1
    offset: Annotated[Int64, Field("1+")] = -1
    leader_epoch: Annotated[Int32, Field("4+")] = -1


class ListOffsetsTopicResponse(Structure):
    """The offsets of one topic."""

    name: String = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


class ListOffsetsResponse(Message):
    """The offsets; -1 where no record is that young."""

    api_key = 2
    versions = "0-11"
    flexible = "6+"

    throttle_time_ms: Annotated[Int32, Field("2+", ignorable=True)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()
