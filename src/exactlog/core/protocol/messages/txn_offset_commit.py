"""TxnOffsetCommit (key 28), versions 0 to 6; flexible from 3.

2 leader epochs (KIP-320). 3 flexible; members, so that only the group's present members commit (KIP-447). 4
TRANSACTION_ABORTABLE (KIP-890). 5 adds the group to the transaction (KIP-890, second part). 6 topic ids in place of
names, member epochs (KIP-1319). Version 1 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class TxnOffsetCommitRequestPartition(Structure):
    """The offset in one partition: that of the next record to read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Field("2+", ignorable=True)] = -1
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Structure):
    """The offsets in one topic."""

    name: Annotated[String, Field("0-5", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("6+", ignorable=True)] = ZERO_UUID
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


class TxnOffsetCommitRequest(Message):
    """The offsets a group has reached if the transaction commits."""

    api_key = 28
    versions = "0-6"
    flexible = "3+"

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Annotated[Int32, Field("3+")] = -1
    member_id: Annotated[String, Field("3+")] = ""
    group_instance_id: Annotated[String | None, Field("3+")] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


class TxnOffsetCommitResponsePartition(Structure):
    """What became of the offset in one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Structure):
    """What became of the offsets in one topic."""

    name: Annotated[String, Field("0-5", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("6+", ignorable=True)] = ZERO_UUID
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


class TxnOffsetCommitResponse(Message):
    """What became of the offsets."""

    api_key = 28
    versions = "0-6"
    flexible = "3+"

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()
