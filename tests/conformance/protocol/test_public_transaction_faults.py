"""Faults of other systems around the coordinator of transactions, each as a case of its own.

Numbers (B...) are those of our list of public reports; each case names its source and says what went wrong there.
"""

import errno
import itertools

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.storage import fault_points
from exactlog.testing import Broker
from exactlog.testing.faults import armed
from tests.support.faulty_broker import FaultyBroker
from tests.support.isolated_reader import COMMITTED, read_on, values
from tests.support.raw_client import ConnectionClosed, RawClient, sequenced
from tests.support.raw_groups import fetch_offset
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, describe, write_marker

NONE = ErrorCode.NONE
MARKERS = "txn.end.after_prepare"


@pytest.fixture
def faulty():
    """A broker of its own, whose disk and clock the test has in its hands."""
    with FaultyBroker() as faulty:
        yield faulty


@pytest.fixture
def raw(faulty):
    return faulty.connect()


@pytest.fixture
def topic(raw):
    return raw.create_topic("topic", partitions=2)


@pytest.fixture
def producer(raw):
    return begun(raw)


@pytest.fixture
def held_markers(faulty):
    """Lets no coordinator write markers until it is called."""
    point = next(point for point in fault_points.points() if point.name == MARKERS)

    def refuse():
        point.arm(refuse)
        raise OSError(errno.EIO, "markers are held")

    def let_go():
        point.disarm()
        faulty.broker.clock.advance_ms(1_000)

    point.arm(refuse)
    yield let_go
    point.disarm()


def begun(raw, transactional_id="mine", **fields):
    """A producer with an id and an epoch."""
    made = TransactionalProducer(raw, transactional_id, **fields)
    while (error := made.init()) is not NONE:
        assert error is ErrorCode.CONCURRENT_TRANSACTIONS
    return made


def until(raw, *states, transactional_id="mine"):
    """Waits until a transaction is in one of the states."""
    while (state := describe(raw, transactional_id).transaction_state) not in states:
        pass
    return state


def until_over(raw, transactional_id="mine"):
    return until(raw, "CompleteCommit", "CompleteAbort", transactional_id=transactional_id)


def committed_offset(raw, group_id, topic, **fields):
    """The offset of a group in the first partition; -1 where there is none."""
    found = fetch_offset(raw, group_id, topic, **fields)
    assert found.error_code == NONE
    return found.committed_offset


def end(raw, producer, outcome=COMMIT, **fields):
    """Ends a transaction, and waits until its markers are written."""
    assert producer.end(outcome, **fields) is NONE
    until_over(raw, producer.transactional_id)


def time_out(faulty, raw):
    """Lets the time of a transaction pass."""
    faulty.broker.clock.advance_ms(100_000)
    until(raw, "CompleteAbort")


# --- an end that comes late, twice, or the other way round ------------------------------------------------------------


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_end_that_was_held_up_changes_nothing_in_the_next_transaction(faulty, raw, topic, producer, outcome):
    """B001 (KAFKA-17754, Bufstream's Jepsen report): a late EndTxn decided about the next transaction."""
    producer.produce((topic, 0, b"first"))
    late, held_up = producer.end_request(outcome), faulty.connect()
    end(raw, producer, outcome)
    assert producer.produce((topic, 0, b"second")) == [NONE]

    assert held_up.ask(late, 5).error_code == ErrorCode.PRODUCER_FENCED
    assert describe(raw, "mine").transaction_state == "Ongoing"
    assert producer.produce((topic, 0, b"third")) == [NONE]
    end(raw, producer, COMMIT)

    first = [b"first"] if outcome is COMMIT else []
    assert values(read_on(raw, topic)) == [*first, b"second", b"third"]


def test_with_the_old_protocol_a_late_end_cannot_be_told_from_one_of_the_present_transaction(raw, topic, producer):
    """B001, B077 (franz-go PR#1359): the old protocol has one epoch for all transactions; this is how it behaves."""
    producer.add((topic, 0))
    producer.produce((topic, 0, b"first"), version=11)
    late = producer.end_request(COMMIT)
    end(raw, producer, COMMIT, version=4)
    producer.add((topic, 0))
    producer.produce((topic, 0, b"torn"), version=11)

    assert raw.ask(late, 4).error_code == NONE
    until(raw, "CompleteCommit")

    assert values(read_on(raw, topic)) == [b"first", b"torn"]


