"""Each API asks the authorizer for what Kafka asks, and refuses with Kafka's code (KIP-11)."""

import uuid

import pytest

from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest
from exactlog.core.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.denying_authorizer import DenyingAuthorizer, broker_with
from tests.support.raw_client import BY_ID, BY_NAME, Topic, base_offsets, batch_of, produce_request, sequenced

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
NOT_ASKED = -(2**31)
EVERY_TOPIC_OPERATION = 3_576  # as Kafka 4.4 tells where it has no authorizer
EVERY_CLUSTER_OPERATION = 8_096
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BATCH = batch_of(b"v")


@pytest.fixture(scope="module")
def authorizer():
    return DenyingAuthorizer()


@pytest.fixture(scope="module")
def broker(authorizer):
    with broker_with(authorizer) as running:
        yield running


@pytest.fixture
def deny(authorizer):
    yield authorizer.deny
    authorizer.allow_everything()


@pytest.fixture
def other(raw):
    """A topic that everything is allowed with."""
    return raw.create_topic()


def unknown():
    return Topic(f"unknown-{uuid.uuid4().hex}", uuid.uuid4())


# --- who asks -----------------------------------------------------------------------------------------------------


def test_the_authorizer_is_told_who_asks(raw, topic, authorizer, deny):
    raw.fetch(topic, 0)

    requester, operation, resource_type, name = authorizer.asked[-1]
    assert (requester.principal, requester.host, requester.client_id) == ("User:ANONYMOUS", "127.0.0.1", "raw")
    assert (operation, resource_type, name) == (Operation.READ, TOPIC, topic.name)


# --- Produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, BY_NAME, BY_ID])
def test_produce_needs_to_write_to_each_topic(raw, topic, other, deny, version):
    deny(Operation.WRITE, TOPIC, topic.name)

    assert raw.produce(topic, BATCH, version=version).error_code == REFUSED
    assert raw.produce(other, BATCH, version=version).error_code == ErrorCode.NONE
    assert base_offsets(raw.fetch(topic, 0).records) == []


def test_produce_does_not_tell_whether_a_topic_exists(raw, deny):
    deny(Operation.WRITE, TOPIC)

    assert raw.produce(unknown(), BATCH, version=BY_NAME).error_code == REFUSED
    assert raw.produce(unknown(), BATCH, version=BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_produce_without_an_answer_is_refused_by_the_end_of_the_connection(raw, topic, deny):
    deny(Operation.WRITE, TOPIC, topic.name)

    raw.send(produce_request(topic, BATCH, acks=0), BY_NAME, is_answered=False)

    assert raw.is_closed()


def produce_both(raw, topic, other, batch, **fields):
    parts = [
        TopicProduceData(name=each.name, partition_data=(PartitionProduceData(index=0, records=records),))
        for each, records in ((topic, batch), (other, BATCH))
    ]
    answer = raw.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=tuple(parts), **fields), BY_NAME)
    return [part.error_code for of_topic in answer.responses for part in of_topic.partition_responses]


def test_transactional_batches_need_a_transactional_id_that_may_be_written_to(raw, topic, other, deny):
    transactional = sequenced(7, 0, b"v", is_transactional=True)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    deny(Operation.WRITE, TRANSACTIONAL_ID, "theirs")

    assert produce_both(raw, topic, other, transactional) == [refused, refused]
    assert produce_both(raw, topic, other, transactional, transactional_id="theirs") == [refused, refused]
    assert refused not in produce_both(raw, topic, other, transactional, transactional_id="mine")
    assert produce_both(raw, topic, other, BATCH, transactional_id="theirs") == [0, 0]


