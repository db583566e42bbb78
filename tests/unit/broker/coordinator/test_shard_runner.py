"""What a coordinator decides is answered once it is committed, and not at all when it never will be."""

import asyncio

import pytest

from exactlog.broker.coordinator import shard_runner
from exactlog.broker.coordinator.loading import load_shard
from exactlog.core.model.decisions import Answer, Decision
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import EncodeError
from exactlog.core.record.batch_format import iter_headers
from exactlog.storage.round import StorageRefused
from tests.support.partitions import DataDirectory
from tests.support.shard_runtime import Numbers, Outcome, Put, Shard, Waiter


@pytest.fixture
def directory():
    with DataDirectory() as directory:
        yield directory


@pytest.fixture
async def shard(directory):
    return await Shard(directory, directory.make()).load()


async def test_an_answer_leaves_when_its_records_are_committed(shard):
    waiter = shard.put("a", 1)
    taken = shard.rounds.take()
    assert waiter.told == []
    assert shard.machine.committed == {}

    shard.rounds.finish(taken)
    assert waiter.told == [1]
    assert shard.machine.committed == {"a": 1}


async def test_an_answer_without_records_waits_for_what_it_may_tell_of(shard):
    put, get = shard.put("a", 1), shard.get("a")
    assert get.told == []
    shard.rounds.run()
    assert (put.told, get.told) == ([1], [1])
    assert shard.get("a").told == [1], "nothing is undecided: it leaves at once"


async def test_what_is_decided_while_a_round_runs_is_one_batch_of_the_next(shard):
    first = shard.put("a", 1)
    taken = shard.rounds.take()
    later = [shard.put("b", number) for number in range(50)]
    shard.rounds.finish(taken)
    assert first.told == [1]
    assert [waiter.told for waiter in later] == [[]] * 50

    assert shard.rounds.run() == 1
    assert [waiter.told for waiter in later] == [[number] for number in range(50)]
    assert shard.partition.high_watermark == 51
    batches = shard.partition.committed.read(0, end_offset=51, bytes_max=1 << 20, at_least_one_batch=True)
    assert [header.record_count for _, header in iter_headers(batches)] == [1, 50]


async def test_when_the_disk_refuses_nothing_of_it_happened_and_everybody_is_sent_away(shard):
    shard.put("a", 1)
    shard.rounds.run()
    lost, asked, parked = shard.put("a", 2), shard.get("a"), shard.park("p")
    taken = shard.rounds.take()
    later = shard.put("a", 3)

    shard.rounds.finish(taken, [StorageRefused("no space left", 0)])
    assert lost.told == asked.told == later.told == [ErrorCode.NOT_COORDINATOR]
    assert parked.told == [-1]
    assert shard.machine.head == shard.machine.committed == {"a": 1}

    again = shard.put("a", 4)
    shard.rounds.run()
    assert again.told == [4]
    assert shard.machine.committed == {"a": 4}


async def test_a_failed_partition_makes_the_shard_unusable(shard):
    waiter = shard.put("a", 1)
    shard.partition.fail("on purpose")
    shard.rounds.take()
    assert waiter.told == [ErrorCode.NOT_COORDINATOR]
    assert not shard.runner.is_usable


async def test_a_timer_decides_by_itself(shard):
    waiter = shard.park("p", delay_ms=100)
    shard.clock.time_ms += 100
    shard.timers.look()
    assert waiter.told == []
    shard.rounds.run()
    assert waiter.told == [0]
    assert shard.machine.committed == {"p": 0}


async def test_a_timer_that_was_taken_back_decides_nothing(shard):
    shard.park("p", delay_ms=100)
    shard.runner.decide(lambda machine, _: machine.unpark("p"))
    shard.clock.time_ms += 100
    shard.timers.look()
    assert shard.machine.head == {}


async def test_what_is_decided_can_be_written_down_before_the_shard_resigns(shard, directory):
    waiter = shard.put("a", 1)
    shard.runner.append_decided()
    shard.runner.resign()
    assert waiter.told == [ErrorCode.NOT_COORDINATOR]

    shard.rounds.run()
    again = await Shard(directory, shard.partition).load()

    assert again.machine.committed == {"a": 1}


