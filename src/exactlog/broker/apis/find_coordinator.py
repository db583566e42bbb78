"""FindCoordinator (key 10), versions 0 to 6.

Does: names the broker that coordinates a group (type 0) or a transactional id (type 1): on a single node, this one.
Errors: INVALID_REQUEST (an empty key, an unknown type).
Versions: 1 key types; 4 several keys at once, whose errors stand in their own entries.
Not done: share groups (type 2).
"""

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

SEVERAL_KEYS_SINCE = 4
GROUP, TRANSACTION = 0, 1


def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Answers with this broker."""
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
    if key_type not in (GROUP, TRANSACTION):
        return _refused(key, f"Coordinators of type {key_type} are not known here.")
    if not key and key_type == TRANSACTION:
        return _refused(key, "The transactional id is empty.")
    address = context.broker.advertised()
    return Coordinator(
        key=key, node_id=context.broker.node_id, host=address.host, port=address.port, error_message=None
    )


def _refused(key: str, reason: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=reason
    )
