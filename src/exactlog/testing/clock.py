"""A clock a test can move forward."""

import threading
from collections.abc import Callable

from exactlog.core.model.clock import Clock
from exactlog.core.model.ids import TimestampMs


class MovableClock:
    """Real time plus an offset that only grows: moving it makes the broker believe that time has passed.

    Everything the broker does by the clock follows: waits that have begun end, members that have not been heard of are
    expelled, what is due is done once. May be moved from any thread.

    Args:
        clock: real time.
        look: has everything done that is due. It is called before a move, so that what has happened is dated before it,
            and after.
    """

    def __init__(self, clock: Clock, *, look: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._look = look
        self._offset_ms = 0
        self._moving = threading.Lock()

    def advance_ms(self, duration_ms: int) -> None:
        """Let `duration_ms` milliseconds pass at once; when this returns, the waits that end by it have ended.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ms < 0:
            raise ValueError(f"time goes forward only, not by {duration_ms} ms")
        self._look()
        with self._moving:
            self._offset_ms += duration_ms
        self._look()

    def now_ms(self) -> TimestampMs:
        """Wall-clock time, in milliseconds since 1970-01-01 UTC."""
        return TimestampMs(self._clock.now_ms() + self._offset_ms)

    def monotonic_ms(self) -> int:
        """A time that never goes back, in milliseconds since an arbitrary start."""
        return self._clock.monotonic_ms() + self._offset_ms
