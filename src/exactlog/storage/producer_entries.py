"""Producer state as a checkpoint holds it, and back."""

from collections.abc import Iterable

from exactlog.core.deltalog import checkpoint_format
from exactlog.core.log.producer_state import ProducerEntry, ProducerStates, RememberedBatch


def producers_of(checkpoint: checkpoint_format.Checkpoint) -> ProducerStates:
    """The producer state as of a checkpoint."""
    return ProducerStates(
        ProducerEntry(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp=entry.last_timestamp,
            batches=tuple(
                RememberedBatch(
                    batch.first_sequence, batch.last_sequence, batch.offset_start, batch.offset_end, batch.timestamp
                )
                for batch in entry.batches
            ),
            txn_start_offset=entry.txn_start_offset,
        )
        for entry in checkpoint.producers
    )


def to_checkpoint_entries(entries: Iterable[ProducerEntry]) -> tuple[checkpoint_format.ProducerEntry, ...]:
    """The `producers[]` of a checkpoint."""
    return tuple(
        checkpoint_format.ProducerEntry(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp=entry.last_timestamp,
            batches=tuple(
                checkpoint_format.ProducerBatchEntry(
                    first_sequence=batch.first_sequence,
                    last_sequence=batch.last_sequence,
                    offset_start=batch.offset_start,
                    offset_end=batch.offset_end,
                    timestamp=batch.timestamp,
                )
                for batch in entry.batches
            ),
            txn_start_offset=entry.txn_start_offset,
        )
        for entry in entries
    )


def to_open_transactions(entries: Iterable[ProducerEntry]) -> tuple[checkpoint_format.OpenTransactionEntry, ...]:
    """The `open_transactions[]` of a checkpoint, in the order of their beginnings."""
    found = [
        checkpoint_format.OpenTransactionEntry(
            producer_id=entry.producer_id, producer_epoch=entry.producer_epoch, first_offset=entry.txn_start_offset
        )
        for entry in entries
        if entry.txn_start_offset is not None
    ]
    return tuple(sorted(found, key=lambda transaction: transaction.first_offset))