def test_writes_after_an_end_whose_answer_was_lost_join_no_old_transaction(raw, topic, producer):
    """B077 (franz-go PR#1359): the client took an unanswered end for done, its next writes joined the old one."""
    producer.produce((topic, 0, b"first"))
    raw.ask(producer.end_request(COMMIT), 5)  # of which the client learns nothing
    until(raw, "CompleteCommit")

    producer.produce((topic, 0, b"first"))  # a resend would be one of this sequence
    refused = producer.produce((topic, 0, b"second"))

    assert refused == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert values(read_on(raw, topic)) == [b"first"]


def test_an_abort_of_nothing_right_after_a_commit_does_not_fence_its_producer(held_markers, raw, topic, producer):
    """B002 (KAFKA-18464): the empty abort met the commit that was not complete, and fenced the producer."""
    producer.produce((topic, 0, b"value"))
    assert producer.end(COMMIT) is NONE
    assert producer.end(ABORT) is ErrorCode.CONCURRENT_TRANSACTIONS
    held_markers()
    until(raw, "CompleteCommit")

    epoch = producer.epoch
    assert producer.end(ABORT) is NONE
    assert producer.epoch == epoch + 1
    until(raw, "CompleteAbort")
    assert producer.produce((topic, 0, b"next")) == [NONE]


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_commit_that_meets_the_abort_of_a_timeout_is_fenced(faulty, raw, topic, is_waited_for, held_markers):
    """B007 (KAFKA-20785): it got INVALID_TXN_STATE, which is fatal, where PRODUCER_FENCED was meant."""
    producer = begun(raw, timeout_ms=1_000)
    producer.produce((topic, 0, b"late"))
    faulty.broker.clock.advance_ms(100_000)
    until(raw, "PrepareAbort")
    if is_waited_for:
        held_markers()
        until(raw, "CompleteAbort")

    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [4, 5])
def test_an_end_that_is_repeated_writes_one_marker_and_one_that_contradicts_is_refused(raw, topic, producer, version):
    """B046 (nisshi PR#712): the retry wrote a second marker, the contradiction got success, though nothing changed."""
    producer.add((topic, 0))
    producer.produce((topic, 0, b"value"), version=11)
    commit, abort = producer.end_request(COMMIT), producer.end_request(ABORT)
    assert raw.ask(commit, version).error_code == NONE
    until(raw, "CompleteCommit")

    assert raw.ask(commit, version).error_code == NONE
    assert raw.ask(abort, version).error_code == ErrorCode.INVALID_TXN_STATE
    assert raw.list_offset(topic, -1).offset == 2
    assert values(read_on(raw, topic)) == [b"value"]


# --- markers ----------------------------------------------------------------------------------------------------------


def test_a_marker_whose_answer_was_lost_is_taken_again(raw, topic, producer):
    """B006 (KAFKA-19999): the retried marker had the epoch of the partition, was refused, and never came to an end."""
    producer_id, epoch = producer.identity
    producer.produce((topic, 0, b"value"))

    for _ in range(2):
        assert write_marker(raw, topic, producer_id, epoch + 1, COMMIT, tv=2) is NONE

    end(raw, producer, COMMIT)
    assert values(read_on(raw, topic)) == [b"value"]


