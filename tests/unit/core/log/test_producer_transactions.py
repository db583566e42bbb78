"""Transactions in a partition's producer state: which batches belong to one, which markers end it, what they abort."""

import pytest

from exactlog.core.log import producer_state
from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.producer_state import Duplicate, Fresh, ProducerStates
from exactlog.core.model.error_code import ErrorCode
from tests.unit.core.log.test_producer_state import PRODUCER, assert_refused, batch, decide, marker, states_after


def transactional(sequence, count=1, **fields):
    return batch(sequence, count, is_transactional=True, **fields)


def judge(states, *, epoch, coordinator_epoch=3, transaction_version=1, producer_id=PRODUCER):
    return states.judge_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


# --- batches --------------------------------------------------------------------------------------------------


def test_the_first_batch_of_a_transaction_must_be_verified():
    states = ProducerStates()

    assert_refused(decide(states, transactional(0)), ErrorCode.INVALID_TXN_STATE, PRODUCER)
    assert decide(states, transactional(0), is_verified=True) == Fresh()


def test_further_batches_of_an_open_transaction_need_no_verification():
    states = states_after(transactional(0, 3))

    assert decide(states, transactional(3)) == Fresh()


def test_after_its_marker_the_next_transaction_must_be_verified_again():
    states = states_after(transactional(0, 3))
    states.replay_marker(*marker(0, offset=3))

    assert_refused(decide(states, transactional(3)), ErrorCode.INVALID_TXN_STATE)
    assert decide(states, transactional(3), is_verified=True) == Fresh()


def test_an_open_transaction_of_another_epoch_is_no_membership():
    states = states_after(transactional(0, 3, epoch=1))

    for epoch in (0, 2):
        assert_refused(decide(states, transactional(0, epoch=epoch)), ErrorCode.INVALID_TXN_STATE)


def test_a_duplicate_is_one_even_after_its_transaction_has_ended():
    states = states_after(transactional(0, 3))
    states.replay_marker(*marker(0, offset=3))

    assert isinstance(decide(states, transactional(0, 3)), Duplicate)