# --- Fetch and offsets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, BY_NAME, BY_ID, 18])
def test_fetch_needs_to_read_each_topic(raw, topic, other, deny, version):
    raw.produce(topic, BATCH)
    deny(Operation.READ, TOPIC, topic.name)
    part = FetchPartition(partition=0, partition_max_bytes=1_000)
    topics = tuple(FetchTopic(topic=each.name, topic_id=each.topic_id, partitions=(part,)) for each in (topic, other))

    answer = raw.ask(FetchRequest(max_wait_ms=20, min_bytes=1, topics=topics), version)

    found = [(data.error_code, bytes(data.records)) for of_topic in answer.responses for data in of_topic.partitions]
    assert found == [(ErrorCode.NONE, b""), (REFUSED, b"")]


def test_fetch_does_not_tell_whether_a_topic_exists_but_an_id_is_no_secret(raw, deny):
    deny(Operation.READ, TOPIC)

    assert raw.fetch(unknown(), 0, version=BY_NAME).error_code == REFUSED
    assert raw.fetch(unknown(), 0, version=BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_each_fetch_of_a_session_is_asked_for(raw, topic, deny):
    part = FetchPartition(partition=0, partition_max_bytes=1_000)
    topics = (FetchTopic(topic_id=topic.topic_id, partitions=(part,)),)
    session_id = raw.ask(FetchRequest(session_epoch=0, topics=topics), BY_ID).session_id

    deny(Operation.READ, TOPIC, topic.name)
    answer = raw.ask(FetchRequest(session_id=session_id, session_epoch=1), BY_ID)

    assert answer.responses[0].partitions[0].error_code == REFUSED


def test_a_replica_needs_to_act_on_the_cluster(raw, topic, deny):
    deny(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    topics = (FetchTopic(topic_id=topic.topic_id, partitions=(FetchPartition(),)),)

    answer = raw.ask(FetchRequest(topics=topics, replica_state=ReplicaState(replica_id=3)), 15)

    assert answer.responses[0].partitions[0].error_code == REFUSED


def test_list_offsets_needs_to_describe_each_topic(raw, topic, other, deny):
    hidden = unknown()
    for each in (topic, hidden):
        deny(Operation.DESCRIBE, TOPIC, each.name)

    errors = [raw.list_offset(each, -1).error_code for each in (topic, hidden, other)]

    assert errors == [REFUSED, REFUSED, ErrorCode.NONE]


def end_of_epoch(raw, topic):
    part = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic=topic.name, partitions=(part,)),))
    return raw.ask(request, 4).topics[0].partitions[0].error_code


def test_the_end_of_an_epoch_needs_to_describe_the_topic_or_to_act_on_the_cluster(raw, topic, deny):
    deny(Operation.DESCRIBE, TOPIC, topic.name)
    by_cluster = end_of_epoch(raw, topic)
    deny(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)

    assert (by_cluster, end_of_epoch(raw, topic)) == (ErrorCode.NONE, REFUSED)


# --- Metadata and descriptions ------------------------------------------------------------------------------------


def metadata(raw, *topics, version=12, **fields):
    asked = None if not topics else tuple(MetadataRequestTopic(name=topic.name) for topic in topics)
    return raw.ask(MetadataRequest(topics=asked, **fields), version)


def test_metadata_names_a_hidden_topic_only_to_refuse_it(raw, topic, other, deny):
    hidden = unknown()
    for each in (topic, hidden):
        deny(Operation.DESCRIBE, TOPIC, each.name)

    named = metadata(raw, topic, hidden, other).topics
    of_all = [found.name for found in metadata(raw).topics]

    assert [(found.error_code, found.topic_id, found.partitions == ()) for found in named] == [
        (REFUSED, ZERO_UUID, True),
        (REFUSED, ZERO_UUID, True),
        (ErrorCode.NONE, other.topic_id, False),
    ]
    assert other.name in of_all
    assert topic.name not in of_all


def test_metadata_by_id_keeps_the_name_of_a_hidden_topic(raw, topic, deny):
    deny(Operation.DESCRIBE, TOPIC, topic.name)

    asked = (MetadataRequestTopic(name=None, topic_id=topic.topic_id),)
    (found,) = raw.ask(MetadataRequest(topics=asked), 12).topics

    assert (found.error_code, found.name, found.topic_id) == (REFUSED, None, topic.topic_id)


