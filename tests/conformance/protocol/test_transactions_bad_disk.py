"""A disk that refuses a step of a transaction: who is told, who tries again, and that nothing is half done."""

import errno

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.testing.faults import armed
from tests.support.faulty_broker import FaultyBroker
from tests.support.isolated_reader import COMMITTED, read_on, values
from tests.support.raw_transactions import (
    ABORT,
    COMMIT,
    WITHOUT_IMPLICIT_ADD,
    TransactionalProducer,
    describe,
)

NONE = ErrorCode.NONE
STATE = "*__transaction_state*"
WRITES = ("write_at",)


ON_FILES = pytest.mark.parametrize("faulty", ["files", "unsynced"], indirect=True)
"""Where a round may be refused to one partition and stored in another."""
ON_A_JOURNAL = pytest.mark.parametrize("faulty", ["journal"], indirect=True)
"""Where what belongs together is refused together."""


@pytest.fixture(params=["files", "unsynced", "journal"])
def faulty(request):
    config = {"flush.mode": "none"} if request.param == "unsynced" else {"commit.engine": request.param}
    with FaultyBroker(config) as faulty:
        yield faulty


@pytest.fixture
def raw(faulty):
    return faulty.connect()


@pytest.fixture
def topic(raw):
    return raw.create_topic("topic", partitions=2)


@pytest.fixture
def producer(raw, topic):
    """A producer that has ended one transaction: everything is open and in use."""
    made = TransactionalProducer(raw, "mine")
    assert made.init() is NONE
    assert made.produce((topic, 0, b"first"), (topic, 1, b"first")) == [NONE, NONE]
    assert made.end(COMMIT) is NONE
    until(raw, "CompleteCommit")
    return made


def until(raw, state):
    while describe(raw, "mine").transaction_state != state:
        pass


def refusing(faulty, pattern, *, times=1, after=0):
    return faulty.files.fail(*WRITES, path_pattern=pattern, error=errno.ENOSPC, times=times, after=after)


@ON_FILES
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_marker_that_the_disk_refuses_is_written_when_there_is_room(faulty, raw, topic, producer, outcome):
    producer.produce((topic, 0, b"value"), (topic, 1, b"value"))
    seen = [b"first", b"value"] if outcome is COMMIT else [b"first"]

    with refusing(faulty, "*topic=topic-part=1/*.log", times=None):
        assert producer.end(outcome) is NONE
        while values(read_on(raw, topic)) != seen or raw.list_offset(topic, -1, isolation_level=COMMITTED).offset < 4:
            pass
        stuck = raw.fetch(topic, 2, partition=1, isolation_level=COMMITTED)
        assert stuck.last_stable_offset == 2
        assert describe(raw, "mine").transaction_state.startswith("Prepare")
    faulty.broker.clock.advance_ms(1_000)

    until(raw, "CompleteCommit" if outcome is COMMIT else "CompleteAbort")
    assert raw.fetch(topic, 2, partition=1, isolation_level=COMMITTED).last_stable_offset == 4


@ON_A_JOURNAL
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_end_whose_marker_the_disk_refuses_is_not_told_and_can_be_asked_for_again(
    faulty, raw, topic, producer, outcome
):
    producer.produce((topic, 0, b"value"), (topic, 1, b"value"))

    with refusing(faulty, "*topic=topic-part=1/*.log", times=None):
        for _ in range(3):
            assert producer.end(outcome) is ErrorCode.NOT_COORDINATOR
        for partition in range(2):
            assert raw.fetch(topic, 2, partition=partition, isolation_level=COMMITTED).last_stable_offset == 2
        assert describe(raw, "mine").transaction_state == "Ongoing"

    assert producer.end(outcome) is NONE
    until(raw, "CompleteCommit" if outcome is COMMIT else "CompleteAbort")
    for partition in range(2):
        assert raw.fetch(topic, 2, partition=partition, isolation_level=COMMITTED).last_stable_offset == 4
    assert values(read_on(raw, topic)) == ([b"first", b"value"] if outcome is COMMIT else [b"first"])


