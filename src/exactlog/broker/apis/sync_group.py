"""SyncGroup (key 14), versions 0 to 5.

Does: gives a member what the leader has assigned to it; the leader's request brings the assignments of all. It is
answered once they are committed.
Errors: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID,
REBALANCE_IN_PROGRESS, INCONSISTENT_GROUP_PROTOCOL, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS.
Versions: 3 static members; 5 the member says which protocol it takes the group to use (KIP-559).
"""

from exactlog.broker.asking import Later, RequestWaiter, ask
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import SyncAnswer, SyncRequest
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_NEEDED_SINCE = 5


def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse | Later:
    """Parks the request until the leader has assigned."""
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    lacks_protocol = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= PROTOCOL_NEEDED_SINCE and lacks_protocol:
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    sync = SyncRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={given.member_id: bytes(given.assignment) for given in request.assignments},
    )

    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.sync(sync, waiter, now_ms=now_ms)

    return ask(request.group_id, context, decide, RequestWaiter(context, _respond, _refuse))


def _respond(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error_code,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


def _refuse(error_code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error_code)
