"""DescribeTopicPartitions (KIP-966): the order, the pages, and the cursors between them."""

import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)

EVERYTHING_ALLOWED = 0b1101_1111_1000  # READ 3 to DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11
NOT_ASKED = -(2**31)
NOWHERE = None


@pytest.fixture
def topics(raw):
    """Three topics: a of three partitions, b of two, c of one."""
    prefix = uuid.uuid4().hex
    return [
        raw.create_topic(f"{prefix}-{letter}", partitions=count) for letter, count in (("b", 2), ("a", 3), ("c", 1))
    ]


def ask(raw, names, *, limit=2_000, cursor=NOWHERE):
    request = DescribeTopicPartitionsRequest(
        topics=tuple(DescribeTopicPartitionsTopic(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is NOWHERE else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return raw.ask(request, 0)


def page(raw, names, **fields):
    """([(last letters of the name, partitions)], cursor)."""
    answer = ask(raw, names, **fields)
    cursor = answer.next_cursor
    return (
        [(topic.name[-1], [part.partition_index for part in topic.partitions]) for topic in answer.topics],
        cursor and (cursor.topic_name[-1], cursor.partition_index),
    )


def names_of(topics):
    return [topic.name for topic in topics]


def test_topics_are_described_in_the_order_of_their_names(raw, topics):
    answer = ask(raw, names_of(topics))

    assert [topic.name[-1] for topic in answer.topics] == ["a", "b", "c"]
    b, a, c = topics
    assert [topic.topic_id for topic in answer.topics] == [a.topic_id, b.topic_id, c.topic_id]
    for topic in answer.topics:
        assert (topic.error_code, topic.is_internal, topic.topic_authorized_operations) == (
            0,
            False,
            EVERYTHING_ALLOWED,
        )
        for part in topic.partitions:
            assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 1, (1,), (1,))
            assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == ((), (), ())
    assert answer.next_cursor is None


@pytest.mark.parametrize(
    ("limit", "described", "cursor"),
    [
        (-5, [("a", [0])], ("a", 1)),
        (0, [("a", [0])], ("a", 1)),
        (2, [("a", [0, 1])], ("a", 2)),
        (3, [("a", [0, 1, 2])], ("b", 0)),
        (4, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (5, [("a", [0, 1, 2]), ("b", [0, 1])], ("c", 0)),
        (6, [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None),
    ],
)
def test_a_page_ends_at_the_limit_and_says_where_the_next_one_begins(raw, topics, limit, described, cursor):
    assert page(raw, names_of(topics), limit=limit) == (described, cursor)


@pytest.mark.parametrize("limit", range(1, 7))
def test_who_follows_the_cursors_sees_each_partition_once(raw, topics, limit):
    seen, cursor, names = [], NOWHERE, [*names_of(topics), "zzz-unknown"]

    for _ in range(10):
        answer = ask(raw, names, limit=limit, cursor=cursor)
        seen += [(topic.name[-1], part.partition_index) for topic in answer.topics for part in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)

    assert answer.next_cursor is None
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


def test_no_topics_means_all_of_them(raw, topics):
    described = names_of(ask(raw, []).topics)

    assert described == sorted(described)
    assert set(names_of(topics)) <= set(described)


def test_a_cursor_of_a_topic_that_is_gone_goes_on_with_the_next_one(raw, topics):
    prefix = topics[0].name[:-1]

    answer = ask(raw, [], limit=1, cursor=(f"{prefix}aa", 7))

    assert [(topic.name, topic.partitions[0].partition_index) for topic in answer.topics] == [(f"{prefix}b", 0)]


def test_a_cursor_behind_the_partitions_of_its_topic_goes_on_with_the_next_one(raw, topics):
    assert page(raw, names_of(topics), cursor=(topics[1].name, 9)) == ([("a", []), ("b", [0, 1]), ("c", [0])], None)


def test_unknown_topics_and_impossible_names_are_told_in_their_place(raw, topics):
    _, a, c = topics

    answer = ask(raw, [c.name, f"{a.name}-unknown", "in/valid", a.name])

    told = {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}
    assert list(told) == sorted(told)
    assert told == {
        a.name: ErrorCode.NONE,
        f"{a.name}-unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        c.name: ErrorCode.NONE,
        "in/valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert all(topic.topic_id == ZERO_UUID for topic in answer.topics if topic.error_code)


def test_a_topic_that_is_named_twice_is_described_once(raw, topics):
    assert page(raw, [topics[2].name] * 2) == ([("c", [0])], None)


@pytest.mark.parametrize(("cursor", "names"), [(("not-asked-for", 0), 2), ((None, -1), 2), (("any", -1), 0)])
def test_a_cursor_that_cannot_be_is_refused(raw, topics, cursor, names):
    name, partition = cursor
    asked = names_of(topics)[:names]

    answer = ask(raw, asked, cursor=(name or asked[0], partition))

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        (name, ErrorCode.INVALID_REQUEST) for name in asked
    ]
    assert {topic.topic_authorized_operations for topic in answer.topics} <= {NOT_ASKED}
    assert answer.next_cursor is None
