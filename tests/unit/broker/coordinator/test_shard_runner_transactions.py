"""Records in transactions: pending until a marker says that they count, through failed rounds, loads and rewrites."""

import pytest

from exactlog.broker.coordinator import shard_runner
from exactlog.core.model.decisions import Answer, Decision, ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import EncodeError
from exactlog.core.record.batch_format import iter_headers
from exactlog.storage.round import StorageRefused
from tests.support.partitions import DataDirectory
from tests.support.shard_runtime import Outcome, Put, Shard, Waiter


@pytest.fixture
def directory():
    with DataDirectory() as directory:
        yield directory


@pytest.fixture
async def shard(directory):
    return await Shard(directory, directory.make()).load()


async def reloaded(directory):
    """The same shard after a crash."""
    directory.restart()
    return await Shard(directory, directory.open()).load()


def batches_of(partition):
    """The batches in the log: producer, whether control, how many records."""
    end_offset = partition.high_watermark
    content = partition.committed.read(
        partition.log_start_offset, end_offset=end_offset, bytes_max=1 << 20, at_least_one_batch=True
    )
    return [
        (header.producer_id if header.is_transactional else None, header.is_control, header.record_count)
        for _, header in iter_headers(content)
    ]


# --- pending, and its end ---------------------------------------------------------------------------------------


async def test_a_pending_record_counts_once_its_transaction_commits(shard):
    waiter = shard.put_pending("a", 1)
    assert waiter.told == []
    shard.rounds.run()
    assert waiter.told == [1]
    assert shard.machine.committed == {}
    assert shard.machine.pending_committed == {1: {"a": 1}}

    told = shard.end()
    assert shard.machine.head == {"a": 1}, "who decides next sees the end of the transaction"
    assert (told, shard.machine.committed) == ([], {})
    shard.rounds.run()
    assert told == [ErrorCode.NONE]
    assert shard.machine.committed == {"a": 1}
    assert shard.machine.pending_committed == {}


async def test_an_aborted_record_never_counts(shard):
    shard.put_pending("a", 1)
    told = shard.end(is_commit=False)
    shard.rounds.run()
    assert told == [ErrorCode.NONE]
    assert shard.machine.head == shard.machine.committed == {}
    assert shard.machine.pending == shard.machine.pending_committed == {}


async def test_the_log_keeps_the_order_in_which_was_decided(shard):
    shard.put("a", 1)
    shard.put("b", 1)
    shard.put_pending("a", 2, producer=7)
    shard.put("c", 3)
    shard.put_pending("a", 4, producer=8)
    shard.put("a", 5)
    shard.end(producer=7)
    shard.put("d", 5)
    assert shard.rounds.run() == 1, "one round has all of it"
    assert batches_of(shard.partition) == [
        (None, False, 2),
        (7, False, 1),
        (None, False, 1),
        (8, False, 1),
        (None, False, 1),
        (7, True, 1),
        (None, False, 1),
    ]


async def test_an_answer_waits_for_pending_records_and_markers_before_it(shard):
    shard.put_pending("a", 1)
    behind_record = shard.get("a")
    shard.rounds.run()
    shard.end()
    behind_marker = shard.get("a")
    assert (behind_record.told, behind_marker.told) == ([None], [])
    shard.rounds.run()
    assert behind_marker.told == [1]


# --- refusals ---------------------------------------------------------------------------------------------------


async def test_a_producer_that_was_fenced_is_refused_and_hurts_nobody(shard):
    shard.put_pending("a", 1, epoch=3)
    shard.rounds.run()
    shard.end(epoch=4, is_commit=False)
    bystander = shard.put("b", 1)
    zombie = shard.put_pending("a", 2, epoch=3)
    behind = shard.put("c", 1)
    assert zombie.told == [], "that it is fenced is not committed yet"
    assert shard.machine.pending == {}
    shard.rounds.run()
    assert (bystander.told, zombie.told, behind.told) == ([1], [ErrorCode.INVALID_PRODUCER_EPOCH], [1])
    assert shard.machine.committed == {"b": 1, "c": 1}


async def test_a_marker_of_a_coordinator_that_is_no_more_changes_nothing(shard):
    shard.put_pending("a", 1)
    shard.end(coordinator_epoch=5, is_commit=False)
    shard.put_pending("a", 2)
    refused = shard.end(coordinator_epoch=4)
    assert refused == [], "that there is a newer one is not committed yet"
    shard.rounds.run()
    assert refused == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert shard.machine.head == {}
    assert shard.machine.pending_committed == {1: {"a": 2}}


