import pytest

from exactlog.cli.errors import (
    InvalidUsageError,
    NotAvailableError,
    PartlyDoneError,
    PayloadDiffersError,
    VersionConflictError,
)
from exactlog.cli.exit_codes import ExitCode, exit_code_of
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
        (PartlyDoneError("x", UnavailableError("y")), 8),
        (PartlyDoneError("x", KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), 8),
        (DirectoryLockedError("d"), 9),
    ],
)
def test_every_kind_of_ending_has_its_exit_code(error, code):
    assert exit_code_of(error) == code


def test_interruption_ends_as_shells_expect():
    assert ExitCode.INTERRUPTED == 130
