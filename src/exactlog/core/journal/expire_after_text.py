"""A time to live as text, as Scala's durations are written: "30 days", "100 minutes", "1 millisecond".

Read is what Scala reads: any white space, units long or short ("1 min", "30 h", "90s"), fractions ("1.5 h"); and a
plain number, which is milliseconds.
"""

import re
from fractions import Fraction
from typing import Final

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.model.errors import DecodeError

_UNITS: Final = (  # nanoseconds, the name that is written, and the names that are read
    (86_400_000_000_000, "day", "d day days"),
    (3_600_000_000_000, "hour", "h hr hrs hour hours"),
    (60_000_000_000, "minute", "m min mins minute minutes"),
    (1_000_000_000, "second", "s sec secs second seconds"),
    (1_000_000, "millisecond", "ms milli millis millisecond milliseconds"),
    (1_000, "microsecond", "µs μs micro micros microsecond microseconds"),
    (1, "nanosecond", "ns nano nanos nanosecond nanoseconds"),
)
_NS_PER_UNIT: Final = {name: ns for ns, _, names in _UNITS for name in names.split()}
_DURATION: Final = re.compile(r"([+-]?[0-9]{1,19}(?:\.[0-9]{1,9})?)([^\W\d_]+)")


def print_expire_after(expire_after: ExpireAfter) -> str:
    """The time in the greatest unit that it is a whole number of."""
    ns, unit = next((ns, unit) for ns, unit, _ in _UNITS if expire_after.ns % ns == 0)
    count = expire_after.ns // ns
    return f"{count} {unit}{'' if count == 1 else 's'}"


def parse_expire_after(written: object) -> ExpireAfter:
    """The time that a text or a number of milliseconds says.

    Raises:
        DecodeError: it says none, or one of more than 292 years.
    """
    try:
        if isinstance(written, int) and not isinstance(written, bool):
            return ExpireAfter.of_ms(written)
        if isinstance(written, str):
            found = _DURATION.fullmatch("".join(written.split()))
            if found is not None and found[2] in _NS_PER_UNIT:
                return ExpireAfter(round(Fraction(found[1]) * _NS_PER_UNIT[found[2]]))
    except JournalInputError as error:
        raise DecodeError(f"expireAfter {written!r}: {error}") from None
    raise DecodeError(f'expireAfter is a time as "30 days" or a number of milliseconds, not {written!r}')
