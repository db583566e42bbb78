"""An event loop in a thread of its own, to which other threads hand work and wait for the result."""

import asyncio
import io
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from exactlog.core.model.errors import ExactlogError, InvariantError
from exactlog.node.event_loop import new_event_loop

Result = TypeVar("Result")

_END_WAIT_S = 30.0


class LoopDiedError(ExactlogError):
    """The thread that was to do the work has ended; `__cause__` is what ended it, if it was an error."""

    code = "broker-died"


class StandsStillError(ExactlogError):
    """Work on the loop has not ended in the time it was given; it goes on. The message says where the loop stands."""

    code = "broker-stands-still"


class LoopThread:
    """A daemon thread that runs an event loop until `close`."""

    def __init__(self, name: str, *, on_death: Callable[[], None]) -> None:
        """Start the thread; it runs `on_death`, on the loop, if the loop ends without being asked to."""
        self._name = name
        self._on_death = on_death
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._death: BaseException | None = None
        self._ending = threading.Event()
        self._waiting: set[Future[Any]] = set()
        self._guard = threading.Lock()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._running.wait()

    def call(self, work: Callable[[], Coroutine[Any, Any, Result]], *, timeout_s: float | None = None) -> Result:
        """Run the coroutine that `work` makes on the loop, and return what it returns.

        Raises:
            LoopDiedError: the thread has ended, or ends before the work is done.
            StandsStillError: the work takes longer than it may.
            InvariantError: this is that thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise InvariantError(f"work for the thread {self._name} is called from it, and would never be done")
        with self._guard:
            if self._ending.is_set() or self._loop is None:
                raise self._death_notice()
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
            self._waiting.add(future)
        try:
            done, _ = wait([future], timeout_s)
            if not done:
                raise StandsStillError(f"{self._name} is not done after {timeout_s:g} s\n{self.describe()}")
            return future.result()
        except CancelledError:
            if not self._ending.is_set():
                raise  # the work's own doing
            self._thread.join()
            raise self._death_notice() from self._death
        finally:
            self._waiting.discard(future)

    def describe(self) -> str:
        """Where the thread is, and what each task of its loop waits for; asked from outside: the loop may be stuck."""
        text = io.StringIO()
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001  its documented name
        text.write("the thread is at:\n")
        traceback.print_stack(frame, file=text)
        for task in asyncio.all_tasks(self._loop) if self._loop is not None else ():
            task.print_stack(file=text)
        return text.getvalue()

    def close(self) -> None:
        """End the loop, cancelling what still runs on it, and wait for the thread; again: nothing happens.

        A thread that hears nothing is left behind after a while: it ends with the process.
        """
        with self._guard:
            if not self._ending.is_set() and self._loop is not None:
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_END_WAIT_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._wait_for_end())
        except BaseException as error:  # noqa: BLE001  kept: whoever waits for the loop is told
            self._death = error
        finally:
            self._notify_of_end()

    async def _wait_for_end(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running.set()
        try:
            await self._end.wait()
        except asyncio.CancelledError:
            self._on_death()
            raise
        finally:
            self._refuse_work()

    def _refuse_work(self) -> None:
        with self._guard:
            self._ending.set()

    def _notify_of_end(self) -> None:
        self._refuse_work()
        self._running.set()
        for future in list(self._waiting):
            future.cancel()

    def _death_notice(self) -> LoopDiedError:
        notice = LoopDiedError(f"the thread {self._name} has ended", hint="restart() brings the broker back.")
        notice.__cause__ = self._death
        return notice