async def test_who_resigns_sends_everybody_away_and_decides_nothing_more(shard):
    put, parked = shard.put("a", 1), shard.park("p")
    taken = shard.rounds.take()
    shard.runner.resign()
    assert put.told == parked.told == [ErrorCode.NOT_COORDINATOR]
    assert not shard.runner.is_usable

    shard.rounds.finish(taken)
    shard.clock.time_ms += 1_000
    shard.timers.look()
    assert put.told == parked.told == [ErrorCode.NOT_COORDINATOR], "told once"


async def test_rules_that_break_stop_their_shard_and_send_everybody_away(shard):
    parked = shard.park("p")

    def break_down(machine, now_ms):
        raise AssertionError("on purpose")

    shard.runner.decide(break_down)
    assert parked.told == [ErrorCode.NOT_COORDINATOR]
    assert not shard.runner.is_usable


@pytest.mark.parametrize("is_parked", [False, True])
async def test_who_asks_when_rules_break_is_sent_away_once(shard, is_parked):
    def break_down(machine, waiter):
        if is_parked:
            machine.park("p", waiter, 100)
        raise AssertionError("on purpose")

    assert shard.ask(break_down).told == [ErrorCode.NOT_COORDINATOR]


async def test_a_record_that_cannot_be_taken_in_stops_the_shard_and_nobody_is_left_waiting(shard):
    bystander = Waiter()

    def put(machine, waiter):
        answers = (Answer(waiter, Outcome(1)), Answer(bystander, Outcome(1)))
        return Decision(records=(Put("a", 1),), answers=answers)

    def refuse(record, producer_id=None):
        raise AssertionError("on purpose")

    shard.machine.replay = refuse
    assert shard.ask(put).told == bystander.told == [ErrorCode.NOT_COORDINATOR]
    assert not shard.runner.is_usable


async def test_who_asks_a_shard_that_was_given_up_meanwhile_is_sent_away(shard):
    shard.put("a", 1)
    shard.runner.resign()
    put, parked, read = shard.put("b", 1), shard.park("p"), []
    shard.runner.when_committed(read.append)
    assert put.told == parked.told == read == [ErrorCode.NOT_COORDINATOR]
    shard.clock.time_ms += 1_000
    shard.timers.look()
    assert parked.told == [ErrorCode.NOT_COORDINATOR], "no timer was set"


async def test_a_reset_that_breaks_stops_the_shard_alone_and_the_rest_is_told(shard):
    def refuse(*, now_ms):
        raise AssertionError("on purpose")

    shard.machine.reset = refuse
    lost, parked = shard.put("a", 1), shard.park("p")
    told = []
    taken = shard.rounds.take()
    shard.partition.when_committed(told.append)
    shard.rounds.finish(taken, [StorageRefused("no space left", 0)])
    assert lost.told == parked.told == [ErrorCode.NOT_COORDINATOR]
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert shard.partition.failure is None


async def test_a_load_finds_what_a_shard_that_was_given_up_still_had_on_its_way(shard):
    put = shard.put("a", 1)
    taken = shard.rounds.take()
    shard.runner.resign()
    assert put.told == [ErrorCode.NOT_COORDINATOR], "what came of it was not known"

    machine = Numbers()
    loading = asyncio.ensure_future(load_shard(shard.partition, machine, is_wanted=lambda: True))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not loading.done()
    shard.rounds.finish(taken)
    await loading
    assert machine.head == machine.committed == {"a": 1}


async def test_a_load_finds_what_was_committed(directory, shard):
    for name, number in (("a", 1), ("b", 2), ("a", 3), ("b", None)):
        shard.put(name, number)
        shard.rounds.run()
    shard.put("c", 4)  # a crash: this one is lost, and nobody was told

    directory.restart()
    again = await Shard(directory, directory.open()).load()
    assert again.machine.head == again.machine.committed == {"a": 3}


