"""What producers ask the transaction coordinator, and by which code each version is refused."""

import time

import pytest

from exactlog.broker.apis.produce import INTERNAL_WRITER
from exactlog.core.codec.message_codec import decoder
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.testing import Broker
from tests.support.denying_authorizer import DenyingAuthorizer, broker_with
from tests.support.raw_client import RawClient, Topic, encode_request, frame
from tests.support.raw_transactions import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe,
    list_transactions,
    write_marker,
)

NONE = ErrorCode.NONE
NOBODY = Topic("nobody", None)


@pytest.fixture
def producer(raw, topic):
    """A producer whose transactional id nobody else has."""
    made = TransactionalProducer(raw, topic.name)
    assert made.init() is NONE
    return made


def fenced(raw, producer):
    """The producer, after another one has taken its transactional id over."""
    assert TransactionalProducer(raw, producer.transactional_id).init() is NONE
    return producer


# --- InitProducerId --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_who_takes_a_transactional_id_over_gets_its_producer_id_with_the_next_epoch(raw, topic, version):
    producers = [TransactionalProducer(raw, topic.name) for _ in range(3)]

    assert [producer.init(version=version) for producer in producers] == [NONE] * 3

    assert [producer.epoch for producer in producers] == [0, 1, 2]
    assert len({producer.producer_id for producer in producers}) == 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_goes_on_by_id_and_epoch_gets_the_next_epoch_and_the_same_when_it_asks_again(producer, version):
    identity = producer.identity
    assert producer.init(version=version, keeps=True) is NONE
    assert producer.identity == (identity[0], 1)

    producer.become(*identity)
    assert producer.init(version=version, keeps=True) is NONE

    assert producer.identity == (identity[0], 1)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)
def test_who_was_fenced_cannot_go_on(raw, producer, version, code):
    fenced(raw, producer)

    assert producer.init(version=version, keeps=True) is code


@pytest.mark.parametrize("version", range(6))
def test_whoever_takes_over_an_open_transaction_is_sent_away_until_it_is_aborted(raw, topic, producer, version):
    assert producer.produce((topic, 0, b"open")) == [NONE]
    newer = TransactionalProducer(raw, topic.name)

    assert newer.init(version=version) is ErrorCode.CONCURRENT_TRANSACTIONS
    while (error := newer.init(version=version)) is ErrorCode.CONCURRENT_TRANSACTIONS:
        pass

    assert error is NONE
    assert newer.epoch > producer.epoch + 1  # one for the abort, one of its own
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(raw, topic, version, timeout_ms):
    asked = TransactionalProducer(raw, topic.name, timeout_ms=timeout_ms)

    assert asked.init(version=version) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert asked.identity == (-1, -1)


# --- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_all_or_none(raw, topic, producer, version):
    errors = producer.add((topic, 0), (NOBODY, 0), (topic, 1), version=version)

    assert errors == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert describe(raw, topic.name).transaction_state == "Empty"

    assert producer.add((topic, 0), version=version) == [NONE]
    assert describe(raw, topic.name).transaction_state == "Ongoing"


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_a_topic_of_the_coordinators_is_not_added_by_clients(topic, producer, name, version):
    assert producer.commit_offsets("group", topic, 1) is NONE  # so that both are there

    added = producer.add((Topic(name, None), 0), (topic, 0), version=version)

    assert added == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED]


def test_nobody_gets_a_transaction_into_the_log_of_the_coordinator(raw, producer):
    """Not even who poses as another broker, as an administrator, or as the client that may write there."""
    own = Topic(TRANSACTION_STATE, None)

    assert producer.verify((own, 0), verify_only=False) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert write_marker(raw, own, *producer.identity, COMMIT) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    written = NewRecord(b"v", key=b"k", timestamp_ms=int(time.time() * 1_000))
    producer_id, epoch = producer.identity
    batch = build_batch(
        [written], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
    )
    data = TopicProduceData(name=own.name, partition_data=(PartitionProduceData(index=0, records=batch),))
    request = ProduceRequest(transactional_id=producer.transactional_id, acks=-1, topic_data=(data,))
    raw.send_bytes(frame(encode_request(request, 12, client_id=INTERNAL_WRITER)))
    response, _ = decoder(ProduceResponse, 12)(raw.receive_frame(), 5)
    told = response.responses[0].partition_responses[0]
    assert (told.error_code, told.error_message) == (17, "No transaction has a part in '__transaction_state'.")


