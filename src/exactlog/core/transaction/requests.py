"""What a transaction coordinator is asked, what it answers, and what it has done elsewhere.

Error codes are those of the newest versions: handlers translate them for older ones.
"""

from msgspec import Struct

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition


class InitRequest(Struct, frozen=True, kw_only=True):
    """Asks for the producer id and epoch of a transactional id (InitProducerId)."""

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    """What the producer has and wants to go on with, at its next epoch (KIP-360); -1 where it has none."""
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class InitAnswer(Struct, frozen=True, kw_only=True):
    """The producer id and epoch to write with; -1 and -1 beside an error."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class AddPartitionsRequest(Struct, frozen=True, kw_only=True, gc=False):
    """Makes partitions part of a transaction; the first ones begin it (AddPartitionsToTxn, Produce from 12)."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    """Partitions that exist. Their topic names stay in memory: give the names that the registry holds."""
    verify_only: bool = False
    """Only tells whether all of them are part of it already."""
    is_told_at_once: bool = False
    """Whether the answer leaves before the record is committed; who is told waits for that itself."""
    transaction_version: int = 2
    """The transaction protocol that the client speaks: 2 where a Produce adds its partitions itself (KIP-890)."""


class ErrorAnswer(Struct, frozen=True, gc=False):
    """Whether it was done."""

    error_code: ErrorCode = ErrorCode.NONE


class EndRequest(Struct, frozen=True, kw_only=True, gc=False):
    """Commits or aborts a transaction (EndTxn)."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    transaction_version: int
    """2 for EndTxn from version 5, where every transaction has an epoch of its own (KIP-890); 1 below."""


class EndAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """The producer id and epoch of the next transaction; -1 and -1 beside an error, and in version 1."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class WriteMarkers(Struct, frozen=True, kw_only=True, gc=False):
    """The effect of a decided outcome: its markers are to be written into all the partitions, if any.

    It is handed out once when the outcome is committed, and once more after every load that finds it unfinished. Who
    carries it out goes on until all markers are committed, and then calls `TransactionShard.markers_written`. A
    partition that is gone counts as written.
    """

    transactional_id: str
    """Empty where no transactional id owns what is aborted."""
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """What the markers carry."""
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


class TransactionDescription(Struct, frozen=True, kw_only=True):
    """One transactional id, as ListTransactions and DescribeTransactions show it."""

    transactional_id: str
    state: str
    """Kafka's name of it: `Ongoing`, ..."""
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    start_time_ms: int
    """When the transaction began; -1 where there is none."""
    last_update_ms: int
    partitions: tuple[TopicPartition, ...]
