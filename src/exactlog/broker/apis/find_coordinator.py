"""FindCoordinator (key 10), versions 0 to 6.

Does: names the broker that coordinates a group (type 0) or a transactional id (type 1): on a single node, this one.
Errors: GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (an empty key, an unknown
type), COORDINATOR_NOT_AVAILABLE (transactions are turned off; the disk refuses the coordinator's topic).
Versions: 1 key types; 4 several keys at once, whose errors stand in their own entries.
Not done: share groups (type 2).
"""

import logging
from collections.abc import Coroutine

from exactlog.broker.coordinator.groups import GroupCoordinator
from exactlog.broker.coordinator.transactions import TransactionCoordinator
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_logger = logging.getLogger(__name__)

SEVERAL_KEYS_SINCE = 4
GROUP, TRANSACTION = 0, 1


def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Coroutine[None, None, FindCoordinatorResponse]:
    """Answers with this broker; who is the first to look for one waits until there is a topic for what it keeps."""
    shards = _shards(request.key_type, context)
    keys = request.coordinator_keys if context.api_version >= SEVERAL_KEYS_SINCE else (request.key,)
    is_missing = shards is not None and shards.partition_of("") is None
    if (
        is_missing
        and shards is not None
        and any(_authorization_error(key, request.key_type, context) is None for key in keys)
    ):
        return _make_topic_and_answer(shards, request, context)
    return _answer(request, context)


def _shards(key_type: int, context: RequestContext) -> GroupCoordinator | TransactionCoordinator | None:
    if key_type == GROUP:
        return context.broker.groups
    is_transaction = key_type == TRANSACTION and context.broker.transactions.is_enabled
    return context.broker.transactions if is_transaction else None


async def _make_topic_and_answer(
    shards: GroupCoordinator | TransactionCoordinator, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    try:
        await shards.ensure_topic()
    except KafkaError as error:
        _logger.error("there can be no coordinator: %s", error)
        return _refuse_all(request, context, error)
    return _answer(request, context)


def _refuse_all(request: FindCoordinatorRequest, context: RequestContext, error: KafkaError) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if context.api_version >= SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=tuple(_refused(key, str(error), code) for key in request.coordinator_keys)
        )
    return FindCoordinatorResponse(error_code=code, error_message=str(error), node_id=-1, host="", port=-1)


def _answer(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= SEVERAL_KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=tuple(_find(key, request.key_type, context) for key in request.coordinator_keys)
        )
    found = _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    refused = _authorization_error(key, key_type, context)
    if refused is not None:
        return _refused(key, "You may not describe it.", refused)
    if key_type not in (GROUP, TRANSACTION):
        return _refused(key, f"Coordinators of type {key_type} are not known here.")
    if key_type == TRANSACTION and not context.broker.transactions.is_enabled:
        return _refused(key, "Transactions are turned off.", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not key and key_type == TRANSACTION and context.api_version < SEVERAL_KEYS_SINCE:  # as Apache Kafka
        return _refused(key, "The transactional id is empty.")
    address = context.broker.advertised()
    return Coordinator(
        key=key,
        node_id=context.broker.node_id,
        host=address.host,
        port=address.port,
        error_message="" if context.api_version >= SEVERAL_KEYS_SINCE else "NONE",  # as Apache Kafka says it
    )


def _authorization_error(key: str, key_type: int, context: RequestContext) -> ErrorCode | None:
    if key_type == GROUP and not context.allows(Operation.DESCRIBE, ResourceType.GROUP, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == TRANSACTION and not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _refused(key: str, reason: str, error_code: ErrorCode = ErrorCode.INVALID_REQUEST) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error_code, error_message=reason)
