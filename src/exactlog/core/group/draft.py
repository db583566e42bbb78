"""A decision while it is being made."""

from collections.abc import Hashable

from msgspec import Struct

from exactlog.core.group.limits import GroupLimits
from exactlog.core.model.decisions import (
    Answer,
    CancelTimer,
    CoordinatorRecord,
    Decision,
    ProducerIdentity,
    SetTimer,
    Waiter,
)


class Draft:
    """Collects what is to be done.

    Attributes:
        limits: what it must keep within.
        now_ms: when it is made.
    """

    def __init__(self, limits: GroupLimits, *, now_ms: int, producer: ProducerIdentity | None = None) -> None:
        """Begin with nothing; what is recorded becomes part of the producer's transaction if there is one."""
        self.limits = limits
        self.now_ms = now_ms
        self._producer = producer
        self._records: list[CoordinatorRecord] = []
        self._answers: list[Answer] = []
        self._timers: dict[Hashable, SetTimer | CancelTimer] = {}

    def record(self, record: CoordinatorRecord) -> None:
        """Has a record written."""
        self._records.append(record)

    def answer(self, waiter: Waiter, outcome: Struct) -> None:
        """Has somebody told."""
        self._answers.append(Answer(waiter, outcome))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        """Has a timer go off so long from now; the last word about a key counts."""
        self._timers[key] = SetTimer(key, delay_ms)

    def cancel_timer(self, key: Hashable) -> None:
        """Has a timer taken back."""
        self._timers[key] = CancelTimer(key)

    def decision(self) -> Decision:
        """All of it."""
        return Decision(
            tuple(self._records), tuple(self._answers), tuple(self._timers.values()), producer=self._producer
        )
