"""Produce in transactions: what the coordinator lets in, what it refuses by which code in which version."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from exactlog.core.protocol.messages.produce import ProduceRequest
from tests.support.isolated_reader import COMMITTED, aborted_of, read_on, values
from tests.support.raw_client import batch_of, sequenced
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, produced


@pytest.fixture
def producer(raw, topic):
    """A producer whose transactional id nobody else has."""
    made = TransactionalProducer(raw, topic.name)
    assert made.init() is ErrorCode.NONE
    return made


def read_committed(raw, topic):
    """The values that a reader of committed records sees."""
    return values(read_on(raw, topic))


@pytest.mark.parametrize("version", [12, 13])
def test_a_write_makes_its_partition_part_of_the_transaction(raw, topic, producer, version):
    assert producer.produce((topic, 0, b"one"), version=version) == [ErrorCode.NONE]
    assert producer.produce((topic, 0, b"two"), version=version) == [ErrorCode.NONE]
    assert read_committed(raw, topic) == []

    assert producer.end(COMMIT) is ErrorCode.NONE
    assert producer.produce((topic, 0, b"three"), version=version) == [ErrorCode.NONE]  # waits for the markers

    assert read_committed(raw, topic) == [b"one", b"two"]


def test_what_is_aborted_is_named_to_readers(raw, topic, producer):
    aborted = (producer.producer_id, 0)
    producer.produce((topic, 0, b"one"))
    assert producer.end(ABORT) is ErrorCode.NONE
    producer.produce((topic, 0, b"two"))
    assert producer.end(COMMIT) is ErrorCode.NONE
    producer.produce((topic, 0, b"three"))

    assert read_committed(raw, topic) == [b"two"]
    assert aborted_of(raw.fetch(topic, 0, isolation_level=COMMITTED)) == [aborted]


@pytest.mark.parametrize(
    ("version", "code"),
    [(version, ErrorCode.INVALID_TXN_STATE) for version in range(3, 11)] + [(11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_up_to_version_11_partitions_must_be_added_first(raw, topic, producer, version, code):
    assert producer.produce((topic, 0, b"too soon"), version=version) == [code]
    assert raw.fetch(topic, 0).high_watermark == 0
    producer.become(-1, -1).init()

    assert producer.add((topic, 0)) == [ErrorCode.NONE]

    assert producer.produce((topic, 0, b"value"), version=version) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_a_fenced_producer_is_told_of_its_epoch(raw, topic, producer, version):
    newer = TransactionalProducer(raw, producer.transactional_id)
    assert newer.init() is ErrorCode.NONE

    assert producer.produce((topic, 0, b"late"), version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_the_id_of_another_producer_is_refused(topic, producer, version):
    producer.become(producer.producer_id + 1_000_000, 0)

    assert producer.produce((topic, 0, b"value"), version=version) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", [3, 12])
def test_a_request_with_transactional_batches_of_two_producers_is_refused_as_a_whole(raw, topic, producer, version):
    producer.add((topic, 0))
    two = producer.request((topic, 0, b"one"), (topic, 0, b"two"))
    other = sequenced(producer.producer_id + 1, 0, b"two", is_transactional=True)
    data = [part.partition_data[0] for part in two.topic_data]
    changed = (data[0], type(data[1])(index=0, records=other))
    topic_data = (type(two.topic_data[0])(name=topic.name, topic_id=topic.topic_id, partition_data=changed),)

    refused = raw.ask(ProduceRequest(transactional_id=topic.name, acks=-1, topic_data=topic_data), version)

    assert produced(refused) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert raw.fetch(topic, 0).high_watermark == 0


@pytest.mark.parametrize("version", [3, 12])
def test_batches_without_a_transaction_go_their_own_way_in_the_same_request(raw, version):
    topic = raw.create_topic(partitions=2)
    producer = TransactionalProducer(raw, topic.name)
    producer.init()
    producer.add((topic, 0))
    mixed = producer.request((topic, 0, b"one"), (topic, 1, b"two"))
    plain = sequenced(producer.producer_id, 0, b"two")
    first, second = mixed.topic_data
    changed = type(second)(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_data=(type(second.partition_data[0])(index=1, records=plain),),
    )

    answer = raw.ask(ProduceRequest(transactional_id=topic.name, acks=-1, topic_data=(first, changed)), version)

    assert produced(answer) == [ErrorCode.NONE] * 2
    assert raw.list_offset(topic, -1, partition=1, isolation_level=COMMITTED).offset == 1


def test_the_partitions_of_a_request_have_their_own_outcomes(raw):
    topic = raw.create_topic(partitions=3)
    producer = TransactionalProducer(raw, topic.name)
    producer.init()

    errors = producer.produce((topic, 0, b"a"), (topic, 7, b"b"), (topic, 2, b"c"))

    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert producer.end(COMMIT) is ErrorCode.NONE


def test_with_acks_0_it_is_part_of_the_transaction_too(raw, topic, producer):
    raw.send(producer.request((topic, 0, b"quiet"), acks=0), 12, is_answered=False)
    assert producer.produce((topic, 0, b"loud")) == [ErrorCode.NONE]
    assert producer.end(COMMIT) is ErrorCode.NONE
    producer.produce((topic, 0, b"next"))

    assert read_committed(raw, topic) == [b"quiet", b"loud"]


def test_with_acks_0_a_refusal_closes_the_connection(connect, topic, producer):
    quiet = connect()
    producer.become(producer.producer_id, producer.epoch + 1)
    quiet.send(producer.request((topic, 0, b"quiet"), acks=0), 12, is_answered=False)

    assert quiet.is_closed()


def test_batches_that_are_sent_without_waiting_stay_in_order_behind_the_end_of_the_transaction_before(
    raw, topic, producer
):
    producer.produce((topic, 0, b"before"))
    end = producer.end_request(COMMIT)
    next_one = TransactionalProducer(raw, topic.name).become(producer.producer_id, producer.epoch + 1)
    requests = [next_one.request((topic, 0, str(number).encode())) for number in range(5)]

    raw.send_all((end, 5), *[(request, 12) for request in requests])

    assert raw.receive().error_code == 0
    assert [produced(raw.receive()) for _ in requests] == [[ErrorCode.NONE]] * 5
    assert next_one.end(COMMIT) is ErrorCode.NONE
    next_one.produce((topic, 0, b"after"))
    assert read_committed(raw, topic) == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_that_comes_again_is_answered_with_its_first_offset(raw, topic, producer):
    request = producer.request((topic, 0, b"once"))

    answers = [raw.ask(request, 12).responses[0].partition_responses[0] for _ in range(2)]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0)] * 2
    assert raw.fetch(topic, 0).high_watermark == 1


def test_a_batch_out_of_sequence_is_refused_and_the_transaction_stays_open(topic, producer):
    producer.produce((topic, 0, b"one"))
    producer.request((topic, 0, b"lost"))

    assert producer.produce((topic, 0, b"three")) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert producer.end(ABORT) is ErrorCode.NONE


def test_a_batch_outside_the_transaction_of_its_producer_is_refused(raw, topic, producer):
    producer.produce((topic, 0, b"inside"))

    outside = raw.produce(topic, sequenced(producer.producer_id, 1, b"outside", epoch=producer.epoch))

    assert ErrorCode(outside.error_code) is ErrorCode.INVALID_TXN_STATE


def test_with_an_epoch_for_each_transaction_the_first_batch_that_is_seen_must_be_the_first(raw, topic, producer):
    """A later one that overtakes it must not be kept (KIP-890); without, any first sequence is taken (KIP-360)."""
    assert raw.produce(topic, batch_of(b"the log is not empty")).error_code == ErrorCode.NONE
    producer.skip_to(topic, 0, sequence=5)

    assert producer.produce((topic, 0, b"overtakes"), version=12) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    producer.add((topic, 0))
    assert producer.produce((topic, 0, b"what came before is forgotten"), version=11) == [ErrorCode.NONE]


def test_what_is_sent_behind_the_end_without_waiting_is_no_part_of_what_ends(raw, topic, producer):
    """Not even while what ends is still on its way to the disk."""
    assert producer.add((topic, 0)) == [ErrorCode.NONE]
    first = producer.request((topic, 0, b"first"))
    end = producer.end_request(COMMIT)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic.name, partitions=(0,)),),
    )

    raw.send_all((first, 11), (end, 4), (add, 3))
    assert produced(raw.receive()) == [ErrorCode.NONE]
    assert raw.receive().error_code == 0
    (result,) = raw.receive().results_by_topic_v3_and_below
    assert [part.partition_error_code for part in result.results_by_partition] == [ErrorCode.NONE]
    assert producer.produce((topic, 0, b"second"), version=11) == [ErrorCode.NONE]

    assert read_committed(raw, topic) == [b"first"]
    assert producer.end(ABORT, version=4) is ErrorCode.NONE
    assert read_committed(raw, topic) == [b"first"]
