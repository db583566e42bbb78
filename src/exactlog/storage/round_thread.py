"""The thread on which rounds are carried out, one after the other.

A `ThreadPoolExecutor` of one thread would do; what it adds to each piece of work, a future above all, costs a small
round more than its writes do.
"""

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

_logger = logging.getLogger(__name__)

Work = Callable[[], None]
"""Must not raise: nobody would be told."""


class RoundThread:
    """Takes work until it is stopped; begins with the first piece."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_stopped = False

    def submit(self, work: Work) -> None:
        """Has it done behind all that was submitted before.

        Raises:
            RuntimeError: it has stopped.
        """
        if self._is_stopped:
            raise RuntimeError("the thread of the rounds has stopped")
        if self._thread is None:
            # A daemon: a process whose broker was not stopped must be able to end all the same, as after a kill.
            self._thread = Thread(target=self._carry_out, name="exactlog-round", daemon=True)
            self._thread.start()
        self._queue.put(work)

    def stop(self) -> None:
        """Waits until all that was submitted is done."""
        self._is_stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _carry_out(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException:  # what comes behind it may be somebody else's
                _logger.critical("work between rounds or in one has ended with nobody told", exc_info=True)
