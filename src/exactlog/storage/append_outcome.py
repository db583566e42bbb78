"""What can become of an append to a partition's log."""

from typing import Final

from msgspec import Struct

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import Offset, TimestampMs

DELETED: Final = "the topic was deleted"
"""Why a partition takes nothing more: it is going, and nobody waits for its versions."""


class Appended(Struct, frozen=True, gc=False):
    """The batch has its place, now or since an earlier try; to be told once it is committed."""

    base_offset: Offset
    log_append_time_ms: TimestampMs


class AppendRefused(Struct, frozen=True, gc=False):
    """The batch may not be appended; nothing was."""

    error_code: ErrorCode
    message: str
