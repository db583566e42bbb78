"""AddPartitionsToTxn (key 24), versions 0 to 5; flexible from 3.

2 PRODUCER_FENCED (KIP-588). 3 flexible. 4 many transactions at once and verification: from broker to broker only
(KIP-890). 5 TRANSACTION_ABORTABLE (KIP-890). Version 1 changed throttling only. Clients use 0 to 3.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int16, Int32, Int64, String


class AddPartitionsToTxnTopic(Structure):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class AddPartitionsToTxnTransaction(Structure):
    """The partitions of one transaction; `verify_only` asks whether they are in it already."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...] = ()


class AddPartitionsToTxnRequest(Message):
    """Partitions transactions are about to write to: `v3_and_below_...`, or from version 4 `transactions`."""

    api_key = 24
    versions = "0-5"
    flexible = "3+"

    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], Field("4+")] = ()
    v3_and_below_transactional_id: Annotated[String, Field("0-3")] = ""
    v3_and_below_producer_id: Annotated[Int64, Field("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Field("0-3")] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], Field("0-3")] = ()


class AddPartitionsToTxnPartitionResult(Structure):
    """What became of one partition."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Structure):
    """What became of those of one topic."""

    name: String = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


class AddPartitionsToTxnResult(Structure):
    """What became of those of one transaction."""

    transactional_id: String = ""
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = ()


class AddPartitionsToTxnResponse(Message):
    """What became of them: `results_by_topic_v3_and_below`, or from version 4 `results_by_transaction`."""

    api_key = 24
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Field("4+", ignorable=True)] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], Field("4+")] = ()
    results_by_topic_v3_and_below: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], Field("0-3")] = ()
