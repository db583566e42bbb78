"""EndTxn in both versions of the protocol, and what follows when the markers are written."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from tests.support.transaction_runtime import BILLS, ORDERS, TransactionRuntime, identity

NOBODY = (-1, -1)


def told(waiting):
    return waiting.error_code, waiting.outcome.producer_id, waiting.outcome.producer_epoch


# --- a transaction ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "epoch"), [(1, 0), (2, 1)])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_outcome_is_one_record_then_markers_then_one_record(version, epoch, is_commit):
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer, ORDERS, BILLS)

    runtime.end(producer, is_commit=is_commit, version=version)
    outcome = "Commit" if is_commit else "Abort"
    assert runtime.state() == f"Prepare{outcome}"
    (markers,) = runtime.write_markers()
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (1, epoch, is_commit)
    assert (markers.partitions, markers.transaction_version) == ((BILLS, ORDERS), version)
    assert (runtime.state(), runtime.entry().partitions) == (f"Complete{outcome}", ())


def test_markers_are_not_written_before_the_outcome_is_committed():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)
    runtime.commits_at_once = False
    ended = runtime.end(producer)

    assert (ended.is_done, runtime.effects) == (False, [])
    runtime.commit()
    assert (ended.is_done, len(runtime.effects)) == (True, 1)


def test_the_answer_does_not_wait_for_markers_and_gives_the_next_identity_in_version_2():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)

    assert told(runtime.end(producer)) == (ErrorCode.NONE, 1, 1)
    assert runtime.state() == "PrepareCommit"


def test_in_version_1_the_answer_gives_no_identity_and_the_epoch_stays():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)

    assert told(runtime.end(producer, version=1)) == (ErrorCode.NONE, *NOBODY)
    runtime.write_markers()
    assert runtime.add(producer).error_code is ErrorCode.NONE


def test_a_clients_version_may_change_from_one_transaction_to_the_next():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    for version, epoch in ((1, 0), (2, 1), (1, 1), (1, 1), (2, 2)):
        producer = runtime.run_transaction(producer, version=version)
        assert producer == (1, epoch)


# --- retries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_retry_gets_the_same_answer_and_writes_nothing(is_commit):
    runtime = TransactionRuntime()
    producer = runtime.producer()
    following = runtime.run_transaction(producer, is_commit=is_commit)
    log = list(runtime.log)

    for _ in range(3):
        assert identity(runtime.end(producer, is_commit=is_commit)) == following
        runtime.crash()
    assert runtime.log == log
    assert runtime.effects == []


def test_a_late_end_does_not_touch_the_next_transaction_in_version_2():
    """B001 (KAFKA-17754): a late end decided about the next transaction."""
    runtime = TransactionRuntime()
    producer = runtime.producer()
    following = runtime.run_transaction(producer)
    runtime.add(following, BILLS)

    for is_commit in (True, False):
        assert runtime.end(producer, is_commit=is_commit).error_code is ErrorCode.PRODUCER_FENCED
    assert (runtime.state(), runtime.entry().partitions) == ("Ongoing", (BILLS,))


def test_the_other_outcome_is_refused_and_nothing_changes():
    """B046: a contradicting end got success, though nothing changed."""
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.run_transaction(producer)

    assert identity(runtime.end(producer)) == (1, 1)
    assert runtime.end(producer, is_commit=False).error_code is ErrorCode.INVALID_TXN_STATE
    assert runtime.effects == []


def test_a_commit_that_meets_the_abort_of_a_timeout_is_fenced():
    """B007 (KAFKA-20785): the commit got INVALID_TXN_STATE."""
    runtime = TransactionRuntime()
    producer = runtime.producer(timeout_ms=5_000)
    runtime.add(producer)
    runtime.advance(20_001)

    assert runtime.end(producer).error_code is ErrorCode.PRODUCER_FENCED  # while the markers are being written as well
    runtime.write_markers()
    assert runtime.end(producer).error_code is ErrorCode.PRODUCER_FENCED
    assert identity(runtime.end(producer, is_commit=False)) == (1, 1)


# --- an abort of nothing ----------------------------------------------------------------------------------------


def test_an_abort_without_a_transaction_raises_the_epoch_each_time():
    """B061 (KIP-890): an empty abort did not raise the epoch."""
    runtime = TransactionRuntime()
    producer = runtime.producer()
    for epoch in (1, 2, 3):
        ended = runtime.end(producer, is_commit=False)
        (markers,) = runtime.write_markers()
        producer = identity(ended)
        assert (producer, markers.partitions, runtime.state()) == ((1, epoch), (), "CompleteAbort")


def test_an_abort_without_a_transaction_begins_when_it_is_decided():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.advance(700)
    runtime.end(producer, is_commit=False)

    assert runtime.entry().start_time_ms == runtime.now_ms


def test_a_commit_and_at_once_an_abort_of_nothing_does_not_fence_the_producer():
    """B002 (KAFKA-18464): the producer fenced itself."""
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)
    following = identity(runtime.end(producer))

    assert runtime.end(following, is_commit=False).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    runtime.write_markers()
    assert identity(runtime.end(following, is_commit=False)) == (1, 2)


# --- epochs that are used up ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_at_the_last_epoch_gives_a_new_producer_id(is_commit):
    runtime = TransactionRuntime()
    producer = runtime.last_epoch()
    runtime.add(producer)
    ended = runtime.end(producer, is_commit=is_commit)

    assert identity(ended) == (2, 0)
    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == (1, 32_767)
    (markers,) = runtime.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (1, 32_767)
    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == (2, 0)
    assert runtime.entry().last_producer_epoch == 32_766


def test_a_retry_across_the_change_of_the_producer_id_gets_the_same_answer():
    runtime = TransactionRuntime()
    producer = runtime.last_epoch()
    runtime.add(producer)
    runtime.end(producer)

    assert runtime.end(producer).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert runtime.end((2, 0), is_commit=False).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    runtime.write_markers()
    for _ in range(2):
        assert identity(runtime.end(producer)) == (2, 0)
        assert runtime.end(producer, is_commit=False).error_code is ErrorCode.INVALID_TXN_STATE
        runtime.crash()
    runtime.add((2, 0))
    assert runtime.end(producer).error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [1, 2])
def test_a_timeout_at_the_last_epoch_and_a_late_abort_end_the_transaction(version):
    """B005 (KAFKA-20090): the transaction stayed open for ever."""
    runtime = TransactionRuntime(transaction_version=version)
    producer = runtime.last_epoch()
    runtime.add(producer)
    runtime.advance(80_000)
    assert runtime.state() == "PrepareAbort"

    assert runtime.end(producer, is_commit=False, version=version).error_code in {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.PRODUCER_FENCED,
    }
    runtime.write_markers()
    late = runtime.end(producer, is_commit=False, version=version)
    assert told(late) == ((ErrorCode.NONE, 2, 0) if version == 2 else (ErrorCode.PRODUCER_FENCED, *NOBODY))
    assert runtime.producer()[0] == 2


@pytest.mark.parametrize("is_open", [True, False])
def test_without_a_producer_id_at_hand_the_end_is_to_be_asked_again(is_open):
    runtime = TransactionRuntime()
    producer = runtime.last_epoch()
    if is_open:
        runtime.add(producer)
    runtime.is_out_of_ids = True
    state = runtime.state()

    assert told(runtime.end(producer, is_commit=False)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *NOBODY)
    assert runtime.state() == state


def test_nobody_acts_at_the_epoch_that_only_markers_carry():
    runtime = TransactionRuntime(transaction_version=1)
    runtime.add(runtime.last_epoch())
    runtime.fence()
    runtime.write_markers()
    producer = (1, 32_767)
    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == producer

    assert runtime.add(producer).error_code is ErrorCode.PRODUCER_FENCED
    for version in (1, 2):
        assert runtime.end(producer, is_commit=False, version=version).error_code is ErrorCode.PRODUCER_FENCED


# --- markers ----------------------------------------------------------------------------------------------------


def test_markers_that_are_reported_twice_change_nothing():
    """B006: a marker that was sent again led nowhere."""
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)
    runtime.end(producer)
    (markers,) = runtime.write_markers()

    assert runtime.markers_written(markers).records == ()
    runtime.add((1, 1))
    assert runtime.markers_written(markers).records == ()
    assert runtime.state() == "Ongoing"


def test_markers_of_an_earlier_transaction_do_not_complete_a_later_one():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer)
    runtime.end(producer)
    (markers,) = runtime.write_markers()
    runtime.add((1, 1))
    runtime.end((1, 1))

    assert runtime.markers_written(markers).records == ()
    assert runtime.state() == "PrepareCommit"


def test_markers_of_what_is_not_known_are_nothing():
    runtime = TransactionRuntime()
    runtime.add(runtime.producer())
    runtime.end((1, 0))
    (markers,) = runtime.effects
    runtime.log.clear()
    runtime.crash()

    assert runtime.markers_written(markers).records == ()
