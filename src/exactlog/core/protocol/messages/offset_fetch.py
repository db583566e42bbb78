"""OffsetFetch (key 9), versions 0 to 10; flexible from 6.

2 null means all topics; an error for the whole answer. 3 throttle time. 5 leader epochs (KIP-320). 6 flexible. 7
whether offsets of open transactions make the answer fail (KIP-447). 8 many groups at once (KIP-709). 9 members
(KIP-848). 10 topic ids in place of names (KIP-848). Version 0 once meant offsets in ZooKeeper; version 4 changed
throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int16, Int32, Int64, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class OffsetFetchRequestTopic(Structure):
    """The partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequestTopics(Structure):
    """The partitions of one topic."""

    name: Annotated[String, Field("8-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("10+", ignorable=True)] = ZERO_UUID
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequestGroup(Structure):
    """One group; null as topics is all of them."""

    group_id: String = ""
    member_id: Annotated[String | None, Field("9+", ignorable=True)] = None
    member_epoch: Annotated[Int32, Field("9+", ignorable=True)] = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None = ()


class OffsetFetchRequest(Message):
    """Whose offsets are asked for: `group_id` and `topics`, or from version 8 `groups`."""

    api_key = 9
    versions = "0-10"
    flexible = "6+"

    group_id: Annotated[String, Field("0-7")] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, Field("0-7", nullable="2-7")] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Field("8+")] = ()
    require_stable: Annotated[Bool, Field("7+")] = False


class OffsetFetchResponsePartition(Structure):
    """The offset in one partition; -1 is none."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Field("5-7", ignorable=True)] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Structure):
    """The offsets in one topic."""

    name: String = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponsePartitions(Structure):
    """The offset in one partition; -1 is none."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Structure):
    """The offsets in one topic."""

    name: Annotated[String, Field("8-9", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("10+", ignorable=True)] = ZERO_UUID
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


class OffsetFetchResponseGroup(Structure):
    """The offsets of one group."""

    group_id: String = ""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    """The offsets: `topics`, or from version 8 `groups`."""

    api_key = 9
    versions = "0-10"
    flexible = "6+"

    throttle_time_ms: Annotated[Int32, Field("3+", ignorable=True)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Field("0-7")] = ()
    error_code: Annotated[Int16, Field("2-7", ignorable=True)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Field("8+")] = ()
