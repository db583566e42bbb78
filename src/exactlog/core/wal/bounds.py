"""Which sequences of a table a read asks for: from one bound to another, as HoraeDB's ReadBoundary."""

from typing import TypeAlias

from msgspec import Struct

from exactlog.core.wal.errors import InvalidBoundsError
from exactlog.core.wal.limits import SEQUENCE_MAX

SEQUENCE_MIN = 0


class Min(Struct, frozen=True):
    """No lower bound; as an upper one, the lowest sequence there can be."""


class Max(Struct, frozen=True):
    """No upper bound; as a lower one, the highest sequence there can be."""


class Included(Struct, frozen=True):
    """This sequence and all beyond it on the inner side."""

    sequence: int


class Excluded(Struct, frozen=True):
    """All beyond this sequence on the inner side, without it."""

    sequence: int


Bound: TypeAlias = Min | Max | Included | Excluded | type[Min] | type[Max]


class SequenceRange(Struct, frozen=True):
    """The sequences from `first` to `last`, both inclusive; none where `last` is lower."""

    first: int
    last: int


def resolve_bounds(start: Bound, end: Bound, *, region: int, table: int) -> SequenceRange:
    """The sequences between two bounds.

    Raises:
        InvalidBoundsError: the start is above the end, or a bound excludes the last sequence on its side.
    """

    def refuse(why: str, sequence: int) -> InvalidBoundsError:
        return InvalidBoundsError(
            f"region {region}, table {table}: cannot read from {_shown(start)} to {_shown(end)}: {why}",
            region=region,
            table=table,
            sequence=sequence,
            hint="the start is at or below the end, as Included(5) and Included(10); Min and Max leave a side open",
        )

    low, high = _sequence(start), _sequence(end)
    for sequence in (low, high):
        if not SEQUENCE_MIN <= sequence <= SEQUENCE_MAX:
            raise refuse(f"there is no sequence {sequence}", sequence)
    if isinstance(start, Excluded) and low == SEQUENCE_MAX:
        raise refuse("nothing lies above the highest sequence", low)
    if isinstance(end, Excluded) and high == SEQUENCE_MIN:
        raise refuse("nothing lies below the lowest sequence", high)
    if low > high:
        raise refuse("the start is above the end", low)
    return SequenceRange(low + isinstance(start, Excluded), high - isinstance(end, Excluded))


def _sequence(bound: Bound) -> int:
    match bound:
        case Included(sequence) | Excluded(sequence):
            return sequence
        case _ if bound is Min or isinstance(bound, Min):
            return SEQUENCE_MIN
        case _:
            return SEQUENCE_MAX


def _shown(bound: Bound) -> str:
    return bound.__name__ if isinstance(bound, type) else repr(bound)
