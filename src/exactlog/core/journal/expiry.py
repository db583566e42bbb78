"""When a journal expires: how long after its last append, and on which day (UTC).

The time an append allows replaces that of the one before; an append that names none takes it away. The day is the UTC
date of the append's own timestamp plus that time, whenever it is replicated. (kafka-journal takes the local zone of its
JVM, and the time of replication: nodes disagree.)
"""

from datetime import UTC, date, datetime, timedelta
from typing import Final

from msgspec import Struct

from exactlog.core.journal.errors import JournalInputError

_NS_PER_MS: Final = 1_000_000
_NS_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExpireAfter(Struct, frozen=True, order=True):
    """How long after its last append a journal may be purged, in nanoseconds: as exact as kafka-journal's."""

    ns: int

    def __post_init__(self) -> None:
        if not -_NS_MAX <= self.ns <= _NS_MAX:
            raise JournalInputError(f"a time of {self.ns} ns is more than can be written", hint="292 years at most")

    @classmethod
    def of_ms(cls, ms: int) -> "ExpireAfter":
        """So many milliseconds."""
        return cls(ms * _NS_PER_MS)


class Expiry(Struct, frozen=True):
    """A time to live, and the UTC date it ends on."""

    after: ExpireAfter
    on: date


def expiry_of(expire_after: ExpireAfter | None, *, timestamp_ms: int) -> Expiry | None:
    """When a journal expires whose last append has this timestamp and allows this time; never, if it says nothing."""
    if expire_after is None:
        return None
    try:
        # floored, so that a nanosecond before midnight is before midnight
        ends = _EPOCH + timedelta(milliseconds=timestamp_ms) + timedelta(microseconds=expire_after.ns // 1_000)
    except OverflowError:
        return Expiry(expire_after, date.max if expire_after.ns > 0 else date.min)
    return Expiry(expire_after, ends.date())
