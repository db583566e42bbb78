"""What one partition knows of its producers, and what it decides by that: idempotence and transactions.

An idempotent producer numbers its records, per partition, from 0. It keeps up to five batches in flight and resends
those whose answer it missed. The partition remembers each producer's epoch and its last five batches, and so can tell:

    the batch                                               answer
    equals one of the five (epoch, first and last sequence)  Duplicate: the first answer again, nothing appended
    is transactional, its producer has no transaction open
    here at that epoch, and the coordinator was not asked    Refused: INVALID_TXN_STATE (KIP-890)
    is of a lower epoch than the last seen                  Refused: INVALID_PRODUCER_EPOCH, a zombie
    starts a higher epoch, at sequence 0                    Fresh (the producer has bumped its epoch itself)
    starts a higher epoch, at another sequence              Refused: OUT_OF_ORDER_SEQUENCE_NUMBER
    follows the last sequence; 0 follows 2^31-1             Fresh
    leaves a gap, or is an old one no longer remembered     Refused: OUT_OF_ORDER_SEQUENCE_NUMBER
    is of a producer not known here, at sequence 0          Fresh
    the same at another sequence                            Fresh: what was known has expired or was deleted (KIP-360);
                                                            but Refused where an earlier batch is still under way: the
                                                            log has never held a record (KAFKA-15591), or it came while
                                                            the coordinator was being asked (KAFKA-14920)
    is not transactional, inside the producer's transaction  Refused: INVALID_TXN_STATE

A transaction is open from its first batch here to the marker that its coordinator has written. A marker

    of a lower epoch than the last seen                      Refused: INVALID_PRODUCER_EPOCH
    of the same epoch, of a coordinator that raises it with
    each transaction, while a transaction is open            the same: it belongs to the transaction before (KIP-890)
    of the same epoch, with no transaction open              Fresh: written once more, since its answer was missed
    of a coordinator before the last seen                    Refused: TRANSACTION_COORDINATOR_FENCED

Rules and their order are Apache Kafka's (``UnifiedLog.analyzeAndValidateProducerState``, ``ProducerAppendInfo``; trunk
of August 2026). `decide` and `judge_marker` only read; `replay` and `replay_marker` alone change the state, on the live
path and in recovery alike. Entries are replaced, never changed, so that several maps can share them: the one of what is
decided, the one of what is committed, and the snapshot that is being written to a checkpoint.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from exactlog.core.model.limits import (
    BATCHES_REMEMBERED_PER_PRODUCER,
    OPEN_TRANSACTIONS_PER_PARTITION_MAX,
    PRODUCERS_PER_PARTITION_MAX,
)
from exactlog.core.model.sequences import sequence_after
from exactlog.core.record.batch_format import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from exactlog.core.record.control_record_format import TransactionMarker


class RememberedBatch(msgspec.Struct, frozen=True, gc=False):
    """One of the last batches of a producer: its sequences and offsets, all inclusive, and its highest timestamp."""

    first_sequence: int
    last_sequence: int
    offset_start: Offset
    offset_end: Offset
    timestamp: TimestampMs


class ProducerEntry(msgspec.Struct, frozen=True, gc=False):
    """What a partition knows of one producer; encoded by msgspec it is an element of a checkpoint's ``producers[]``.

    ``batches`` are those of the current epoch, at most five, oldest first. ``coordinator_epoch`` is that of the last
    transaction marker. ``txn_start_offset`` is the first offset of the open transaction, None if there is none.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int = -1
    last_timestamp: TimestampMs = NO_TIMESTAMP
    batches: tuple[RememberedBatch, ...] = ()
    txn_start_offset: Offset | None = None

    @property
    def last_sequence(self) -> int:
        """The last sequence of the current epoch; `NO_SEQUENCE` before its first batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Fresh(msgspec.Struct, frozen=True, gc=False):
    """The batch is new and in order: append it."""


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The batch was appended before: answer with that batch's offset and timestamp, append nothing."""

    batch: RememberedBatch


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The batch must not be appended."""

    error_code: ErrorCode
    message: str


Decision: TypeAlias = Fresh | Duplicate | Refused

FRESH: Final = Fresh()

_EPOCH_BUMP: Final = 2  # the transaction version from which on a transaction ends with a raised epoch (KIP-890)
_FORGOTTEN_SHARE: Final = 8


class ProducerStates:
    """The producers of one partition.

    Attributes:
        first_undecided_offset: where the oldest open transaction begins; None without one.
    """

    __slots__ = ("_entries", "_open", "first_undecided_offset")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        """Start with the entries of a snapshot, or with none."""
        self._entries = {entry.producer_id: entry for entry in entries}
        self._open = OrderedDict(_open_transactions(self._entries.values()))  # by first offset: they begin in order
        self.first_undecided_offset = next(iter(self._open.values()), None)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        """Return what is known of a producer."""
        return self._entries.get(producer_id)

    def has_open_transaction(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Whether a transaction of the producer is open, and the producer still has that epoch."""
        return producer_id in self._open and self._entries[producer_id].producer_epoch == producer_epoch

    def open_transactions(self) -> list[ProducerEntry]:
        """Return the producers with an open transaction, by its first offset."""
        return [self._entries[producer_id] for producer_id in self._open]

    # --- deciding -----------------------------------------------------------------------------------------------

    def decide(
        self,
        header: BatchHeader,
        *,
        log_is_empty_forever: bool,
        is_client: bool = True,
        is_verified: bool = False,
        first_sequence_max: int | None = None,
    ) -> Decision:
        """Decide what to do with a batch that `validate_produced` has let pass.

        Args:
            header: of the batch; its offset is not looked at.
            log_is_empty_forever: whether the partition's log has never held a record.
            is_client: false for what the coordinators write themselves: no sequences, but epochs.
            is_verified: whether the coordinator has just said that the producer's transaction is open, with this
                partition in it.
            first_sequence_max: the highest sequence that the first batch of a producer that is not known here may
                begin with; None: any. 0 where it has a new epoch in each transaction (transaction version 2), else the
                lowest one that came while its coordinator was being asked: a batch above that has overtaken another.
        """
        if header.producer_id <= NO_PRODUCER_ID:
            return FRESH
        is_transactional = header.attributes & TRANSACTIONAL_BIT != 0
        entry = self._entries.get(header.producer_id)
        if entry is not None and is_client:
            if _is_next(header, entry):  # nearly every batch; the rules below come to the same
                return FRESH
            for batch in entry.batches:
                if _is_resend(header, entry, batch):
                    return Duplicate(batch)
        refusal = self._judge_membership(header, is_verified=is_verified) if is_transactional else None
        if refusal is not None:
            return refusal
        if entry is None:
            sequence_max = 0 if log_is_empty_forever else first_sequence_max
            refusal = _judge_unknown_producer(header, sequence_max) if is_client else None
            return refusal or FRESH
        refusal = _judge_epoch(header, entry)
        if refusal is None and is_client:
            refusal = _judge_sequence(header, entry)
        if refusal is None and entry.txn_start_offset is not None and not is_transactional:
            refusal = _refuse_outside(header, entry)
        return refusal or FRESH

    def _judge_membership(self, header: BatchHeader, *, is_verified: bool) -> Refused | None:
        """Whether its coordinator knows of the batch's transaction: else no marker would ever end it."""
        if self.has_open_transaction(header.producer_id, header.producer_epoch):
            return None
        if not is_verified:
            return Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id}, epoch {header.producer_epoch}: the batch is of no transaction that is "
                "open here",
            )
        if len(self._open) >= OPEN_TRANSACTIONS_PER_PARTITION_MAX and header.producer_id not in self._open:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"{len(self._open)} transactions are open here; a partition takes no more than that at once",
            )
        return None

    def judge_marker(
        self,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Fresh | Refused:
        """Decide whether a coordinator may end the producer's transaction (KIP-98, KIP-890, KAFKA-19999).

        Args:
            producer_id: whose transaction it is.
            producer_epoch: of the marker; from transaction version 2 on above that of the transaction's batches.
            coordinator_epoch: of the coordinator that decided.
            transaction_version: 2 or more: the coordinator raises the producer's epoch with each transaction.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return FRESH
        is_same_epoch = producer_epoch == entry.producer_epoch
        is_of_transaction_before = transaction_version >= _EPOCH_BUMP and entry.txn_start_offset is not None
        if producer_epoch < entry.producer_epoch or (is_same_epoch and is_of_transaction_before):
            return Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of producer {producer_id} has epoch {producer_epoch}, the last one seen is "
                f"{entry.producer_epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            return Refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of producer {producer_id} is of coordinator epoch {coordinator_epoch}, the last one seen is "
                f"{entry.coordinator_epoch}",
            )
        return FRESH

    # --- replaying ----------------------------------------------------------------------------------------------

    def replay(self, header: BatchHeader) -> ProducerEntry | None:
        """Take in a data batch of the log, its offsets assigned; the log is believed, whatever it holds.

        Return what is known of its producer now (None: it has no producer id), for a map that follows to `adopt`.
        """
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            raise InvariantError(f"the control batch at offset {header.base_offset} was replayed as data")
        if header.producer_id <= NO_PRODUCER_ID:
            return None
        known = self._entries.get(header.producer_id)
        if known is None or known.producer_epoch != header.producer_epoch:
            batches: tuple[RememberedBatch, ...] = ()
        else:
            batches = known.batches
        # What a coordinator writes has a producer but no sequence: there is nothing to tell a resend by.
        if header.base_sequence != NO_SEQUENCE:
            batches = (*batches[-(BATCHES_REMEMBERED_PER_PRODUCER - 1) :], _remember(header))
        txn_start_offset = None if known is None else known.txn_start_offset
        if attributes & TRANSACTIONAL_BIT and txn_start_offset is None:
            txn_start_offset = header.base_offset
        entry = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            -1 if known is None else known.coordinator_epoch,
            header.max_timestamp,
            batches,
            txn_start_offset,
        )
        self.adopt(entry)
        return entry

    def replay_marker(
        self, header: BatchHeader, marker: TransactionMarker
    ) -> tuple[ProducerEntry, AbortedTransaction | None]:
        """Take in a control batch of the log: it ends the producer's transaction, and its epoch may be a new one.

        Return what is known of the producer now, for a map that follows to `adopt`, and the transaction if one was
        open and is aborted by this. A marker of no open transaction, which is one written again, aborts nothing.
        """
        known = self._entries.get(header.producer_id)
        is_same_epoch = known is not None and known.producer_epoch == header.producer_epoch
        entry = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            header.max_timestamp,
            known.batches if known is not None and is_same_epoch else (),
        )
        self.adopt(entry)
        first_offset = None if known is None else known.txn_start_offset
        if marker.is_commit or first_offset is None:
            return entry, None
        undecided = self.first_undecided_offset
        return entry, AbortedTransaction(
            producer_id=header.producer_id,
            first_offset=first_offset,
            last_offset=header.last_offset,
            last_stable_offset=header.next_offset if undecided is None else undecided,
        )

    def adopt(self, entry: ProducerEntry) -> None:
        """Take in the same batch as the map did whose `replay` returned this, in the same order: share the entry."""
        if entry.producer_id not in self._entries and len(self._entries) >= PRODUCERS_PER_PARTITION_MAX:
            self._forget_the_most_silent()
        self._entries[entry.producer_id] = entry
        if entry.txn_start_offset is not None:
            self._open.setdefault(entry.producer_id, entry.txn_start_offset)
            if self.first_undecided_offset is None:
                self.first_undecided_offset = entry.txn_start_offset
        elif self._open and self._open.pop(entry.producer_id, None) == self.first_undecided_offset:
            self.first_undecided_offset = next(iter(self._open.values()), None)

    # --- forgetting ---------------------------------------------------------------------------------------------

    def expire(self, *, now_ms: TimestampMs, expiration_ms: int) -> int:
        """Forget the producers that have been silent for ``producer.id.expiration.ms``; return how many.

        Silence counts from the highest timestamp of the last batch, which the producer sets where the topic lets it.
        A producer with an open transaction stays.
        """
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.txn_start_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def _forget_the_most_silent(self) -> None:
        """Make room, as if the expiration were shorter; for many at a time, since each time looks at all."""
        silent = [entry for entry in self._entries.values() if entry.txn_start_offset is None]
        silent.sort(key=lambda entry: (entry.last_timestamp, entry.producer_id))
        for entry in silent[: PRODUCERS_PER_PARTITION_MAX // _FORGOTTEN_SHARE]:
            del self._entries[entry.producer_id]

    def snapshot(self) -> tuple[ProducerEntry, ...]:
        """Return all entries, by producer id: the ``producers[]`` of a checkpoint."""
        return tuple(self._entries[producer_id] for producer_id in sorted(self._entries))

    def copy(self) -> "ProducerStates":
        """Return a second map that shares the entries and changes apart."""
        return ProducerStates(self._entries.values())


def _open_transactions(entries: Iterable[ProducerEntry]) -> list[tuple[ProducerId, Offset]]:
    found = [(entry.txn_start_offset, entry.producer_id) for entry in entries if entry.txn_start_offset is not None]
    return [(producer_id, first_offset) for first_offset, producer_id in sorted(found)]


def _remember(header: BatchHeader) -> RememberedBatch:
    return RememberedBatch(
        header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
    )


def _is_next(header: BatchHeader, entry: ProducerEntry) -> bool:
    return (
        header.producer_epoch == entry.producer_epoch
        and header.base_sequence == sequence_after(entry.last_sequence)
        and (header.attributes & TRANSACTIONAL_BIT != 0) is (entry.txn_start_offset is not None)
    )


def _is_resend(header: BatchHeader, entry: ProducerEntry, batch: RememberedBatch) -> bool:
    return (
        header.base_sequence == batch.first_sequence
        and header.last_sequence == batch.last_sequence
        and header.producer_epoch == entry.producer_epoch
    )


def _judge_unknown_producer(header: BatchHeader, sequence_max: int | None) -> Refused | None:
    if sequence_max is None or header.base_sequence <= sequence_max:
        return None
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}: sequence {header.base_sequence} came where {sequence_max} was due, the first "
        "batch of it is still under way",
    )


def _judge_epoch(header: BatchHeader, entry: ProducerEntry) -> Refused | None:
    if header.producer_epoch >= entry.producer_epoch:
        return None
    return Refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} has epoch {header.producer_epoch}, the last one seen is {entry.producer_epoch}",
    )


def _judge_sequence(header: BatchHeader, entry: ProducerEntry) -> Refused | None:
    is_same_epoch = header.producer_epoch == entry.producer_epoch
    expected = sequence_after(entry.last_sequence) if is_same_epoch else 0
    if header.base_sequence == expected:
        return None
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}, epoch {header.producer_epoch}: "
        f"sequence {header.base_sequence} came where {expected} was due",
    )


def _refuse_outside(header: BatchHeader, entry: ProducerEntry) -> Refused:
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {header.producer_id} sent a batch without a transaction, its transaction since offset "
        f"{entry.txn_start_offset} is open",
    )
