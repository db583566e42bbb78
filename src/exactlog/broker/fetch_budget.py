"""How many fetched bytes may wait in memory for their sockets, over all connections.

A reader that does not take its answers cannot make the broker grow: when the budget is spent, a fetch still gets its
first batch, so that everybody moves on, and nothing more.
"""

from collections.abc import Callable


class FetchBudget:
    """The bound on bytes that were read and not yet taken by a socket (`fetch.bytes.in.flight.max`)."""

    def __init__(self, bytes_max: int, *, bytes_in_flight: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self._bytes_in_flight = bytes_in_flight

    def clip(self, bytes_wanted: int) -> int:
        """As much of what is wanted as may be read now; never negative."""
        return max(0, min(bytes_wanted, self._bytes_max - self._bytes_in_flight()))
