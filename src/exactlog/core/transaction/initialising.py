"""InitProducerId with a transactional id: which producer id and epoch its producer goes on with.

Who asks without an id and epoch takes the transactional id over: whoever had it before is fenced. Who gives the ones it
has goes on with the next epoch (KIP-360), if nobody else has taken it over; asking again gives the same answer again.
"""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch
from exactlog.core.model.limits import TRANSACTIONAL_ID_LENGTH_MAX
from exactlog.core.transaction.aborting import abort
from exactlog.core.transaction.draft import NO_ID_NOW, Draft
from exactlog.core.transaction.entry import (
    EPOCH_MAX,
    LAST_USABLE_EPOCH,
    TransactionEntry,
    create,
    initialise,
    rotate,
)
from exactlog.core.transaction.limits import TransactionLimits
from exactlog.core.transaction.requests import InitAnswer, InitRequest
from exactlog.core.transaction.states import TransactionState


def initialise_producer(request: InitRequest, draft: Draft) -> InitAnswer:
    """Decides what the producer gets."""
    if not 0 < len(request.transactional_id) <= TRANSACTIONAL_ID_LENGTH_MAX:
        return InitAnswer(error_code=ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return InitAnswer(error_code=ErrorCode.INVALID_REQUEST)
    timeout_ms = _timeout_ms(request.timeout_ms, draft.limits)
    if timeout_ms is None:
        return InitAnswer(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    entry = draft.entry(request.transactional_id)
    if entry is None:
        return _begin(request.transactional_id, timeout_ms, draft)
    if not _may_ask(request, entry):
        return InitAnswer(error_code=ErrorCode.PRODUCER_FENCED)
    if entry.state.is_prepared:
        return InitAnswer(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    if entry.state is TransactionState.ONGOING:
        return InitAnswer(error_code=ErrorCode.CONCURRENT_TRANSACTIONS if abort(entry, draft) else NO_ID_NOW)
    return _go_on(request, entry, timeout_ms, draft)


def _timeout_ms(asked_ms: int, limits: TransactionLimits) -> int | None:
    """The time-out that holds; None: what was asked for is refused."""
    if not limits.clamps_timeout and not 0 < asked_ms <= limits.timeout_ms_max:
        return None
    return min(max(asked_ms, limits.timeout_ms_min), limits.timeout_ms_max)


def _begin(transactional_id: str, timeout_ms: int, draft: Draft) -> InitAnswer:
    if len(draft.head) >= draft.limits.transactional_ids_max:
        return InitAnswer(error_code=ErrorCode.POLICY_VIOLATION)
    producer_id = draft.new_producer_id()
    if producer_id is None:
        return InitAnswer(error_code=NO_ID_NOW)
    return _give(
        create(transactional_id, producer_id=producer_id, timeout_ms=timeout_ms, now_ms=draft.now_ms),
        draft,
    )


def _may_ask(request: InitRequest, entry: TransactionEntry) -> bool:
    """Whether it has, had just before, or is about to get, the producer id that it gives."""
    if request.producer_id in {NO_PRODUCER_ID, entry.producer_id, entry.next_producer_id}:
        return True
    return request.producer_id == entry.previous_producer_id and request.producer_epoch >= LAST_USABLE_EPOCH


def _go_on(request: InitRequest, entry: TransactionEntry, timeout_ms: int, draft: Draft) -> InitAnswer:
    """No transaction is open: the next epoch, or the next producer id."""
    given = request.producer_epoch
    takes_over = given == NO_PRODUCER_EPOCH
    is_retry = not takes_over and given == entry.last_producer_epoch
    if given != entry.producer_epoch and not takes_over and not is_retry:
        return InitAnswer(error_code=ErrorCode.PRODUCER_FENCED)
    if given != entry.producer_epoch and is_retry and entry.producer_epoch != EPOCH_MAX:
        return _repeat(entry, timeout_ms, draft)
    last = NO_PRODUCER_EPOCH if takes_over else given
    if entry.is_epoch_used_up:
        producer_id = draft.new_producer_id()
        if producer_id is None:
            return InitAnswer(error_code=NO_ID_NOW)
        return _give(
            rotate(
                entry,
                producer_id=producer_id,
                last_producer_epoch=last,
                timeout_ms=timeout_ms,
                now_ms=draft.now_ms,
            ),
            draft,
        )
    return _give(
        initialise(
            entry,
            producer_epoch=ProducerEpoch(entry.producer_epoch + 1),
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            now_ms=draft.now_ms,
        ),
        draft,
    )


def _repeat(entry: TransactionEntry, timeout_ms: int, draft: Draft) -> InitAnswer:
    """It did not get the answer to what it asked before: the same one."""
    if entry.state is TransactionState.EMPTY and entry.timeout_ms == timeout_ms:
        return InitAnswer(producer_id=entry.producer_id, producer_epoch=entry.producer_epoch)
    return _give(
        initialise(
            entry,
            producer_epoch=entry.producer_epoch,
            last_producer_epoch=entry.last_producer_epoch,
            timeout_ms=timeout_ms,
            now_ms=draft.now_ms,
        ),
        draft,
    )


def _give(entry: TransactionEntry, draft: Draft) -> InitAnswer:
    draft.put(entry)
    return InitAnswer(producer_id=entry.producer_id, producer_epoch=entry.producer_epoch)
