"""How a transaction can fail, sorted by what is left to do.

Every error tells: `kafka_error`, the broker's code where there is one; `retryable`, whether running the block again may
succeed; `hint`, the next step; and, as `__cause__`, the error of the client.
"""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError


class TransactionError(ExactlogError):
    """What a transaction's own steps raise. Errors of the code inside the block come back as they are."""

    code = "transaction-failed"

    def __init__(self, message: str, *, kafka_error: ErrorCode | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kafka_error = kafka_error


class RetriableError(TransactionError):
    """For now it cannot be done: no answer in time, no coordinator. Nothing was committed; the block may run again."""

    code = "transaction-retriable"
    retryable = True


class AbortableError(TransactionError):
    """This transaction cannot be committed, and was aborted. The producer is good for the next one.

    Attributes:
        retryable: false where the same records would be refused again, as one that is too large.
    """

    code = "transaction-aborted"
    retryable = True

    def __init__(self, message: str, *, kafka_error: ErrorCode | None = None, hint: str = "") -> None:
        super().__init__(message, kafka_error=kafka_error, hint=hint)
        self.retryable = kafka_error not in _REFUSED_AGAIN


class RebalancedError(AbortableError):
    """The consumer no longer has what it had: others may be reading the same records, so this was aborted."""

    code = "group-rebalanced"


class FatalError(TransactionError):
    """The producer is of no use any more. A new one with the same transactional id goes on."""

    code = "producer-unusable"


class FencedError(FatalError):
    """Somebody newer uses the transactional id, or the coordinator gave the transaction up after its timeout.

    Where this process is the older one, it ends here: it is the zombie that exactly-once is protected from.
    """

    code = "producer-fenced"
    kafka_error = ErrorCode.PRODUCER_FENCED


class OutcomeUnknownError(FatalError):
    """The commit was asked for and never answered: it is one whole, committed or aborted, but we do not know which.

    The consumer was left where it is. A new producer with the same transactional id settles the transaction as it
    starts; after that the committed offsets of the group say which it was.
    """

    code = "commit-outcome-unknown"


_REFUSED_AGAIN = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""What the same records, topics and rights would meet once more."""

FENCING = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
REBALANCING = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)

_NEW_PRODUCER = "close this producer and make one with the same transactional id"


def error_of(
    message: str,
    *,
    kafka_error: ErrorCode | None,
    is_fatal: bool = False,
    is_retriable: bool = False,
) -> TransactionError:
    """The error for what a client has told."""
    if kafka_error in FENCING:
        hint = "stop this process if another one has taken over; if its transaction timed out, make a new producer"
        return FencedError(message, kafka_error=kafka_error, hint=hint)
    if is_fatal:
        return FatalError(message, kafka_error=kafka_error, hint=_NEW_PRODUCER)
    if kafka_error in REBALANCING:
        return RebalancedError(message, kafka_error=kafka_error, hint="read on: the consumer was put back")
    if is_retriable:
        return RetriableError(message, kafka_error=kafka_error)
    return AbortableError(message, kafka_error=kafka_error)


def code_of(number: object) -> ErrorCode | None:
    """Kafka's error code of that number, where it is one."""
    try:
        return ErrorCode(number) if isinstance(number, int) and number > 0 else None
    except ValueError:
        return None
