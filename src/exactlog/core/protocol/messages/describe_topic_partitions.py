"""DescribeTopicPartitions (key 75), version 0; flexible (KIP-966)."""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Int16, Int32, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class DescribeTopicPartitionsTopic(Structure):
    """A topic asked about."""

    name: String = ""


class Cursor(Structure):
    """The partition an answer goes on with."""

    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    """The topics asked about, and from where to go on."""

    api_key = 75
    versions = "0"
    flexible = "0+"

    topics: tuple[DescribeTopicPartitionsTopic, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Structure):
    """One partition."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: tuple[Int32, ...] | None = None
    last_known_elr: tuple[Int32, ...] | None = None
    offline_replicas: tuple[Int32, ...] = ()


class DescribeTopicPartitionsResponseTopic(Structure):
    """One topic."""

    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: Int32 = -(2**31)


class DescribeTopicPartitionsResponse(Message):
    """The topics, in the order of their names; a cursor where there is more."""

    api_key = 75
    versions = "0"
    flexible = "0+"

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: Cursor | None = None