@pytest.mark.parametrize("step", ["txn.marker.after_all", "txn.end.before_complete"])
def test_a_coordinator_that_crashes_between_marker_and_end_ends_the_transaction_when_it_is_back(tmp_path, step):
    """B006 (KAFKA-19999), the other way to it: the marker is there, its transaction is not known to be complete."""
    with Broker(data_dir=tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic("topic")
            producer = begun(raw)
            producer.produce((topic, 0, b"value"))
            with armed(step, OSError(errno.EIO, "ordered")) as order:
                assert producer.end(COMMIT) is NONE
                while not order.has_fired:
                    pass
            raw.fetch(topic, 0)
        broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            until(raw, "CompleteCommit")
            producer.raw = raw
            assert producer.produce((topic, 0, b"next")) == [NONE]
            end(raw, producer)
            assert values(read_on(raw, topic)) == [b"value", b"next"]


def test_a_marker_that_comes_late_does_not_close_the_next_transaction(raw, topic, producer):
    """B008 (KAFKA-19446, KIP-1228): it had the epoch of the next transaction, and closed it."""
    producer.produce((topic, 0, b"first"))
    end(raw, producer, COMMIT)
    producer.produce((topic, 0, b"second"))
    late = producer.identity  # the markers of the first transaction carried the epoch of the second

    assert write_marker(raw, topic, *late, COMMIT, tv=2) is ErrorCode.INVALID_PRODUCER_EPOCH

    assert values(read_on(raw, topic)) == [b"first"]
    end(raw, producer, ABORT)
    assert values(read_on(raw, topic)) == [b"first"]


@pytest.mark.parametrize("version", [11, 12])
def test_a_write_that_waits_too_long_for_the_markers_before_it_is_told_so(faulty, held_markers, raw, topic, version):
    """B009 (KAFKA-18662, KAFKA-18654): it was told NOT_ENOUGH_REPLICAS, and all was sent again from the beginning."""
    producer = begun(raw)
    producer.produce((topic, 0, b"first"))
    assert producer.end(COMMIT) is NONE
    raw.send(producer.request((topic, 1, b"second")), version)
    asked = faulty.connect()
    until(asked, "PrepareCommit")
    while not raw.has_answer():
        faulty.broker.clock.advance_ms(50)

    (part,) = raw.receive().responses[0].partition_responses
    code = ErrorCode.CONCURRENT_TRANSACTIONS if version >= 12 else ErrorCode.NOT_ENOUGH_REPLICAS
    assert ErrorCode(part.error_code) is code
    held_markers()
    until(raw, "CompleteCommit")


def test_a_write_that_waits_for_the_markers_before_it_goes_on_when_they_are_there(
    faulty, held_markers, raw, topic, producer
):
    """B009 (KAFKA-18662, KAFKA-18654): a short wait inside the broker spares the client the way."""
    producer.produce((topic, 0, b"first"))
    assert producer.end(COMMIT) is NONE
    producer.become(*producer.identity)
    other = faulty.connect()
    other.send(producer.request((topic, 1, b"second")), 12)
    held_markers()

    outcomes = {ErrorCode(other.receive().responses[0].partition_responses[0].error_code)}

    assert outcomes <= {NONE, ErrorCode.CONCURRENT_TRANSACTIONS}  # it may have waited for too long


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_topic_deleted_before_its_marker_keeps_no_coordinator_busy(held_markers, raw, topic, producer, outcome):
    """B015 (KAFKA-5202, KoP #1386, #1388, #1417): its marker was tried for ever. B039 (Redpanda #3544): it blocked."""
    doomed = raw.create_topic("doomed")
    producer.produce((topic, 0, b"kept"), (doomed, 0, b"gone"))
    assert producer.end(outcome) is NONE
    assert raw.ask(DeleteTopicsRequest(topic_names=("doomed",), timeout_ms=10_000), 4).responses[0].error_code == NONE

    held_markers()

    until_over(raw)
    assert values(read_on(raw, topic)) == ([b"kept"] if outcome is COMMIT else [])


def test_a_topic_deleted_in_the_middle_of_a_transaction_does_not_keep_it_open(raw, topic, producer):
    """B039 (Redpanda #3544): the coordinator was blocked by it."""
    doomed = raw.create_topic("doomed")
    producer.produce((topic, 0, b"kept"), (doomed, 0, b"gone"))
    assert raw.ask(DeleteTopicsRequest(topic_names=("doomed",), timeout_ms=10_000), 4).responses[0].error_code == NONE

    end(raw, producer, COMMIT)

    assert values(read_on(raw, topic)) == [b"kept"]
    assert producer.produce((topic, 0, b"next")) == [NONE]


def test_a_marker_keeps_the_producer_known(faulty, raw, topic, producer):
    """B017 (KAFKA-9144): producers were forgotten by the time of their records, whatever markers came after."""
    producer.produce((topic, 0, b"value"))
    faulty.broker.clock.advance_ms(80_000_000)
    asked = DescribeProducersTopic(name=topic.name, partition_indexes=(0,))
    again = faulty.connect()
    until(again, "CompleteAbort")  # its time was over long ago
    found = describe(again, "mine")

    faulty.broker.clock.advance_ms(80_000_000)

    (part,) = faulty.connect().ask(DescribeProducersRequest(topics=(asked,)), 0).topics[0].partitions
    known = [(active.producer_id, active.producer_epoch) for active in part.active_producers]
    assert known == [(found.producer_id, found.producer_epoch)]


# --- epochs and ids ---------------------------------------------------------------------------------------------------


def test_what_could_not_be_recorded_uses_up_no_epoch(faulty, raw, topic, producer):
    """B011 (KAFKA-9666): each failed append took an epoch along, until none was left."""
    producer.produce((topic, 0, b"value"))
    epoch = producer.epoch

    for _ in range(20):
        with faulty.files.fail("write_at", path_pattern="*__transaction_state*.log", error=errno.ENOSPC, times=1):
            assert TransactionalProducer(raw, "mine").init() is not NONE

    assert describe(raw, "mine").producer_epoch == epoch
    assert producer.produce((topic, 0, b"more")) == [NONE]
    end(raw, producer, COMMIT)
    assert values(read_on(raw, topic)) == [b"value", b"more"]


def test_a_zombie_whose_id_has_expired_does_not_come_back(faulty, raw, topic):
    """B012 (KAFKA-18019): it recovered through INVALID_PRODUCER_ID_MAPPING, and did its work twice."""
    zombie = begun(raw)
    begun(raw)
    faulty.broker.clock.advance_ms(8 * 86_400_000)
    again = TransactionalProducer(faulty.connect(), "other")
    while describe(again.raw, "mine").error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        faulty.broker.clock.advance_ms(3_600_000)
    zombie.raw = faulty.connect()

    assert zombie.produce((topic, 0, b"twice")) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert zombie.add((topic, 0)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert zombie.end(COMMIT) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert read_on(zombie.raw, topic) == []


def test_whose_transaction_timed_out_writes_and_commits_no_more(faulty, raw, topic):
    """B013 (KAFKA-6119): it kept writing. B027 (Redpanda PR#23131): it could commit. B046: no fence after the sweep."""
    producer = begun(raw, timeout_ms=1_000)
    producer.produce((topic, 0, b"late"))
    time_out(faulty, raw)

    assert producer.produce((topic, 0, b"later")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.add((topic, 1)) == [ErrorCode.PRODUCER_FENCED]
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
    assert read_on(raw, topic) == []


def test_a_transaction_without_data_is_aborted_when_its_time_is_over(faulty, raw, topic):
    """B026 (Redpanda PR#18324, PR#8566): transactions without data never were, and the stable offset stood still."""
    producer = begun(raw, timeout_ms=1_000)
    assert producer.add((topic, 0), (topic, 1)) == [NONE, NONE]
    producer.produce((topic, 1, b"late"), version=11)

    time_out(faulty, raw)

    for partition in (0, 1):
        ends = [
            raw.list_offset(topic, -1, partition=partition, isolation_level=level).offset for level in (0, COMMITTED)
        ]
        assert ends[0] == ends[1]


@pytest.mark.parametrize("outcome", [COMMIT, ABORT, None])
def test_a_transaction_without_data_outlives_a_crash(tmp_path, outcome):
    """B025 (Redpanda PR#30003): a snapshot left it out; it could be neither ended nor did it time out."""
    with Broker(data_dir=tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic("topic")
            producer = begun(raw, timeout_ms=5_000)
            assert producer.add((topic, 0)) == [NONE]
        broker.restart()
        with RawClient(broker.port) as raw:
            producer.raw = raw
            assert producer.produce((topic, 0, b"value"), version=11) == [NONE]
        broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            producer.raw = raw
            if outcome is None:
                broker.clock.advance_ms(100_000)
        with RawClient(broker.port) as raw:
            producer.raw = raw
            if outcome is not None:
                assert producer.end(outcome) is NONE
            until_over(raw)
            assert values(read_on(raw, topic)) == ([b"value"] if outcome is COMMIT else [])
            assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2


ID_SHAPES = list(itertools.product((None, "mine", "unknown", ""), ("none", "known", "unknown"), (-1, "old", "now", 9)))


@pytest.mark.parametrize(("transactional_id", "producer_id", "epoch"), ID_SHAPES)
def test_every_shape_of_init_has_its_answer(raw, transactional_id, producer_id, epoch):
    """B050 (nisshi 632789b): unusual ones ended in a panic."""
    begun(raw)
    known = begun(raw)
    given_id = {"none": -1, "known": known.producer_id, "unknown": 2**40}[producer_id]
    given_epoch = {"old": known.epoch - 1, "now": known.epoch}.get(epoch, epoch)

    answer = raw.ask(
        InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=given_id,
            producer_epoch=given_epoch,
        ),
        5,
    )

    if transactional_id == "" or (given_id == -1) != (given_epoch == -1):
        expected = ErrorCode.INVALID_REQUEST
    elif transactional_id == "mine" and given_id != -1 and (producer_id == "unknown" or epoch != "now"):
        expected = ErrorCode.PRODUCER_FENCED
    else:
        expected = NONE
    assert ErrorCode(answer.error_code) is expected
    assert raw.ask(known.end_request(COMMIT), 5).error_code in {ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED}


def test_whoever_takes_over_finds_nothing_of_the_transaction_before_in_its_own(raw, topic, producer):
    """B058 (franz-go PR#1398, seen in kfake and klite): the record of the old epoch was committed by the new one."""
    producer.produce((topic, 0, b"ghost"))
    newer = begun(raw)
    newer.produce((topic, 0, b"real"))
    end(raw, newer, COMMIT)

    assert producer.produce((topic, 0, b"ghost")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
    assert values(read_on(raw, topic)) == [b"real"]


def test_who_lost_its_connection_while_its_end_was_prepared_goes_on(faulty, held_markers, raw, topic, producer):
    """B088 (librdkafka #3928, #3971): a single producer was told that it was fenced."""
    producer.produce((topic, 0, b"value"))
    before = producer.identity
    assert raw.ask(producer.end_request(COMMIT), 5).error_code == NONE
    producer.raw = faulty.connect()
    assert producer.init(keeps=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    held_markers()
    until(raw, "CompleteCommit")

    assert producer.init(keeps=True) is NONE
    first = producer.identity
    producer.become(*before)
    assert producer.init(keeps=True) is NONE
    assert producer.identity == first
    assert producer.produce((topic, 0, b"next")) == [NONE]


# --- one probe each ---------------------------------------------------------------------------------------------------


def test_six_gaps_that_were_closed_at_once(raw, topic, producer):
    """B061 (franz-go 60b88eaa): each of these was let pass."""
    assert TransactionalProducer(raw, "long", timeout_ms=900_001).init() is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    epoch = producer.epoch
    end(raw, producer, ABORT)
    assert producer.epoch == epoch + 1
    assert producer.produce((topic, 0, b"x"), version=12) == [NONE]
    plain = sequenced(producer.producer_id, 1, b"plain", epoch=producer.epoch)
    assert raw.produce(topic, plain).error_code == ErrorCode.INVALID_TXN_STATE
    control = sequenced(producer.producer_id, 1, b"x", epoch=producer.epoch, is_transactional=True, is_control=True)
    assert raw.produce(topic, control).error_code != NONE
    request = producer.request((topic, 0, b"x"), is_control=True)
    assert raw.ask(request, 12).responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    assert producer.commit_offsets("group", topic, 1, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    commit, abort = producer.end_request(COMMIT), producer.end_request(ABORT)
    assert raw.ask(commit, 5).error_code == NONE
    until(raw, "CompleteCommit")
    assert raw.ask(abort, 5).error_code == ErrorCode.INVALID_TXN_STATE


def test_only_five_batches_are_known_again_and_all_of_them_are(raw, topic, producer):
    """B033 (Redpanda PR#3077, PR#3038): one was, and five in flight were stored twice. Here: inside a transaction."""
    requests = [producer.request((topic, 0, b"%d" % number)) for number in range(5)]
    raw.send_all(*[(request, 12) for request in requests])
    first = [raw.receive().responses[0].partition_responses[0].base_offset for _ in requests]
    raw.send_all(*[(request, 12) for request in requests])
    again = [raw.receive().responses[0].partition_responses[0] for _ in requests]

    assert [(part.error_code, part.base_offset) for part in again] == [(0, offset) for offset in first]
    end(raw, producer, COMMIT)
    assert values(read_on(raw, topic)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_first_sequence_of_a_new_epoch_above_0_is_refused(raw, topic, producer):
    """B019 (KAFKA-12152, Dekaf #3342): a partition without batches in flight kept its old sequence over an epoch."""
    producer.produce((topic, 0, b"a"), (topic, 1, b"a"))
    end(raw, producer, COMMIT)

    producer._sequences[topic.name, 0] = 1  # as a client that did not count anew
    assert producer.produce((topic, 0, b"b")) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert producer.produce((topic, 1, b"b")) == [NONE]


def test_a_never_written_partition_takes_only_the_first_batch_first(raw, topic, producer):
    """B018 (KAFKA-15591): the second of two in flight was taken first, and the first was lost. Here: a transaction."""
    first, second = producer.request((topic, 0, b"first", b"and")), producer.request((topic, 0, b"second"))

    outcomes = [
        raw.ask(request, 12).responses[0].partition_responses[0].error_code for request in (second, first, second)
    ]

    assert outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NONE, NONE]
    end(raw, producer, COMMIT)
    assert values(read_on(raw, topic)) == [b"first", b"and", b"second"]


def test_a_producer_that_was_silent_for_too_long_goes_on(faulty, raw, topic):
    """B035 (Redpanda #22670, PR#22687): it was forgotten, and its next batch refused for its sequence."""
    producer = TransactionalProducer(raw, None)
    assert producer.init() is NONE
    for sequence in range(7):
        assert raw.produce(topic, sequenced(producer.producer_id, sequence, b"x")).error_code == NONE
    faulty.broker.clock.advance_ms(2 * 86_400_000)
    again = faulty.connect()

    assert again.produce(topic, sequenced(producer.producer_id, 7, b"x")).error_code == NONE
    assert again.produce(topic, sequenced(producer.producer_id, 7, b"x")).base_offset == 7


@pytest.mark.parametrize("call", ["write_at", "sync", "sync_data"])
def test_a_batch_whose_fate_is_not_known_is_never_answered_as_an_unknown_error(faulty, raw, topic, producer, call):
    """B036 (Redpanda #5355, KAFKA-14034): UNKNOWN_SERVER_ERROR made clients drop their sequence and write twice."""
    producer.produce((topic, 0, b"first"))
    request = producer.request((topic, 0, b"second"))
    with faulty.files.fail(call, path_pattern="*topic=topic-part=0/*", error=errno.EIO, times=1):
        try:
            error = raw.ask(request, 12).responses[0].partition_responses[0].error_code
        except ConnectionClosed:  # which says nothing of its fate either
            return

    assert error in {NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS}


@pytest.mark.parametrize("level", [1, 2])
def test_the_transaction_version_that_is_told_is_the_one_that_holds(level):
    """B074 (franz-go #1017): a client took version ranges for it, where the feature said otherwise."""
    with Broker(config={"in.memory": True, "transaction.version": level}) as broker, RawClient(broker.port) as raw:
        answer = raw.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4)
        told = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert told["transaction.version"] == level

        producer = begun(raw)
        error = producer.produce((raw.create_topic("topic"), 0, b"x"))
        assert (error == [NONE]) is (level == 2)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_offsets_count_before_the_next_transaction_commits_others(raw, topic, producer):
    """B016 (KAFKA-17507): markers were answered before offsets counted, and the next commit found an undecided one."""
    for offset in range(1, 31):
        assert producer.produce((topic, 0, b"%d" % offset)) == [NONE]
        while (error := producer.commit_offsets("group", topic, offset)) is not NONE:
            assert error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert producer.end(COMMIT) is NONE

    until(raw, "CompleteCommit")
    assert committed_offset(raw, "group", topic, require_stable=True) == 30
    assert len(read_on(raw, topic)) == 30


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_two_groups_in_one_transaction_move_together(raw, topic, producer, outcome):
    """B091 (aiokafka #1098): a race between two groups of one transaction."""
    producer.produce((topic, 0, b"value"))
    for group, offset in (("one", 3), ("other", 4)):
        assert producer.commit_offsets(group, topic, offset) is NONE
    assert [committed_offset(raw, group, topic) for group in ("one", "other")] == [-1, -1]

    end(raw, producer, outcome)

    expected = [3, 4] if outcome is COMMIT else [-1, -1]
    assert [committed_offset(raw, group, topic, require_stable=True) for group in ("one", "other")] == expected


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_what_hangs_can_be_seen_and_ended_by_an_administrator(raw, topic, outcome):
    """B078 (franz-go #581, #928, KAFKA-18957): what hung could not be ended after state was lost."""
    producer = begun(raw)
    producer.produce((topic, 0, b"hangs"))
    asked = DescribeProducersTopic(name=topic.name, partition_indexes=(0,))
    (part,) = raw.ask(DescribeProducersRequest(topics=(asked,)), 0).topics[0].partitions
    (found,) = part.active_producers
    assert found.current_txn_start_offset == 0

    epoch = max(found.coordinator_epoch, 0)
    error = write_marker(raw, topic, found.producer_id, found.producer_epoch, outcome, coordinator_epoch=epoch)

    assert error is NONE
    assert values(read_on(raw, topic)) == ([b"hangs"] if outcome is COMMIT else [])
    assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == 2
