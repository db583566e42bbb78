"""Metadata and DescribeCluster: which topics are told, by what name, and which come into being by being asked for."""

import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import batch_of

EVERY_VERSION = range(14)
NOT_ASKED = -(2**31)


def by_name(*names, **options):
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names), **options)


def by_id(*ids):
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids),
        allow_auto_topic_creation=False,
    )


def new_name():
    return f"auto-{uuid.uuid4().hex}"


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_the_broker_and_the_topic_are_described_in_every_version(broker, raw, version):
    topic = raw.create_topic(partitions=3)

    response = raw.ask(by_name(topic.name), version)

    (broker,) = response.brokers
    assert (broker.host, broker.port) == ("127.0.0.1", broker.port)
    (described,) = response.topics
    assert (described.error_code, described.name, described.is_internal) == (0, topic.name, False)
    assert [part.partition_index for part in described.partitions] == [0, 1, 2]
    for part in described.partitions:
        assert part.error_code == 0
        assert part.leader_id == broker.node_id
        assert part.replica_nodes == part.isr_nodes == (broker.node_id,)
        assert part.offline_replicas == ()
    assert described.topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
    assert response.controller_id == (broker.node_id if version >= 1 else -1)
    assert (response.cluster_id is not None) == (version >= 2)
    assert described.topic_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_null_or_in_version_0_an_empty_list_means_all_topics(raw, topic, version):
    everything = MetadataRequest(topics=() if version == 0 else None)

    names = [described.name for described in raw.ask(everything, version).topics]

    assert topic.name in names
    assert names == sorted(set(names))


@pytest.mark.parametrize("version", [version for version in EVERY_VERSION if version >= 1])
def test_an_empty_list_means_no_topics(raw, topic, version):
    response = raw.ask(MetadataRequest(topics=()), version)

    assert response.topics == ()
    assert len(response.brokers) == 1


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_an_unknown_topic_comes_into_being_where_the_client_allows_it(raw, version):
    name = new_name()

    (described,) = raw.ask(by_name(name), version).topics

    assert (described.error_code, described.name, len(described.partitions)) == (0, name, 1)
    (again,) = raw.ask(by_name(name), 12).topics
    assert again.topic_id != ZERO_UUID


def test_a_topic_can_be_written_to_as_soon_as_metadata_has_told_of_it(raw, topic):
    name = new_name()
    raw.ask(by_name(name), 12)

    assert raw.produce(topic._replace(name=name), batch_of(b"v")).base_offset == 0


@pytest.mark.parametrize("version", [version for version in EVERY_VERSION if version >= 4])
def test_an_unknown_topic_is_refused_where_the_client_does_not_want_it(raw, version):
    name = new_name()

    (described,) = raw.ask(by_name(name, allow_auto_topic_creation=False), version).topics

    assert (described.error_code, described.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    assert described.partitions == ()
    assert name not in [found.name for found in raw.ask(MetadataRequest(topics=None), version).topics]


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "slash/ed", "ümlaut", "x" * 250])
def test_a_name_no_topic_can_have_is_refused_as_such(raw, name):
    (described,) = raw.ask(by_name(name), 12).topics

    assert (described.error_code, described.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)


def test_a_topic_is_not_created_by_a_name_that_collides(raw):
    topic = raw.create_topic(f"{new_name()}.a")

    (described,) = raw.ask(by_name(topic.name.replace(".", "_")), 12).topics

    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_known_and_unknown_topics_are_told_side_by_side(raw, topic):
    unknown = new_name()

    topics = raw.ask(by_name(topic.name, unknown, "in/valid", allow_auto_topic_creation=False), 9).topics

    assert {described.name: described.error_code for described in topics} == {
        topic.name: ErrorCode.NONE,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "in/valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_a_topic_named_twice_is_told_once(raw, topic):
    assert [described.name for described in raw.ask(by_name(topic.name, topic.name), 12).topics] == [topic.name]


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(raw, topic, version):
    unknown = uuid.uuid4()

    known_answer, unknown_answer = raw.ask(by_id(topic.topic_id, unknown), version).topics

    assert (known_answer.error_code, known_answer.name, known_answer.topic_id) == (0, topic.name, topic.topic_id)
    assert len(known_answer.partitions) == 1
    assert (unknown_answer.error_code, unknown_answer.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert unknown_answer.topic_id == unknown


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_tell_ids_but_do_not_take_them_refuse_the_whole_request(raw, topic, version):
    by_both = MetadataRequestTopic(name=topic.name, topic_id=topic.topic_id)
    without_name = MetadataRequestTopic(name=None, topic_id=topic.topic_id)
    for asked in (by_both, without_name):
        response = raw.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name), asked)), version)

        assert [(described.error_code, described.name) for described in response.topics] == [
            (ErrorCode.INVALID_REQUEST, topic.name),
            (ErrorCode.INVALID_REQUEST, asked.name or ""),
        ]
        assert (response.brokers, response.cluster_id, response.controller_id) == ((), None, -1)


def test_beside_ids_names_are_not_looked_at(raw, topic):
    name = new_name()
    asked = (MetadataRequestTopic(name=name), MetadataRequestTopic(name=None, topic_id=topic.topic_id))

    answers = [raw.ask(MetadataRequest(topics=asked), 12).topics for _ in range(2)]

    assert [[described.name for described in topics] for topics in answers] == [[topic.name]] * 2


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(broker, raw, version):
    response = raw.ask(DescribeClusterRequest(), version)

    (broker,) = response.brokers
    assert (broker.host, broker.port) == ("127.0.0.1", broker.port)
    assert response.controller_id == broker.broker_id
    assert response.cluster_id == raw.ask(MetadataRequest(topics=()), 12).cluster_id
    assert response.error_code == 0


def test_this_broker_is_no_controller_to_be_asked_for(raw):
    errors = [raw.ask(DescribeClusterRequest(endpoint_type=kind), 1).error_code for kind in (1, 2, 3)]

    assert errors == [0, ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE]
