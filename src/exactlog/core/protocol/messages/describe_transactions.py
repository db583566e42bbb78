"""DescribeTransactions (key 65), version 0; flexible (KIP-664)."""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Int16, Int32, Int64, String


class DescribeTransactionsRequest(Message):
    """The transactions asked about."""

    api_key = 65
    versions = "0"
    flexible = "0+"

    transactional_ids: tuple[String, ...] = ()


class TransactionTopic(Structure):
    """Partitions of one topic that it has written to."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribedTransaction(Structure):
    """One transaction, its state by name; -1 as start is none."""

    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TransactionTopic, ...] = ()


class DescribeTransactionsResponse(Message):
    """The transactions."""

    api_key = 65
    versions = "0"
    flexible = "0+"

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[DescribedTransaction, ...] = ()
