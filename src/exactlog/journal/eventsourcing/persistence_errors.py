"""What the library is told when a log or a store refuses: its own errors, which follow PEP 249."""

from collections.abc import Iterator
from contextlib import contextmanager

from eventsourcing.persistence import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)

from exactlog.client.transactions import TOO_LARGE, TransactionFailedError
from exactlog.core.journal.conflict import Conflict
from exactlog.core.journal.errors import Fenced, ForkedJournalError, JournalInputError
from exactlog.core.model.errors import DirectoryLockedError, ExactlogError, KafkaError, UnavailableError


@contextmanager
def persistence_errors() -> Iterator[None]:
    """Raise what the library expects in place of what this package raises.

    Raises:
        IntegrityError: a version was recorded before, or a later one was.
        DataError: an event cannot be recorded: it is too large, or its version is out of range.
        OperationalError: not now, or whether it was recorded is not known.
        InterfaceError: the log cannot be opened.
        DatabaseError: anything else.
    """
    try:
        yield
    except (Conflict, ForkedJournalError) as error:
        raise IntegrityError(str(error)) from error
    except JournalInputError as error:
        raise DataError(_told(error)) from error
    except DirectoryLockedError as error:
        raise InterfaceError(_told(error)) from error
    except (UnavailableError, TransactionFailedError, Fenced) as error:
        raise OperationalError(_told(error)) from error
    except KafkaError as error:
        if error.error_code in TOO_LARGE:
            raise DataError(f"an event is too large for its topic: {_told(error)}") from error
        raise (OperationalError if error.retryable else DatabaseError)(_told(error)) from error
    except ExactlogError as error:
        raise (OperationalError if error.retryable else DatabaseError)(_told(error)) from error


def _told(error: ExactlogError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)