async def test_who_was_refused_by_what_failed_then_may_try_again(shard):
    shard.put_pending("a", 1, epoch=3)
    shard.rounds.run()
    shard.end(epoch=4, coordinator_epoch=5, is_commit=False)
    zombie, marker = shard.put_pending("a", 2, epoch=3), shard.end(epoch=4, coordinator_epoch=4)
    shard.rounds.finish(shard.rounds.take(), [StorageRefused("no space left", 0)])
    assert zombie.told == marker == [ErrorCode.NOT_COORDINATOR]
    assert shard.machine.pending == {1: {"a": 1}}


async def test_who_decides_on_after_a_failed_round_does_so_by_what_is_left(shard):
    shard.put("a", 1)
    shard.rounds.run()
    shard.put("a", 2)
    found = []
    shard.runner.when_committed(lambda error: found.append(shard.get("a").told))
    shard.rounds.finish(shard.rounds.take(), [StorageRefused("no space left", 0)])
    assert found == [[1]]


async def test_a_partition_that_takes_nothing_any_more_sends_everybody_away(shard):
    waiting = shard.put("a", 1)
    shard.partition.fail("on purpose")
    pending, told = shard.put_pending("b", 1), shard.end()
    assert waiting.told == pending.told == told == [ErrorCode.NOT_COORDINATOR]
    assert shard.machine.head == {}
    assert shard.machine.pending == {}


async def test_a_failed_round_forgets_pending_records_and_markers(shard):
    shard.put_pending("a", 1)
    shard.rounds.run()
    ended, later = shard.end(), shard.put_pending("b", 2, producer=2)
    read = shard.get("a")
    shard.rounds.finish(shard.rounds.take(), [StorageRefused("no space left", 0)])
    assert ended == later.told == read.told == [ErrorCode.NOT_COORDINATOR]
    assert shard.machine.head == {}
    assert shard.machine.pending == shard.machine.pending_committed == {1: {"a": 1}}

    again = shard.end()
    shard.rounds.run()
    assert again == [ErrorCode.NONE]
    assert shard.machine.committed == {"a": 1}


async def test_a_shard_that_was_given_up_writes_no_marker(shard):
    shard.put_pending("a", 1)
    shard.rounds.run()
    shard.runner.resign()
    assert shard.end() == [ErrorCode.NOT_COORDINATOR]
    assert shard.put_pending("b", 1).told == [ErrorCode.NOT_COORDINATOR]
    assert shard.rounds.run() == 0


async def test_rules_that_break_at_a_marker_stop_their_shard_and_who_waits_is_told_once(shard):
    parked = shard.park("p")

    def refuse(producer_id, *, is_commit):
        raise AssertionError("on purpose")

    shard.machine.replay_marker = refuse
    assert shard.end() == parked.told == [ErrorCode.NOT_COORDINATOR]
    assert not shard.runner.is_usable


# --- told at once, and effects ----------------------------------------------------------------------------------


async def test_who_is_told_at_once_does_not_wait_for_the_round_and_the_others_do(shard):
    told, waiting = Waiter(), Waiter()
    decision = Decision(
        records=(Put("a", 1),),
        answers=(Answer(waiting, Outcome(1)),),
        told_at_once=(Answer(told, Outcome(2)),),
    )
    seen = []
    told.answer = lambda outcome: seen.append((outcome.number, dict(shard.machine.head)))
    shard.runner.decide(lambda machine, now_ms: decision)
    assert seen == [(2, {"a": 1})], "by then it is decided"
    assert waiting.told == []
    shard.rounds.run()
    assert (len(seen), waiting.told) == (1, [1])


async def test_who_is_told_at_once_may_decide_on(shard):
    told = Waiter()
    told.answer = lambda outcome: shard.put("b", 2)
    shard.runner.decide(lambda machine, now_ms: Decision(records=(Put("a", 1),), told_at_once=(Answer(told, None),)))
    assert shard.machine.head == {"a": 1, "b": 2}
    assert shard.rounds.run() == 1
    assert batches_of(shard.partition) == [(None, False, 2)]


async def test_an_error_of_who_is_told_at_once_is_his_own(shard):
    told = Waiter()

    def break_down(outcome):
        raise ZeroDivisionError

    told.answer = break_down
    with pytest.raises(ZeroDivisionError):
        shard.runner.decide(lambda machine, now_ms: Decision(told_at_once=(Answer(told, None),)), asker=told)
    assert shard.runner.is_usable
    assert told.told == []


async def test_an_effect_waits_for_what_was_decided_before_it(shard):
    waiter = Waiter()
    decision = Decision(records=(Put("a", 1),), answers=(Answer(waiter, Outcome(1)),), effects=(Outcome(7),))
    shard.runner.decide(lambda machine, now_ms: decision)
    assert shard.effects == []
    shard.rounds.run()
    assert (waiter.told, shard.effects) == ([1], [Outcome(7)])


