"""DescribeProducers (key 61), version 0; flexible (KIP-664)."""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Int16, Int32, Int64, String


class DescribeProducersTopic(Structure):
    """Partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class DescribeProducersRequest(Message):
    """The partitions asked about."""

    api_key = 61
    versions = "0"
    flexible = "0+"

    topics: tuple[DescribeProducersTopic, ...] = ()


class ActiveProducer(Structure):
    """One producer; -1 as start of its transaction is none open."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartitionResponse(Structure):
    """Who produces to one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: tuple[ActiveProducer, ...] = ()


class DescribeProducersTopicResponse(Structure):
    """Who produces to one topic."""

    name: String = ""
    partitions: tuple[DescribeProducersPartitionResponse, ...] = ()


class DescribeProducersResponse(Message):
    """Who produces to the partitions."""

    api_key = 61
    versions = "0"
    flexible = "0+"

    throttle_time_ms: Int32 = 0
    topics: tuple[DescribeProducersTopicResponse, ...] = ()
