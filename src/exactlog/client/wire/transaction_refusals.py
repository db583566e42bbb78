"""Refusals that a transactional producer does not survive."""

from typing import Final

from exactlog.client.transactions import ProducerFencedError
from exactlog.client.wire.refusals import as_error_code, refusal
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError

_FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_HINT: Final = (
    "another producer has taken over the transactional id, or the transaction was open for longer than its timeout; "
    "`exactlog txn describe` shows it"
)


def transaction_refusal(number: int, what: str, detail: str | None = None) -> KafkaError:
    """The exception for an error code, not 0, in an answer to a transactional producer."""
    error = refusal(number, what, detail)
    code = as_error_code(number)
    return ProducerFencedError(code, str(error), hint=_HINT) if code in _FENCED else error


def check_transaction(number: int, what: str, detail: str | None = None) -> None:
    """Raise the exception of an error code that is not 0."""
    if number:
        raise transaction_refusal(number, what, detail)
