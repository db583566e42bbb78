"""Partitions become part of a transaction; requests wait for the markers of the one before."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.limits import PARKED_REQUESTS_PER_TRANSACTION_MAX
from tests.support.transaction_runtime import BILLS, ORDERS, START_MS, TransactionRuntime, identity


def prepared(runtime, *, version=2, is_commit=True):
    """A producer whose transaction is decided, its markers not written; gives who it is for the next one."""
    producer = runtime.producer()
    runtime.add(producer)
    ended = runtime.end(producer, is_commit=is_commit, version=version)
    return identity(ended) if version >= 2 else producer


# --- partitions -------------------------------------------------------------------------------------------------


def test_a_transaction_begins_with_its_first_partition():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.advance(500)

    assert runtime.add(producer).error_code is ErrorCode.NONE
    assert (runtime.state(), runtime.entry().start_time_ms) == ("Ongoing", START_MS + 500)


def test_partitions_are_added_and_the_time_it_began_stays():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer, ORDERS)
    runtime.advance(500)
    runtime.add(producer, BILLS, ORDERS)

    assert runtime.entry().partitions == (BILLS, ORDERS)
    assert runtime.entry().start_time_ms == START_MS


def test_what_is_in_already_is_not_written_again():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer, ORDERS, BILLS)
    log = list(runtime.log)

    assert runtime.add(producer, BILLS).error_code is ErrorCode.NONE
    assert runtime.log == log


def test_what_is_in_already_is_answered_when_it_is_committed():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.commits_at_once = False
    runtime.add(producer)
    again = runtime.add(producer)

    assert not again.is_done
    runtime.commit()
    assert again.error_code is ErrorCode.NONE


def test_who_waits_for_the_commit_itself_is_told_at_once():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.commits_at_once = False

    assert runtime.add(producer, is_told_at_once=True).error_code is ErrorCode.NONE
    assert runtime.add(producer, is_told_at_once=True).error_code is ErrorCode.NONE
    assert runtime.add((9, 9), is_told_at_once=True).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert len(runtime.log) == 1


def test_the_next_transaction_begins_with_no_partitions_of_the_one_before():
    runtime = TransactionRuntime()
    producer = runtime.run_transaction(runtime.producer())
    runtime.add(producer, BILLS)

    assert runtime.entry().partitions == (BILLS,)


def test_verification_adds_nothing():
    runtime = TransactionRuntime()
    producer = runtime.producer()

    assert runtime.add(producer, verify_only=True).error_code is ErrorCode.TRANSACTION_ABORTABLE
    runtime.add(producer, ORDERS)
    assert runtime.add(producer, ORDERS, verify_only=True).error_code is ErrorCode.NONE
    assert runtime.add(producer, ORDERS, BILLS, verify_only=True).error_code is ErrorCode.TRANSACTION_ABORTABLE
    assert runtime.entry().partitions == (ORDERS,)


# --- waiting for markers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_request_that_meets_a_prepared_transaction_waits_for_its_markers(version, is_commit):
    runtime = TransactionRuntime()
    producer = prepared(runtime, version=version, is_commit=is_commit)
    waiting = runtime.add(producer, BILLS)

    assert not waiting.is_done
    runtime.write_markers()
    assert waiting.error_code is ErrorCode.NONE
    assert (runtime.state(), runtime.entry().partitions) == ("Ongoing", (BILLS,))


def test_those_who_wait_go_on_in_order_in_one_decision_with_the_end():
    runtime = TransactionRuntime()
    producer = prepared(runtime)
    waiting = [
        runtime.add(producer, BILLS),
        runtime.add(producer, ORDERS, verify_only=True),
        runtime.add(producer, ORDERS, is_told_at_once=True),
        runtime.add(producer, ORDERS, verify_only=True),
    ]
    runtime.commits_at_once = False

    decision = runtime.markers_written(runtime.effects.pop())

    states = [record.entry.state.kafka_name for record in decision.records]
    assert states == ["CompleteCommit", "Ongoing", "Ongoing"]
    assert [each.is_done for each in waiting] == [False, False, True, False]
    runtime.commit()
    assert [each.error_code for each in waiting] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]


def test_after_100_ms_it_is_to_ask_again_and_nothing_is_written_for_it():
    runtime = TransactionRuntime()
    producer = prepared(runtime)
    waiting = [runtime.add(producer, BILLS), runtime.add(producer, BILLS, is_told_at_once=True)]

    runtime.advance(99)
    assert not any(each.is_done for each in waiting)
    runtime.advance(1)
    assert [each.error_code for each in waiting] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    runtime.write_markers()
    assert runtime.state() == "CompleteCommit"


def test_the_timer_of_who_went_on_is_taken_back():
    runtime = TransactionRuntime()
    producer = prepared(runtime)
    runtime.add(producer, BILLS)
    due = len(runtime.due)
    runtime.write_markers()

    assert len(runtime.due) == due - 1
    runtime.advance(200)


def test_a_request_of_the_identity_to_come_waits_although_the_entry_has_the_old_one():
    runtime = TransactionRuntime()
    producer = runtime.last_epoch()
    runtime.add(producer)
    following = identity(runtime.end(producer))
    waiting = runtime.add(following, BILLS)

    assert following == (2, 0)
    assert runtime.entry().producer_id == 1
    assert not waiting.is_done
    runtime.write_markers()
    assert waiting.error_code is ErrorCode.NONE
    assert runtime.shard.find_by_producer(2).partitions == (BILLS,)
    assert runtime.shard.find_by_producer(1) is None


def test_a_straggler_of_the_transaction_that_is_prepared_does_not_wait():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)
    runtime.end(producer)

    assert runtime.add(producer, BILLS).error_code is ErrorCode.PRODUCER_FENCED


def test_only_so_many_requests_wait_for_one_transaction():
    runtime = TransactionRuntime()
    producer = prepared(runtime)
    waiting = [runtime.add(producer) for _ in range(PARKED_REQUESTS_PER_TRANSACTION_MAX + 1)]

    assert [each.is_done for each in waiting] == [False] * PARKED_REQUESTS_PER_TRANSACTION_MAX + [True]
    assert waiting[-1].error_code is ErrorCode.CONCURRENT_TRANSACTIONS


# --- bounds -----------------------------------------------------------------------------------------------------


def test_a_transaction_has_only_so_many_partitions():
    runtime = TransactionRuntime(partitions_per_transaction_max=2)
    producer = runtime.producer()
    runtime.add(producer, ORDERS, BILLS)
    log = list(runtime.log)

    assert runtime.add(producer, TopicPartition("t", 0)).error_code is ErrorCode.TRANSACTION_ABORTABLE
    assert runtime.add(producer, BILLS).error_code is ErrorCode.NONE
    assert runtime.log == log
    assert runtime.end(producer).error_code is ErrorCode.NONE


def test_only_so_many_transactions_are_open():
    runtime = TransactionRuntime(open_transactions_max=1)
    first, second = runtime.producer("a"), runtime.producer("b")
    runtime.add(first, transactional_id="a")

    assert runtime.add(second, transactional_id="b").error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert runtime.add(first, BILLS, transactional_id="a").error_code is ErrorCode.NONE
    runtime.end(first, transactional_id="a")
    assert runtime.add(second, transactional_id="b").error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    runtime.write_markers()
    assert runtime.add(second, transactional_id="b").error_code is ErrorCode.NONE


def test_the_open_transactions_have_only_so_many_partitions_together():
    runtime = TransactionRuntime(open_partitions_max=3)
    first, second = runtime.producer("a"), runtime.producer("b")
    runtime.add(first, ORDERS, BILLS, transactional_id="a")

    assert runtime.add(second, ORDERS, BILLS, transactional_id="b").error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert runtime.add(second, ORDERS, transactional_id="b").error_code is ErrorCode.NONE
    assert runtime.add(first, ORDERS, BILLS, transactional_id="a").error_code is ErrorCode.NONE
    runtime.end(first, transactional_id="a")
    runtime.write_markers()
    assert runtime.add(second, ORDERS, BILLS, transactional_id="b").error_code is ErrorCode.NONE


def test_who_waits_for_the_own_markers_is_not_refused_by_the_bound():
    runtime = TransactionRuntime(open_transactions_max=1, open_partitions_max=1)
    waiting = runtime.add(prepared(runtime), BILLS)
    runtime.write_markers()

    assert waiting.error_code is ErrorCode.NONE
