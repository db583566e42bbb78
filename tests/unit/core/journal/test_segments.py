"""The formulas of segments: wrong by one, and nothing is found in a store that kafka-journal wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.keys import SeqRange
from exactlog.core.journal.segments import (
    event_segment,
    event_segments,
    head_segment,
    head_segments,
    java_hash,
    segments_of_partition,
)

INT_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("id", 3355),
        ("user-42", -147182656),
        ("persistence-1", -1839195005),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 0xD83D * 31 + 0xDE00),  # two UTF-16 code units
    ],
)
def test_the_hash_is_javas(text, expected):
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("key_id", "segments", "expected"),
    [
        ("id", 1, 0),
        ("id", 100, 55),
        ("ID", 100, 55),
        ("Id", 10_000, 3355),
        ("id", INT_MAX, 3355),
        ("user-42", 100, 56),
        ("user-42", 10_000, 2656),
        ("persistence-1", 100, 5),
        ("persistence-1", 10_000, 5005),
        ("polygenelubricants", 100, 48),
        ("polygenelubricants", 10_000, 3648),
        ("polygenelubricants", INT_MAX, 1),  # in 32 bits the sign would stay
        ("", 100, 0),
    ],
)
def test_the_segment_of_a_head_row(key_id, segments, expected):
    assert head_segment(key_id, segments=segments) == expected


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.integers(1, INT_MAX))
def test_a_head_row_is_in_one_of_the_segments(key_id, segments):
    assert 0 <= head_segment(key_id, segments=segments) < segments
    assert -(2**31) <= java_hash(key_id) < 2**31


def test_a_head_row_is_looked_for_where_it_is_written_now_and_where_it_was_written_before():
    assert head_segments("user-42") == (2656, 56)
    assert head_segments("user-42", first=100, second=100) == (56,)


@pytest.mark.parametrize(
    ("seq_nr", "segment_size", "expected"),
    [(1, 2, 0), (2, 2, 0), (3, 2, 1), (10_000, 10_000, 0), (10_001, 10_000, 1), (2**63 - 1, 2, 2**62 - 1)],
)
def test_the_segment_of_an_event(seq_nr, segment_size, expected):
    assert event_segment(seq_nr, segment_size) == expected


def test_a_segment_of_events_holds_two_at_least():
    with pytest.raises(JournalInputError, match="2 numbers at least, not 1"):
        event_segment(1, 1)


def test_the_segments_of_a_range_go_up():
    assert list(event_segments(SeqRange(1, 5), 2)) == [0, 1, 2]
    assert list(event_segments(SeqRange(3, 3), 2)) == [1]
    assert list(event_segments(SeqRange(5, 1), 2)) == []


@pytest.mark.parametrize(
    ("partitions", "of_partitions", "expected"),
    [
        (20, [0], [0, 20, 40, 60, 80]),
        (30, [0], [0, 30, 60, 90]),
        (100, [0, 1, 2], [0, 1, 2]),
        (1, [0], list(range(100))),
        (150, [120], [20]),
    ],
)
def test_workers_share_the_segments_by_their_partitions(partitions, of_partitions, expected):
    found = [
        segment
        for partition in of_partitions
        for segment in segments_of_partition(partition, partitions=partitions, segments=100)
    ]

    assert found == expected


@given(st.integers(1, 250), st.integers(1, 250))
def test_no_segment_is_left_out(partitions, segments):
    found = {
        segment
        for partition in range(partitions)
        for segment in segments_of_partition(partition, partitions=partitions, segments=segments)
    }

    assert found == set(range(segments))
