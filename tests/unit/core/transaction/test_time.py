"""Transactions time out, transactional ids expire, operators abort."""

import pytest
from msgspec.structs import replace

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.limits import TRANSACTIONS_PER_CHECK_MAX
from tests.support.transaction_runtime import BILLS, ORDERS, START_MS, TransactionRuntime, identity

CHECK_MS = 10_000
TIMEOUT_MS = 60_000
WEEK_MS = 7 * 24 * 60 * 60 * 1_000


def with_open_transaction(**limits):
    runtime = TransactionRuntime(**limits)
    producer = runtime.producer()
    runtime.add(producer)
    return runtime, producer


# --- time-outs --------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_for_too_long_is_aborted_at_the_next_check():
    """B013 (KAFKA-6119): a timeout did not fence the producer."""
    runtime, producer = with_open_transaction()

    runtime.advance(TIMEOUT_MS)
    assert runtime.state() == "Ongoing"
    runtime.advance(CHECK_MS)
    assert runtime.state() == "PrepareAbort"
    (markers,) = runtime.write_markers()
    assert (markers.is_commit, markers.producer_epoch) == (False, 1)
    assert runtime.end(producer).error_code is ErrorCode.PRODUCER_FENCED
    assert runtime.add(producer).error_code is ErrorCode.PRODUCER_FENCED


def test_adding_partitions_does_not_lengthen_a_transaction():
    runtime, producer = with_open_transaction()
    for _ in range(8):
        runtime.advance(CHECK_MS)
        runtime.add(producer, BILLS)

    assert runtime.state() == "PrepareAbort"


def test_only_what_is_open_times_out():
    runtime = TransactionRuntime()
    runtime.producer("a")
    producer = runtime.producer("b")
    runtime.add(producer, transactional_id="b")
    runtime.end(producer, transactional_id="b")
    runtime.advance(10 * TIMEOUT_MS)

    assert (runtime.state("a"), runtime.state("b")) == ("Empty", "PrepareCommit")


def test_a_prepared_commit_is_never_aborted():  # streamline aborts it
    runtime, producer = with_open_transaction()
    runtime.end(producer)
    runtime.advance(100 * TIMEOUT_MS)
    runtime.crash()
    runtime.advance(100 * TIMEOUT_MS)

    assert runtime.state() == "PrepareCommit"


@pytest.mark.parametrize("version", [1, 2])
def test_a_timeout_raises_the_epoch_once(version):
    """B004 (KAFKA-19367): it was raised twice."""
    runtime, _ = with_open_transaction(transaction_version=version)
    runtime.advance(TIMEOUT_MS + 2 * CHECK_MS)
    runtime.write_markers()

    assert (runtime.state(), runtime.entry().producer_epoch) == ("CompleteAbort", 1)


def test_checks_come_as_often_as_is_wanted():
    runtime, _ = with_open_transaction(check_interval_ms=7)
    runtime.advance(TIMEOUT_MS + 7)

    assert runtime.state() == "PrepareAbort"


def test_many_that_time_out_together_are_aborted_one_part_after_the_other():
    runtime = TransactionRuntime()
    for number in range(TRANSACTIONS_PER_CHECK_MAX + 5):
        name = f"t{number}"
        runtime.add(runtime.producer(name), transactional_id=name)
    runtime.now_ms += 10 * TIMEOUT_MS
    key = next(iter(runtime.due))

    first = runtime.carry_out(runtime.shard.time_out(key, now_ms=runtime.now_ms))
    assert (len(first.records), first.timers[0].delay_ms) == (TRANSACTIONS_PER_CHECK_MAX, 0)
    second = runtime.carry_out(runtime.shard.time_out(key, now_ms=runtime.now_ms))
    assert (len(second.records), second.timers[0].delay_ms) == (5, CHECK_MS)


def test_without_abort_markers_a_transaction_stays_open_until_somebody_ends_it():
    runtime, producer = with_open_transaction(write_abort_markers=False)
    runtime.advance(100 * TIMEOUT_MS)

    assert (runtime.state(), runtime.effects) == ("Ongoing", [])
    assert runtime.end(producer).error_code is ErrorCode.NONE


def test_without_abort_markers_taking_over_still_aborts():
    runtime, _ = with_open_transaction(write_abort_markers=False)
    runtime.advance(100 * TIMEOUT_MS)
    runtime.init()

    assert len(runtime.write_markers()) == 1
    assert runtime.state() == "CompleteAbort"


@pytest.mark.parametrize(
    ("version", "fences", "error"),
    [
        (1, True, ErrorCode.PRODUCER_FENCED),
        (1, False, ErrorCode.NONE),
        (2, True, ErrorCode.NONE),  # as Kafka
        (2, False, ErrorCode.NONE),
    ],
)
def test_whether_a_producer_may_go_on_after_a_timeout(version, fences, error):
    runtime, producer = with_open_transaction(transaction_version=version, fence_on_timeout=fences)
    runtime.advance(TIMEOUT_MS + CHECK_MS)
    runtime.write_markers()

    assert runtime.add(producer).error_code is ErrorCode.PRODUCER_FENCED, "the epoch goes up in any case"
    assert runtime.init(producer_id=1, epoch=0).error_code is error