async def test_the_log_is_bounded_by_writing_anew_what_is_live(directory, shard, monkeypatch):
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 2_000)
    for number in range(500):
        waiter = shard.put(f"name-{number % 7}", number)
        shard.rounds.run()
        shard.rounds.run()  # the log start moves in a round of its own
        assert waiter.told == [number]

    partition = shard.partition
    assert partition.high_watermark - partition.log_start_offset < 60
    directory.restart()
    again = await Shard(directory, directory.open()).load()
    assert again.machine.head == shard.machine.head
    assert len(again.machine.head) == 7


async def test_a_rewrite_that_the_disk_refuses_changes_nothing(directory, shard, monkeypatch):
    for number in range(20):
        shard.put(f"name-{number}", number)
        shard.rounds.run()
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 100)
    waiter = shard.put("one", 1)
    shard.rounds.finish(shard.rounds.take(), [StorageRefused("no space left", 0)])
    assert waiter.told == [ErrorCode.NOT_COORDINATOR]
    assert shard.partition.log_start_offset == 0

    waiter = shard.put("one", 2)
    shard.rounds.run()
    shard.rounds.run()
    assert waiter.told == [2]
    directory.restart()
    again = await Shard(directory, directory.open()).load()
    assert again.machine.head == {f"name-{number}": number for number in range(20)} | {"one": 2}


async def test_a_decision_that_cannot_be_written_down_fails_alone(shard):
    class Unwritable(Put, frozen=True):
        def encode_value(self):
            raise EncodeError("on purpose")

    def put(machine, waiter):
        return Decision(records=(Put("a", 9), Unwritable("b", 1)), answers=(Answer(waiter, Outcome(1)),))

    shard.put("a", 1)
    refused, later = shard.ask(put), shard.put("c", 2)
    assert refused.told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    shard.rounds.run()
    assert later.told == [2]
    assert shard.machine.head == shard.machine.committed == {"a": 1, "c": 2}


class Deaf(Waiter):
    """Breaks when it is told something."""

    def answer(self, outcome):
        super().answer(outcome)
        raise AssertionError("on purpose")

    def fail(self, error_code):
        super().fail(error_code)
        raise AssertionError("on purpose")


def tell_all(waiters, *, at_once):
    """A decision that tells each of them something."""
    answers = tuple(Answer(waiter, Outcome(number)) for number, waiter in enumerate(waiters))
    return Decision(told_at_once=answers) if at_once else Decision(answers=answers)


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "once it is committed"])
@pytest.mark.parametrize("place_of_deaf", range(3))
async def test_each_is_told_whichever_of_them_breaks_when_told(shard, at_once, place_of_deaf):
    waiters = [Deaf() if place == place_of_deaf else Waiter() for place in range(3)]
    before = shard.put("a", 1)

    shard.runner.decide(lambda machine, _: tell_all(waiters, at_once=at_once))
    shard.rounds.run()

    assert [waiter.told for waiter in waiters] == [[0], [1], [2]]
    assert before.told == [1]
    assert shard.runner.is_usable


async def test_who_asks_has_an_error_of_its_own_once_the_others_are_told(shard):
    waiters = [Waiter(), Deaf(), Waiter()]

    with pytest.raises(AssertionError, match="on purpose"):
        shard.runner.decide(lambda machine, _: tell_all(waiters, at_once=True), asker=waiters[1])

    assert [waiter.told for waiter in waiters] == [[0], [1], [2]]
    assert shard.runner.is_usable


@pytest.mark.parametrize("end", ["a round fails", "it resigns"])
async def test_each_is_sent_away_whichever_of_them_breaks_when_told(shard, end):
    waiters = [Waiter(), Deaf(), Waiter()]
    shard.put("a", 1)
    shard.runner.decide(lambda machine, _: tell_all(waiters, at_once=False))
    shard.runner.when_committed(waiters[1].fail)
    last = []
    shard.runner.when_committed(last.append)

    if end == "it resigns":
        shard.runner.resign()
    else:
        shard.rounds.finish(shard.rounds.take(), [StorageRefused("no space left", 0)])

    assert [waiter.told[0] for waiter in waiters] == [ErrorCode.NOT_COORDINATOR] * 3
    assert last == [ErrorCode.NOT_COORDINATOR]
