import pytest

from exactlog.cli.errors import (
    InvalidUsageError,
    NotAvailableError,
    PartlyDoneError,
    PayloadDiffersError,
    VersionConflictError,
)
from exactlog.cli.exit_codes import ExitCode, exit_code_of
from exactlog.core.journal.conflict import Conflict
from exactlog.core.journal.errors import (
    Fenced,
    ForkedJournalError,
    HeadLost,
    JournalDeleted,
    JournalError,
    JournalInputError,
    NotYetReplicated,
    Repartitioned,
    Retriable,
)
from exactlog.core.journal.expectation import NO_STREAM
from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import (
    ConfigError,
    DamageError,
    DecodeError,
    DirectoryLockedError,
    ExactlogError,
    KafkaError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
    VersionExpiredError,
    VersionUnknownError,
)
from exactlog.core.wal.errors import (
    RegionDataLostError,
    RegionFenced,
    RegionMetaLostError,
    RegionNotFoundError,
    UnreadableRecordError,
)
from exactlog.journal.stores.errors import DriverMissingError, NewerSchemaError, StoreSchemaError, StoreUrlError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ExactlogError("x"), 1),
        (NotAvailableError("x"), 1),
        (KafkaError(ErrorCode.INVALID_CONFIG), 1),
        (InvalidUsageError("x"), 2),
        (ConfigError("x"), 2),
        (NotFoundError("x"), 3),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 3),
        (VersionExpiredError("t", oldest=1), 3),
        (VersionUnknownError("t", newest=1), 3),
        (OffsetOutOfRangeError("t", oldest=1), 3),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS), 4),
        (KafkaError(ErrorCode.PRODUCER_FENCED), 4),
        (KafkaError(ErrorCode.NON_EMPTY_GROUP), 4),
        (KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), 4),
        (VersionConflictError("x"), 4),
        (PayloadDiffersError("x"), 4),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 5),
        (UnavailableError("x"), 6),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), 6),
        (DamageError("x"), 7),
        (DecodeError("x"), 7),
        (UnreadableRecordError("x", region=1, offset=2), 7),
        (RegionDataLostError("x", region=1, lost={3: (1, 2)}, first_offset=0, log_start=2), 7),
        (RegionMetaLostError("x", region=1), 7),
        (RegionFenced("x", region=1), 4),
        (RegionNotFoundError("x", region=1), 3),
        (JournalError("x"), 1),
        (DriverMissingError("x"), 1),
        (StoreSchemaError("x"), 1),
        (NewerSchemaError("x", version=9, known=8), 1),
        (JournalInputError("x"), 2),
        (StoreUrlError("x"), 2),
        (Conflict(JournalKey("t", "id"), expected=NO_STREAM, actual=3), 4),
        (ForkedJournalError("x"), 4),
        (JournalDeleted("x"), 4),
        (Repartitioned("x"), 4),
        (Fenced("x"), 4),
        (NotYetReplicated("x"), 6),
        (Retriable("x"), 6),
        (HeadLost("x"), 7),
        (PartlyDoneError("x", UnavailableError("y")), 8),
        (PartlyDoneError("x", KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), 8),
        (DirectoryLockedError("d"), 9),
    ],
)
def test_every_kind_of_ending_has_its_exit_code(error, code):
    assert exit_code_of(error) == code


def test_every_error_of_a_journal_is_in_the_table_above():
    asked = {type(error) for error, _ in test_every_kind_of_ending_has_its_exit_code.pytestmark[0].args[1]}
    kinds, found = [JournalError], set()
    while kinds:
        kind = kinds.pop()
        if kind.__module__.startswith(("exactlog.core.journal.", "exactlog.journal.stores.")):
            found.add(kind)
        kinds += kind.__subclasses__()
    assert found <= asked


def test_interruption_ends_as_shells_expect():
    assert ExitCode.INTERRUPTED == 130
