"""Timers by key on the broker's clock: one due time a key, set anew or taken back at will.

They follow the clock port, not the loop: a test that moves its clock makes them go off at once (`look`).
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from itertools import count
from typing import Final

from exactlog.core.model.clock import Clock

_logger = logging.getLogger(__name__)

_STALE_ENTRIES_LEAST: Final = 64  # a heap with more entries that were taken back than live ones is built anew


class Timers:
    """The timers of one broker; they belong to its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._due: dict[Hashable, tuple[int, int, Callable[[], None]]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._numbers = count()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        self._is_stopped = False

    def set(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Calls back once `delay_ms` from now, instead of whatever the key was set to."""
        due_ms = self._clock.monotonic_ms() + max(0, delay_ms)
        number = next(self._numbers)
        self._due[key] = due_ms, number, callback
        if len(self._heap) > 2 * len(self._due) + _STALE_ENTRIES_LEAST:
            self._heap = [(due, number, key) for key, (due, number, _) in self._due.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (due_ms, number, key))
        self._wake_by(due_ms)

    def cancel(self, key: Hashable) -> None:
        """Takes a timer back; one that is not set is fine."""
        self._due.pop(key, None)

    def look(self) -> None:
        """Lets everything go off that is due: the clock may have been moved."""
        if self._is_stopped:
            return
        self._cancel_wake()
        now_ms = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            _, number, key = heapq.heappop(self._heap)
            entry = self._due.get(key)
            if entry is not None and entry[1] == number:
                del self._due[key]
                self._go_off(key, entry[2])
        while self._heap and not self._is_live(*self._heap[0]):
            heapq.heappop(self._heap)
        if self._heap:
            self._wake_by(self._heap[0][0])

    def stop(self) -> None:
        """Nothing goes off any more."""
        self._is_stopped = True
        self._cancel_wake()
        self._due.clear()
        self._heap.clear()

    def _go_off(self, key: Hashable, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # the other timers go on
            _logger.exception("what was to happen for %s failed", key)

    def _is_live(self, _: int, number: int, key: Hashable) -> bool:
        entry = self._due.get(key)
        return entry is not None and entry[1] == number

    def _wake_by(self, due_ms: int) -> None:
        if self._is_stopped or (self._wake is not None and self._wake_ms <= due_ms):
            return
        self._cancel_wake()
        self._wake_ms = due_ms
        delay_ms = max(0, due_ms - self._clock.monotonic_ms())
        self._wake = self._loop.call_later(delay_ms / 1000, self.look)

    def _cancel_wake(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
