import asyncio
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from exactlog.core.model.errors import InvariantError
from exactlog.node.event_loop import new_event_loop
from exactlog.testing import loop_thread as loop_thread_module
from exactlog.testing.loop_thread import LoopDiedError, LoopThread, StandsStillError


@pytest.fixture
def deaths():
    return []


@pytest.fixture
def loop_thread(deaths):
    thread = LoopThread("loop-under-test", on_death=lambda: deaths.append(threading.current_thread().name))
    yield thread
    thread.close()


async def name_of_thread():
    return threading.current_thread().name


async def never():
    await asyncio.Event().wait()


async def die():
    asyncio.get_running_loop().call_soon(_raise_system_exit)
    await never()


def _raise_system_exit():
    raise SystemExit(3)


def test_work_is_done_on_the_loops_own_thread(loop_thread):
    assert loop_thread.call(name_of_thread) == "loop-under-test"


def test_what_the_work_raises_reaches_the_caller(loop_thread):
    async def fail():
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        loop_thread.call(fail)
    assert loop_thread.call(name_of_thread) == "loop-under-test"


def test_work_that_is_cancelled_on_a_living_loop_is_just_that(loop_thread):
    async def cancel_itself():
        asyncio.current_task().cancel()
        await never()

    with pytest.raises(CancelledError):
        loop_thread.call(cancel_itself)
    assert loop_thread.call(name_of_thread) == "loop-under-test"


def test_a_loop_that_dies_under_the_work_fails_it_and_names_the_cause(loop_thread, deaths):
    with pytest.raises(LoopDiedError, match="loop-under-test has ended") as caught:
        loop_thread.call(die)

    assert isinstance(caught.value.__cause__, SystemExit)
    assert deaths == ["loop-under-test"]


def test_a_dead_loop_refuses_work(loop_thread):
    with pytest.raises(LoopDiedError):
        loop_thread.call(die)

    with pytest.raises(LoopDiedError):
        loop_thread.call(name_of_thread)


def test_work_that_would_wait_for_itself_is_refused(loop_thread):
    async def call_from_the_loop():
        loop_thread.call(name_of_thread)

    with pytest.raises(InvariantError, match="called from it"):
        loop_thread.call(call_from_the_loop)


def test_closing_ends_the_thread_without_a_death(deaths):
    thread = LoopThread("closed", on_death=lambda: deaths.append("died"))

    thread.close()
    thread.close()

    assert deaths == []
    with pytest.raises(LoopDiedError):
        thread.call(name_of_thread)


def test_closing_gives_up_what_another_thread_waits_for(deaths):
    thread = LoopThread("closed", on_death=lambda: deaths.append("died"))
    begun = threading.Event()
    endings = []

    async def begin_and_hang():
        begun.set()
        await never()

    def wait_for_it():
        try:
            thread.call(begin_and_hang)
        except LoopDiedError as error:
            endings.append(error)

    waiter = threading.Thread(target=wait_for_it)
    waiter.start()
    begun.wait()
    thread.close()
    waiter.join()

    assert len(endings) == 1


def test_work_that_takes_too_long_is_told_with_where_it_waits_and_the_loop_goes_on(loop_thread):
    with pytest.raises(StandsStillError, match="in never"):
        loop_thread.call(never, timeout_s=0.01)

    assert loop_thread.call(name_of_thread) == "loop-under-test"


def test_a_thread_that_hears_nothing_is_told_of_and_left_behind(monkeypatch, deaths):
    monkeypatch.setattr(loop_thread_module, "_END_WAIT_S", 0.01)
    thread = LoopThread("deaf", on_death=lambda: deaths.append("died"))
    may_go_on = threading.Event()

    async def block():
        may_go_on.wait()

    with pytest.raises(StandsStillError, match="in block"):
        thread.call(block, timeout_s=0.1)
    thread.close()  # returns all the same
    may_go_on.set()


def test_without_uvloop_the_loop_is_asyncios_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    loop = new_event_loop()

    assert type(loop).__module__.startswith("asyncio.")
    loop.close()