async def test_an_effect_of_a_decision_that_failed_never_happens(shard):
    for end in (
        lambda: shard.rounds.finish(shard.rounds.take(), [StorageRefused("no space left", 0)]),
        shard.runner.resign,
    ):
        shard.runner.decide(lambda machine, now_ms: Decision(records=(Put("a", 1),), effects=(Outcome(7),)))
        end()
    shard.rounds.run()
    assert shard.effects == []


async def test_an_effect_that_breaks_stops_its_shard(shard):
    def break_down(effect):
        raise AssertionError("on purpose")

    shard.runner._on_effect = break_down
    parked = shard.park("p")
    shard.runner.decide(lambda machine, now_ms: Decision(records=(Put("a", 1),), effects=(Outcome(7),)))
    shard.rounds.run()
    assert parked.told == [ErrorCode.NOT_COORDINATOR]
    assert not shard.runner.is_usable
    assert shard.partition.failure is None


@pytest.mark.parametrize("producer", [None, ProducerIdentity(1, 0)])
async def test_a_decision_that_cannot_be_written_down_tells_everybody_so_once(shard, producer):
    class Unwritable(Put, frozen=True):
        def encode_value(self):
            raise EncodeError("on purpose")

    first, second = Waiter(), Waiter()
    decision = Decision(
        records=(Unwritable("a", 1),),
        answers=(Answer(first, Outcome(1)), Answer(second, Outcome(1))),
        told_at_once=(Answer(second, Outcome(1)),),
        effects=(Outcome(7),),
        producer=producer,
    )
    shard.runner.decide(lambda machine, now_ms: decision, asker=first)
    shard.rounds.run()
    assert first.told == second.told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert shard.effects == []
    assert shard.runner.is_usable


# --- loads and rewrites -----------------------------------------------------------------------------------------


async def test_a_load_finds_open_transactions_and_what_became_of_the_others(directory, shard):
    shard.put("a", 1)
    shard.put_pending("b", 2, producer=1)
    shard.put_pending("c", 3, producer=2)
    shard.put_pending("d", 4, producer=3)
    shard.end(producer=1)
    shard.end(producer=2, is_commit=False)
    shard.rounds.run()
    shard.end(producer=3)  # a crash: it never happened

    again = await reloaded(directory)
    assert again.machine.head == again.machine.committed == {"a": 1, "b": 2}
    assert again.machine.pending == again.machine.pending_committed == {3: {"d": 4}}
    again.end(producer=3)
    again.rounds.run()
    assert again.machine.committed == {"a": 1, "b": 2, "d": 4}


async def test_a_rewrite_keeps_open_transactions_and_lets_go_once_they_have_ended(directory, shard, monkeypatch):
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 1_000)
    shard.put("before", 0)
    shard.put_pending("p", 1, producer=1)
    for number in range(100):
        shard.put(f"name-{number % 3}", number)
        shard.rounds.run()
        shard.rounds.run()
    partition = shard.partition
    assert partition.log_start_offset == partition.last_stable_offset == 1
    written = [number for number, batch in enumerate(batches_of(partition)) if batch == (1, False, 1)]
    assert len(written) > 1, "it is said again behind the live values"

    again = await reloaded(directory)
    partition = again.partition
    assert again.machine.head == {"before": 0, "name-0": 99, "name-1": 97, "name-2": 98}
    assert again.machine.pending == {1: {"p": 1}}
    for number in range(100):  # so that there is a rewrite with the transaction still open
        again.put("name-0", number)
        again.rounds.run()
    again.end(producer=1)
    again.rounds.run()
    again.rounds.run()
    assert partition.log_start_offset > 100
    last = await reloaded(directory)
    assert (
        last.machine.head == last.machine.committed == {"before": 0, "name-0": 99, "name-1": 97, "name-2": 98, "p": 1}
    )
    assert last.machine.pending == {}


async def test_a_log_of_nothing_but_transactions_is_bounded_too(directory, shard, monkeypatch):
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 2_000)
    for number in range(300):
        shard.put_pending("a", number, producer=number % 5)
        shard.end(producer=number % 5, is_commit=number % 2 == 0)
        shard.rounds.run()
        shard.rounds.run()
    partition = shard.partition
    assert partition.high_watermark - partition.log_start_offset < 60
    again = await reloaded(directory)
    assert again.machine.head == shard.machine.head == {"a": 298}


async def test_a_rewrite_carries_the_epoch_that_the_open_transaction_has(shard, monkeypatch):
    shard.put_pending("p", 1, epoch=6)
    shard.rounds.run()
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 10)
    shard.put("a", 1)
    shard.rounds.run()
    assert shard.machine.pending_committed == {1: {"p": 1}}
    (open_transaction,) = shard.partition.open_transactions()
    assert (open_transaction.producer_epoch, open_transaction.txn_start_offset) == (6, 0)
    assert batches_of(shard.partition) == [(1, False, 1), (None, False, 1), (None, False, 1), (1, False, 1)]
