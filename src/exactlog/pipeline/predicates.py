"""Predicates that Spark pushes down: which of them narrow what is read, and how far.

A predicate is *consumed* where what is read then meets it exactly; Spark does not look at it again. All others go back
to Spark, also those that only leave out a part of what does not meet them. None has any influence on `row_seq`.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from exactlog.core.model.ids import TopicPartition

_NUMBER_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset"})
_COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


class Interval(Struct, frozen=True):
    """Numbers from `low` to `high`, both included; none where `low` is above."""

    low: int = -_NUMBER_MAX
    high: int = _NUMBER_MAX

    def __and__(self, other: "Interval") -> "Interval":
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high


EVERYTHING: Final = Interval()


class Narrowing(Struct, frozen=True):
    """What predicates leave of a read.

    Attributes:
        topics: these only; None: all.
        partitions: with numbers in it.
        partition_numbers: and these only; None: all.
        offsets: those in it.
        versions: rows that these added.
        not_before_ms: rows that are not older, in milliseconds since 1970; None: of any age.
    """

    topics: frozenset[str] | None = None
    partitions: Interval = EVERYTHING
    partition_numbers: frozenset[int] | None = None
    offsets: Interval = EVERYTHING
    versions: Interval = EVERYTHING
    not_before_ms: int | None = None

    def admits(self, place: TopicPartition) -> bool:
        """Whether a partition can have rows."""
        if self.topics is not None and place.topic not in self.topics:
            return False
        if self.partition_numbers is not None and place.partition not in self.partition_numbers:
            return False
        return place.partition in self.partitions


class Pushed(Struct, frozen=True):
    """What became of predicates: how they narrow the read, and those that Spark has to apply all the same."""

    narrowing: Narrowing
    left: tuple[Filter, ...]


def push_predicates(predicates: Iterable[Filter]) -> Pushed:
    """How predicates, all of which must hold, narrow a read.

    On `topic` and `partition`, and comparisons of `offset`, they are consumed. Those on `timestamp` and
    `delta_version`, and a choice of offsets, leave out what they can, and Spark applies them all the same.
    """
    narrowing = Narrowing()
    left = []
    for predicate in predicates:
        narrowed, is_consumed = _narrow(narrowing, predicate)
        narrowing = narrowed
        if not is_consumed:
            left.append(predicate)
    return Pushed(narrowing, tuple(left))


def _narrow(narrowing: Narrowing, predicate: Filter) -> tuple[Narrowing, bool]:
    match predicate:
        case IsNotNull(attribute=(column,)):
            return narrowing, column in _NEVER_NULL
        case EqualTo(attribute=("topic",), value=str() as topic):
            return _choose_topics(narrowing, [topic]), True
        case In(attribute=("topic",), value=values) if all(isinstance(value, str) for value in values):
            return _choose_topics(narrowing, values), True
        case In(attribute=(column,), value=values) if values and all(_is_number(value) for value in values):
            return _choose_numbers(narrowing, column, values)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _compare(narrowing, predicate)
        case _:
            return narrowing, False


def _choose_topics(narrowing: Narrowing, topics: Iterable[str]) -> Narrowing:
    chosen = frozenset(topics)
    return replace(narrowing, topics=chosen if narrowing.topics is None else chosen & narrowing.topics)


def _choose_numbers(narrowing: Narrowing, column: str, values: Sequence[int]) -> tuple[Narrowing, bool]:
    span = Interval(min(values), max(values))
    match column:
        case "partition":
            chosen = frozenset(values)
            before = narrowing.partition_numbers
            return replace(narrowing, partition_numbers=chosen if before is None else chosen & before), True
        case "offset":
            return replace(narrowing, offsets=narrowing.offsets & span), False
        case "delta_version":
            return replace(narrowing, versions=narrowing.versions & span), False
        case _:
            return narrowing, False


def _compare(
    narrowing: Narrowing, predicate: EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
) -> tuple[Narrowing, bool]:
    if len(predicate.attribute) != 1:
        return narrowing, False
    column, value = predicate.attribute[0], predicate.value
    if column == "timestamp":
        return _not_before(narrowing, predicate), False
    if not _is_number(value):
        return narrowing, False
    interval = _interval(predicate)
    match column:
        case "partition":
            return replace(narrowing, partitions=narrowing.partitions & interval), True
        case "offset":
            return replace(narrowing, offsets=narrowing.offsets & interval), True
        case "delta_version":
            return replace(narrowing, versions=narrowing.versions & interval), False
        case _:
            return narrowing, False


def _interval(predicate: EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual) -> Interval:
    value: int = predicate.value
    match predicate:
        case EqualTo():
            return Interval(value, value)
        case GreaterThan():
            return Interval(low=value + 1)
        case GreaterThanOrEqual():
            return Interval(low=value)
        case LessThan():
            return Interval(high=value - 1)
        case LessThanOrEqual():
            return Interval(high=value)


def _not_before(
    narrowing: Narrowing, predicate: EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
) -> Narrowing:
    """Records are no younger than the one before: only those before a first that is young enough can be left out."""
    value = predicate.value
    if isinstance(predicate, LessThan | LessThanOrEqual) or not isinstance(value, datetime):
        return narrowing
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    timestamp_ms = (aware - _EPOCH) // timedelta(milliseconds=1)
    before = narrowing.not_before_ms
    return replace(narrowing, not_before_ms=timestamp_ms if before is None else max(before, timestamp_ms))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
