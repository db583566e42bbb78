"""Produce (key 0), versions 3 to 13; flexible from 9.

3 transactional id (KIP-98). 5 log start offset in the answer. 7 zstd (KIP-110). 8 errors of single records (KIP-467).
9 flexible. 10 the new leader and its address with NOT_LEADER_OR_FOLLOWER (KIP-951). 11 TRANSACTION_ABORTABLE
(KIP-890). 12 adds the partition to the transaction (KIP-890, second part). 13 topic ids in place of names (KIP-516).
Versions 4 and 6 changed errors and throttling only.

Versions 0 to 2 carry older record formats. They are advertised, because librdkafka takes their lack for a broker
without compression (KAFKA-18659), but not served.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, Records, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class PartitionProduceData(Structure):
    """The records for one partition."""

    index: Int32 = 0
    records: Records | None = b""


class TopicProduceData(Structure):
    """The records for one topic."""

    name: Annotated[String, Field("3-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("13+", ignorable=True)] = ZERO_UUID
    partition_data: tuple[PartitionProduceData, ...] = ()


class ProduceRequest(Message):
    """Records to append; `acks` is 0, 1, or -1 for all in-sync replicas."""

    api_key = 0
    versions = "3-13"
    flexible = "9+"

    transactional_id: String | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: tuple[TopicProduceData, ...] = ()


class BatchIndexAndErrorMessage(Structure):
    """What is wrong with one record of a batch."""

    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Structure):
    """Who leads a partition now."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Structure):
    """What became of the records for one partition."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Field("5+", ignorable=True)] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], Field("8+", ignorable=True)] = ()
    error_message: Annotated[String | None, Field("8+", ignorable=True)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Field("10+", tag=0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Structure):
    """What became of the records for one topic."""

    name: Annotated[String, Field("3-12", ignorable=True)] = ""
    topic_id: Annotated[Uuid, Field("13+", ignorable=True)] = ZERO_UUID
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


class NodeEndpoint(Structure):
    """Where a leader named in the answer is found."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ProduceResponse(Message):
    """The offsets given to the records, or why there are none."""

    api_key = 0
    versions = "3-13"
    flexible = "9+"

    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Field("10+", tag=0)] = ()
