"""What a load, a failed round, a crash and the end of a shard leave; orphans."""

import pytest

from exactlog.core.model.decisions import UnknownRecord
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, InvariantError
from exactlog.core.model.ids import TopicPartition
from tests.support.transaction_runtime import BILLS, ID, ORDERS, START_MS, TransactionRuntime, identity


def prepared(runtime, *, is_commit=True, version=2):
    producer = runtime.producer()
    runtime.add(producer)
    return runtime.end(producer, is_commit=is_commit, version=version)


# --- a load -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_load_finishes_what_is_prepared(is_commit, version):
    runtime = TransactionRuntime()
    prepared(runtime, is_commit=is_commit, version=version)
    (before,) = runtime.effects
    runtime.crash()
    (markers,) = runtime.effects

    assert (markers.producer_epoch, markers.partitions) == (before.producer_epoch, before.partitions)
    assert (markers.is_commit, markers.transaction_version) == (is_commit, version)
    assert markers.coordinator_epoch == before.coordinator_epoch + 1
    runtime.write_markers()
    assert runtime.state() == ("CompleteCommit" if is_commit else "CompleteAbort")


def test_a_load_finishes_nothing_else():
    runtime = TransactionRuntime()
    runtime.producer("a")
    runtime.add(runtime.producer("b"), transactional_id="b")
    runtime.run_transaction(runtime.producer())
    runtime.crash()

    assert runtime.effects == []
    assert [runtime.state(each) for each in ("a", "b", ID)] == ["Empty", "Ongoing", "CompleteCommit"]


def test_a_record_that_cannot_be_read_is_told():
    with pytest.raises(DecodeError):
        TransactionRuntime().shard.restore(b"\x00\x00\x00\x01t", b"\x00\x09")


def test_records_of_other_kinds_outlive_a_rewrite():
    runtime = TransactionRuntime()
    runtime.shard.restore(b"\x00\x07x", b"kept")
    runtime.shard.restore(b"\x00\x08x", b"gone")
    runtime.shard.restore(b"\x00\x08x", None)

    assert list(runtime.shard.live_records()) == [UnknownRecord(b"\x00\x07x", b"kept")]


def test_what_is_live_gives_the_same_state_as_the_whole_log():
    runtime = TransactionRuntime()
    for name in ("a", "b", "c", "d"):
        producer = runtime.producer(name)
        runtime.add(producer, ORDERS, BILLS, transactional_id=name)
        if name != "a":
            runtime.end(producer, transactional_id=name, is_commit=name == "b")
        if name == "d":
            runtime.markers_written(runtime.effects.pop())
    rewritten = [(record.encode_key(), record.encode_value()) for record in runtime.shard.live_records()]

    assert len(rewritten) == 4
    assert list(runtime.replayed(rewritten).live_records()) == list(runtime.replayed(runtime.log).live_records())


def test_what_belongs_to_transactions_is_not_for_this_log():
    shard = TransactionRuntime().shard
    record = UnknownRecord(b"\x00\x07x", None)
    for call in (
        lambda: shard.restore(b"\x00\x07x", None, producer_id=1),
        lambda: shard.replay(record, producer_id=1),
        lambda: shard.replay_committed(record, producer_id=1),
        lambda: shard.restore_marker(1, is_commit=True),
        lambda: shard.replay_marker(1, is_commit=True),
        lambda: shard.replay_marker_committed(1, is_commit=False),
        lambda: shard.replay(object()),
    ):
        with pytest.raises(InvariantError):
            call()
    assert list(shard.pending_records()) == []


# --- a round that fails -----------------------------------------------------------------------------------------


def test_what_a_failed_round_held_never_happened():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.commits_at_once = False
    added, ended = runtime.add(producer), runtime.end(producer)
    assert runtime.state() == "PrepareCommit"
    runtime.fail_round()

    assert [added.error_code, ended.error_code] == [ErrorCode.NOT_COORDINATOR] * 2
    assert (runtime.state(), runtime.effects, runtime.shard.open_count) == ("Empty", [], 0)
    assert runtime.shard.find_by_producer(1) is runtime.entry()


