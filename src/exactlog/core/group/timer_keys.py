"""The keys of the timers that groups set."""

from msgspec import Struct


class SessionTimer(Struct, frozen=True):
    """A member, or one that has only been given its id, is no longer waited for."""

    group_id: str
    member_id: str


class JoinTimer(Struct, frozen=True):
    """The members that have not joined by now are no longer waited for."""

    group_id: str


class SyncTimer(Struct, frozen=True):
    """The members that have not asked for their assignment by now are no longer waited for."""

    group_id: str