def test_verification_comes_before_epoch_and_epoch_before_sequence():
    states = states_after(transactional(0, 3, epoch=2))
    states.replay_marker(*marker(2, offset=3))

    wrong_in_all = transactional(7, epoch=1)
    assert_refused(decide(states, wrong_in_all), ErrorCode.INVALID_TXN_STATE)
    assert_refused(decide(states, wrong_in_all, is_verified=True), ErrorCode.INVALID_PRODUCER_EPOCH)
    late = transactional(7, epoch=2)
    assert_refused(decide(states, late, is_verified=True), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_what_a_coordinator_writes_needs_no_sequence_but_its_transaction():
    states = states_after(batch(0))
    header = batch(-1, is_transactional=True)

    assert_refused(decide(states, header, is_client=False), ErrorCode.INVALID_TXN_STATE)
    assert decide(states, header, is_client=False, is_verified=True) == Fresh()
    states.replay(header)
    assert decide(states, header, is_client=False) == Fresh()


def test_who_raises_its_epoch_with_each_transaction_begins_at_zero_where_it_is_not_known():
    states = states_after(batch(0, producer_id=8))

    assert decide(states, transactional(5), is_verified=True) == Fresh()
    late = decide(states, transactional(5), is_verified=True, first_sequence_max=0)
    assert_refused(late, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5)
    assert decide(states, transactional(0), is_verified=True, first_sequence_max=0) == Fresh()


@pytest.mark.parametrize(("lowest", "is_taken"), [(None, True), (4, False), (5, True), (6, True)])
def test_a_first_batch_that_has_overtaken_another_is_refused_where_its_producer_is_not_known(lowest, is_taken):
    states = states_after(batch(0, producer_id=8))

    decision = decide(states, transactional(5), is_verified=True, first_sequence_max=lowest)

    if is_taken:
        assert decision == Fresh()
    else:
        assert_refused(decision, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5)


def test_where_its_producer_is_known_the_next_batch_is_taken_whatever_came_again_meanwhile():
    states = states_after(transactional(0, 3))
    states.replay_marker(*marker(0, offset=3))

    assert decide(states, transactional(3), is_verified=True, first_sequence_max=0) == Fresh()


def test_a_partition_takes_no_more_transactions_at_once_than_it_can_remember(monkeypatch):
    monkeypatch.setattr(producer_state, "OPEN_TRANSACTIONS_PER_PARTITION_MAX", 2)
    states = states_after(transactional(0, producer_id=1), transactional(0, producer_id=2))

    full = decide(states, transactional(0, producer_id=3), is_verified=True)
    assert_refused(full, ErrorCode.POLICY_VIOLATION, 2)
    assert decide(states, transactional(1, producer_id=2)) == Fresh()
    assert decide(states, transactional(0, producer_id=2, epoch=1), is_verified=True) == Fresh()
    assert decide(states, batch(0, producer_id=3)) == Fresh()


# --- which are open -------------------------------------------------------------------------------------------


def test_open_transactions_are_known_by_their_beginning():
    states = states_after(
        transactional(0, 3, producer_id=9), batch(0, offset=3), transactional(0, producer_id=2, offset=4, epoch=6)
    )

    assert states.first_undecided_offset == 0
    assert [entry.producer_id for entry in states.open_transactions()] == [9, 2]
    assert states.has_open_transaction(2, 6)
    assert not states.has_open_transaction(2, 5)
    assert not states.has_open_transaction(PRODUCER, 0)


def test_the_first_undecided_offset_moves_to_the_next_oldest_transaction_that_is_open():
    states = states_after(*(transactional(0, producer_id=number, offset=number) for number in range(4)))
    firsts = []
    for ended in (1, 0, 3, 2):
        header, decision = marker(0, offset=10)
        states.replay_marker(_of(header, ended), decision)
        firsts.append(states.first_undecided_offset)

    assert firsts == [0, 2, 2, None]


def test_a_map_that_follows_knows_the_same_open_transactions():
    leader, follower = ProducerStates(), ProducerStates()
    follower.adopt(leader.replay(transactional(0, offset=4)))
    follower.adopt(leader.replay(transactional(0, producer_id=8, offset=5)))

    assert follower.first_undecided_offset == leader.first_undecided_offset == 4
    entry, _ = leader.replay_marker(*marker(0, offset=6))
    follower.adopt(entry)
    assert follower.first_undecided_offset == leader.first_undecided_offset == 5
    assert follower.snapshot() == leader.snapshot()


def test_a_copy_and_a_restored_snapshot_know_them_too():
    states = states_after(transactional(0, producer_id=9, offset=4), transactional(0, producer_id=2, offset=5))

    for other in (states.copy(), ProducerStates(states.snapshot())):
        assert other.first_undecided_offset == 4
        assert other.open_transactions() == states.open_transactions()
        header, decision = marker(0, offset=6)
        other.replay_marker(_of(header, 9), decision)
        assert other.first_undecided_offset == 5
    assert states.first_undecided_offset == 4


# --- markers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_marker_may_end_the_transaction_of_an_unknown_producer(transaction_version):
    assert judge(ProducerStates(), epoch=0, transaction_version=transaction_version) == Fresh()


@pytest.mark.parametrize(
    ("transaction_version", "epoch", "is_taken"),
    [(0, 3, False), (0, 4, True), (0, 5, True), (1, 4, True), (2, 3, False), (2, 4, False), (2, 5, True), (2, 9, True)],
)
def test_a_marker_must_be_of_the_transaction_that_is_open(transaction_version, epoch, is_taken):
    judged = judge(states_after(transactional(0, epoch=4)), epoch=epoch, transaction_version=transaction_version)

    if is_taken:
        assert judged == Fresh()
    else:
        assert_refused(judged, ErrorCode.INVALID_PRODUCER_EPOCH, epoch, 4)


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_marker_whose_answer_was_missed_may_be_written_again(transaction_version):
    states = states_after(transactional(0, epoch=4))
    states.replay_marker(*marker(5, offset=1))

    assert judge(states, epoch=5, transaction_version=transaction_version) == Fresh()
    lower = judge(states, epoch=4, transaction_version=transaction_version)
    assert_refused(lower, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused():
    states = states_after(transactional(0))
    states.replay_marker(*marker(0, coordinator_epoch=3))

    assert_refused(judge(states, epoch=0, coordinator_epoch=2), ErrorCode.TRANSACTION_COORDINATOR_FENCED, 2, 3)
    assert judge(states, epoch=0, coordinator_epoch=3) == Fresh()
    assert judge(states, epoch=0, coordinator_epoch=4) == Fresh()


def test_an_abort_marker_ends_the_transaction_and_tells_what_it_aborts():
    states = states_after(transactional(0, 3, offset=5))

    entry, aborted = states.replay_marker(*marker(0, offset=8, is_commit=False))

    assert entry == states.get(PRODUCER)
    assert aborted == AbortedTransaction(producer_id=PRODUCER, first_offset=5, last_offset=8, last_stable_offset=9)


def test_the_last_stable_offset_behind_an_abort_marker_is_where_the_next_transaction_is_open():
    states = states_after(transactional(0, 3, offset=5), transactional(0, producer_id=8, offset=8))

    _, aborted = states.replay_marker(*marker(0, offset=9, is_commit=False))

    assert aborted.last_stable_offset == 8


def test_neither_a_commit_marker_nor_one_without_a_transaction_aborts_anything():
    states = states_after(transactional(0))

    assert states.replay_marker(*marker(0, offset=1))[1] is None
    assert states.replay_marker(*marker(0, offset=2, is_commit=False))[1] is None
    assert ProducerStates().replay_marker(*marker(0, offset=0, is_commit=False))[1] is None


# --- how many -------------------------------------------------------------------------------------------------


def test_when_there_are_too_many_producers_the_most_silent_are_forgotten(monkeypatch):
    """B042 (Redpanda PR#7057, #5321): producer ids were kept without bound, until memory was full."""
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_PARTITION_MAX", 16)
    states = ProducerStates()
    states.replay(transactional(0, producer_id=100, timestamp_ms=1))
    for number in range(15):
        states.replay(batch(0, producer_id=number, timestamp_ms=1000 - number))
    assert len(states) == 16

    states.replay(batch(0, producer_id=50, timestamp_ms=5))

    assert len(states) == 15
    assert states.get(14) is None
    assert states.get(13) is None
    assert states.get(12) is not None
    assert states.get(50) is not None
    assert states.get(100) is not None, "its transaction is open"


def test_a_known_producer_pushes_nobody_out(monkeypatch):
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_PARTITION_MAX", 16)
    states = states_after(*(batch(0, producer_id=number) for number in range(16)))

    states.replay(batch(1, producer_id=3))

    assert len(states) == 16


def _of(header, producer_id):
    """The header of the same marker, of another producer."""
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return type(header)(**fields | {"producer_id": producer_id})
