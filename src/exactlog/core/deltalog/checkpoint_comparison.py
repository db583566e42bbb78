"""Whether a delta checkpoint is what replaying the delta log gives.

The table must be equal in everything. Producers may be fewer: a broker forgets those that have been silent for
`producer.id.expiration.ms`, and that is in no version. One that was forgotten and wrote again has lost what it did
before; an open transaction is never forgotten.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from exactlog.core.deltalog.checkpoint_format import OpenTransactionEntry
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.log.producer_state import ProducerEntry, ProducerStates
from exactlog.core.model.ids import Offset, ProducerId

_NO_COORDINATOR_EPOCH: Final = -1
_SHOWN_MAX: Final = 200  # characters of a value: what fits a screen


def find_table_difference(told: TableSnapshot, replayed: TableSnapshot) -> str | None:
    """What a checkpoint tells otherwise than the replay; None where they agree."""
    for name in TableSnapshot.__struct_fields__:
        theirs, ours = getattr(told, name), getattr(replayed, name)
        if theirs != ours:
            return f"its {name} is not what replaying the delta commits gives: {_shorten(theirs)}, not {_shorten(ours)}"
    return None


def find_producers_difference(
    told: Iterable[ProducerEntry], open_transactions: Sequence[OpenTransactionEntry], replayed: ProducerStates
) -> str | None:
    """What a checkpoint tells otherwise of producers and their transactions; None where it may be right."""
    known: dict[ProducerId, Offset | None] = {}
    for entry in told:
        expected = replayed.get(entry.producer_id)
        if expected is None:
            return f"it knows producer {entry.producer_id}, which has written nothing"
        if not _may_be_kept_of(entry, expected):
            return f"what it knows of producer {entry.producer_id} is not what the producer's batches give"
        known[entry.producer_id] = entry.txn_start_offset
    for expected in replayed.snapshot():
        if expected.txn_start_offset is not None and expected.producer_id not in known:
            return f"it does not know producer {expected.producer_id}, which has an open transaction"
    listed = {transaction.producer_id for transaction in open_transactions}
    for producer_id, first_offset in known.items():
        if first_offset is not None and producer_id not in listed:
            return f"it does not list the open transaction of producer {producer_id}"
    for transaction in open_transactions:
        if known.get(transaction.producer_id) != transaction.first_offset:
            return f"it says that a transaction of producer {transaction.producer_id} is open, which is not"
    return None


def _may_be_kept_of(told: ProducerEntry, expected: ProducerEntry) -> bool:
    """Whether that is what is known of a producer, but for what was forgotten before it wrote again."""
    kept = len(told.batches)
    return (
        told.producer_epoch == expected.producer_epoch
        and told.last_timestamp == expected.last_timestamp
        and told.txn_start_offset == expected.txn_start_offset
        and told.coordinator_epoch in {_NO_COORDINATOR_EPOCH, expected.coordinator_epoch}
        and told.batches == expected.batches[len(expected.batches) - kept :]
    )


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