@pytest.mark.parametrize("version", range(4))
def test_who_was_fenced_adds_nothing(raw, topic, producer, version):
    code = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED

    assert fenced(raw, producer).add((topic, 0), version=version) == [code]
    assert producer.add_offsets("group", version=version) is code
    assert producer.end(COMMIT, version=version) is code


@pytest.mark.parametrize("version", range(4))
def test_an_id_that_is_not_the_transactional_ids_adds_and_ends_nothing(topic, producer, version):
    producer.become(producer.producer_id + 1_000_000, 0)
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING

    assert producer.add((topic, 0), version=version) == [code]
    assert producer.add_offsets("group", version=version) is code
    assert producer.end(COMMIT, version=version) is code


@pytest.mark.parametrize("version", range(4))
def test_a_transactional_id_that_nobody_has_used_or_an_empty_one(raw, topic, version):
    unknown, empty = TransactionalProducer(raw, f"{topic.name}-new"), TransactionalProducer(raw, "")
    for nobody, code in ((unknown, ErrorCode.INVALID_PRODUCER_ID_MAPPING), (empty, ErrorCode.INVALID_REQUEST)):
        nobody.become(1, 0)
        assert nobody.add((topic, 0), version=version) == [code]
        assert nobody.add_offsets("group", version=version) is code
        assert nobody.end(COMMIT, version=version) is code


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_verifies_each_partition(raw, producer, version):
    topic = raw.create_topic(partitions=2)
    assert producer.add((topic, 0)) == [NONE]

    assert producer.verify((topic, 0), version=version) == [NONE]
    assert producer.verify((topic, 1), (topic, 0), version=version) == [ErrorCode.TRANSACTION_ABORTABLE, NONE]
    assert producer.verify((topic, 1), verify_only=False, version=version) == [NONE]
    assert producer.verify((topic, 1), version=version) == [NONE]

    producer.become(producer.producer_id, producer.epoch + 1)
    assert producer.verify((topic, 0), version=version) == [ErrorCode.PRODUCER_FENCED]


BEGINNINGS = {
    "AddPartitionsToTxn": (lambda producer, topic: producer.add((topic, 0)), 1),
    "AddOffsetsToTxn": (lambda producer, topic: producer.add_offsets("group"), 1),
    "Produce": (lambda producer, topic: producer.produce((topic, 0, b"value")), 2),
    "TxnOffsetCommit": (lambda producer, topic: producer.commit_offsets("group", topic, 1), 2),
}


@pytest.mark.parametrize("request_name", BEGINNINGS)
def test_the_coordinator_keeps_which_protocol_its_producer_speaks(broker, topic, producer, request_name):
    begin, version = BEGINNINGS[request_name]

    assert begin(producer, topic) in (NONE, [NONE])

    runner = broker._running_node().services.transactions.find(topic.name)
    assert runner.machine.entry(topic.name).client_transaction_version == version


# --- EndTxn ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_up_to_version_4_an_end_can_be_repeated_and_not_turned_round(topic, producer, version, outcome):
    assert producer.end(outcome, version=version) is ErrorCode.INVALID_TXN_STATE  # nothing has begun
    producer.add((topic, 0))
    producer.produce((topic, 0, b"value"), version=11)
    assert producer.end(outcome, version=version) is NONE

    while (error := producer.end(outcome, version=version)) is ErrorCode.CONCURRENT_TRANSACTIONS:
        pass

    assert error is NONE
    assert producer.end(not outcome, version=version) is ErrorCode.INVALID_TXN_STATE
    assert producer.epoch == 0


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_from_version_5_on_the_answer_names_the_next_epoch_also_when_it_is_asked_for_again(topic, producer, outcome):
    producer_id = producer.producer_id
    producer.produce((topic, 0, b"value"))
    assert producer.end(outcome) is NONE
    assert producer.identity == (producer_id, 1)

    producer.become(producer_id, 0)
    while (error := producer.end(outcome)) is ErrorCode.CONCURRENT_TRANSACTIONS:
        pass

    assert (error, producer.identity) == (NONE, (producer_id, 1))


