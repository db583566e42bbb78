"""How long something takes, as the command line spells it: 250ms, 90s, 1h30m."""

import re
from typing import Final

from exactlog.cli.errors import InvalidUsageError

_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:ms|s|m|h|d))+")
_PART: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def is_duration(text: str) -> bool:
    """Whether `parse_duration_ms` takes it."""
    return _DURATION.fullmatch(text) is not None


def parse_duration_ms(text: str) -> int:
    """The milliseconds that a duration stands for.

    Raises:
        InvalidUsageError: it is none.
    """
    if not is_duration(text):
        raise InvalidUsageError(f"{text!r} is no duration", hint="Write for example 500ms, 90s or 1h30m.")
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))


def format_duration(duration_ms: int) -> str:
    """A duration for people: its two largest units, from seconds on."""
    if duration_ms < 0:
        return f"-{format_duration(-duration_ms)}"
    if duration_ms < _UNITS_MS["s"]:
        return f"{duration_ms}ms"
    units = ("d", "h", "m", "s")
    counts = []
    for unit in units:
        count, duration_ms = divmod(duration_ms, _UNITS_MS[unit])
        counts.append((count, unit))
    first = next(index for index, (count, _) in enumerate(counts) if count)
    return "".join(f"{count}{unit}" for count, unit in counts[first : first + 2] if count)
