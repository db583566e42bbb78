"""The root of every error a user of exactlog can meet, and the errors the core itself raises.

Expected endings (a conflict, a refused batch) are values, not exceptions. What stands here is either a mistake of the
caller, something the outside world did, or a broken invariant of ours.
"""

from typing import ClassVar

from exactlog.core.model.error_code import ErrorCode


class ExactlogError(Exception):
    """What every error of this package derives from.

    Attributes:
        code: a stable, machine-readable name in kebab case; the command line prints it in its JSON errors.
        retryable: whether doing the same thing again may succeed.
        kafka_error: the Kafka error code behind it, where there is one.
        hint: what to do next, as a sentence; empty when the message says it all.
    """

    code: ClassVar[str] = "failed"
    retryable: bool = False
    kafka_error: ErrorCode | None = None

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class KafkaError(ExactlogError):
    """A refusal that has a Kafka error code: raised by a rule, turned into an answer at the API boundary."""

    code = "kafka-error"

    def __init__(self, error_code: ErrorCode, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or error_code.name, hint=hint)
        self.error_code = error_code
        self.kafka_error = error_code
        self.retryable = error_code.is_retriable


class DecodeError(ExactlogError):
    """Bytes that are not what they claim to be: cut short, lying about a length, or out of range."""

    code = "malformed"


class EncodeError(ExactlogError):
    """A message that the version asked for cannot carry: a field it lacks, a null, a number or a text out of range."""

    code = "not-encodable"


class DamageError(ExactlogError):
    """Something on disk is not as it was written. The message names the partition, the version and the file."""

    code = "damage"


class InvariantError(AssertionError):
    """A broken invariant of our own: the shard that meets it stops, loudly."""


class DirectoryLockedError(ExactlogError):
    """Another process owns the data directory."""

    code = "directory-locked"

    def __init__(self, directory: str, *, owner_pid: object = None, owner_host: object = None) -> None:
        who = f"process {owner_pid} on {owner_host}" if owner_pid else "another process"
        super().__init__(
            f"data directory {directory} is in use by {who}",
            hint="stop that process, or use another --data-dir",
        )
        self.owner_pid = owner_pid
        self.owner_host = owner_host


class ConfigError(ExactlogError):
    """A configuration that is refused. The message names the key and the place it was set in."""

    code = "invalid-config"


class VersionExpiredError(ExactlogError):
    """A version of a table that can no longer be read, or a time before its first one."""

    code = "version-expired"

    def __init__(self, table: str, *, oldest: int) -> None:
        super().__init__(
            f"{table}: so old a version cannot be read; the oldest one that can is {oldest}",
            hint=f"ask for version {oldest} or a later one",
        )
        self.oldest = oldest


class VersionUnknownError(ExactlogError):
    """A version of a table that does not exist yet."""

    code = "version-unknown"

    def __init__(self, table: str, *, newest: int) -> None:
        super().__init__(f"{table}: there is no such version; the newest one is {newest}")
        self.newest = newest


class OffsetOutOfRangeError(ExactlogError):
    """Offsets that have been removed from a table.

    Attributes:
        oldest: the first offset that is left.
        oldest_version: the first version of the table that had no others: the oldest one that can be read whole. None
            where offsets were asked for, not a version.
    """

    code = "offset-out-of-range"
    kafka_error = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, table: str, *, oldest: int, oldest_version: int | None = None) -> None:
        super().__init__(
            f"{table}: those offsets have been removed; the first one left is {oldest}"
            + ("" if oldest_version is None else f", the oldest version that can be read is {oldest_version}"),
            hint="" if oldest_version is None else f"ask for version {oldest_version} or a later one",
        )
        self.oldest = oldest
        self.oldest_version = oldest_version


class UnavailableError(ExactlogError):
    """A broker cannot be reached, does not answer in time, or kept refusing for now until the time was up."""

    code = "unavailable"
    retryable = True


class NotFoundError(ExactlogError):
    """What was named is not there."""

    code = "not-found"

    def __init__(self, message: str, *, kafka_error: ErrorCode | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kafka_error = kafka_error


class UnsupportedError(ExactlogError):
    """The broker does not serve what was asked, or in no version that this client speaks."""

    code = "unsupported"
    kafka_error = ErrorCode.UNSUPPORTED_VERSION