def test_who_waits_for_markers_is_sent_away_when_a_round_fails():
    runtime = TransactionRuntime()
    following = identity(prepared(runtime))
    waiting = [runtime.add(following), runtime.add(following, is_told_at_once=True)]
    runtime.fail_round()

    assert [each.error_code for each in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    runtime.advance(1_000)
    runtime.write_markers()
    assert runtime.state() == "CompleteCommit"


def test_markers_that_somebody_writes_are_not_written_a_second_time():
    runtime = TransactionRuntime()
    prepared(runtime)
    runtime.commits_at_once = False
    runtime.init("another")
    runtime.fail_round()
    runtime.commit()

    assert len(runtime.effects) == 1
    runtime.write_markers()
    assert runtime.state() == "CompleteCommit"


def test_markers_are_written_again_where_the_complete_was_lost():
    runtime = TransactionRuntime()
    prepared(runtime)
    runtime.commits_at_once = False
    runtime.write_markers()
    runtime.fail_round()
    runtime.commit()

    assert runtime.state() == "PrepareCommit"
    assert len(runtime.effects) == 1
    runtime.write_markers()
    runtime.commit()
    assert runtime.state() == "CompleteCommit"


def test_they_are_written_again_although_the_next_transaction_was_prepared_too():
    runtime = TransactionRuntime()
    prepared(runtime, version=1)
    runtime.commits_at_once = False
    runtime.write_markers()
    runtime.add((1, 0), BILLS)
    runtime.end((1, 0), version=1)
    runtime.fail_round()
    runtime.commit()

    (markers,) = runtime.effects
    assert markers.partitions == (ORDERS,)


@pytest.mark.parametrize("version", [1, 2])
def test_nothing_is_written_that_markers_of_the_transaction_before_could_end(version):
    """Where Complete is lost they are written again; in version 1 at the epoch that the next transaction has too."""
    runtime = TransactionRuntime()
    ended = prepared(runtime, version=version)
    following = identity(ended) if version >= 2 else (1, 0)
    parked = runtime.add(following, is_told_at_once=True)
    runtime.commits_at_once = False
    runtime.write_markers()
    verified = runtime.add(following, is_told_at_once=True, verify_only=True)
    assert runtime.state() == "Ongoing"

    assert [parked.is_done, verified.is_done] == [version >= 2] * 2
    runtime.commit()
    assert parked.error_code is verified.error_code is ErrorCode.NONE


def test_who_waits_when_the_shard_is_given_up_is_named_once():
    runtime = TransactionRuntime()
    following = identity(prepared(runtime))
    waiting = [runtime.add(following), runtime.add(following)]

    assert runtime.shard.resign() == waiting
    assert runtime.shard.resign() == []


# --- what can be seen -------------------------------------------------------------------------------------------


def test_what_is_shown_is_what_is_committed():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.commits_at_once = False
    runtime.add(producer, ORDERS, BILLS)

    assert runtime.shard.describe(ID).state == "Empty"
    runtime.commit()
    shown = runtime.shard.describe(ID)
    assert (shown.state, shown.partitions, shown.start_time_ms) == ("Ongoing", (BILLS, ORDERS), START_MS)
    assert (shown.producer_id, shown.producer_epoch, shown.timeout_ms) == (1, 0, 60_000)
    assert runtime.shard.transactions() == [shown]
    assert runtime.shard.describe("nobody") is None


# --- orphans ----------------------------------------------------------------------------------------------------


def abort_orphan(runtime, producer, partition=ORDERS):
    return runtime.decide(
        lambda waiter: runtime.shard.abort_orphan(*producer, partition, waiter, now_ms=runtime.now_ms)
    ).error_code


@pytest.mark.parametrize("version", [1, 2])
def test_an_orphan_of_nobody_is_aborted_at_the_next_epoch(version):
    runtime = TransactionRuntime(transaction_version=version)

    assert abort_orphan(runtime, (50, 3)) is ErrorCode.NONE
    (markers,) = runtime.write_markers()
    assert (markers.producer_id, markers.producer_epoch, markers.partitions) == (50, 4, (ORDERS,))
    assert (markers.is_commit, markers.transactional_id) == (False, "")
    assert runtime.log == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_ended", [True, False])
def test_the_entry_moves_with_the_epoch_of_its_orphan(version, is_ended):
    runtime = TransactionRuntime(transaction_version=version)
    producer = runtime.producer()
    if is_ended:
        producer = runtime.run_transaction(producer, version=version)

    assert abort_orphan(runtime, producer, BILLS) is ErrorCode.NONE
    (markers,) = runtime.effects
    assert (markers.transactional_id, markers.partitions) == (ID, (BILLS,))
    assert (markers.is_commit, markers.producer_epoch) == (False, producer[1] + 1)
    runtime.crash()  # it is finished although the process dies
    runtime.write_markers()
    assert (runtime.state(), runtime.entry().producer_epoch) == ("CompleteAbort", producer[1] + 1)
    assert runtime.add(producer).error_code is ErrorCode.PRODUCER_FENCED
    assert identity(runtime.init(producer_id=producer[0], epoch=producer[1])) == (1, producer[1] + 1)


@pytest.mark.parametrize("version", [1, 2])
def test_an_open_transaction_is_aborted_with_its_orphan(version):
    runtime = TransactionRuntime(transaction_version=version)
    producer = runtime.producer()
    runtime.add(producer, ORDERS)

    abort_orphan(runtime, producer, BILLS)
    (markers,) = runtime.write_markers()
    assert (markers.partitions, markers.producer_epoch) == ((BILLS, ORDERS), 1)
    assert runtime.end(producer).error_code is ErrorCode.PRODUCER_FENCED


def test_a_partition_that_a_transaction_lists_is_no_orphan():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer, ORDERS)
    assert abort_orphan(runtime, producer, ORDERS) is ErrorCode.NONE
    assert (runtime.state(), runtime.effects) == ("Ongoing", [])

    runtime.end(producer)
    runtime.effects.clear()
    assert abort_orphan(runtime, producer, ORDERS) is ErrorCode.NONE
    assert runtime.effects == []


