"""CreateTopics and DeleteTopics: what may be made, what may not, and what is left of a topic that was deleted."""

import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.testing import Broker
from tests.support.raw_admin import create_partitions, growth
from tests.support.raw_client import BY_ID, RawClient, Topic, batch_of, offsets_and_values, sequenced

CREATE_VERSIONS = range(8)
DELETE_VERSIONS = range(7)


def new_name():
    return f"topic-{uuid.uuid4().hex}"


def creatable(name=None, *, partitions=1, replicas=1, assignments=(), **configs):
    return CreatableTopic(
        name=new_name() if name is None else name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=assignments,
        configs=tuple(CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()),
    )


def create(raw, *topics, version=7, **options):
    return raw.ask(CreateTopicsRequest(topics=topics, **options), version).topics


def partition_count(raw, name):
    """How many partitions a topic has; None when there is no such topic."""
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    (described,) = raw.ask(asked, 12).topics
    return None if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else len(described.partitions)


def error_of(result):
    return ErrorCode(result.error_code)


# --- creating -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_topic_is_created_in_every_version(raw, version):
    topic = creatable(partitions=3, retention_ms="1234")

    (result,) = create(raw, topic, version=version)

    assert (error_of(result), result.name) == (ErrorCode.NONE, topic.name)
    assert partition_count(raw, topic.name) == 3
    assert (result.topic_id != ZERO_UUID) == (version >= 7)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        settings = {config.name: config for config in result.configs}
        assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("1234", 1)
        assert (settings["cleanup.policy"].value, settings["cleanup.policy"].config_source) == ("delete", 5)


def test_the_broker_decides_how_many_partitions_and_replicas_when_the_client_does_not(raw):
    (result,) = create(raw, creatable(partitions=-1, replicas=-1))

    assert (error_of(result), result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 1, 1)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("validate_only", [True, False])
def test_the_topics_of_the_coordinators_are_not_for_clients_to_create(raw, name, validate_only):
    (result,) = create(raw, creatable(name), validate_only=validate_only)

    assert error_of(result) in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_a_topic_by_the_name_of_kafkas_metadata_is_refused(raw):
    (result,) = create(raw, creatable("__cluster_metadata"))

    assert (error_of(result), result.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )


def test_the_topic_of_the_groups_comes_to_be_by_its_name_as_its_coordinator_makes_it():
    with Broker(config={"in.memory": True, "num.partitions": 3}) as broker, RawClient(broker.port) as raw:
        for name in ("__consumer_offsets", "__transaction_state"):
            asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
            (described,) = raw.ask(asked, 12).topics
            found = error_of(described), len(described.partitions)
            if name == "__consumer_offsets":
                assert found == (ErrorCode.NONE, 1), "offsets.topic.num.partitions, not num.partitions"
            else:
                assert found == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0), "nobody is there to make it"


def test_the_topic_of_the_groups_neither_grows_nor_is_deleted(raw):
    raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("group",)), 4)
    count = partition_count(raw, "__consumer_offsets")

    (grown,) = create_partitions(raw, growth("__consumer_offsets", count + 1)).values()
    (deleted,) = raw.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="__consumer_offsets"),)), 6).responses

    assert (grown.error_code, error_of(deleted)) == (ErrorCode.INVALID_TOPIC_EXCEPTION,) * 2
    assert "internal" in grown.message
    assert partition_count(raw, "__consumer_offsets") == count


