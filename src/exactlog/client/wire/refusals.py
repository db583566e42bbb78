"""Error codes in answers, as exceptions."""

from collections.abc import Sequence
from typing import TypeVar

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, KafkaError

Result = TypeVar("Result")


def as_error_code(number: int) -> ErrorCode:
    """The code of that number; one that nobody knows yet counts as UNKNOWN_SERVER_ERROR, as in Kafka's clients."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(number: int, what: str, detail: str | None = None, *, hint: str = "") -> KafkaError:
    """The exception for an error code in an answer.

    Args:
        number: as it came, not 0.
        what: what was asked, as "create topic orders".
        detail: what the broker said about it, if it did.
        hint: what to do next.
    """
    code = as_error_code(number)
    name = code.name if code == number else f"error {number}, which this client does not know"
    return KafkaError(code, f"{what}: {name}" + (f" ({detail})" if detail else ""), hint=hint)


def check(number: int, what: str, detail: str | None = None) -> None:
    """Raise the `KafkaError` of an error code that is not 0."""
    if number:
        raise refusal(number, what, detail)


def the_only(results: Sequence[Result], what: str) -> Result:
    """The one result of a request about one thing.

    Raises:
        DecodeError: the answer has none, or several.
    """
    if len(results) != 1:
        raise DecodeError(f"{what}: the broker answered about {len(results)} things where one was asked for")
    return results[0]
