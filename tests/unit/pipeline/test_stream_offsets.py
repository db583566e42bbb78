"""Where a stream stands, as Spark keeps it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.stream_offsets import (
    OffsetRange,
    OtherLogError,
    Position,
    StreamOffset,
    StreamOffsetError,
    check_same_log,
    parse_offset,
)

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
NUMBERS = st.integers(0, 2**63 - 1)
PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "orders", "x_1"]), st.integers(0, 12))


@st.composite
def offsets(draw):
    places = draw(st.lists(PLACES, unique=True, max_size=8))
    topics = sorted({place.topic for place in places})
    return StreamOffset(
        positions={
            place: Position(draw(NUMBERS), draw(st.none() | NUMBERS), draw(st.none() | NUMBERS)) for place in places
        },
        begun={place: draw(NUMBERS) for place in places if draw(st.booleans())},
        topic_ids={topic: draw(st.uuids().map(str)) for topic in topics if draw(st.booleans())},
        cluster_id=draw(st.none() | st.text(min_size=1)),
        is_initial=draw(st.booleans()),
    )


def at(*positions: int, **options) -> StreamOffset:
    """A stream that stands at these offsets of the partitions 0, 1, ..."""
    return StreamOffset(
        positions={TopicPartition("orders", number): Position(offset) for number, offset in enumerate(positions)},
        **options,
    )


@given(offsets())
def test_an_offset_comes_out_of_its_json_as_it_went_in(offset):
    assert parse_offset(json.loads(json.dumps(offset.document()))) == offset


@given(offsets())
def test_the_same_offset_is_the_same_text(offset):
    shuffled = StreamOffset(
        positions=dict(reversed(offset.positions.items())),
        begun=dict(reversed(offset.begun.items())),
        topic_ids=dict(reversed(offset.topic_ids.items())),
        cluster_id=offset.cluster_id,
        is_initial=offset.is_initial,
    )
    text = json.dumps(offset.document())
    assert json.dumps(shuffled.document()) == text
    assert json.dumps(parse_offset(json.loads(text)).document()) == text


def test_an_offset_looks_as_it_is_documented():
    offset = StreamOffset(
        positions={PLACE: Position(345, 12, 300), OTHER: Position(7, 2)},
        begun={OTHER: 3},
        topic_ids={"orders": "86bb4d19-a0bd-4f81-8927-246f0bab526a"},
    )
    assert json.dumps(offset.document()) == (
        '{"v": 1, "topics": {"orders": "86bb4d19-a0bd-4f81-8927-246f0bab526a"}, "partitions": {"orders": '
        '{"0": {"version": 12, "offset": 345, "rows": 300}, "1": {"version": 2, "offset": 7, "from": 3}}}}'
    )


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "offset",
        {},
        {"v": 1},
        {"v": 0, "partitions": {}},
        {"v": True, "partitions": {}},
        {"v": "1", "partitions": {}},
        {"v": 1, "partitions": {"orders": {"0": 5}}},
        {"v": 1, "partitions": {"orders": {"0": {}}}},
        {"v": 1, "partitions": {"orders": {"00": {"offset": 5}}}},
        {"v": 1, "partitions": {"orders": {"-1": {"offset": 5}}}},
        {"v": 1, "partitions": {"orders": {"0": {"offset": -5}}}},
        {"v": 1, "partitions": {"orders": {"0": {"offset": "5"}}}},
        {"v": 1, "partitions": {"orders": {"0": {"offset": 5, "from": -1}}}},
        {"v": 1, "partitions": {"orders": {"0": {"offset": 5, "seen": 1}}}},
        {"v": 1, "partitions": {}, "topics": {"orders": "x"}},
        {"v": 1, "partitions": {}, "more": 1},
        {"orders": {"0": 5}},  # of the official Kafka source
    ],
)
def test_what_is_no_offset_of_ours_is_refused_with_what_to_do(document):
    with pytest.raises(StreamOffsetError, match="not one of an exactlog stream") as refused:
        parse_offset(document)
    assert "checkpoint" in refused.value.hint


def test_an_offset_of_a_later_layout_is_told_as_such():
    with pytest.raises(StreamOffsetError, match="layout 2, this version knows 1"):
        parse_offset({"v": 2, "places": []})


def test_a_batch_has_what_lies_between_two_offsets():
    assert at(9, 4).ranges_from(at(5, 4)) == {PLACE: OffsetRange(5, 9, None, None)}
    assert at(9).ranges_from(at(9)) == {}


def test_a_partition_that_joined_has_its_own_beginning():
    end = at(9, 4, begun={OTHER: 1})
    assert end.ranges_from(at(9)) == {OTHER: OffsetRange(1, 4, None, None)}


def test_rows_are_counted_on():
    start = StreamOffset(positions={PLACE: Position(5, 2, 4)})
    end = StreamOffset(positions={PLACE: Position(9, 3, 7), OTHER: Position(2, 1, 2)}, begun={OTHER: 0})
    assert end.ranges_from(start) == {PLACE: OffsetRange(5, 9, 2, 4), OTHER: OffsetRange(0, 2, None, 0)}


def test_the_first_batch_keeps_its_own_beginning_whatever_is_the_beginning_when_it_is_asked_again():
    end = at(9, begun={PLACE: 5})
    for asked_again in (5, 7, 12):
        assert end.ranges_from(at(asked_again, is_initial=True)) == {PLACE: OffsetRange(5, 9, None, None)}


def test_a_first_batch_without_anything_stays_empty_when_its_beginning_is_asked_again():
    assert at(9, is_initial=True).ranges_from(at(12, is_initial=True)) == {}


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (at(9), at(5)),  # back
        (at(9, 1), at(9)),  # a partition is gone
        (at(9), at(9, 4)),  # one joined from nowhere
        (at(9, is_initial=True), at(12)),  # nobody knows where the first batch began
        (at(0), at(5, 4, begun={OTHER: 6})),
    ],
)
def test_offsets_that_do_not_follow_each_other_are_refused(start, end):
    with pytest.raises(StreamOffsetError) as refused:
        end.ranges_from(start)
    assert "orders" in str(refused.value)


def test_an_offset_of_the_log_that_is_read_is_taken():
    offset = at(5, topic_ids={"orders": "one"}, cluster_id="alpha")
    check_same_log(offset, cluster_id="alpha", topic_ids={"orders": "one", "others": "two"}, is_path=False)
    check_same_log(offset, cluster_id=None, topic_ids={}, is_path=False)


def test_an_offset_of_another_cluster_is_refused():
    with pytest.raises(OtherLogError, match="cluster alpha, and this one reads cluster beta") as refused:
        check_same_log(at(5, cluster_id="alpha"), cluster_id="beta", topic_ids={}, is_path=False)
    assert "new checkpoint" in refused.value.hint


def test_an_offset_of_a_topic_that_was_made_again_is_refused():
    offset = StreamOffset(positions={OTHER: Position(345, 12)}, topic_ids={"orders": "one"})
    with pytest.raises(OtherLogError, match=r"topic orders is not .* partition 1 .* offset 345 of version 12"):
        check_same_log(offset, cluster_id=None, topic_ids={"orders": "two"}, is_path=True)


@pytest.mark.parametrize("is_path", [True, False])
def test_an_offset_of_the_other_kind_of_source_is_refused(is_path):
    offset = StreamOffset(positions={PLACE: Position(5, None if is_path else 3)})
    with pytest.raises(OtherLogError, match="directory"):
        check_same_log(offset, cluster_id=None, topic_ids={}, is_path=is_path)
