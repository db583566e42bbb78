"""EndTxn (key 26), versions 0 to 5.

Does: commits or aborts a transaction. What was written in it is committed first; the answer leaves when the outcome is,
and the markers in the partitions follow.
Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (an empty transactional id),
INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE (nothing was written, or the other outcome stands),
CONCURRENT_TRANSACTIONS (the outcome is known and not everywhere yet), COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
Versions: 2 PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH; 5 the next transaction has another epoch, which the
answer tells, and an abort may be of nothing (KIP-890).
"""

import logging
from collections.abc import Coroutine

from exactlog.broker.asking import RequestWaiter
from exactlog.broker.error_words import in_words_of
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId
from exactlog.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from exactlog.core.transaction.requests import EndAnswer, EndRequest

_logger = logging.getLogger(__name__)

FENCED_SINCE = 2
NEXT_PRODUCER_SINCE = 5


def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse | Coroutine[None, None, None] | None:
    """Ends the transaction."""
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    ending = EndRequest(
        transactional_id=request.transactional_id,
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        is_commit=request.committed,
        transaction_version=2 if context.api_version >= NEXT_PRODUCER_SINCE else 1,
    )

    def respond(answer: EndAnswer) -> EndTxnResponse:
        if answer.error_code is not ErrorCode.NONE:
            return refuse(answer.error_code)
        return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)

    def refuse(error: ErrorCode) -> EndTxnResponse:
        return EndTxnResponse(error_code=in_words_of(context.api_version, error, fenced_since=FENCED_SINCE))

    waiter = RequestWaiter(context, respond, refuse)
    broker = context.broker
    runner = broker.transactions.find(request.transactional_id)
    if runner is None or broker.producer_ids.is_empty:
        return _end_when_ready(ending, waiter, context)
    broker.transactions.end(ending, waiter, runner=runner)
    return None


async def _end_when_ready(ending: EndRequest, waiter: RequestWaiter, context: RequestContext) -> None:
    """Ends it once the shard is loaded, and a producer id is at hand in case that the present one is used up."""
    try:
        await context.broker.producer_ids.fill()
    except OSError as error:
        _logger.error("no block of producer ids could be set aside: %s", error)
        waiter.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    found = await context.broker.transactions.load(ending.transactional_id)
    if isinstance(found, ErrorCode):
        waiter.fail(found)
    else:
        context.broker.transactions.end(ending, waiter, runner=found)
