"""What a coordinator's pure rules look like to the runtime."""

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

from exactlog.core.model.decisions import CoordinatorRecord, Decision, Waiter
from exactlog.core.model.ids import ProducerId


class Machine(Protocol):
    """The rules and the state of one shard, twice: head is what was decided, committed is what a round made good.

    Decisions look at head. The runtime replays their records onto head at once, and onto committed once they are.

    A record with a producer id is part of that producer's transaction: it is pending until the marker that ends the
    transaction. A machine that decides no such records is never given one, nor a marker: it raises `InvariantError`.
    """

    def restore(self, key: bytes, value: bytes | None, *, producer_id: ProducerId | None = None) -> None:
        """Takes in one record of the log at a load: it is committed, so onto both."""

    def restore_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Takes in the end of a transaction at a load, onto both."""

    def replay(self, record: CoordinatorRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes a decided record in, onto head."""

    def replay_committed(self, record: CoordinatorRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes the same record in, onto committed."""

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The producer's transaction ends: its pending records count now, or never will. Onto head."""

    def replay_marker_committed(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Takes the same end in, onto committed."""

    def loaded(self, *, now_ms: int) -> Decision:
        """All of the log has been restored."""

    def time_out(self, key: Hashable, *, now_ms: int) -> Decision:
        """A timer that was set has gone off."""

    def reset(self, *, now_ms: int) -> Decision:
        """What was decided and is not committed never happened: head goes back to committed."""

    def resign(self) -> Iterable[Waiter]:
        """This shard is no longer ours; gives everybody who still waits for something."""

    def live_records(self) -> Iterable[CoordinatorRecord]:
        """What must stand in the log for all of head to be found again, but for what is pending.

        They are written behind records of open transactions that stay in the log. To say a live value again must not
        change what becomes of those.
        """

    def pending_records(self) -> Iterable[tuple[ProducerId, CoordinatorRecord]]:
        """What has to be said again behind the live records, in transactions that are open, in this order."""


AnyMachine = TypeVar("AnyMachine", bound=Machine)
