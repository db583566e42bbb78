"""Timestamps of the delta log: RFC 3339, always in UTC, always with milliseconds: `2025-11-07T18:15:02.883Z`.

One spelling per instant, all of one width: two such texts compare as their instants do.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from exactlog.core.model.errors import DecodeError, InvariantError
from exactlog.core.model.ids import TimestampMs

TIMESTAMP_MS_MAX: Final = TimestampMs(253_402_300_799_999)  # the last one of the year 9999

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SHAPE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def format_timestamp(timestamp_ms: TimestampMs) -> str:
    """The text of an instant given in milliseconds since 1970-01-01 UTC.

    Raises:
        InvariantError: for one before 1970 or after 9999, which this form cannot tell.
    """
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvariantError(f"{timestamp_ms} ms is not an instant between 1970 and 9999")
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    return f"{_format_seconds(seconds)}.{milliseconds:03d}Z"


def parse_timestamp(text: str) -> TimestampMs:
    """The instant of such a text, in milliseconds since 1970-01-01 UTC.

    Raises:
        DecodeError: for any other spelling, a date that does not exist, or one before 1970.
    """
    if not _SHAPE.fullmatch(text):
        raise DecodeError(f"{text!r} is not a timestamp of the form 2025-11-07T18:15:02.883Z")
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise DecodeError(f"{text!r} is not a timestamp: {error}") from error
    timestamp_ms = (instant - _EPOCH) // _MILLISECOND
    if timestamp_ms < 0:
        raise DecodeError(f"{text!r} lies before 1970")
    return TimestampMs(timestamp_ms)


@lru_cache(maxsize=16)
def _format_seconds(seconds: int) -> str:
    # Commits come many to the second, and this part is the slow one.
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