def test_metadata_creates_a_topic_for_who_may_create_in_the_cluster_or_by_that_name(raw, deny):
    deny(Operation.CREATE, CLUSTER, CLUSTER_NAME)
    by_name = unknown()
    (created,) = metadata(raw, by_name).topics
    refused = unknown()
    deny(Operation.CREATE, TOPIC, refused.name)
    (told,) = metadata(raw, refused).topics

    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 1)
    assert (told.error_code, told.topic_id) == (REFUSED, ZERO_UUID)
    assert metadata(raw, refused, allow_auto_topic_creation=False).topics[0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


@pytest.mark.parametrize("version", [8, 10, 12])
def test_metadata_tells_what_may_be_done_where_it_is_asked(raw, topic, deny, version):
    fields = {"include_topic_authorized_operations": True}
    if version <= 10:
        fields["include_cluster_authorized_operations"] = True
    everything = metadata(raw, topic, version=version, **fields)
    deny(Operation.WRITE, TOPIC, topic.name)
    deny(Operation.ALTER, CLUSTER, CLUSTER_NAME)
    something = metadata(raw, topic, version=version, **fields)
    deny(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    nothing = metadata(raw, topic, version=version, **fields)

    told = [found.topics[0].topic_authorized_operations for found in (everything, something)]
    of_cluster = [found.cluster_authorized_operations for found in (everything, something, nothing)]
    assert told == [EVERY_TOPIC_OPERATION, EVERY_TOPIC_OPERATION & ~(1 << Operation.WRITE)]
    if version <= 10:
        assert of_cluster == [EVERY_CLUSTER_OPERATION, EVERY_CLUSTER_OPERATION & ~(1 << Operation.ALTER), 0]
    else:
        assert of_cluster == [NOT_ASKED] * 3


def test_describe_cluster_refuses_nobody_and_tells_what_may_be_done_where_it_is_asked(raw, deny):
    def told(**fields):
        answer = raw.ask(DescribeClusterRequest(**fields), 2)
        assert answer.error_code == 0
        return answer.cluster_authorized_operations

    asked = {"include_cluster_authorized_operations": True}
    first = told(**asked)
    deny(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)

    assert (first, told(**asked), told()) == (EVERY_CLUSTER_OPERATION, 0, NOT_ASKED)


def test_describe_topic_partitions_names_a_hidden_topic_only_to_refuse_it(raw, topic, other, deny):
    hidden = unknown()
    for each in (topic, hidden):
        deny(Operation.DESCRIBE, TOPIC, each.name)

    def told(*topics):
        asked = tuple(DescribeTopicPartitionsTopic(name=each.name) for each in topics)
        answer = raw.ask(DescribeTopicPartitionsRequest(topics=asked), 0)
        return {found.name: (found.error_code, found.topic_id) for found in answer.topics}

    assert told(topic, hidden, other) == {
        topic.name: (REFUSED, ZERO_UUID),
        hidden.name: (REFUSED, ZERO_UUID),
        other.name: (ErrorCode.NONE, other.topic_id),
    }
    assert not {topic.name, hidden.name} & set(told())


def test_describe_producers_needs_to_read_each_topic(raw, topic, other, deny):
    hidden = unknown()
    for each in (topic, hidden):
        deny(Operation.READ, TOPIC, each.name)
    asked = tuple(DescribeProducersTopic(name=each.name, partition_indexes=(0,)) for each in (topic, hidden, other))

    answer = raw.ask(DescribeProducersRequest(topics=asked), 0)

    assert [found.partitions[0].error_code for found in answer.topics] == [REFUSED, REFUSED, ErrorCode.NONE]


def test_describe_log_dirs_needs_to_describe_the_cluster(raw, topic, deny):
    deny(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)

    answers = [raw.ask(DescribeLogDirsRequest(topics=None), version) for version in (2, 3)]

    assert [answer.results for answer in answers] == [(), ()]
    assert [answer.error_code for answer in answers] == [0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


# --- deleting -----------------------------------------------------------------------------------------------------


def delete(raw, **state):
    (result,) = raw.ask(DeleteTopicsRequest(topics=(DeleteTopicState(**state),)), 6).responses
    return result.error_code, result.name


def test_delete_topics_needs_to_delete_from_the_cluster_or_the_topic(raw, deny):
    by_cluster, by_topic, refused = (raw.create_topic() for _ in range(3))
    deny(Operation.DELETE, TOPIC, by_cluster.name)
    found = [delete(raw, name=by_cluster.name)]
    deny(Operation.DELETE, CLUSTER, CLUSTER_NAME)
    deny(Operation.DELETE, TOPIC, refused.name)
    found += [delete(raw, name=by_topic.name), delete(raw, name=refused.name)]

    assert found == [(ErrorCode.NONE, by_cluster.name), (ErrorCode.NONE, by_topic.name), (REFUSED, refused.name)]
    assert raw.fetch(refused, 0).error_code == ErrorCode.NONE


def test_delete_topics_hides_what_may_not_be_described(raw, topic, deny):
    hidden = unknown()
    deny(Operation.DELETE, CLUSTER, CLUSTER_NAME)
    deny(Operation.DELETE, TOPIC)
    known = [delete(raw, name=hidden.name), delete(raw, topic_id=topic.topic_id)]
    deny(Operation.DESCRIBE, TOPIC)

    assert known == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, hidden.name), (REFUSED, topic.name)]
    assert delete(raw, name=hidden.name) == (REFUSED, hidden.name)
    assert delete(raw, topic_id=topic.topic_id) == (REFUSED, None)
    assert delete(raw, topic_id=hidden.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_delete_records_needs_to_delete_from_the_topic(raw, topic, other, deny):
    raw.produce(topic, BATCH)
    hidden = unknown()
    for each in (topic, hidden):
        deny(Operation.DELETE, TOPIC, each.name)

    found = [raw.delete_records(each, 0) for each in (topic, hidden, other)]

    assert [each.error_code for each in found] == [REFUSED, REFUSED, ErrorCode.NONE]
    assert [each.low_watermark for each in found] == [-1, -1, 0]


# --- coordinators and producer ids --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_type", "resource_type", "error"),
    [
        (0, GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_find_coordinator_needs_to_describe_what_is_coordinated(raw, deny, key_type, resource_type, error):
    deny(Operation.DESCRIBE, resource_type, "theirs")

    several = raw.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=("theirs", "mine")), 4).coordinators
    one = raw.ask(FindCoordinatorRequest(key_type=key_type, key="theirs"), 3)

    assert [(found.error_code, found.node_id) for found in (*several, one)] == [(error, -1), (0, 1), (error, -1)]


def producer_id_error(raw, transactional_id=None):
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    answer = raw.ask(request, 4)
    assert (answer.producer_id == -1) == (answer.error_code != 0)
    return answer.error_code


def test_a_producer_id_needs_an_idempotent_write_or_a_topic_to_write_to(raw, topic, deny):
    deny(Operation.WRITE, TOPIC)
    by_cluster = producer_id_error(raw)
    deny(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    refused = producer_id_error(raw)

    assert (by_cluster, refused) == (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_a_producer_id_is_given_to_who_may_write_to_some_topic(raw, topic, deny):
    deny(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)

    assert producer_id_error(raw) == ErrorCode.NONE


def test_a_transactional_producer_needs_to_write_to_its_id(raw, deny):
    deny(Operation.WRITE, TRANSACTIONAL_ID, "theirs")

    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer_id_error(raw, "theirs") == refused
    assert producer_id_error(raw, "mine") != refused
