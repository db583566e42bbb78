"""Aborts that no producer asked for: of a transaction that timed out, was taken over, or has lost its beginning.

The epoch goes up, once (KAFKA-19367), and where that uses the epochs up a new producer id is taken (KAFKA-20090): what
the producer still sends is refused, and the next one gets an epoch of its own.
"""

from msgspec.structs import replace

from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.draft import Draft
from exactlog.core.transaction.entry import (
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION_VERSION,
    TransactionEntry,
    complete,
    fence,
    prepare,
)
from exactlog.core.transaction.requests import WriteMarkers
from exactlog.core.transaction.states import TransactionState


def abort(entry: TransactionEntry, draft: Draft, *, is_fenced_for_good: bool = True) -> bool:
    """Aborts a transaction against its producer; False: it needs a new producer id, and there is none now.

    Where no transaction is open, the epoch goes up all the same.

    Args:
        is_fenced_for_good: whether the producer cannot go on by its id and epoch (below transaction version 2).
    """
    version = _version(entry, draft)
    needs_id = version >= EPOCH_PER_TRANSACTION_VERSION and entry.is_epoch_used_up
    next_producer_id = draft.new_producer_id() if needs_id else NO_PRODUCER_ID
    if next_producer_id is None:
        return False
    if entry.state is TransactionState.ONGOING:
        is_remembered = version >= EPOCH_PER_TRANSACTION_VERSION or not is_fenced_for_good
        entry = fence(entry, last_producer_epoch=entry.producer_epoch if is_remembered else NO_PRODUCER_EPOCH)
    draft.put(
        prepare(
            entry,
            is_commit=False,
            transaction_version=version,
            next_producer_id=next_producer_id,
            now_ms=draft.now_ms,
        )
    )
    return True


def abort_orphan(
    producer_id: ProducerId, producer_epoch: ProducerEpoch, partition: TopicPartition, draft: Draft
) -> bool:
    """Aborts what is open in a partition, unless the transaction of this producer ends it.

    A crash can leave data behind whose transaction never came to know of the partition. Its marker carries the next
    epoch, and the entry moves there with it: so a resend is fenced, never taken for a duplicate of what was aborted.
    What else belongs to the transaction is aborted with it.

    Returns:
        whether it is dealt with; False: a new producer id is needed, and there is none now.
    """
    entry = draft.head.by_producer_id(producer_id)
    if entry is not None and entry.ends(partition, producer_epoch):
        return True
    if entry is not None and entry.producer_epoch == producer_epoch and not _is_settled_without(entry):
        if entry.state.is_prepared:  # data of the next transaction: the markers are written, Complete was lost
            entry = complete(entry, now_ms=draft.now_ms)
            draft.put(entry)
        partitions = tuple(sorted({*entry.partitions, partition}))
        return abort(replace(entry, partitions=partitions), draft, is_fenced_for_good=False)
    draft.effect(
        WriteMarkers(
            transactional_id="",
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(min(producer_epoch + 1, EPOCH_MAX)),
            is_commit=False,
            coordinator_epoch=draft.coordinator_epoch,
            partitions=(partition,),
            transaction_version=draft.limits.transaction_version,
        )
    )
    return True


def _is_settled_without(entry: TransactionEntry) -> bool:
    """Whether its markers leave the epoch alone, or its producer id is about to go: nothing can be at its epoch."""
    return entry.state.is_prepared and (not entry.has_epoch_per_transaction or entry.next_producer_id != NO_PRODUCER_ID)


def _version(entry: TransactionEntry, draft: Draft) -> int:
    """The version an abort goes by: the broker's; only in the second one can what is not open be aborted."""
    if entry.state is TransactionState.ONGOING:
        return draft.limits.transaction_version
    return EPOCH_PER_TRANSACTION_VERSION
