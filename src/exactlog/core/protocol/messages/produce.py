"""Produce (key 0), versions 3 to 13; flexible from 9.

3 transactional id (KIP-98). 5 log start offset in the answer. 7 zstd (KIP-110). 8 errors of single records (KIP-467).
9 flexible. 10 the new leader and its address with NOT_LEADER_OR_FOLLOWER (KIP-951). 11 TRANSACTION_ABORTABLE
(KIP-890). 12 adds the partition to the transaction (KIP-890, second part). 13 topic ids in place of names (KIP-516).
Versions 4 and 6 changed errors and throttling only.

Versions 0 to 2 carry older record formats. They are advertised, because librdkafka takes their lack for a broker
without compression (KAFKA-18659), but not served.

Not Kafka's, in tagged fields that everybody else skips (KIP-482): the terms of an append, and the delta version it
became. A client sends terms only to a broker that lists the feature `exactlog.append` (KIP-584) in ApiVersions; a
message without terms has Kafka's bytes.
"""

from typing import Annotated, Final

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, Records, String, Uint32, Uuid
from exactlog.core.model.ids import ZERO_UUID

APPEND_FEATURE: Final = "exactlog.append"
"""The supported feature of a broker that takes terms."""

APPEND_FEATURE_LEVEL: Final = 1
"""The level of it that is declared here."""

FIRST_TAG_OF_OUR_OWN: Final = 10_000
"""Tags from here on are not Kafka's, which counts from 0."""

NO_DELTA_VERSION: Final = -1
"""A delta version that is not said."""


class ProduceTerms(Structure):
    """What an append rests on, and who it is; to be there at all is to ask for the delta version it becomes.

    `payload_crc` is the CRC-32C of the records as they were given (`core.record.payload_crc`).
    """

    expected_version: Int64 = NO_DELTA_VERSION
    txn_id: String | None = None
    payload_crc: Uint32 = 0


class PartitionProduceData(Structure):
    """The records for one partition."""

    index: Int32 = 0
    records: Records | None = b""
    terms: Annotated[ProduceTerms | None, Field("9+", tag=FIRST_TAG_OF_OUR_OWN)] = None


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
    delta_version: Annotated[Int64, Field("9+", tag=FIRST_TAG_OF_OUR_OWN, ignorable=True)] = NO_DELTA_VERSION


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
