"""CreatePartitions: topics grow, never shrink, and a refusal leaves them as they were."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.create_partitions import CreatePartitionsRequest
from exactlog.testing import Broker
from tests.support.raw_admin import DONE, create_partitions, growth, partition_count
from tests.support.raw_client import RawClient, batch_of, offsets_and_values

EVERY_VERSION = range(4)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_topic_grows_and_its_new_partitions_can_be_used_at_once(raw, topic, version):
    raw.produce(topic, batch_of(b"old"))

    assert create_partitions(raw, growth(topic.name, 3), version=version) == {topic.name: DONE}

    assert partition_count(raw, topic.name) == 3
    assert raw.produce(topic, batch_of(b"new"), partition=2).error_code == 0
    assert offsets_and_values(raw.fetch(topic, 0, partition=2).records) == [(0, b"new")]
    assert offsets_and_values(raw.fetch(topic, 0).records) == [(0, b"old")]


def test_new_partitions_run_with_the_settings_of_their_topic(raw):
    topic = raw.create_topic(max_message_bytes=100)

    create_partitions(raw, growth(topic.name, 2))

    too_large = raw.produce(topic, batch_of(b"x" * 1_000), partition=1)
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_new_partitions_may_be_assigned_to_this_broker(raw, topic):
    assert create_partitions(raw, growth(topic.name, 3, (1,), (1,))) == {topic.name: DONE}
    assert partition_count(raw, topic.name) == 3


def test_what_is_only_validated_changes_nothing(raw, topic):
    assert create_partitions(raw, growth(topic.name, 3), validate_only=True) == {topic.name: DONE}
    assert partition_count(raw, topic.name) == 1


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("count", "assignments", "refusal"),
    [
        (2, (), (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s).")),
        (
            1,
            (),
            (ErrorCode.INVALID_PARTITIONS, "The topic {} currently has 2 partition(s); 1 would not be an increase."),
        ),
        (
            0,
            (),
            (ErrorCode.INVALID_PARTITIONS, "The topic {} currently has 2 partition(s); 0 would not be an increase."),
        ),
        (
            -1,
            (),
            (ErrorCode.INVALID_PARTITIONS, "The topic {} currently has 2 partition(s); -1 would not be an increase."),
        ),
        (10_001, (), (ErrorCode.INVALID_PARTITIONS, "A topic can have 1 to 10000 partitions, not more.")),
        (20_000, (), (ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request.")),
        (
            4,
            ((1,),),
            (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
            ),
        ),
        (
            3,
            ((2,),),
            (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes broker 2, but no such broker is registered.",
            ),
        ),
        (
            3,
            ((1, 1),),
            (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes the broker 1 more than once.",
            ),
        ),
        (
            3,
            ((),),
            (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
        ),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_words_and_changes_nothing(raw, count, assignments, refusal, validate_only):
    topic = raw.create_topic(partitions=2)

    results = create_partitions(raw, growth(topic.name, count, *assignments), validate_only=validate_only)

    error_code, message = refusal
    assert results == {topic.name: (error_code, message.format(topic.name))}
    assert partition_count(raw, topic.name) == 2


def test_each_topic_is_answered_for_itself_and_once(raw, topic):
    """B053 (nisshi, compatibility findings): CreatePartitions answered with no results."""
    twice = raw.create_topic()

    results = create_partitions(
        raw, growth(twice.name, 2), growth("no-such-topic", 2), growth(topic.name, 2), growth(twice.name, 3)
    )

    assert {name: result.error_code for name, result in results.items()} == {
        twice.name: ErrorCode.INVALID_REQUEST,
        "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic.name: ErrorCode.NONE,
    }
    assert results[twice.name].message == "Duplicate topic name."
    assert [partition_count(raw, name) for name in (twice.name, topic.name)] == [1, 2]


def test_a_request_for_no_topics_is_answered_with_none(raw):
    assert create_partitions(raw) == {}


def test_requests_from_several_connections_at_once_let_a_topic_grow_once(connect, topic):
    clients = [connect() for _ in range(5)]
    for client in clients:
        client.send(CreatePartitionsRequest(topics=(growth(topic.name, 2),), timeout_ms=10_000), 3)

    errors = sorted(client.receive().results[0].error_code for client in clients)

    assert errors == [ErrorCode.NONE] + [ErrorCode.INVALID_PARTITIONS] * 4


def test_new_partitions_outlive_a_restart():
    with Broker() as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            create_partitions(raw, growth(topic.name, 3))
            raw.produce(topic, batch_of(b"v"), partition=2)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as raw:
            assert partition_count(raw, topic.name) == 3
            assert offsets_and_values(raw.fetch(topic, 0, partition=2).records) == [(0, b"v")]
            assert raw.produce(topic, batch_of(b"w"), partition=1).error_code == 0
