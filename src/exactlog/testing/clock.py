"""A clock a test can move forward."""

import threading

from exactlog.core.model.clock import Clock
from exactlog.core.model.ids import TimestampMs


class MovableClock:
    """Real time plus an offset that only grows: moving it makes the broker believe that time has passed.

    What the broker decides by looking at the clock (timestamps, expiry) follows at once; waits that it has already
    begun end when they would have. May be moved from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = 0
        self._moving = threading.Lock()

    def advance_ms(self, duration_ms: int) -> None:
        """Let `duration_ms` milliseconds pass at once; ValueError for a negative duration."""
        if duration_ms < 0:
            raise ValueError(f"time goes forward only, not by {duration_ms} ms")
        with self._moving:
            self._offset_ms += duration_ms

    def now_ms(self) -> TimestampMs:
        """Wall-clock time, in milliseconds since 1970-01-01 UTC."""
        return TimestampMs(self._clock.now_ms() + self._offset_ms)

    def monotonic_ms(self) -> int:
        """A time that never goes back, in milliseconds since an arbitrary start."""
        return self._clock.monotonic_ms() + self._offset_ms
