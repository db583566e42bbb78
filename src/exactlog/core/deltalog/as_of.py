"""Which version a reader of the past gets: by number, or by time.

A version that can be read lies between the oldest one kept and the newest one committed. What lies outside is an
answer of its own, never the nearest version instead.
"""

from collections.abc import Callable

import msgspec

from exactlog.core.model.ids import DeltaVersion, TimestampMs


class VersionFound(msgspec.Struct, frozen=True):
    """The version to read."""

    version: DeltaVersion


class VersionExpired(msgspec.Struct, frozen=True):
    """What was asked for lies before the oldest version that can be read: vacuumed, or before the table was made."""

    oldest: DeltaVersion


class VersionUnknown(msgspec.Struct, frozen=True):
    """The version asked for does not exist yet."""

    newest: DeltaVersion


AsOf = VersionFound | VersionExpired | VersionUnknown


def find_version(version: DeltaVersion, *, oldest: DeltaVersion, newest: DeltaVersion) -> AsOf:
    """Whether a version can be read.

    Args:
        version: the one asked for.
        oldest: the oldest one that can be read.
        newest: the newest one committed.
    """
    if version < oldest:
        return VersionExpired(oldest=oldest)
    if version > newest:
        return VersionUnknown(newest=newest)
    return VersionFound(version=version)


def find_version_at(
    timestamp_ms: TimestampMs,
    *,
    oldest: DeltaVersion,
    newest: DeltaVersion,
    timestamp_of: Callable[[DeltaVersion], TimestampMs],
) -> VersionFound | VersionExpired:
    """The version that was the newest one at a time: the greatest whose timestamp is not later.

    Timestamps never go back from one version to the next; of several versions with the same one, it is the highest.
    A time after the newest version finds the newest.

    Args:
        timestamp_ms: the time asked for, in milliseconds since 1970.
        oldest: the oldest version that can be read.
        newest: the newest one committed.
        timestamp_of: the timestamp of a version between those two; asked for about log2 of their number of times.
    """
    later = find_first_version(oldest=oldest, newest=newest, holds=lambda version: timestamp_of(version) > timestamp_ms)
    if later == oldest:
        return VersionExpired(oldest=oldest)
    return VersionFound(version=newest if later is None else DeltaVersion(later - 1))


def find_first_version(
    *, oldest: DeltaVersion, newest: DeltaVersion, holds: Callable[[DeltaVersion], bool]
) -> DeltaVersion | None:
    """The first version of which something holds; None where it holds of none.

    Args:
        oldest: where to begin.
        newest: where to end, inclusive.
        holds: what is to hold; where it holds of a version, it must hold of all later ones. Asked about log2 of their
            number of times.
    """
    if oldest > newest:
        return None
    # Invariant: it holds of nothing below `low`; it holds of `high`, or `high` is behind the newest.
    low, high = oldest, DeltaVersion(newest + 1)
    while low < high:
        middle = DeltaVersion((low + high) // 2)
        if holds(middle):
            high = middle
        else:
            low = DeltaVersion(middle + 1)
    return None if low > newest else low
