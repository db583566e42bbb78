"""AddPartitionsToTxn, the implicit add of a Produce from version 12 on (KIP-890), and its verification.

A transaction begins with its first partitions. While the markers of the one before are being written, a request waits.
"""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch
from exactlog.core.transaction.draft import Draft
from exactlog.core.transaction.entry import LAST_USABLE_EPOCH, TransactionEntry, add
from exactlog.core.transaction.requests import AddPartitionsRequest
from exactlog.core.transaction.states import TransactionState


def add_partitions(request: AddPartitionsRequest, draft: Draft) -> ErrorCode | None:
    """Decides whether the partitions are part of the transaction now; None: it has to wait for markers."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    entry = draft.entry(request.transactional_id)
    if entry is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer_id, producer_epoch = entry.next_identity
    if request.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not is_current_epoch(request.producer_epoch, producer_epoch):
        return ErrorCode.PRODUCER_FENCED
    if entry.state.is_prepared:
        return None
    is_ongoing = entry.state is TransactionState.ONGOING
    known = set(entry.partitions)
    if is_ongoing and known.issuperset(request.partitions):
        return ErrorCode.NONE
    if request.verify_only:
        return ErrorCode.TRANSACTION_ABORTABLE
    partitions = tuple(sorted(known.union(request.partitions)))
    refusal = _refusal(entry, len(partitions), draft)
    if refusal is ErrorCode.NONE:
        draft.put(add(entry, partitions, transaction_version=request.transaction_version, now_ms=draft.now_ms))
    return refusal


def is_current_epoch(given: ProducerEpoch, current: ProducerEpoch) -> bool:
    """Whether a client may act at the epoch it gives; the last one is for markers only."""
    return given == current and given <= LAST_USABLE_EPOCH


def _refusal(entry: TransactionEntry, count: int, draft: Draft) -> ErrorCode:
    """What to tell a transaction that would go beyond a bound; NONE where it does not."""
    if count > draft.limits.partitions_per_transaction_max:
        return ErrorCode.TRANSACTION_ABORTABLE
    before = draft.head.get(entry.transactional_id)
    is_counted = before is not None and before.state.is_open
    open_partitions = draft.head.open_partitions - (len(before.partitions) if before is not None and is_counted else 0)
    is_too_much = (
        not is_counted and len(draft.head.open_ids()) >= draft.limits.open_transactions_max
    ) or open_partitions + count > draft.limits.open_partitions_max
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_too_much else ErrorCode.NONE
