"""InitProducerId (key 22), versions 0 to 5.

Does: gives an idempotent producer an id that nobody had before, with epoch 0.
Errors: CLUSTER_AUTHORIZATION_FAILED (who may write to no topic gets no id, KIP-679),
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (a producer id without an epoch, or the other way round; an empty
transactional id; a transactional id at all, until transactions exist), COORDINATOR_NOT_AVAILABLE (the disk refuses to
set ids aside).
Versions: 3 a producer that bumps its epoch names its id and epoch; without a transactional id it just gets a new id.
Not done: transactional producers.
"""

import logging

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_logger = logging.getLogger(__name__)


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Takes the next producer id."""
    refused = _authorization_error(request, context)
    if refused is not None:
        return InitProducerIdResponse(error_code=refused, producer_epoch=-1)
    has_half = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if has_half or request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        producer_id = await context.broker.producer_ids.take()
    except OSError as error:
        _logger.error("no block of producer ids could be set aside: %s", error)
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _authorization_error(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    if request.transactional_id is not None:
        if context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = context.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or any(
        context.allows(Operation.WRITE, ResourceType.TOPIC, topic.name) for topic in context.broker.topics.topics()
    )
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
