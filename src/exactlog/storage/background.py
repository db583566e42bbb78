"""Work that nobody waits for: checkpoints, index files of sealed segments."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from exactlog.storage.whole_files import SyncFailedError

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Lane(Protocol):
    """A line in which one piece of work waits for the one before it."""

    def submit(self, work: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Runs blocking `work`, then `then` with its result; with None when it failed."""

    async def wait(self) -> None:
        """Waits until nothing is running."""


class Background(Protocol):
    """Where work goes that nobody waits for."""

    def lane(self) -> Lane:
        """A line of its own."""


class BackgroundWork:
    """Runs blocking work on threads and its continuation on the event loop.

    Work that fails is given up and logged: what it would have made is made again by recovery. A failed sync is not: it
    ends the broker.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: Executor, *, on_sync_failed: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._on_sync_failed = on_sync_failed
        self._running: set[asyncio.Task[None]] = set()

    def lane(self) -> "BackgroundLane":
        """A line in which one piece of work waits for the one before it."""
        return BackgroundLane(self)

    def start(
        self, work: Callable[[], T], then: Callable[[T | None], None], *, after: asyncio.Task[None] | None
    ) -> asyncio.Task[None]:
        """Runs `work` on a thread once `after` has ended, then `then` on the loop: see `BackgroundLane.submit`."""
        task = self._loop.create_task(self._run(work, then, after))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self) -> None:
        """Waits until nothing is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def _run(
        self, work: Callable[[], T], then: Callable[[T | None], None], after: asyncio.Task[None] | None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        try:
            running = self._loop.run_in_executor(self._executor, work)
        except RuntimeError:  # the threads have ended meanwhile (a kill): recovery makes it again
            return
        try:
            result = await running
        except SyncFailedError as error:
            self._on_sync_failed(str(error))
        except OSError as error:
            _logger.error("background work failed and is given up: %s", error)
            then(None)
        except Exception:  # a defect of ours: the one who waits for it must go on all the same
            _logger.exception("background work broke down and is given up")
            then(None)
        else:
            then(result)


class BackgroundLane:
    """The work of one partition, which writes to the same files: one piece after the other, as it was submitted."""

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background
        self._last: asyncio.Task[None] | None = None

    def submit(self, work: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Runs `work` on a thread, then `then` on the loop with its result; with None when it failed."""
        after = None if self._last is None or self._last.done() else self._last
        self._last = self._background.start(work, then, after=after)

    async def wait(self) -> None:
        """Waits until nothing of this lane is running."""
        while self._last is not None and not self._last.done():
            await asyncio.wait([self._last])
