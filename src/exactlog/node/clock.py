"""The clock of the machine, for everything that runs for real."""

import time

from exactlog.core.model.ids import TimestampMs


class SystemClock:
    """The operating system's wall clock and monotonic clock, as the core's clock port."""

    def now_ms(self) -> TimestampMs:
        """Wall-clock time, in milliseconds since 1970-01-01 UTC."""
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> int:
        """A time that never goes back, in milliseconds since an arbitrary start."""
        return time.monotonic_ns() // 1_000_000