def test_partitions_may_be_assigned_to_this_broker(raw):
    assignments = tuple(CreatableReplicaAssignment(partition_index=index, broker_ids=(1,)) for index in (1, 0))

    (result,) = create(raw, creatable(partitions=-1, replicas=-1, assignments=assignments))

    assert (error_of(result), result.num_partitions) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (creatable(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (creatable(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (creatable(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (creatable(retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (creatable(retention_ms="-2"), ErrorCode.INVALID_CONFIG),
        (creatable(retention_ms=None), ErrorCode.INVALID_CONFIG),
        (creatable(cleanup_policy="burn"), ErrorCode.INVALID_CONFIG),
        (creatable(min_compaction_lag_ms="2", max_compaction_lag_ms="1"), ErrorCode.INVALID_CONFIG),
        (
            creatable(assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),)),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            creatable(
                partitions=-1,
                replicas=-1,
                assignments=(CreatableReplicaAssignment(partition_index=1, broker_ids=(1,)),),
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            creatable(
                partitions=-1,
                replicas=-1,
                assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1, 2)),),
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            creatable(
                partitions=-1,
                replicas=-1,
                assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),) * 2,
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_topic_that_cannot_be_is_refused_with_the_reason_and_its_neighbours_are_created(
    raw, topic, error, validate_only
):
    before, after = creatable(), creatable()

    results = create(raw, before, topic, after, validate_only=validate_only)

    assert [error_of(result) for result in results] == [ErrorCode.NONE, error, ErrorCode.NONE]
    assert results[1].error_message
    counts = [partition_count(raw, name) for name in (before.name, after.name)]
    assert counts == ([None, None] if validate_only else [1, 1])
    if error is not ErrorCode.INVALID_TOPIC_EXCEPTION:
        assert partition_count(raw, topic.name) is None


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_name_that_is_taken_is_refused_before_anything_else_is_looked_at(raw, topic, validate_only):
    again = creatable(topic.name, partitions=0, replicas=3, no_such_key="1")

    (result,) = create(raw, again, validate_only=validate_only)

    assert error_of(result) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_with_several_faults_is_told_of_its_name_then_its_configuration_then_its_replicas(raw):
    faulty = [
        creatable("a/b", partitions=0, replicas=3, no_such_key="1"),
        creatable(partitions=0, replicas=3, no_such_key="1"),
        creatable(partitions=0, replicas=3),
    ]

    assert [error_of(result) for result in create(raw, *faulty)] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]


def test_names_that_differ_in_dots_and_underscores_alone_collide(raw):
    stem = new_name()
    first, second = creatable(f"{stem}.x_y"), creatable(f"{stem}_x.y")

    assert [error_of(result) for result in create(raw, first, second)] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    raw.ask(DeleteTopicsRequest(topic_names=(first.name,)), 5)
    assert error_of(create(raw, second)[0]) == ErrorCode.NONE


def test_a_topic_named_twice_in_a_request_is_not_created(raw):
    twice, once = creatable(), creatable()

    results = {result.name: error_of(result) for result in create(raw, twice, once, twice)}

    assert results == {twice.name: ErrorCode.INVALID_REQUEST, once.name: ErrorCode.NONE}
    assert partition_count(raw, twice.name) is None


def test_topics_created_from_several_connections_at_once_are_created_once(connect):
    topic = creatable()
    clients = [connect() for _ in range(5)]
    for client in clients:
        client.send(CreateTopicsRequest(topics=(topic,)), 7)

    errors = sorted(error_of(client.receive().topics[0]) for client in clients)

    assert errors == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4


# --- deleting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_topic_is_deleted_by_name_in_every_version(raw, topic, version):
    request = DeleteTopicsRequest(
        topic_names=(topic.name,), topics=(DeleteTopicState(name=topic.name),) * (version >= 6)
    )

    (result,) = raw.ask(request, version).responses

    assert (error_of(result), result.name) == (ErrorCode.NONE, topic.name)
    assert partition_count(raw, topic.name) is None
    assert raw.produce(topic, batch_of(b"v")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.fetch(topic, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_by_id(raw, topic):
    (result,) = raw.ask(DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=topic.topic_id),)), 6).responses

    assert (error_of(result), result.name, result.topic_id) == (ErrorCode.NONE, topic.name, topic.topic_id)
    assert partition_count(raw, topic.name) is None


def test_what_cannot_be_deleted_is_refused_and_the_rest_is_deleted(raw, topic):
    unknown_id, unknown_name = uuid.uuid4(), new_name()
    states = (
        DeleteTopicState(topic_id=unknown_id),
        DeleteTopicState(name=unknown_name),
        DeleteTopicState(),
        DeleteTopicState(name=unknown_name, topic_id=unknown_id),
        DeleteTopicState(name=topic.name),
    )

    results = raw.ask(DeleteTopicsRequest(topics=states), 6).responses

    assert {(result.name, result.topic_id): error_of(result) for result in results} == {
        (None, unknown_id): ErrorCode.UNKNOWN_TOPIC_ID,
        (unknown_name, ZERO_UUID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, ZERO_UUID): ErrorCode.INVALID_REQUEST,
        (unknown_name, unknown_id): ErrorCode.INVALID_REQUEST,
        (topic.name, topic.topic_id): ErrorCode.NONE,
    }
    assert partition_count(raw, topic.name) is None


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_topic_named_twice_in_a_request_is_not_deleted(raw, topic, version):
    twice = (DeleteTopicState(name=topic.name),) * 2 if version >= 6 else ()

    results = raw.ask(DeleteTopicsRequest(topic_names=(topic.name,) * 2, topics=twice), version).responses

    assert [(result.name, error_of(result)) for result in results] == [(topic.name, ErrorCode.INVALID_REQUEST)]
    assert partition_count(raw, topic.name) == 1


def test_a_topic_deleted_from_several_connections_at_once_is_deleted_once(connect, topic):
    clients = [connect() for _ in range(5)]
    for client in clients:
        client.send(DeleteTopicsRequest(topic_names=(topic.name,)), 5)

    errors = sorted(error_of(client.receive().responses[0]) for client in clients)

    assert errors == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4


# --- again --------------------------------------------------------------------------------------------------------


@pytest.fixture
def reborn(raw, topic):
    """A topic that was deleted with records in it, and another of the same name: (old, new)."""
    for sequence in range(3):
        raw.produce(topic, sequenced(77, sequence, b"old"))
    raw.ask(DeleteTopicsRequest(topic_names=(topic.name,)), 5)
    return topic, raw.create_topic(topic.name)


def test_a_topic_of_the_same_name_is_another_topic_and_empty(raw, reborn):
    old, new = reborn

    assert new.topic_id != old.topic_id
    fetched = raw.fetch(new, 0)
    assert (fetched.error_code, fetched.high_watermark, bytes(fetched.records)) == (0, 0, b"")
    assert raw.list_offset(new, -1).offset == 0


def test_the_id_of_the_deleted_topic_finds_nothing(raw, reborn):
    old, new = reborn

    assert raw.fetch(old, 0, version=BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert raw.produce(old, batch_of(b"v"), version=BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert raw.fetch(new, 0, version=BY_ID).high_watermark == 0


def test_producers_are_not_remembered_from_the_deleted_topic(raw, reborn):
    _, new = reborn

    assert raw.produce(new, sequenced(77, 3, b"late")).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert raw.produce(new, sequenced(77, 0, b"new")).base_offset == 0
    assert offsets_and_values(raw.fetch(new, 0).records) == [(0, b"new")]


def test_the_configuration_of_the_deleted_topic_is_gone(raw):
    small = raw.create_topic(max_message_bytes=100)
    raw.ask(DeleteTopicsRequest(topic_names=(small.name,)), 5)
    raw.create_topic(small.name)

    assert raw.produce(Topic(small.name, ZERO_UUID), batch_of(b"x" * 1_000)).error_code == 0


@pytest.mark.parametrize("counts", [(4_000, 4_000, 4_000), (1, 2**31 - 1)])
def test_one_request_cannot_create_more_partitions_than_the_bound(raw, counts):
    topics = [creatable(partitions=count) for count in counts]

    results = create(raw, *topics)

    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * len(counts)
    assert all(str(sum(counts)) in result.error_message for result in results)
    assert [partition_count(raw, topic.name) for topic in topics] == [None] * len(counts)
