"""Timers go off once, in order, by the broker's clock."""

import asyncio

import pytest

from exactlog.broker.timers import Timers
from tests.support.partitions import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


class Gone(list):
    def note(self, key):
        return lambda: self.append(key)


async def test_they_go_off_in_the_order_they_are_due(clock):
    timers, gone = Timers(asyncio.get_running_loop(), clock), Gone()
    for key, delay_ms in (("late", 30), ("early", 10), ("middle", 20)):
        timers.set(key, delay_ms, gone.note(key))

    clock.time_ms += 20
    timers.look()
    assert gone == ["early", "middle"]

    clock.time_ms += 10
    timers.look()
    assert gone == ["early", "middle", "late"]


async def test_a_key_has_one_due_time_the_last_one_set(clock):
    timers, gone = Timers(asyncio.get_running_loop(), clock), Gone()
    timers.set("key", 10, gone.note("first"))
    timers.set("key", 50, gone.note("second"))

    clock.time_ms += 10
    timers.look()
    assert gone == []

    clock.time_ms += 40
    timers.look()
    timers.look()
    assert gone == ["second"]


async def test_what_was_taken_back_does_not_go_off(clock):
    timers, gone = Timers(asyncio.get_running_loop(), clock), Gone()
    timers.set("key", 10, gone.note("key"))
    timers.cancel("key")
    timers.cancel("one that never was")

    clock.time_ms += 10
    timers.look()
    assert gone == []


async def test_one_that_goes_off_may_set_itself_again(clock):
    timers, gone = Timers(asyncio.get_running_loop(), clock), Gone()

    def again():
        gone.append(clock.time_ms)
        timers.set("key", 10, again)

    timers.set("key", 10, again)
    for _ in range(3):
        clock.time_ms += 10
        timers.look()
    assert len(gone) == 3


async def test_keys_that_are_set_again_and_again_do_not_pile_up(clock):
    timers = Timers(asyncio.get_running_loop(), clock)
    for _ in range(10_000):
        timers.set("key", 1_000, lambda: None)
    assert len(timers._heap) < 200


async def test_the_loop_wakes_them_when_they_are_due():
    class LoopClock:
        def now_ms(self):
            raise AssertionError("timers run on monotonic time")

        def monotonic_ms(self):
            return int(asyncio.get_running_loop().time() * 1000)

    timers = Timers(asyncio.get_running_loop(), LoopClock())
    gone = asyncio.Event()
    timers.set("far", 60_000, lambda: None)
    timers.set("near", 5, gone.set)
    await asyncio.wait_for(gone.wait(), 10)
    timers.stop()


async def test_nothing_goes_off_after_the_stop(clock):
    timers, gone = Timers(asyncio.get_running_loop(), clock), Gone()
    timers.set("key", 10, gone.note("key"))
    timers.stop()
    clock.time_ms += 10
    timers.look()
    timers.set("key", 0, gone.note("later"))
    timers.look()
    assert gone == []


async def test_one_that_fails_does_not_keep_the_others_from_going_off(clock, caplog):
    timers, gone = Timers(asyncio.get_running_loop(), clock), Gone()

    def fail():
        raise AssertionError("on purpose")

    timers.set("bad", 10, fail)
    timers.set("good", 20, gone.note("good"))
    clock.time_ms += 20
    timers.look()
    assert gone == ["good"]
    assert "bad" in caplog.text