def test_data_at_the_epoch_of_the_markers_is_of_the_next_transaction_and_is_aborted():
    """The crash ate Complete and the next Ongoing, and left data of the next transaction behind."""
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer, ORDERS, BILLS)
    following = identity(runtime.end(producer))
    runtime.crash()
    (first,) = runtime.effects

    assert abort_orphan(runtime, following, ORDERS) is ErrorCode.NONE
    _, second = runtime.effects
    assert (second.is_commit, second.producer_epoch, second.partitions) == (False, 2, (ORDERS,))
    assert runtime.markers_written(first).records == ()
    runtime.markers_written(second)
    assert (runtime.state(), runtime.entry().producer_epoch) == ("CompleteAbort", 2)
    assert runtime.add(following).error_code is ErrorCode.PRODUCER_FENCED


def test_data_of_a_prepared_transaction_is_ended_by_its_markers_in_version_1_too():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    runtime.add(producer, ORDERS)
    runtime.end(producer, version=1)
    runtime.effects.clear()

    assert abort_orphan(runtime, producer, ORDERS) is ErrorCode.NONE
    assert (runtime.state(), runtime.effects) == ("PrepareCommit", [])


def test_an_orphan_of_an_earlier_epoch_leaves_the_entry_alone():
    runtime = TransactionRuntime()
    producer = runtime.producer()
    following = runtime.run_transaction(producer)
    runtime.add(following, ORDERS)
    abort_orphan(runtime, producer, ORDERS)

    (markers,) = runtime.effects
    assert (markers.transactional_id, markers.producer_epoch) == ("", 1)
    assert runtime.state() == "Ongoing"


def test_an_orphan_at_the_last_epoch_takes_a_new_producer_id():
    runtime = TransactionRuntime()
    producer = runtime.last_epoch()
    runtime.is_out_of_ids = True
    assert abort_orphan(runtime, producer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    runtime.is_out_of_ids = False

    abort_orphan(runtime, producer)
    (markers,) = runtime.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (1, 32_767)
    assert (runtime.entry().producer_id, runtime.entry().producer_epoch) == (2, 0)


def test_an_orphan_at_an_epoch_of_markers_is_aborted_at_that_epoch():
    runtime = TransactionRuntime()
    abort_orphan(runtime, (50, 32_767), TopicPartition("t", 1))

    assert runtime.effects[0].producer_epoch == 32_767
