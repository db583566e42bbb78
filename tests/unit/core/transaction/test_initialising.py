"""InitProducerId with a transactional id: who gets which producer id and epoch."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from tests.support.transaction_runtime import BILLS, ORDERS, TransactionRuntime, identity


def at_epoch(epoch, **limits):
    """A runtime whose producer, 1, is at this epoch with nothing open."""
    runtime = TransactionRuntime(**limits)
    runtime.last_epoch(epoch)
    return runtime


# --- ids and epochs ---------------------------------------------------------------------------------------------


def test_a_new_transactional_id_gets_a_producer_id_of_its_own_at_epoch_0():
    runtime = TransactionRuntime()

    assert [runtime.producer("a"), runtime.producer("b")] == [(1, 0), (2, 0)]
    assert runtime.state("a") == "Empty"


def test_who_comes_without_an_id_takes_over_at_the_next_epoch():
    runtime = TransactionRuntime()
    first = runtime.producer()

    assert runtime.producer() == (1, 1)
    assert runtime.add(first).error_code is ErrorCode.PRODUCER_FENCED


def test_an_answer_leaves_when_the_epoch_is_committed():
    runtime = TransactionRuntime(commits_at_once=False)
    waiting = runtime.init()

    assert not waiting.is_done
    runtime.commit()
    assert identity(waiting) == (1, 0)


def test_a_producer_that_gives_its_epoch_goes_on_with_the_next_one():  # KIP-360
    runtime = TransactionRuntime()
    producer_id, epoch = runtime.producer()

    assert identity(runtime.init(producer_id=producer_id, epoch=epoch)) == (producer_id, epoch + 1)


def test_asking_again_with_the_epoch_before_gives_the_same_answer_and_writes_nothing():  # KIP-360
    runtime = TransactionRuntime()
    runtime.producer()
    told = identity(runtime.init(producer_id=1, epoch=0))
    log = list(runtime.log)

    assert [identity(runtime.init(producer_id=1, epoch=0)) for _ in range(3)] == [told] * 3
    assert runtime.log == log


def test_asking_again_gives_the_same_answer_after_a_restart_too():  # Kafka answers PRODUCER_FENCED
    runtime = TransactionRuntime()
    runtime.producer()
    told = identity(runtime.init(producer_id=1, epoch=0))
    runtime.crash()

    assert identity(runtime.init(producer_id=1, epoch=0)) == told


def test_who_was_taken_over_cannot_go_on():  # KIP-360
    runtime = TransactionRuntime()
    producer_id, epoch = runtime.producer()
    runtime.producer()

    assert runtime.init(producer_id=producer_id, epoch=epoch).error_code is ErrorCode.PRODUCER_FENCED


def test_an_id_that_is_given_and_not_known_any_more_begins_anew():
    assert identity(TransactionRuntime().init(producer_id=77, epoch=5)) == (1, 0)


# --- epochs that are used up ------------------------------------------------------------------------------------


def test_the_last_epoch_of_a_producer_id_is_used():
    assert at_epoch(32_765).producer() == (1, 32_766)


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_behind_the_last_epoch_comes_a_new_producer_id(epoch):
    assert at_epoch(epoch).producer() == (2, 0)


def test_a_producer_that_gives_the_last_epoch_gets_a_new_id_as_often_as_it_asks():
    runtime = at_epoch(32_766)
    told = identity(runtime.init(producer_id=1, epoch=32_766))

    assert told == (2, 0)
    for _ in range(2):
        assert identity(runtime.init(producer_id=1, epoch=32_766)) == told
        runtime.crash()


def test_a_retry_at_the_last_epoch_gets_the_last_epoch():
    runtime = at_epoch(32_765)
    told = identity(runtime.init(producer_id=1, epoch=32_765))

    assert told == (1, 32_766)
    assert identity(runtime.init(producer_id=1, epoch=32_765)) == told


def test_who_was_taken_over_by_a_new_producer_id_cannot_go_on():
    runtime = at_epoch(32_766)
    runtime.producer()

    assert runtime.init(producer_id=1, epoch=32_766).error_code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("fields", [{}, {"producer_id": 1, "epoch": 32_766}])
def test_without_a_producer_id_at_hand_it_is_to_ask_again(fields):
    runtime = at_epoch(32_766)
    runtime.is_out_of_ids = True
    log = list(runtime.log)

    assert runtime.init(**fields).error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert runtime.init("another").error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert runtime.log == log


def test_a_retry_across_an_end_that_rotated_gets_the_same_answer_as_often_as_it_asks():
    runtime = at_epoch(32_766)
    runtime.run_transaction((1, 32_766))

    for _ in range(3):
        assert identity(runtime.init(producer_id=1, epoch=32_766)) == (2, 0)
        runtime.crash()


@pytest.mark.parametrize("epoch", [0, 1, 32_765])
def test_the_producer_id_before_the_rotation_is_of_no_use_at_other_epochs(epoch):
    runtime = at_epoch(32_766)
    runtime.init(producer_id=1, epoch=32_766)

    assert runtime.init(producer_id=1, epoch=epoch).error_code is ErrorCode.PRODUCER_FENCED


def test_who_asks_with_the_id_that_it_is_about_to_get_is_to_ask_again():
    runtime = at_epoch(32_766)
    runtime.add((1, 32_766))
    assert identity(runtime.end((1, 32_766))) == (2, 0)

    assert runtime.init(producer_id=2, epoch=0).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert runtime.init(producer_id=3, epoch=0).error_code is ErrorCode.PRODUCER_FENCED
    runtime.write_markers()
    assert identity(runtime.init(producer_id=2, epoch=0)) == (2, 1)


# --- an open transaction ----------------------------------------------------------------------------------------


def test_taking_over_aborts_what_is_open_and_is_to_ask_again_until_the_markers_are_written():
    """B058: the record of the old epoch was committed by the new one."""
    runtime = TransactionRuntime()
    old = runtime.producer()
    runtime.add(old, ORDERS, BILLS)

    assert runtime.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert runtime.state() == "PrepareAbort"
    assert runtime.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = runtime.write_markers()
    assert (markers.is_commit, set(markers.partitions), markers.producer_epoch) == (False, {ORDERS, BILLS}, 1)
    assert runtime.producer() == (1, 2)
    assert runtime.add(old).error_code is ErrorCode.PRODUCER_FENCED
    assert runtime.end(old).error_code is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_the_abort_raises_the_epoch_once(version):
    """B004 (KAFKA-19367): it was raised twice, and went below zero at the end."""
    runtime = TransactionRuntime(transaction_version=version)
    runtime.add(runtime.producer())
    runtime.init()
    runtime.write_markers()

    assert (runtime.state(), runtime.entry().producer_epoch) == ("CompleteAbort", 1)


def test_an_abort_that_uses_the_epochs_up_rotates_the_producer_id():
    """B004 (KAFKA-19367), B005 (KAFKA-20090): at the last epoch there was no next one."""
    runtime = at_epoch(32_766)
    runtime.add((1, 32_766))

    assert runtime.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = runtime.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (1, 32_767)
    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == (2, 0)
    assert runtime.producer() == (2, 1)


def test_in_version_1_the_next_one_to_ask_gets_the_new_producer_id():
    runtime = at_epoch(32_766, transaction_version=1)
    runtime.add((1, 32_766))
    runtime.init()
    runtime.write_markers()

    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == (1, 32_767)
    assert runtime.init(producer_id=1, epoch=32_766).error_code is ErrorCode.PRODUCER_FENCED
    assert runtime.producer() == (2, 0)


def test_an_abort_that_needs_a_producer_id_waits_for_one():
    runtime = at_epoch(32_766)
    runtime.add((1, 32_766))
    runtime.is_out_of_ids = True

    assert runtime.init().error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert runtime.state() == "Ongoing"


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_that_asks_while_its_own_end_is_prepared_succeeds_later(version):
    """B088: a single producer was told that it was fenced."""
    runtime = TransactionRuntime()
    producer_id, epoch = runtime.producer()
    runtime.add((producer_id, epoch))
    runtime.end((producer_id, epoch), version=version)

    assert runtime.init(producer_id=producer_id, epoch=epoch).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    runtime.write_markers()
    assert identity(runtime.init(producer_id=producer_id, epoch=epoch)) == (producer_id, 1)


def test_failed_rounds_use_no_epochs_up():  # KAFKA-9666
    runtime = TransactionRuntime()
    runtime.add(runtime.producer())
    runtime.commits_at_once = False

    for _ in range(40):
        waiting = runtime.init()
        runtime.fail_round()
        assert waiting.error_code is ErrorCode.NOT_COORDINATOR
    assert (runtime.state(), runtime.entry().producer_epoch) == ("Ongoing", 0)


# --- time-outs and bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked_ms", "holds_ms"), [(1, 1_000), (999, 1_000), (1_000, 1_000), (900_000, 900_000)])
def test_a_short_timeout_is_raised_to_the_shortest(asked_ms, holds_ms):
    runtime = TransactionRuntime()
    runtime.producer(timeout_ms=asked_ms)

    assert runtime.entry().timeout_ms == holds_ms


@pytest.mark.parametrize("asked_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_out_of_bounds_is_refused(asked_ms):
    runtime = TransactionRuntime()

    assert runtime.init(timeout_ms=asked_ms).error_code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert runtime.entry() is None


@pytest.mark.parametrize(("asked_ms", "holds_ms"), [(0, 1_000), (-1, 1_000), (5_000, 5_000), (900_001, 900_000)])
def test_a_timeout_out_of_bounds_is_brought_within_them_where_that_is_wanted(asked_ms, holds_ms):
    runtime = TransactionRuntime(clamps_timeout=True)
    runtime.producer(timeout_ms=asked_ms)

    assert runtime.entry().timeout_ms == holds_ms


def test_the_timeout_of_the_one_who_asked_last_holds():
    runtime = TransactionRuntime()
    runtime.producer(timeout_ms=5_000)
    runtime.producer(timeout_ms=7_000)

    assert runtime.entry().timeout_ms == 7_000


def test_there_are_only_so_many_transactional_ids():
    runtime = TransactionRuntime(transactional_ids_max=2)
    runtime.producer("a")
    runtime.producer("b")

    assert runtime.init("c").error_code is ErrorCode.POLICY_VIOLATION
    assert runtime.producer("a") == (1, 1)
