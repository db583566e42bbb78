"""InitProducerId (key 22), versions 0 to 5.

Does: gives an idempotent producer an id that nobody had before, with epoch 0.
Errors: INVALID_REQUEST (a producer id without an epoch, or the other way round; an empty transactional id; a
transactional id at all, until transactions exist), COORDINATOR_NOT_AVAILABLE (the disk refuses to set ids aside).
Versions: 3 a producer that bumps its epoch names its id and epoch; without a transactional id it just gets a new id.
Not done: transactional producers.
"""

import logging

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_logger = logging.getLogger(__name__)


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Takes the next producer id."""
    has_half = (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)
    if has_half or request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        producer_id = await context.broker.producer_ids.take()
    except OSError as error:
        _logger.error("no block of producer ids could be set aside: %s", error)
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
