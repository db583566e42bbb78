"""The bounds that a transaction coordinator holds transactional ids to, and its switches."""

from msgspec import Struct

from exactlog.core.model.limits import (
    OPEN_TRANSACTION_PARTITIONS_MAX,
    OPEN_TRANSACTIONS_MAX,
    TRANSACTIONAL_IDS_MAX,
)


class TransactionLimits(Struct, frozen=True, kw_only=True):
    """Kafka's settings for transactions with Kafka's defaults, and those of the check for timed-out transactions."""

    transaction_version: int = 2
    """The protocol of what the coordinator ends by itself (`transaction.version`); clients say theirs."""
    timeout_ms_min: int = 1_000
    """A shorter time-out is raised to it."""
    timeout_ms_max: int = 900_000
    """A longer time-out is refused, INVALID_TRANSACTION_TIMEOUT."""
    clamps_timeout: bool = False
    """Whether a time-out that would be refused is brought within the bounds instead (`timeout_policy=clamp`)."""
    check_interval_ms: int = 10_000
    """How often transactions are checked for having timed out: one is aborted so much later at most."""
    write_abort_markers: bool = True
    """Whether the check aborts what has timed out.

    There is no abort without markers: it would leave records of undecided fate behind. So without this switch a
    transaction stays open past its time until its producer ends it, another one takes its transactional id over, or
    somebody aborts it. Nothing becomes visible that was not committed; readers of committed records wait for it.
    """
    fence_on_timeout: bool = True
    """Whether the producer of a transaction that timed out is fenced for good, as Kafka does it.

    The epoch goes up in any case: else the producer, which does not know of the abort, could commit the rest of its
    transaction without the beginning. Without this switch, and always from transaction version 2 on, it may go on with
    InitProducerId by its id and epoch (KIP-360).
    """
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1_000
    """A transactional id that has not been used for so long is forgotten; what it does then is answered
    INVALID_PRODUCER_ID_MAPPING."""
    partitions_per_transaction_max: int = 10_000
    """More are refused, TRANSACTION_ABORTABLE: the transaction can only be aborted, or end without them."""
    open_transactions_max: int = OPEN_TRANSACTIONS_MAX
    """One more has to wait, CONCURRENT_TRANSACTIONS."""
    open_partitions_max: int = OPEN_TRANSACTION_PARTITIONS_MAX
    """In all open transactions together; more have to wait, CONCURRENT_TRANSACTIONS."""
    transactional_ids_max: int = TRANSACTIONAL_IDS_MAX
    """One more is refused, POLICY_VIOLATION."""
