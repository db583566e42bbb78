"""A decision while it is being made."""

from collections.abc import Callable, Hashable

from msgspec import Struct

from exactlog.core.model.decisions import Answer, CancelTimer, Decision, SetTimer, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerId
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.limits import TransactionLimits
from exactlog.core.transaction.requests import WriteMarkers
from exactlog.core.transaction.states import TransactionState, check_transition
from exactlog.core.transaction.transaction_record import TransactionRecord
from exactlog.core.transaction.transaction_table import TransactionTable

NO_ID_NOW = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""What Kafka answers, and clients retry, while the next block of producer ids is being fetched."""


class Draft:
    """Collects what is to be done. Rules that ask it for an entry see what it has decided already.

    Attributes:
        limits: what it must keep within.
        head: what had been decided before.
        now_ms: when it is made.
        coordinator_epoch: what markers carry.
        new_producer_id: gives one that nobody had; None while there is none.
    """

    def __init__(
        self,
        limits: TransactionLimits,
        head: TransactionTable,
        coordinator_epoch: int,
        new_producer_id: Callable[[], ProducerId | None],
        now_ms: int,
    ) -> None:
        self.limits = limits
        self.head = head
        self.now_ms = now_ms
        self.new_producer_id = new_producer_id
        self.coordinator_epoch = coordinator_epoch
        self._changed: dict[str, TransactionEntry | None] = {}
        self._records: list[TransactionRecord] = []
        self._answers: list[Answer] = []
        self._told_at_once: list[Answer] = []
        self._effects: list[WriteMarkers] = []
        self._timers: dict[Hashable, SetTimer | CancelTimer] = {}

    def entry(self, transactional_id: str) -> TransactionEntry | None:
        """An entry as this decision leaves it."""
        if transactional_id in self._changed:
            return self._changed[transactional_id]
        return self.head.get(transactional_id)

    def put(self, entry: TransactionEntry) -> None:
        """Has an entry written; a prepared one also has its markers written."""
        self._changed[entry.transactional_id] = entry
        self._records.append(TransactionRecord(entry.transactional_id, entry))
        if entry.state.is_prepared:
            self.write_markers(entry)

    def remove(self, entry: TransactionEntry) -> None:
        """Has a transactional id forgotten."""
        check_transition(entry.state, TransactionState.DEAD)
        self._changed[entry.transactional_id] = None
        self._records.append(TransactionRecord(entry.transactional_id, None))

    def write_markers(self, entry: TransactionEntry) -> None:
        """Has the markers of a prepared entry written."""
        self.effect(
            WriteMarkers(
                transactional_id=entry.transactional_id,
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                is_commit=entry.state is TransactionState.PREPARE_COMMIT,
                coordinator_epoch=self.coordinator_epoch,
                partitions=entry.partitions,
                transaction_version=entry.client_transaction_version,
            )
        )

    def effect(self, effect: WriteMarkers) -> None:
        """Has something done elsewhere once this is committed."""
        self._effects.append(effect)

    def answer(self, waiter: Waiter, outcome: Struct, *, at_once: bool = False) -> None:
        """Has somebody told; at once only where who is told waits for the commit itself."""
        (self._told_at_once if at_once else self._answers).append(Answer(waiter, outcome))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        """Has a timer go off so long from now; the last word about a key counts."""
        self._timers[key] = SetTimer(key, delay_ms)

    def cancel_timer(self, key: Hashable) -> None:
        """Has a timer taken back."""
        self._timers[key] = CancelTimer(key)

    def decision(self) -> Decision:
        """All of it."""
        return Decision(
            tuple(self._records),
            tuple(self._answers),
            tuple(self._timers.values()) if self._timers else (),
            None,
            tuple(self._told_at_once),
            tuple(self._effects),
        )
