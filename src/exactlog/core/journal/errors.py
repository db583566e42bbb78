"""How working with event journals can fail. The names are those of `exactlog.journal`.

A conflict is in `conflict.py`, with what it compares.
"""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError


class JournalError(ExactlogError):
    """What every error about a journal derives from."""

    code = "journal-failed"


class JournalInputError(JournalError):
    """What the caller asked for cannot be: a number out of range, an inverted range, ids that do not fit."""

    code = "journal-input"


class Fenced(JournalError):  # noqa: N818  its name in the interface
    """A newer writer uses the same transactional id: this one ends here."""

    code = "producer-fenced"
    kafka_error = ErrorCode.PRODUCER_FENCED


class JournalDeleted(JournalError):  # noqa: N818  its name in the interface
    """The journal was purged, or the events asked for were deleted, while they were being read."""

    code = "journal-deleted"


class NotYetReplicated(JournalError):  # noqa: N818  its name in the interface
    """The store alone was asked, and has not come so far yet; the log has."""

    code = "not-yet-replicated"
    retryable = True


class HeadLost(JournalError):  # noqa: N818  its name in the interface
    """Retention removed actions from the log before they were replicated: some events are in neither."""

    code = "head-lost"
    kafka_error = ErrorCode.OFFSET_OUT_OF_RANGE


class Repartitioned(JournalError):  # noqa: N818  its name in the interface
    """The topic has another number of partitions now: the key hashes to another one than its events are in."""

    code = "repartitioned"


class Retriable(JournalError):  # noqa: N818  its name in the interface
    """For now it cannot be done; nothing of it is seen by anybody, and doing it again may succeed."""

    code = "journal-retriable"
    retryable = True


class ForkedJournalError(JournalError):
    """Two events of one life have the same number: two writers without expectations, and one store of both."""

    code = "journal-forked"
