"""What one partition knows of its producers, and what it decides by that: idempotence (KIP-98, KIP-360).

An idempotent producer numbers its records, per partition, from 0. It keeps up to five batches in flight and resends
those whose answer it missed. The partition remembers each producer's epoch and its last five batches, and so can tell:

    the batch                                               answer
    equals one of the five (epoch, first and last sequence)  Duplicate: the first answer again, nothing appended
    is of a lower epoch than the last seen                  Refused: INVALID_PRODUCER_EPOCH, a zombie
    starts a higher epoch, at sequence 0                    Fresh (the producer has bumped its epoch itself)
    starts a higher epoch, at another sequence              Refused: OUT_OF_ORDER_SEQUENCE_NUMBER
    follows the last sequence; 0 follows 2^31-1             Fresh
    leaves a gap, or is an old one no longer remembered     Refused: OUT_OF_ORDER_SEQUENCE_NUMBER
    is of a producer not known here, at sequence 0          Fresh
    the same at another sequence                            Fresh: what was known has expired or was deleted (KIP-360);
                                                            but Refused where the log has never held a record, since
                                                            then an earlier batch is still under way (KAFKA-15591)
    is not transactional, inside the producer's transaction  Refused: INVALID_TXN_STATE

Rules and their order are Apache Kafka's (``UnifiedLog.analyzeAndValidateProducerState``, ``ProducerAppendInfo``; trunk
of August 2026). `ProducerStates.decide` only reads; `replay` is the only thing that changes the state, on the live path
and in recovery alike. Entries are replaced, never changed, so that several maps can share them: the one of what is
decided, the one of what is committed, and the snapshot that is being written to a checkpoint.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

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
from exactlog.core.model.limits import BATCHES_REMEMBERED_PER_PRODUCER
from exactlog.core.model.sequences import sequence_after
from exactlog.core.record.batch_format import BatchHeader
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


class ProducerStates:
    """The producers of one partition."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        """Start with the entries of a snapshot, or with none."""
        self._entries = {entry.producer_id: entry for entry in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        """Return what is known of a producer."""
        return self._entries.get(producer_id)

    def decide(self, header: BatchHeader, *, log_is_empty_forever: bool, is_client: bool = True) -> Decision:
        """Decide what to do with a batch that `validate_produced` has let pass.

        Args:
            header: of the batch; its offset is not looked at.
            log_is_empty_forever: whether the partition's log has never held a record.
            is_client: false for what the coordinators write themselves: no sequences, but epochs.
        """
        if not header.has_producer_id:
            return FRESH
        entry = self._entries.get(header.producer_id)
        if entry is None:
            refusal = _judge_unknown_producer(header) if is_client and log_is_empty_forever else None
            return refusal or FRESH
        if is_client:
            if _is_next(header, entry):  # nearly every batch; the rules below come to the same
                return FRESH
            for batch in entry.batches:
                if _is_resend(header, entry, batch):
                    return Duplicate(batch)
        refusal = _judge_epoch(header, entry)
        if refusal is None and is_client:
            refusal = _judge_sequence(header, entry)
        return refusal or _judge_transaction(header, entry) or FRESH

    def replay(self, header: BatchHeader) -> ProducerEntry | None:
        """Take in a data batch of the log, its offsets assigned; the log is believed, whatever it holds.

        Return what is known of its producer now (None: it has no producer id), for a map that follows to `adopt`.
        """
        if header.is_control:
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
        if header.is_transactional and txn_start_offset is None:
            txn_start_offset = header.base_offset
        entry = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            -1 if known is None else known.coordinator_epoch,
            header.max_timestamp,
            batches,
            txn_start_offset,
        )
        self._entries[header.producer_id] = entry
        return entry

    def adopt(self, entry: ProducerEntry) -> None:
        """Take in the same batch as the map did whose `replay` returned this, in the same order: share the entry."""
        self._entries[entry.producer_id] = entry

    def replay_marker(self, header: BatchHeader, marker: TransactionMarker) -> None:
        """Take in a control batch of the log: it ends the producer's transaction, and its epoch may be a new one."""
        known = self._entries.get(header.producer_id)
        is_same_epoch = known is not None and known.producer_epoch == header.producer_epoch
        self._entries[header.producer_id] = ProducerEntry(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp=header.max_timestamp,
            batches=known.batches if known is not None and is_same_epoch else (),
        )

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

    def snapshot(self) -> tuple[ProducerEntry, ...]:
        """Return all entries, by producer id: the ``producers[]`` of a checkpoint."""
        return tuple(self._entries[producer_id] for producer_id in sorted(self._entries))

    def copy(self) -> "ProducerStates":
        """Return a second map that shares the entries and changes apart."""
        return ProducerStates(self._entries.values())


def _remember(header: BatchHeader) -> RememberedBatch:
    return RememberedBatch(
        first_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        offset_start=header.base_offset,
        offset_end=header.last_offset,
        timestamp=header.max_timestamp,
    )


def _is_next(header: BatchHeader, entry: ProducerEntry) -> bool:
    return (
        header.producer_epoch == entry.producer_epoch
        and header.base_sequence == sequence_after(entry.last_sequence)
        and entry.txn_start_offset is None
    )


def _is_resend(header: BatchHeader, entry: ProducerEntry, batch: RememberedBatch) -> bool:
    return (
        header.base_sequence == batch.first_sequence
        and header.last_sequence == batch.last_sequence
        and header.producer_epoch == entry.producer_epoch
    )


def _judge_unknown_producer(header: BatchHeader) -> Refused | None:
    if header.base_sequence == 0:
        return None
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}: sequence {header.base_sequence} came where 0 was due, "
        "the log has never held a record",
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


def _judge_transaction(header: BatchHeader, entry: ProducerEntry) -> Refused | None:
    if entry.txn_start_offset is None or header.is_transactional:
        return None
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {header.producer_id} sent a batch without a transaction, its transaction since offset "
        f"{entry.txn_start_offset} is open",
    )
