"""What an error is called by in versions of an API whose clients do not know it yet."""

from exactlog.core.model.error_code import ErrorCode


def in_words_of(version: int, error_code: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """An error as clients of a version know it: PRODUCER_FENCED came late (KIP-588)."""
    if error_code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code
