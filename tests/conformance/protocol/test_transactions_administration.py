"""DescribeTransactions, ListTransactions and WriteTxnMarkers: who looks at transactions, and ends one that hangs."""

import pytest

from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from exactlog.testing import Broker
from tests.support.denying_authorizer import DenyingAuthorizer, broker_with
from tests.support.isolated_reader import COMMITTED, read_on, values
from tests.support.raw_client import RawClient, Topic, sequenced
from tests.support.raw_transactions import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe,
    list_transactions,
    write_marker,
)

NONE = ErrorCode.NONE
LAST_COORDINATOR_EPOCH = 2**31 - 1


@pytest.fixture(scope="module")
def own():
    """A broker whose transactions are those of the test: it lists all there are."""
    with Broker(config={"in.memory": True}) as running:
        yield running


def listed(answer):
    assert answer.error_code == 0
    return sorted((found.transactional_id, found.transaction_state) for found in answer.transaction_states)


def test_a_transaction_is_described_with_its_partitions(raw):
    topic = raw.create_topic(partitions=3)
    producer = TransactionalProducer(raw, topic.name, timeout_ms=12_345)
    producer.init()
    empty = describe(raw, topic.name)
    assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, ())

    producer.produce((topic, 2, b"v"), (topic, 0, b"v"))
    found = describe(raw, topic.name)

    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, topic.name, "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (*producer.identity, 12_345)
    assert found.transaction_start_time_ms > 0
    assert [(of.topic, of.partitions) for of in found.topics] == [(topic.name, (0, 2))]


def test_an_id_that_is_not_there_and_an_empty_one_are_told(raw):
    assert ErrorCode(describe(raw, "nobody").error_code) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert ErrorCode(describe(raw, "").error_code) is ErrorCode.INVALID_REQUEST


def test_topics_that_may_not_be_described_are_left_out():
    authorizer = DenyingAuthorizer()
    with broker_with(authorizer) as broker, RawClient(broker.port) as raw:
        open_one, secret = raw.create_topic("open"), raw.create_topic("secret")
        producer = TransactionalProducer(raw, "mine")
        producer.init()
        producer.add((open_one, 0), (secret, 0))
        authorizer.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")

        assert [of.topic for of in describe(raw, "mine").topics] == ["open"]


def test_transactions_are_listed_by_state_producer_age_and_pattern(own):
    with RawClient(own.port) as raw:
        topic = raw.create_topic()
        idle, busy, other = (TransactionalProducer(raw, name) for name in ("app-1", "app-2", "job-1"))
        for producer in (idle, busy, other):
            assert producer.init() is NONE
        busy.add((topic, 0))
        own.clock.advance_ms(5_000)
        other.add((topic, 0))

        everything = [("app-1", "Empty"), ("app-2", "Ongoing"), ("job-1", "Ongoing")]
        for version in range(3):
            assert listed(list_transactions(raw, version=version)) == everything
        assert listed(list_transactions(raw, state_filters=("Ongoing",))) == everything[1:]
        assert listed(list_transactions(raw, producer_id_filters=(idle.producer_id,))) == everything[:1]
        assert listed(list_transactions(raw, duration_filter=3_000, state_filters=("Ongoing",))) == everything[1:2]
        assert listed(list_transactions(raw, transactional_id_pattern="app-.*")) == everything[:2]
        assert listed(list_transactions(raw, transactional_id_pattern="app")) == []
        assert listed(list_transactions(raw, transactional_id_pattern="")) == everything
        unknown = list_transactions(raw, state_filters=("Ongoing", "Undecided"))
        assert unknown.unknown_state_filters == ("Undecided",)
        assert listed(unknown) == everything[1:]
        assert listed(list_transactions(raw, state_filters=("Undecided",))) == []


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "*", "(?=a)", r"\1", "x" * 10_000])
def test_a_pattern_that_is_none_is_refused(raw, pattern):
    answer = list_transactions(raw, transactional_id_pattern=pattern)

    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION


# --- markers past the coordinator ------------------------------------------------------------------------------------


