"""How the command line says that something went wrong: a sentence for people, one JSON line for programs."""

import json

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError


class InvalidUsageError(ExactlogError):
    """A command line that cannot be carried out as it stands."""

    code = "usage"


class NotAvailableError(ExactlogError):
    """Something that is not part of this version."""

    code = "not-available"


class OperatingSystemError(ExactlogError):
    """The operating system refused something: a file that may not be read, a full disk."""

    code = "os-error"


class VersionConflictError(ExactlogError):
    """A partition is at another delta version than an append expects; nothing was appended."""

    code = "version-conflict"
    kafka_error = ErrorCode.INVALID_UPDATE_VERSION


class PayloadDiffersError(ExactlogError):
    """An id came before with other records; nothing was appended."""

    code = "payload-differs"


class PartlyDoneError(ExactlogError):
    """Some of what was asked is done, some is not; the message says which. The rest is as the cause says."""

    code = "partly-done"

    def __init__(self, message: str, cause: ExactlogError) -> None:
        super().__init__(message, hint=cause.hint)
        self.retryable = cause.retryable
        self.kafka_error = cause.kafka_error


def error_line(error: ExactlogError) -> str:
    """The error as one line of JSON; its schema only grows."""
    fault = {
        "code": error.code,
        "message": str(error),
        "retryable": error.retryable,
        "kafka_error": None if error.kafka_error is None else int(error.kafka_error),
        "hint": error.hint,
    }
    return json.dumps({"error": fault}, ensure_ascii=False, separators=(",", ":"))


def error_text(error: ExactlogError) -> str:
    """The error for people: what happened, and on a second line what to do next."""
    return f"exactlog: {error}\n  {error.hint}" if error.hint else f"exactlog: {error}"
