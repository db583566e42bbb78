"""The clock as a port: the core never reads one, everybody else is handed one."""

from typing import Protocol

from exactlog.core.model.ids import TimestampMs


class Clock(Protocol):
    """Where time comes from. Tests hand in one that they move themselves."""

    def now_ms(self) -> TimestampMs:
        """Wall-clock time, in milliseconds since 1970-01-01 UTC."""

    def monotonic_ms(self) -> int:
        """A time that never goes back, in milliseconds since an arbitrary start."""