@pytest.fixture
def hanging(raw, topic):
    """A producer whose transaction is open in a partition."""
    producer = TransactionalProducer(raw, topic.name)
    producer.init()
    assert producer.produce((topic, 0, b"hanging")) == [NONE]
    assert read_on(raw, topic) == []
    return producer


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_marker_ends_a_transaction_that_hangs(raw, topic, hanging, version, outcome):
    assert write_marker(raw, topic, *hanging.identity, outcome, version=version) is NONE

    assert values(read_on(raw, topic)) == ([b"hanging"] if outcome is COMMIT else [])
    raw.produce(topic, sequenced(hanging.producer_id + 1_000_000, 0, b"behind"))
    assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 3


def test_a_marker_of_an_older_epoch_or_coordinator_is_refused(raw, topic, hanging):
    producer_id, epoch = hanging.identity
    assert write_marker(raw, topic, producer_id, epoch + 2, ABORT, coordinator_epoch=7) is NONE

    assert write_marker(raw, topic, producer_id, epoch + 1, COMMIT, coordinator_epoch=7) is (
        ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert write_marker(raw, topic, producer_id, epoch + 3, COMMIT, coordinator_epoch=6) is (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )


def test_a_marker_of_a_coordinator_that_is_yet_to_come_shuts_the_present_one_out(raw, topic, hanging):
    """As in Apache Kafka: whoever gives more than DescribeProducers tells has to end what comes by hand."""
    assert write_marker(raw, topic, *hanging.identity, ABORT, coordinator_epoch=LAST_COORDINATOR_EPOCH) is NONE
    assert hanging.produce((topic, 0, b"shut out")) == [NONE]
    assert hanging.end(COMMIT) is NONE
    while describe(raw, topic.name).transaction_state != "CompleteCommit":
        pass

    assert values(read_on(raw, topic)) == []
    assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2, "what was committed hangs there"

    fenced = write_marker(raw, topic, *hanging.identity, COMMIT, coordinator_epoch=LAST_COORDINATOR_EPOCH - 1)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write_marker(raw, topic, *hanging.identity, COMMIT, coordinator_epoch=LAST_COORDINATOR_EPOCH) is NONE
    assert values(read_on(raw, topic)) == [b"shut out"]


def test_from_transaction_version_2_on_a_marker_has_an_epoch_above_that_of_its_transaction(raw, topic, hanging):
    producer_id, epoch = hanging.identity

    assert write_marker(raw, topic, producer_id, epoch, COMMIT, tv=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write_marker(raw, topic, producer_id, epoch + 1, COMMIT, tv=2) is NONE
    assert write_marker(raw, topic, producer_id, epoch + 1, COMMIT, tv=2) is NONE  # it may not have been answered
    assert values(read_on(raw, topic)) == [b"hanging"]


def test_a_marker_for_a_partition_that_is_not_there_is_told(raw, topic):
    nowhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write_marker(raw, topic, 1, 0, ABORT, partition=9) is nowhere
    assert write_marker(raw, Topic("nobody", None), 1, 0, ABORT) is nowhere
    assert write_marker(raw, Topic("__consumer_offsets", None), 1, 0, ABORT, partition=999) is nowhere


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-2, 0), (7, -1)])
def test_a_marker_of_nobody_is_refused(raw, topic, producer_id, epoch):
    assert write_marker(raw, topic, producer_id, epoch, ABORT) is ErrorCode.INVALID_REQUEST
    assert raw.list_offset(topic, -1).offset == 0


def test_the_answer_has_one_result_for_each_producer(raw):
    topic = raw.create_topic(partitions=2)

    def marker(producer_id, *partitions):
        topics = (WritableTxnMarkerTopic(name=topic.name, partition_indexes=partitions),)
        return WritableTxnMarker(producer_id=producer_id, producer_epoch=0, topics=topics)

    answer = raw.ask(WriteTxnMarkersRequest(markers=(marker(7, 0), marker(8), marker(9, 1), marker(7, 1, 5))), 1)

    found = [
        (result.producer_id, [(part.partition_index, part.error_code) for part in result.topics[0].partitions])
        for result in answer.markers
    ]
    assert found == [(7, [(0, 0), (1, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]), (9, [(1, 0)])]


def test_who_may_neither_alter_the_cluster_nor_act_for_it_writes_no_marker():
    authorizer = DenyingAuthorizer()
    with broker_with(authorizer) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic("topic")
        authorizer.deny(Operation.ALTER, ResourceType.CLUSTER)
        assert write_marker(raw, topic, 1, 0, ABORT) is NONE
        authorizer.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

        assert write_marker(raw, topic, 1, 0, ABORT) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