def test_a_producer_that_may_go_on_from_the_last_epoch_gets_a_new_producer_id():
    runtime = TransactionRuntime(transaction_version=1, fence_on_timeout=False)
    producer = runtime.last_epoch()
    runtime.add(producer)
    runtime.advance(TIMEOUT_MS + 2 * CHECK_MS)
    runtime.write_markers()

    assert runtime.entry().producer_epoch == 32_767
    for _ in range(2):
        assert identity(runtime.init(producer_id=1, epoch=32_766)) == (2, 0)


def test_a_timeout_that_needs_a_producer_id_waits_for_one():
    runtime = TransactionRuntime()
    runtime.add(runtime.last_epoch())
    runtime.is_out_of_ids = True
    runtime.advance(TIMEOUT_MS + 2 * CHECK_MS)
    assert runtime.state() == "Ongoing"

    runtime.is_out_of_ids = False
    runtime.advance(CHECK_MS)
    assert (runtime.state(), runtime.entry().next_producer_id) == ("PrepareAbort", 2)


def test_after_a_restart_a_transaction_has_the_time_it_had_left():
    runtime, _ = with_open_transaction()
    runtime.advance(TIMEOUT_MS - 5_000)
    runtime.crash()

    runtime.advance(5_000)
    assert runtime.state() == "Ongoing"
    runtime.advance(CHECK_MS)
    assert runtime.state() == "PrepareAbort"


# --- expiry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_id_that_is_not_used_for_a_week_is_forgotten(story):
    runtime = TransactionRuntime()
    producer = runtime.producer()
    if story != "Empty":
        producer = runtime.run_transaction(producer, is_commit=story == "CompleteCommit")
    runtime.now_ms += WEEK_MS - 1
    runtime.carry_out(runtime.shard.expire_ids(now_ms=runtime.now_ms))
    assert runtime.state() == story

    runtime.now_ms += 1
    runtime.carry_out(runtime.shard.expire_ids(now_ms=runtime.now_ms))

    assert runtime.state() is None
    assert runtime.log[-1][1] is None
    assert runtime.shard.find_by_producer(producer[0]) is None
    assert runtime.add(producer).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING  # KAFKA-18019, B012
    assert runtime.end(producer).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    runtime.crash()
    assert runtime.entry() is None
    assert runtime.producer() == (2, 0)


@pytest.mark.parametrize("is_ended", [True, False])
def test_an_id_with_an_open_transaction_never_expires(is_ended):
    runtime, producer = with_open_transaction(write_abort_markers=False)
    if is_ended:
        runtime.end(producer)
    runtime.now_ms += 2 * WEEK_MS

    assert runtime.carry_out(runtime.shard.expire_ids(now_ms=runtime.now_ms)).records == ()


def test_many_that_expire_together_are_forgotten_one_part_after_the_other():
    runtime = TransactionRuntime()
    for number in range(TRANSACTIONS_PER_CHECK_MAX + 5):
        runtime.producer(f"t{number}")
    runtime.now_ms += WEEK_MS

    assert len(runtime.carry_out(runtime.shard.expire_ids(now_ms=runtime.now_ms)).records) == TRANSACTIONS_PER_CHECK_MAX
    runtime.advance(1)
    assert runtime.shard.transactions() == []


def test_a_timer_that_is_not_known_is_a_bug():
    with pytest.raises(InvariantError):
        TransactionRuntime().shard.time_out("alarm", now_ms=START_MS)


# --- aborts from outside ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_an_operator_aborts_and_fences(version):
    runtime, producer = with_open_transaction(transaction_version=version)

    assert runtime.fence() is ErrorCode.NONE
    (markers,) = runtime.write_markers()
    assert (markers.is_commit, markers.partitions, markers.producer_epoch) == (False, (ORDERS,), 1)
    assert runtime.add(producer).error_code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_ended", [True, False])
def test_an_operator_fences_a_producer_without_a_transaction(version, is_ended):
    runtime = TransactionRuntime(transaction_version=version)
    producer = runtime.producer()
    if is_ended:
        producer = runtime.run_transaction(producer, version=version)

    assert runtime.fence() is ErrorCode.NONE
    assert runtime.write_markers()[0].partitions == ()
    assert runtime.add(producer).error_code is ErrorCode.PRODUCER_FENCED
    assert runtime.entry().producer_epoch == producer[1] + 1


def test_an_operator_cannot_change_an_outcome():
    runtime, producer = with_open_transaction()
    runtime.end(producer)

    assert runtime.fence() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert runtime.state() == "PrepareCommit"
    assert runtime.fence("nobody") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_an_operator_fences_at_the_last_epoch(epoch):
    runtime = TransactionRuntime()
    producer = runtime.last_epoch(epoch)
    runtime.is_out_of_ids = True
    assert runtime.fence() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    runtime.is_out_of_ids = False
    assert runtime.fence() is ErrorCode.NONE
    runtime.write_markers()
    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == (2, 0)
    assert runtime.add(producer).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_fault_hook_needs_nobody_who_waits():
    runtime, _ = with_open_transaction()
    runtime.carry_out(runtime.shard.fence("payments", now_ms=runtime.now_ms))

    assert runtime.state() == "PrepareAbort"


def test_the_entry_that_is_replaced_is_left_as_it_was():
    runtime, _ = with_open_transaction()
    entry = runtime.entry()
    copy = replace(entry)
    runtime.fence()

    assert entry == copy
