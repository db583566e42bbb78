"""A loop in a thread of its own: whoever hands it work waits, and nothing is left running when it is over."""

import asyncio
import signal
import threading
from concurrent.futures import CancelledError

import pytest

from exactlog.client.blocking_loop import BlockingLoop, Twin, waited
from exactlog.core.model.errors import ExactlogError


class ClosedError(ExactlogError):
    code = "closed"


@pytest.fixture
def loop():
    loop = BlockingLoop("loop-under-test", closed=lambda: ClosedError("it is closed"))
    try:
        yield loop
    finally:
        loop.close()


class Counter:
    def __init__(self):
        self.is_closed = False
        self.is_cancelled = threading.Event()

    async def thread_name(self, suffix, *, prefix=""):
        """The thread it runs in."""
        return prefix + threading.current_thread().name + suffix

    async def numbers(self, count):
        try:
            for number in range(count):
                yield number
        finally:
            self.is_closed = True

    async def interrupt(self):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.is_cancelled.set()
            raise


class WaitingCounter(Twin[Counter]):
    thread_name = waited(Counter.thread_name)
    interrupt = waited(Counter.interrupt)


def test_a_method_of_a_twin_gives_what_the_originals_gives_in_the_thread_of_the_loop(loop):
    twin = WaitingCounter(Counter(), loop)
    assert twin.thread_name("!", prefix="in ") == "in loop-under-test!"
    assert twin.thread_name.__doc__ == "The thread it runs in."


def test_what_the_work_raises_reaches_whoever_waits(loop):
    async def fail():
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        loop.wait(fail())


@pytest.mark.parametrize("items_at_a_time", [1, 3, 100])
def test_a_stream_comes_whole_however_many_are_fetched_at_once(loop, items_at_a_time):
    counter = Counter()
    assert list(loop.iterate(counter.numbers(7), items_at_a_time=items_at_a_time)) == list(range(7))
    assert counter.is_closed


def test_a_stream_that_nobody_reads_on_is_closed(loop):
    counter = Counter()
    items = loop.iterate(counter.numbers(7), items_at_a_time=2)
    assert next(items) == 0
    items.close()
    assert counter.is_closed


def test_work_whose_waiting_is_interrupted_is_cancelled(loop):
    counter = Counter()
    with pytest.raises(KeyboardInterrupt):
        WaitingCounter(counter, loop).interrupt()
    assert counter.is_cancelled.is_set()


class Ending:
    """Work that goes on until it is cancelled, and then takes a while to end."""

    def __init__(self):
        self.begun, self.story = threading.Event(), []

    async def run(self):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(self.story.append, "ending")
            await asyncio.to_thread(self.story.append, "ended")


def interrupt_handing_over(monkeypatch, *, is_handed_over):
    """The interrupt comes within the hand-over, once: before the loop has the work, or behind that."""
    hand_over = asyncio.run_coroutine_threadsafe

    def interrupted(work, loop):
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", hand_over)
        if is_handed_over:
            hand_over(work, loop)
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)


def test_an_interrupt_while_work_is_handed_over_waits_until_that_work_has_ended(loop, monkeypatch):
    work = Ending()
    interrupt_handing_over(monkeypatch, is_handed_over=True)
    with pytest.raises(KeyboardInterrupt):
        loop.wait(work.run())
    assert work.story == ["ending", "ended"]
    assert loop.wait(others()) == 0


def test_an_interrupt_before_work_is_handed_over_leaves_nothing_that_could_begin(loop, monkeypatch):
    work = Ending()
    interrupt_handing_over(monkeypatch, is_handed_over=False)
    with pytest.raises(KeyboardInterrupt):
        loop.wait(work.run())
    assert not work.begun.is_set()
    assert loop.wait(others()) == 0


class InterruptedFuture:
    """Its result is waited for until something has happened; then the interrupt comes, and no result."""

    def __init__(self, future, happened):
        self._future, self._happened = future, happened
        self.done = future.done

    def result(self):
        self._happened(self._future)
        raise KeyboardInterrupt


def interrupt_waiting(monkeypatch, loop, happened):
    submit = loop.submit

    def interrupted(work):
        monkeypatch.setattr(loop, "submit", submit)
        return InterruptedFuture(submit(work), happened)

    monkeypatch.setattr(loop, "submit", interrupted)


def test_an_interrupt_while_work_runs_waits_until_it_has_ended(loop, monkeypatch):
    work = Ending()
    interrupt_waiting(monkeypatch, loop, lambda _: work.begun.wait(10))
    with pytest.raises(KeyboardInterrupt):
        loop.wait(work.run())
    assert work.story == ["ending", "ended"]
    assert loop.wait(others()) == 0


class Block:
    """A context that notes how it was left."""

    def __init__(self):
        self.left = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, traceback):
        self.left.append(kind)


def test_a_context_that_was_entered_as_the_interrupt_came_is_left(loop, monkeypatch):
    block = Block()
    interrupt_waiting(monkeypatch, loop, lambda future: future.result(10))
    with pytest.raises(KeyboardInterrupt), loop.within(block):
        pytest.fail("nobody was told that it is entered")
    assert block.left == [KeyboardInterrupt]


async def others():
    """How many tasks there are beside this one."""
    return len(asyncio.all_tasks()) - 1


def test_a_stream_whose_reading_is_interrupted_is_closed_and_says_no_more_than_that(loop):
    counter = Counter()

    async def interrupted():
        async for number in counter.numbers(2):
            yield number
        try:
            await counter.interrupt()
        finally:
            await asyncio.sleep(0.01)  # to end takes it a while
            counter.is_over = True

    with pytest.raises(KeyboardInterrupt):
        list(loop.iterate(interrupted()))
    assert counter.is_over


def test_work_that_still_runs_at_the_end_is_given_up():
    loop = BlockingLoop("loop-under-test", closed=lambda: ClosedError("it is closed"))
    outcomes = []

    async def for_ever(started):
        started.set()
        await asyncio.Event().wait()

    def wait(started):
        try:
            loop.wait(for_ever(started))
        except CancelledError as error:
            outcomes.append(type(error).__name__)

    started = threading.Event()
    waiting = threading.Thread(target=wait, args=(started,))
    waiting.start()
    assert started.wait(10)
    loop.close()
    waiting.join(10)
    assert outcomes == ["CancelledError"]


def test_a_closed_one_refuses_work_in_its_owners_words():
    loop = BlockingLoop("loop-under-test", closed=lambda: ClosedError("it is closed"))
    loop.close()
    with pytest.raises(ClosedError, match="it is closed"):
        loop.wait(Counter().thread_name(""))
