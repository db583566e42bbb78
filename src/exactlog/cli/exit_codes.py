"""Every exit code of the command line, and which error ends with which."""

from enum import IntEnum
from typing import Final

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError


class ExitCode(IntEnum):
    """What a command ends with; the numbers are stable."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    NOT_ALLOWED = 5
    UNAVAILABLE = 6
    DAMAGE = 7
    PARTLY_DONE = 8
    DIRECTORY_LOCKED = 9
    INTERRUPTED = 130


_BY_KAFKA_ERROR: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ExitCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: ExitCode.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: ExitCode.CONFLICT,
    ErrorCode.NON_EMPTY_GROUP: ExitCode.CONFLICT,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: ExitCode.CONFLICT,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ExitCode.CONFLICT,
    ErrorCode.GROUP_MAX_SIZE_REACHED: ExitCode.CONFLICT,
    ErrorCode.INVALID_PRODUCER_EPOCH: ExitCode.CONFLICT,
    ErrorCode.INVALID_TXN_STATE: ExitCode.CONFLICT,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ExitCode.CONFLICT,
    ErrorCode.CONCURRENT_TRANSACTIONS: ExitCode.CONFLICT,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ExitCode.CONFLICT,
    ErrorCode.PRODUCER_FENCED: ExitCode.CONFLICT,
    ErrorCode.FENCED_INSTANCE_ID: ExitCode.CONFLICT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.POLICY_VIOLATION: ExitCode.NOT_ALLOWED,
    ErrorCode.TOPIC_DELETION_DISABLED: ExitCode.NOT_ALLOWED,
}

_BY_CODE: Final = {
    "usage": ExitCode.USAGE,
    "invalid-config": ExitCode.USAGE,
    "invalid-url": ExitCode.USAGE,
    "invalid-option": ExitCode.USAGE,
    "invalid-schema": ExitCode.USAGE,
    "invalid-columns": ExitCode.USAGE,
    "invalid-target": ExitCode.USAGE,
    "journal-input": ExitCode.USAGE,
    "store-url": ExitCode.USAGE,
    "not-found": ExitCode.NOT_FOUND,
    "offset-out-of-range": ExitCode.NOT_FOUND,
    "version-expired": ExitCode.NOT_FOUND,
    "version-unknown": ExitCode.NOT_FOUND,
    "records-lost": ExitCode.NOT_FOUND,
    "version-conflict": ExitCode.CONFLICT,
    "payload-differs": ExitCode.CONFLICT,
    "schema-differs": ExitCode.CONFLICT,
    "export-conflict": ExitCode.CONFLICT,
    "log-replaced": ExitCode.CONFLICT,
    "fenced": ExitCode.CONFLICT,
    "journal-deleted": ExitCode.CONFLICT,
    "journal-forked": ExitCode.CONFLICT,
    "repartitioned": ExitCode.CONFLICT,
    "other-log": ExitCode.CONFLICT,
    "other-query": ExitCode.CONFLICT,
    "other-replicator": ExitCode.CONFLICT,
    "not-allowed": ExitCode.NOT_ALLOWED,
    "damage": ExitCode.DAMAGE,
    "malformed": ExitCode.DAMAGE,
    "head-lost": ExitCode.DAMAGE,
    "region-data-lost": ExitCode.DAMAGE,
    "region-meta-lost": ExitCode.DAMAGE,
    "partly-done": ExitCode.PARTLY_DONE,
    "directory-locked": ExitCode.DIRECTORY_LOCKED,
}


def exit_code_of(error: ExactlogError) -> ExitCode:
    """What a command that ends with `error` exits with."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if error.kafka_error is not None and error.kafka_error in _BY_KAFKA_ERROR:
        return _BY_KAFKA_ERROR[error.kafka_error]
    return ExitCode.UNAVAILABLE if error.retryable else ExitCode.FAILED
