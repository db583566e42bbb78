"""Predicates that are pushed down: what they leave out, and what is left of them for Spark."""

from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.predicates import EVERYTHING, Narrowing, push_predicates

HOLDS = {
    EqualTo: lambda value, bound: value == bound,
    GreaterThan: lambda value, bound: value > bound,
    GreaterThanOrEqual: lambda value, bound: value >= bound,
    LessThan: lambda value, bound: value < bound,
    LessThanOrEqual: lambda value, bound: value <= bound,
    In: lambda value, bounds: value in bounds,
}
SMALL = st.integers(-1, 4)
NUMBERS = st.one_of(
    st.builds(
        lambda kind, column, value: kind((column,), value),
        st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
        st.sampled_from(["partition", "offset", "delta_version"]),
        SMALL,
    ),
    st.builds(
        lambda column, values: In((column,), tuple(values)),
        st.sampled_from(["partition", "offset", "delta_version"]),
        st.lists(SMALL, min_size=1, max_size=3),
    ),
)
TOPICS = st.sampled_from(["a", "b"])
PREDICATES = st.one_of(
    NUMBERS,
    TOPICS.map(lambda topic: EqualTo(("topic",), topic)),
    st.lists(TOPICS, max_size=2).map(lambda topics: In(("topic",), tuple(topics))),
)
ROWS = [
    {"topic": topic, "partition": partition, "offset": offset, "delta_version": version}
    for topic, partition, offset, version in product("ab", range(3), range(4), range(3))
]


def holds(predicate, row):
    return HOLDS[type(predicate)](row[predicate.attribute[0]], predicate.value)


def is_read(narrowing, row):
    return (
        narrowing.admits(TopicPartition(row["topic"], row["partition"]))
        and row["offset"] in narrowing.offsets
        and row["delta_version"] in narrowing.versions
    )


@given(st.lists(PREDICATES, max_size=4))
def test_what_is_read_and_what_spark_applies_are_together_what_was_asked_for(predicates):
    check(predicates)


@pytest.mark.parametrize("column", ["partition", "offset", "delta_version"])
def test_several_predicates_on_one_column_leave_what_all_of_them_leave(column):
    place = (column,)

    check([GreaterThan(place, 0), LessThan(place, 2)])
    check([LessThan(place, 2), GreaterThanOrEqual(place, 0), LessThanOrEqual(place, 0)])
    check([In(place, (0, 1)), In(place, (1, 2))])
    check([EqualTo(place, 1), EqualTo(place, 2)])
    check([EqualTo(("topic",), "a"), In(("topic",), ("b", "c"))])


def check(predicates):
    """What is read, and what Spark applies to it, are together what was asked for."""
    pushed = push_predicates(predicates)

    assert all(any(left is predicate for predicate in predicates) for left in pushed.left)
    for row in ROWS:
        applied = is_read(pushed.narrowing, row) and all(holds(predicate, row) for predicate in pushed.left)
        assert applied == all(holds(predicate, row) for predicate in predicates)


@pytest.mark.parametrize(
    "predicate",
    [
        EqualTo(("partition",), 3),
        In(("partition",), (3, 5)),
        GreaterThan(("partition",), 2),
        EqualTo(("topic",), "a"),
        In(("topic",), ("a", "b")),
        EqualTo(("offset",), 3),
        LessThan(("offset",), 2**62),
        IsNotNull(("offset",)),
        IsNotNull(("topic",)),
    ],
)
def test_what_is_met_exactly_is_not_applied_again(predicate):
    assert push_predicates([predicate]).left == ()


@pytest.mark.parametrize(
    "predicate",
    [
        In(("offset",), (3, 5)),
        EqualTo(("delta_version",), 3),
        GreaterThan(("timestamp",), datetime(2026, 11, 27, tzinfo=UTC)),
    ],
)
def test_what_is_met_in_part_is_applied_again(predicate):
    pushed = push_predicates([predicate])

    assert pushed.left == (predicate,)
    assert pushed.narrowing != Narrowing()


@pytest.mark.parametrize(
    "predicate",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("row_seq",), 3),
        EqualTo(("control",), True),
        GreaterThan(("topic",), "a"),
        EqualTo(("offset",), None),
        EqualTo(("offset",), True),
        EqualTo(("offset",), 1.5),
        EqualNullSafe(("offset",), 1),
        In(("offset",), ()),
        In(("offset",), (1, None)),
        In(("topic",), ("a", None)),
        Not(EqualTo(("offset",), 1)),
        IsNull(("offset",)),
        IsNotNull(("delta_version",)),
        IsNotNull(("timestamp",)),
        LessThan(("timestamp",), datetime(2026, 11, 27, tzinfo=UTC)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("headers", "name"), "x"),
    ],
)
def test_what_is_not_understood_narrows_nothing_and_goes_back(predicate):
    pushed = push_predicates([predicate])

    assert pushed.narrowing == Narrowing()
    assert pushed.left == (predicate,)


def test_a_choice_of_no_topic_leaves_none():
    assert not push_predicates([In(("topic",), ())]).narrowing.admits(TopicPartition("a", 0))


@pytest.mark.parametrize("kind", [GreaterThan, GreaterThanOrEqual, EqualTo])
def test_the_latest_of_several_times_is_where_to_begin(kind):
    times = [datetime(2026, 11, day, 10, 0, 0, 1_999, tzinfo=UTC) for day in (26, 27, 25)]

    narrowing = push_predicates([kind(("timestamp",), time) for time in times]).narrowing

    assert narrowing.not_before_ms == int(datetime(2026, 11, 27, 10, tzinfo=UTC).timestamp()) * 1_000 + 1
    assert narrowing.offsets == EVERYTHING
