"""Heartbeat (key 12), versions 0 to 4.

Does: keeps a member in its group, and tells it when the group rebalances.
Errors: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID,
REBALANCE_IN_PROGRESS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 3 static members.
"""

from exactlog.broker.asking import Later, RequestWaiter, ask
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import ErrorAnswer
from exactlog.core.group.requests import HeartbeatRequest as LifeSign
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse | Later:
    """Tells the group that the member is alive."""
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    life_sign = LifeSign(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )

    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.heartbeat(life_sign, waiter, now_ms=now_ms)

    return ask(request.group_id, context, decide, RequestWaiter(context, _respond, _refuse))


def _respond(answer: ErrorAnswer) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=answer.error_code)


def _refuse(error_code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error_code)
