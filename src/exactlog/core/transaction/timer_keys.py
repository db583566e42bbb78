"""The keys of the timers that a transaction coordinator sets."""

from msgspec import Struct


class TimeoutCheck(Struct, frozen=True):
    """It is time to look for transactions that have timed out."""


class ExpiryCheck(Struct, frozen=True):
    """There are more transactional ids that have expired than fit into one turn."""


class ParkTimer(Struct, frozen=True):
    """A request has waited for long enough for the markers of the transaction before."""

    transactional_id: str
    number: int
    """Of the request."""
