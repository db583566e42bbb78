"""Places in a topic and points in its history, as the command line spells them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from exactlog.cli.durations import is_duration, parse_duration_ms
from exactlog.cli.errors import InvalidUsageError
from exactlog.core.model.ids import DeltaVersion, Offset, TimestampMs

OFFSET_MAX: Final = 2**63 - 1

_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_HINT: Final = "Write @-1h30m, @2026-11-27T10:00:00Z, or @ and milliseconds since 1970."


class Start(Struct, frozen=True):
    """The first record there still is."""


class End(Struct, frozen=True):
    """Behind the last record."""


class AtOffset(Struct, frozen=True):
    """An offset."""

    offset: Offset


class AtTime(Struct, frozen=True):
    """The first record that is not older."""

    timestamp_ms: TimestampMs


class AsOfVersion(Struct, frozen=True):
    """The table as one delta version left it."""

    version: DeltaVersion


class AsOfTime(Struct, frozen=True):
    """The table as it was at a time."""

    timestamp_ms: TimestampMs


Position = Start | End | AtOffset | AtTime


def parse_position(text: str, *, now_ms: TimestampMs) -> Position:
    """The place that `start`, `end`, an offset, or `@` with a time (`@-1h`: an hour before now) stands for.

    Raises:
        InvalidUsageError: it is none of these.
    """
    if text in {"start", "end"}:
        return Start() if text == "start" else End()
    if text.startswith("@"):
        return AtTime(_parse_time(text[1:], text, now_ms=now_ms))
    return AtOffset(
        Offset(_parse_number(text, f"{text!r} is no place in a topic", "Write start, end, an offset or @time."))
    )


def parse_as_of(text: str) -> AsOfVersion | AsOfTime:
    """The delta version, or the time in RFC 3339, that `text` stands for.

    Raises:
        InvalidUsageError: it is neither.
    """
    if _DIGITS.fullmatch(text):
        return AsOfVersion(DeltaVersion(int(text)))
    timestamp_ms = _parse_instant(text)
    if timestamp_ms is None:
        raise InvalidUsageError(
            f"{text!r} is neither a version nor a time", hint="Write for example 17 or 2026-11-27T10:00:00Z."
        )
    return AsOfTime(timestamp_ms)


def _parse_time(time: str, text: str, *, now_ms: TimestampMs) -> TimestampMs:
    if time.startswith("-") and is_duration(time[1:]):
        return TimestampMs(max(0, now_ms - parse_duration_ms(time[1:])))
    if time.isascii() and time.isdigit():
        return TimestampMs(_parse_number(time, f"{text!r} is no time", _TIME_HINT))
    timestamp_ms = _parse_instant(time)
    if timestamp_ms is None:
        raise InvalidUsageError(f"{text!r} is no time", hint=_TIME_HINT)
    return timestamp_ms


def _parse_instant(text: str) -> TimestampMs | None:
    """The instant of an RFC 3339 text; one without a zone is taken for UTC."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    timestamp_ms = (aware - _EPOCH) // timedelta(milliseconds=1)
    return TimestampMs(timestamp_ms) if timestamp_ms >= 0 else None


def _parse_number(text: str, fault: str, hint: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) > OFFSET_MAX:
        raise InvalidUsageError(fault, hint=hint)
    return int(text)
