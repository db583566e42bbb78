"""EndTxn: commits or aborts, in both versions of the protocol, and what follows once the markers are written.

In version 1 the epoch stays, so that the request of one transaction cannot be told from that of the next (KAFKA-17754).
In version 2 it goes up when the outcome is decided: a request at the epoch before is a retry, one at the present epoch
is of the next transaction. The tables are those of KIP-98 and KIP-890.
"""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_PRODUCER_ID
from exactlog.core.transaction.adding import is_current_epoch
from exactlog.core.transaction.draft import NO_ID_NOW, Draft
from exactlog.core.transaction.entry import (
    EPOCH_PER_TRANSACTION_VERSION,
    FIRST_EPOCH,
    LAST_USABLE_EPOCH,
    TransactionEntry,
    prepare,
)
from exactlog.core.transaction.requests import EndAnswer, EndRequest
from exactlog.core.transaction.states import TransactionState

_FENCED = EndAnswer(error_code=ErrorCode.PRODUCER_FENCED)
_INVALID_STATE = EndAnswer(error_code=ErrorCode.INVALID_TXN_STATE)
_CONCURRENT = EndAnswer(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
_OTHER_PRODUCER = EndAnswer(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def end_transaction(request: EndRequest, draft: Draft) -> EndAnswer:
    """Decides the outcome of a transaction, or tells what was decided of it."""
    if not request.transactional_id:
        return EndAnswer(error_code=ErrorCode.INVALID_REQUEST)
    entry = draft.entry(request.transactional_id)
    if entry is None:
        return _OTHER_PRODUCER
    if request.transaction_version >= EPOCH_PER_TRANSACTION_VERSION:
        return _end_with_next_epoch(request, entry, draft)
    return _end_at_same_epoch(request, entry, draft)


def _end_at_same_epoch(request: EndRequest, entry: TransactionEntry, draft: Draft) -> EndAnswer:
    if request.producer_id != entry.producer_id:
        return _OTHER_PRODUCER
    if not is_current_epoch(request.producer_epoch, entry.producer_epoch):
        return _FENCED
    if entry.state is TransactionState.ONGOING:
        version = request.transaction_version
        draft.put(prepare(entry, is_commit=request.is_commit, transaction_version=version, now_ms=draft.now_ms))
        return EndAnswer()
    if not _is_outcome(request, entry):
        return _INVALID_STATE
    return _CONCURRENT if entry.state.is_prepared else EndAnswer()


def _end_with_next_epoch(request: EndRequest, entry: TransactionEntry, draft: Draft) -> EndAnswer:
    is_before_rotation = (
        request.producer_id == entry.previous_producer_id
        and request.producer_epoch == LAST_USABLE_EPOCH
        and entry.producer_epoch == FIRST_EPOCH
    )
    producer_id, producer_epoch = entry.next_identity
    if request.producer_id not in {entry.producer_id, producer_id} and not is_before_rotation:
        return _OTHER_PRODUCER
    if _is_retry(request, entry, is_before_rotation=is_before_rotation):
        return _repeat(request, entry)
    if request.producer_id != producer_id or not is_current_epoch(request.producer_epoch, producer_epoch):
        return _FENCED
    if entry.state.is_prepared:
        return _CONCURRENT  # KAFKA-18464: the next transaction has to wait for the markers of this one
    if request.is_commit and entry.state is not TransactionState.ONGOING:
        return _INVALID_STATE
    next_producer_id = draft.new_producer_id() if entry.is_epoch_used_up else NO_PRODUCER_ID
    if next_producer_id is None:
        return EndAnswer(error_code=NO_ID_NOW)
    prepared = prepare(
        entry,
        is_commit=request.is_commit,
        transaction_version=request.transaction_version,
        next_producer_id=next_producer_id,
        now_ms=draft.now_ms,
    )
    draft.put(prepared)
    producer_id, producer_epoch = prepared.next_identity
    return EndAnswer(producer_id=producer_id, producer_epoch=producer_epoch)


def _is_retry(request: EndRequest, entry: TransactionEntry, *, is_before_rotation: bool) -> bool:
    """Whether the transaction it speaks of is the one that ended last.

    Only an end that raised the epoch leaves such an epoch behind: below it is somebody who was fenced.
    """
    if not entry.has_epoch_per_transaction or not (entry.state.is_prepared or entry.state.is_complete):
        return False
    if request.producer_id == entry.producer_id:
        return request.producer_epoch + 1 == entry.producer_epoch
    return is_before_rotation


def _repeat(request: EndRequest, entry: TransactionEntry) -> EndAnswer:
    if _is_outcome(request, entry):
        if entry.state.is_prepared:
            return _CONCURRENT
        return EndAnswer(producer_id=entry.producer_id, producer_epoch=entry.producer_epoch)
    # KAFKA-20785: where it was aborted the coordinator may have done that, because the transaction timed out.
    return _FENCED if request.is_commit else _INVALID_STATE


def _is_outcome(request: EndRequest, entry: TransactionEntry) -> bool:
    """Whether what is asked for is what was decided last."""
    if request.is_commit:
        return entry.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
    return entry.state in {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT}
