"""What a coordinator's pure rules look like to the runtime."""

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

from exactlog.core.model.decisions import CoordinatorRecord, Decision, Waiter


class Machine(Protocol):
    """The rules and the state of one shard, twice: head is what was decided, committed is what a round made good.

    Decisions look at head. The runtime replays their records onto head at once, and onto committed once they are.
    """

    def restore(self, key: bytes, value: bytes | None) -> None:
        """Takes in one record of the log at a load: it is committed, so onto both."""

    def replay(self, record: CoordinatorRecord) -> None:
        """Takes a decided record in, onto head."""

    def replay_committed(self, record: CoordinatorRecord) -> None:
        """Takes the same record in, onto committed."""

    def loaded(self, *, now_ms: int) -> Decision:
        """All of the log has been restored."""

    def time_out(self, key: Hashable, *, now_ms: int) -> Decision:
        """A timer that was set has gone off."""

    def reset(self, *, now_ms: int) -> Decision:
        """What was decided and is not committed never happened: head goes back to committed."""

    def resign(self) -> Iterable[Waiter]:
        """This shard is no longer ours; gives everybody who still waits for something."""

    def live_records(self) -> Iterable[CoordinatorRecord]:
        """What must stand in the log for all of head to be found again."""


AnyMachine = TypeVar("AnyMachine", bound=Machine)
