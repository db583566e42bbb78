"""The transactional ids of one partition of `__transaction_state`: a coordinator as pure rules.

A transaction is Ongoing from its first partition on; its outcome is decided by one record, Prepare; once that is
committed its markers are written, and when they are, it is Complete. Whoever runs the shard replays the records of a
decision before it asks for another one, and replays them as committed once they are; answers and effects leave then.
Where a round fails, `reset` goes back to what is committed.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

from exactlog.core.model.decisions import CoordinatorRecord, Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.model.limits import TRANSACTIONS_PER_CHECK_MAX
from exactlog.core.transaction.aborting import abort, abort_orphan
from exactlog.core.transaction.adding import add_partitions
from exactlog.core.transaction.draft import NO_ID_NOW, Draft
from exactlog.core.transaction.ending import end_transaction
from exactlog.core.transaction.entry import TransactionEntry, complete
from exactlog.core.transaction.initialising import initialise_producer
from exactlog.core.transaction.limits import TransactionLimits
from exactlog.core.transaction.parking import Parked, Parking
from exactlog.core.transaction.requests import (
    AddPartitionsRequest,
    EndRequest,
    ErrorAnswer,
    InitRequest,
    TransactionDescription,
)
from exactlog.core.transaction.states import TransactionState
from exactlog.core.transaction.timer_keys import ExpiryCheck, ParkTimer, TimeoutCheck
from exactlog.core.transaction.transaction_record import TransactionRecord, decode_record
from exactlog.core.transaction.transaction_table import TransactionTable

__all__ = ["TransactionLimits", "TransactionShard"]


class TransactionShard:
    """Decides about transactions by head, what was decided; shows them by committed, what a round made good.

    Args:
        coordinator_epoch: what its markers carry; grows with every load.
        new_producer_id: gives a producer id that nobody had before; None while there is none at hand.

    Attributes:
        waited_for: the ids for whose transaction to be over something waits: an end of it that comes is to `queue_end`.
    """

    def __init__(
        self,
        limits: TransactionLimits,
        *,
        coordinator_epoch: int,
        new_producer_id: Callable[[], ProducerId | None],
    ) -> None:
        self._limits = limits
        self._coordinator_epoch = coordinator_epoch
        self._new_producer_id = new_producer_id
        self._head = TransactionTable()
        self._committed = TransactionTable()
        self._parking = Parking()
        self.waited_for: Collection[str] = self._parking.by_id.keys()
        self._marking: dict[str, TransactionEntry] = {}
        """Prepared entries, as head and committed have them, whose markers somebody writes or is to write."""
        self._ending: dict[str, int] = {}
        """How many ends of an id's transaction wait until they can be decided."""

    # --- what producers ask -------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """InitProducerId: an `InitAnswer`."""
        draft = self._draft(now_ms)
        draft.answer(waiter, initialise_producer(request, draft))
        return draft.decision()

    def add_partitions(self, request: AddPartitionsRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """AddPartitionsToTxn and its like: an `ErrorAnswer`, now or when the transaction before is over."""
        draft = self._draft(now_ms)
        error = None if request.transactional_id in self._ending else add_partitions(request, draft)
        if error is None and not self._parking.park(request, waiter, draft):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not None:
            self._tell(Parked(request, waiter), error, draft)
        return draft.decision()

    def end(self, request: EndRequest, waiter: Waiter, *, was_expected: bool = False, now_ms: int) -> Decision:
        """EndTxn: an `EndAnswer`.

        Ask only once all that was added to the transaction, its data included, is committed; where that takes time, say
        `expect_end` first.
        """
        draft = self._draft(now_ms)
        draft.answer(waiter, end_transaction(request, draft))
        if was_expected:
            self._end_is_decided(request.transactional_id, draft)
        return draft.decision()

    def queue_end(self, request: EndRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """An end that comes behind what waits: an `ErrorAnswer`, NONE when it may be decided, and is expected."""
        draft = self._draft(now_ms)
        if not self._parking.park(request, waiter, draft):
            draft.answer(waiter, ErrorAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
        return draft.decision()

    def expect_end(self, transactional_id: str) -> None:
        """An `end` comes as soon as it can be decided: what comes meanwhile for the id waits, and is not part of it."""
        self._ending[transactional_id] = self._ending.get(transactional_id, 0) + 1

    def is_ending(self, transactional_id: str) -> bool:
        """Whether an end of the id's transaction is expected, or decided and its markers are not written."""
        entry = self._head.get(transactional_id)
        return transactional_id in self._ending or (entry is not None and entry.state.is_prepared)

    def _end_is_decided(self, transactional_id: str, draft: Draft) -> None:
        left = self._ending.pop(transactional_id) - 1
        if left:
            self._ending[transactional_id] = left
        if not self._parking.by_id:
            return
        entry = draft.entry(transactional_id)
        if entry is None or not entry.state.is_prepared:
            self._let_go_on(transactional_id, draft)

    def _let_go_on(self, transactional_id: str, draft: Draft) -> None:
        """Who waited until the transaction before was over goes on, up to the next end."""
        while transactional_id not in self._ending:
            parked = self._parking.leave_oldest(transactional_id, draft)
            if parked is None:
                return
            if isinstance(parked.request, EndRequest):
                self.expect_end(transactional_id)
                draft.answer(parked.waiter, ErrorAnswer(), at_once=True)
                return
            error = add_partitions(parked.request, draft)
            if error is None:
                raise InvariantError(f"transactional id {transactional_id}: over, and still prepared")
            self._tell(parked, error, draft)

    # --- what happens without being asked -----------------------------------------------------------------------

    def markers_written(
        self, transactional_id: str, *, producer_id: ProducerId, producer_epoch: ProducerEpoch, now_ms: int
    ) -> Decision:
        """All markers of a `WriteMarkers` are committed: the transaction is complete, and who waited for it goes on."""
        draft = self._draft(now_ms)
        entry = draft.entry(transactional_id)
        is_it = entry is not None and (entry.producer_id, entry.producer_epoch) == (producer_id, producer_epoch)
        if entry is not None and is_it and entry.state.is_prepared:
            self._marking.pop(transactional_id, None)
            draft.put(complete(entry, now_ms=now_ms))
            if self._parking.by_id:
                self._let_go_on(transactional_id, draft)
        return draft.decision()

    def time_out(self, key: Hashable, *, now_ms: int) -> Decision:
        """A timer that was set has gone off."""
        match key:
            case TimeoutCheck():
                return self._abort_timed_out(now_ms)
            case ExpiryCheck():
                return self.expire_ids(now_ms=now_ms)
            case ParkTimer():
                draft = self._draft(now_ms)
                parked = self._parking.leave(key)
                if parked is not None:
                    self._tell(parked, ErrorCode.CONCURRENT_TRANSACTIONS, draft)
                return draft.decision()
            case _:
                raise InvariantError(f"no timer of a transaction coordinator: {key!r}")

    def expire_ids(self, *, now_ms: int) -> Decision:
        """Forgets transactional ids that have not been used for long; very many one part after the other."""
        draft = self._draft(now_ms)
        oldest_ms = now_ms - self._limits.id_expiration_ms
        expired = [
            entry for entry in self._head.entries() if not entry.state.is_open and entry.last_update_ms <= oldest_ms
        ]
        for entry in expired[:TRANSACTIONS_PER_CHECK_MAX]:
            draft.remove(entry)
        if len(expired) > TRANSACTIONS_PER_CHECK_MAX:
            draft.set_timer(ExpiryCheck(), 0)
        return draft.decision()

    def fence(self, transactional_id: str, waiter: Waiter | None = None, *, now_ms: int) -> Decision:
        """Aborts the transaction of an id, if one is open, and fences its producer: an `ErrorAnswer` to who waits.

        An outcome that is decided stays: CONCURRENT_TRANSACTIONS.
        """
        draft = self._draft(now_ms)
        entry = draft.entry(transactional_id)
        if entry is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        elif entry.state.is_prepared:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            error = ErrorCode.NONE if abort(entry, draft) else NO_ID_NOW
        if waiter is not None:
            draft.answer(waiter, ErrorAnswer(error))
        return draft.decision()

    def abort_orphan(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partition: TopicPartition,
        waiter: Waiter | None = None,
        *,
        now_ms: int,
    ) -> Decision:
        """Aborts a transaction that is open in a partition and that no entry lists for it: an `ErrorAnswer`.

        The shard to ask is the one that `find_by_producer` knows the producer in; where none does, any.
        """
        draft = self._draft(now_ms)
        is_done = abort_orphan(producer_id, producer_epoch, partition, draft)
        if waiter is not None:
            draft.answer(waiter, ErrorAnswer(ErrorCode.NONE if is_done else NO_ID_NOW))
        return draft.decision()

    def _abort_timed_out(self, now_ms: int) -> Decision:
        draft = self._draft(now_ms)
        late = self._timed_out(now_ms) if self._limits.write_abort_markers else []
        for entry in late[:TRANSACTIONS_PER_CHECK_MAX]:
            abort(entry, draft, is_fenced_for_good=self._limits.fence_on_timeout)
        is_more = len(late) > TRANSACTIONS_PER_CHECK_MAX
        draft.set_timer(TimeoutCheck(), 0 if is_more else self._limits.check_interval_ms)
        return draft.decision()

    def _timed_out(self, now_ms: int) -> list[TransactionEntry]:
        """Transactions that have been open for longer than they may."""
        entries = (self._head.get(transactional_id) for transactional_id in self._head.open_ids())
        return [
            entry
            for entry in entries
            if entry is not None
            and entry.state is TransactionState.ONGOING
            and entry.start_time_ms + entry.timeout_ms < now_ms
        ]

    # --- what can be seen ---------------------------------------------------------------------------------------

    def entry(self, transactional_id: str) -> TransactionEntry | None:
        """A transactional id by head; None where there is none."""
        return self._head.get(transactional_id)

    def is_settled(self, transactional_id: str) -> bool:
        """Whether all that is decided of a transactional id is committed: head and committed share its entry then."""
        return self._head.get(transactional_id) is self._committed.get(transactional_id)

    def find_by_producer(self, producer_id: ProducerId) -> TransactionEntry | None:
        """The transactional id that has this producer id, by head; None where none has."""
        return self._head.by_producer_id(producer_id)

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        """A transactional id by committed; None where there is none."""
        entry = self._committed.get(transactional_id)
        return None if entry is None else _describe(entry)

    def transactions(self) -> list[TransactionDescription]:
        """All transactional ids by committed."""
        return [_describe(entry) for entry in self._committed.entries()]

    @property
    def id_count(self) -> int:
        """How many transactional ids there are, by head."""
        return len(self._head)

    @property
    def open_count(self) -> int:
        """How many transactions are open or prepared, by head."""
        return len(self._head.open_ids())

    # --- the log ------------------------------------------------------------------------------------------------

    def restore(self, key: bytes, value: bytes | None, *, producer_id: ProducerId | None = None) -> None:
        """Takes in one record of the log while it is loaded: it is committed, so onto both.

        Raises:
            DecodeError: the bytes are not such a record.
        """
        record = decode_record(key, value)
        self.replay(record, producer_id=producer_id)
        self.replay_committed(record, producer_id=producer_id)

    def replay(self, record: CoordinatorRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes a decided record in, onto head."""
        if producer_id is not None:
            raise _not_in_transactions(record, producer_id)
        self._head.replay(record)
        if isinstance(record, TransactionRecord) and record.entry is not None and record.entry.state.is_prepared:
            self._marking[record.transactional_id] = record.entry

    def replay_committed(self, record: CoordinatorRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes the same record in, onto committed."""
        if producer_id is not None:
            raise _not_in_transactions(record, producer_id)
        self._committed.replay(record)

    def restore_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Is not called: nobody has transactions in this log."""
        ending = "commit" if is_commit else "abort"
        raise InvariantError(f"a transaction coordinator's log has the {ending} of producer {producer_id} in it")

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Is not called: nobody has transactions in this log."""
        self.restore_marker(producer_id, is_commit=is_commit)

    def replay_marker_committed(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Is not called: nobody has transactions in this log."""
        self.restore_marker(producer_id, is_commit=is_commit)

    def live_records(self) -> Iterator[CoordinatorRecord]:
        """Head's live values: written anew, they make everything before them superfluous."""
        return self._head.live_records()

    def pending_records(self) -> Iterable[tuple[ProducerId, CoordinatorRecord]]:
        """None: nobody has transactions in this log."""
        return ()

    def loaded(self, *, now_ms: int) -> Decision:
        """All of the log has been restored: what is prepared is finished, what is open keeps the time it has left."""
        draft = self._draft(now_ms)
        self._marking.clear()
        self._write_missing_markers(draft)
        draft.set_timer(TimeoutCheck(), self._limits.check_interval_ms)
        return draft.decision()

    def reset(self, *, now_ms: int) -> Decision:
        """What was decided and is not committed never happened. Who waits is sent to look for the coordinator again.

        Markers that somebody writes are still being written; those of a transaction whose Complete is gone are written
        once more.
        """
        draft = self._draft(now_ms)
        for transactional_id in self._parking.transactional_ids():
            for parked in self._parking.leave_all(transactional_id, draft):
                self._tell(parked, ErrorCode.NOT_COORDINATOR, draft)
        marking, self._marking = self._marking, {}
        self._head = TransactionTable()
        for record in self._committed.live_records():
            self._head.replay(record)
        for transactional_id, entry in marking.items():
            if self._head.get(transactional_id) is entry:
                self._marking[transactional_id] = entry
        self._write_missing_markers(draft)
        return draft.decision()

    def resign(self) -> list[Waiter]:
        """The shard is given up: everybody who still waits for something."""
        waiting = [parked.waiter for parked in self._parking]
        self._parking.by_id.clear()
        return waiting

    def _write_missing_markers(self, draft: Draft) -> None:
        for transactional_id in self._head.open_ids():
            entry = self._head.get(transactional_id)
            if entry is not None and entry.state.is_prepared and transactional_id not in self._marking:
                self._marking[transactional_id] = entry
                draft.write_markers(entry)

    def _tell(self, parked: Parked, error: ErrorCode, draft: Draft) -> None:
        """At once where that is asked for, unless a crash could give what is written then to the transaction before.

        Its markers are written again where Complete is lost. In version 1 they have the epoch of the next one too.
        """
        request = parked.request
        before = self._committed.get(request.transactional_id)
        is_mixed_up = before is not None and before.state.is_prepared and not before.has_epoch_per_transaction
        at_once = isinstance(request, AddPartitionsRequest) and request.is_told_at_once and not is_mixed_up
        draft.answer(parked.waiter, ErrorAnswer(error), at_once=at_once)

    def _draft(self, now_ms: int) -> Draft:
        return Draft(self._limits, self._head, self._coordinator_epoch, self._new_producer_id, now_ms)


def _not_in_transactions(record: CoordinatorRecord, producer_id: ProducerId) -> InvariantError:
    return InvariantError(f"a record in a transaction of producer {producer_id}: {record!r}")


def _describe(entry: TransactionEntry) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=entry.transactional_id,
        state=entry.state.kafka_name,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        timeout_ms=entry.timeout_ms,
        start_time_ms=entry.start_time_ms,
        last_update_ms=entry.last_update_ms,
        partitions=entry.partitions,
    )
