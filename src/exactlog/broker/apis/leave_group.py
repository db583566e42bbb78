"""LeaveGroup (key 13), versions 0 to 5.

Does: takes members out of a group, which rebalances.
Errors: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: to 2 one member, whose error is the answer's; 3 many, each with its own, also static ones (KIP-345).
"""

from exactlog.broker.asking import Later, RequestWaiter, ask
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import LeaveAnswer
from exactlog.core.group.requests import LeaveRequest as Leaving
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

MANY_MEMBERS_SINCE = 3


def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse | Later:
    """Takes them out."""
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    has_many = context.api_version >= MANY_MEMBERS_SINCE
    members = tuple((member.member_id, member.group_instance_id) for member in request.members)
    leaving = Leaving(group_id=request.group_id, members=members if has_many else ((request.member_id, None),))

    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.leave(leaving, waiter, now_ms=now_ms)

    def respond(answer: LeaveAnswer) -> LeaveGroupResponse:
        if answer.error_code is not ErrorCode.NONE:
            return _refuse(answer.error_code)
        if not has_many:
            return _refuse(answer.members[0])
        return LeaveGroupResponse(
            members=tuple(
                MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error_code)
                for (member_id, instance_id), error_code in zip(members, answer.members, strict=True)
            )
        )

    return ask(request.group_id, context, decide, RequestWaiter(context, respond, _refuse))


def _refuse(error_code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error_code)