@ON_A_JOURNAL
def test_data_whose_transaction_could_not_be_noted_is_not_stored_and_its_resend_is_taken(faulty, raw, topic, producer):
    with refusing(faulty, f"{STATE}.log"):
        assert producer.produce((topic, 0, b"value")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert raw.list_offset(topic, -1).offset == 2

    producer.skip_to(topic, 0, sequence=0)
    assert producer.produce((topic, 0, b"value")) == [NONE]
    assert producer.end(COMMIT) is NONE
    until(raw, "CompleteCommit")
    assert values(read_on(raw, topic)) == [b"first", b"value"]


@ON_FILES
def test_data_whose_transaction_could_not_be_noted_is_aborted_and_its_producer_fenced(faulty, raw, topic, producer):
    with refusing(faulty, f"{STATE}.log"):
        assert producer.produce((topic, 0, b"lost")) == [ErrorCode.NOT_ENOUGH_REPLICAS]

    while raw.list_offset(topic, -1, isolation_level=COMMITTED).offset < 4:
        pass
    assert values(read_on(raw, topic)) == [b"first"]
    epoch = producer.epoch
    producer.become(-1, -1).become(0, epoch)
    assert producer.produce((topic, 0, b"lost")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    while producer.init() is not NONE:
        pass
    assert producer.produce((topic, 0, b"again")) == [NONE]
    assert producer.end(COMMIT) is NONE
    until(raw, "CompleteCommit")
    assert values(read_on(raw, topic)) == [b"first", b"again"]


@ON_FILES
def test_it_is_aborted_in_every_partition(faulty, raw, producer):
    wide = raw.create_topic("wide", partitions=4)

    with refusing(faulty, f"{STATE}.log"):
        written = producer.produce(*[(wide, index, b"lost") for index in range(4)])

    assert written == [ErrorCode.NOT_ENOUGH_REPLICAS] * 4
    for index in range(4):
        while raw.list_offset(wide, -1, partition=index, isolation_level=COMMITTED).offset < 2:
            pass


@ON_FILES
def test_while_it_cannot_be_aborted_either_its_resend_is_not_taken_for_a_duplicate(faulty, raw, topic, producer):
    assert producer.produce((topic, 0, b"value")) == [NONE]

    with refusing(faulty, f"{STATE}.log", times=3):
        assert producer.produce((topic, 1, b"lost")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        while True:
            producer.skip_to(topic, 1, sequence=0)
            resent = producer.produce((topic, 1, b"lost"))
            if resent != [ErrorCode.NOT_ENOUGH_REPLICAS]:
                break

    assert resent == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end(COMMIT) is ErrorCode.PRODUCER_FENCED
    until(raw, "CompleteAbort")
    assert raw.list_offset(topic, -1, partition=1, isolation_level=COMMITTED).offset == 4
    assert values(read_on(raw, topic)) == [b"first"]


def test_an_outcome_that_could_not_be_noted_is_not_told_and_can_be_asked_for_again(faulty, raw, topic, producer):
    producer.produce((topic, 0, b"value"))

    with refusing(faulty, f"{STATE}.log"):
        assert producer.end(COMMIT) is ErrorCode.NOT_COORDINATOR

    assert values(read_on(raw, topic)) == [b"first"]
    assert producer.end(COMMIT) is NONE
    until(raw, "CompleteCommit")
    assert values(read_on(raw, topic)) == [b"first", b"value"]


def test_markers_of_an_outcome_that_could_not_be_noted_are_not_tried_again(faulty, raw, topic, producer):
    producer.produce((topic, 0, b"value"), (topic, 1, b"value"))

    with refusing(faulty, f"{STATE}.log"):
        assert producer.end(COMMIT) is ErrorCode.NOT_COORDINATOR
    for _ in range(3):
        faulty.broker.clock.advance_ms(1_000)
        assert describe(raw, "mine").transaction_state == "Ongoing"
        assert raw.fetch(topic, 2, isolation_level=COMMITTED).last_stable_offset == 2
    assert producer.end(ABORT) is NONE

    until(raw, "CompleteAbort")
    assert values(read_on(raw, topic)) == [b"first"]


def test_markers_of_an_outcome_that_could_not_be_noted_are_not_written_for_the_other_outcome(
    faulty, raw, topic, producer
):
    """In version 1 of transactions both outcomes have the same producer id and epoch."""
    assert producer.add((topic, 0), (topic, 1)) is not None
    producer.produce((topic, 0, b"value"), (topic, 1, b"value"), version=WITHOUT_IMPLICIT_ADD)

    with refusing(faulty, f"{STATE}.log"):
        assert producer.end(COMMIT, version=3) is ErrorCode.NOT_COORDINATOR
    assert producer.end(ABORT, version=3) is NONE
    until(raw, "CompleteAbort")
    faulty.broker.clock.advance_ms(5_000)

    assert describe(raw, "mine").transaction_state == "CompleteAbort"
    assert values(read_on(raw, topic)) == [b"first"]
    assert raw.list_offset(topic, -1, partition=1, isolation_level=COMMITTED).offset == 4


def test_an_end_that_could_not_be_noted_is_noted_later(faulty, raw, topic, producer):
    producer.produce((topic, 0, b"value"))

    with refusing(faulty, f"{STATE}.log", after=1):
        assert producer.end(COMMIT) is NONE
        until(raw, "CompleteCommit")

    assert values(read_on(raw, topic)) == [b"first", b"value"]
    assert producer.produce((topic, 0, b"next")) == [NONE]
    assert producer.end(COMMIT) is NONE
    until(raw, "CompleteCommit")
    assert values(read_on(raw, topic)) == [b"first", b"value", b"next"]


@pytest.mark.parametrize(
    "point",
    [
        "txn.end.after_prepare",
        "txn.marker.before",
        "txn.marker.after_some",
        "txn.marker.after_all",
        "txn.end.before_complete",
    ],
)
def test_whatever_fails_among_the_markers_is_tried_again(faulty, raw, topic, producer, point):
    producer.produce((topic, 0, b"value"), (topic, 1, b"value"))

    with armed(point, OSError("ordered")) as order:
        assert producer.end(COMMIT) is NONE
        while not order.has_fired:
            pass
    while describe(raw, "mine").transaction_state != "CompleteCommit":
        faulty.broker.clock.advance_ms(1_000)

    assert values(read_on(raw, topic)) == [b"first", b"value"]
    assert producer.produce((topic, 0, b"next")) == [NONE]
    assert producer.end(COMMIT) is NONE


def test_a_topic_that_is_gone_keeps_no_transaction_open(raw, topic, producer):
    doomed = raw.create_topic("doomed")
    assert producer.produce((topic, 0, b"value"), (doomed, 0, b"value")) == [NONE, NONE]
    assert raw.ask(DeleteTopicsRequest(topic_names=("doomed",), timeout_ms=10_000), 4).responses[0].error_code == 0

    assert producer.end(COMMIT) is NONE

    until(raw, "CompleteCommit")
    assert values(read_on(raw, topic)) == [b"first", b"value"]