def test_from_version_5_on_nothing_can_be_aborted_and_not_committed(producer):
    assert producer.end(COMMIT) is ErrorCode.INVALID_TXN_STATE
    assert producer.end(ABORT) is NONE
    assert producer.epoch == 1


@pytest.mark.parametrize("version", range(6))
def test_an_end_that_is_refused_names_no_producer(raw, topic, version):
    nobody = TransactionalProducer(raw, topic.name).become(1, 0)

    answer = raw.ask(nobody.end_request(COMMIT), version)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        -1,
        -1,
    )


# --- who may, and whether there are transactions at all --------------------------------------------------------------


def test_without_the_right_to_a_transactional_id_nothing_is_done():
    authorizer = DenyingAuthorizer()
    with broker_with(authorizer) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = TransactionalProducer(raw, "mine")
        producer.init()
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        authorizer.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine")

        assert producer.init() is code
        assert producer.add((topic, 0)) == [code]
        assert producer.add_offsets("group") is code
        assert producer.produce((topic, 0, b"value")) == [code]
        assert producer.commit_offsets("group", topic, 1) is code
        assert producer.end(COMMIT) is code
        authorizer.deny(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "mine")
        assert ErrorCode(describe(raw, "mine").error_code) is code
        assert list_transactions(raw).transaction_states == ()


def test_without_other_rights_that_part_is_refused():
    authorizer = DenyingAuthorizer()
    with broker_with(authorizer) as broker, RawClient(broker.port) as raw:
        topic, other = raw.create_topic("topic"), raw.create_topic("other")
        producer = TransactionalProducer(raw, "mine")
        producer.init()
        authorizer.deny(Operation.WRITE, ResourceType.TOPIC, "topic")
        authorizer.deny(Operation.READ, ResourceType.GROUP, "group")
        authorizer.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

        assert producer.add((topic, 0), (other, 0)) == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
        ]
        assert producer.produce((topic, 0, b"value")) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert producer.add_offsets("group") is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert producer.verify((other, 0)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def test_where_transactions_are_turned_off_there_is_no_coordinator():
    with Broker(config={"in.memory": True, "transactions.enabled": False}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = TransactionalProducer(raw, "mine")
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = raw.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("mine",)), 6).coordinators[0]
        assert ErrorCode(found.error_code) is code
        assert producer.init() is code
        producer.become(1, 0)
        assert producer.add((topic, 0)) == [code]
        assert producer.add_offsets("group") is code
        assert producer.end(COMMIT) is code
        assert producer.produce((topic, 0, b"value")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert ErrorCode(describe(raw, "mine").error_code) is code
        assert ErrorCode(list_transactions(raw).error_code) is code
        plain = raw.ask(InitProducerIdRequest(transactional_id=None), 5)
        assert plain.error_code == 0


def test_where_the_transaction_version_is_1_a_write_adds_no_partition():
    with Broker(config={"in.memory": True, "transaction.version": 1}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        producer = TransactionalProducer(raw, "mine")
        producer.init()

        assert producer.produce((topic, 0, b"value")) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_two_producers_of_one_transactional_id_never_both_commit(raw, topic, producer):
    producer.produce((topic, 0, b"old"))
    newer = TransactionalProducer(raw, topic.name)
    while newer.init() is not NONE:
        pass

    assert newer.produce((topic, 0, b"new")) == [NONE]
    assert newer.end(COMMIT) is NONE
    assert producer.produce((topic, 0, b"old too")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
