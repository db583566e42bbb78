"""InitProducerId (key 22), versions 0 to 5.

Does: gives an idempotent producer an id that nobody had before, with epoch 0. Gives a transactional one the id that its
transactional id has, with an epoch that fences whoever had it before; an open transaction is aborted first.
Errors: CLUSTER_AUTHORIZATION_FAILED (who may write to no topic gets no id, KIP-679),
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (a producer id without an epoch, or the other way round; an empty
transactional id), INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS (the last transaction is not over yet),
PRODUCER_FENCED, COORDINATOR_NOT_AVAILABLE (transactions are turned off; the disk refuses to set ids aside),
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
Versions: 3 a producer that bumps its epoch names its id and epoch (KIP-360); without a transactional id it just gets a
new id; 4 PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH.
"""

import logging

from exactlog.broker.asking import Later, RequestWaiter, ask_shard
from exactlog.broker.error_words import in_words_of
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.transaction.requests import InitAnswer, InitRequest
from exactlog.core.transaction.shard import TransactionShard

_logger = logging.getLogger(__name__)

FENCED_SINCE = 4


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse | None:
    """Takes the next producer id, or asks the coordinator of the transactional id for its own."""
    refused = _authorization_error(request, context)
    if refused is not None:
        return _refuse(refused)
    has_half = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if has_half or request.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            producer_id = await context.broker.producer_ids.take()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        await context.broker.producer_ids.fill()
    except OSError as error:
        _logger.error("no block of producer ids could be set aside: %s", error)
        return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    later = _ask(request.transactional_id, request, context)
    if later is not None:
        await later
    return None


def _ask(transactional_id: str, request: InitProducerIdRequest, context: RequestContext) -> Later:
    asked = InitRequest(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
    )

    def decide(shard: TransactionShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.init_producer_id(asked, waiter, now_ms=now_ms)

    def respond(answer: InitAnswer) -> InitProducerIdResponse:
        if answer.error_code is not ErrorCode.NONE:
            return refuse(answer.error_code)
        return InitProducerIdResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)

    def refuse(error: ErrorCode) -> InitProducerIdResponse:
        return _refuse(in_words_of(context.api_version, error, fenced_since=FENCED_SINCE))

    waiter = RequestWaiter(context, respond, refuse)
    return ask_shard(context.broker.transactions, transactional_id, decide, waiter)


def _refuse(error_code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_epoch=NO_PRODUCER_EPOCH)


def _authorization_error(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    if request.transactional_id is not None:
        if context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = context.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or any(
        context.allows(Operation.WRITE, ResourceType.TOPIC, topic.name) for topic in context.broker.topics.topics()
    )
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
