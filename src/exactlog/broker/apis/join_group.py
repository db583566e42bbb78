"""JoinGroup (key 11), versions 0 to 9.

Does: makes the client a member of a group; answers once the members have come together: with the generation, and for
the leader with everybody's subscription (classic protocol).
Errors: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL,
UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS,
NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 1 a rebalance timeout of its own; 4 a first join comes back with a member id (KIP-394); 5 static members
(KIP-345); 9 a leader that need not assign (KIP-814).
"""

from exactlog.broker.asking import Later, RequestWaiter, ask
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import Client, JoinAnswer, JoinRequest
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_NAME_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse | Later:
    """Parks the request until its group has come together."""

    def refuse(error_code: ErrorCode) -> JoinGroupResponse:
        return _respond(JoinAnswer(error_code=error_code, member_id=request.member_id), context)

    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    join = _join_of(request, context)

    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.join(join, waiter, now_ms=now_ms)

    return ask(
        request.group_id, context, decide, RequestWaiter(context, lambda answer: _respond(answer, context), refuse)
    )


def _join_of(request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
    has_rebalance_timeout = context.api_version >= 1
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client=Client(context.client_id or "", f"/{context.client_host}"),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        needs_member_id=context.api_version >= MEMBER_ID_REQUIRED_SINCE and request.group_instance_id is None,
        may_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
    )


def _respond(answer: JoinAnswer, context: RequestContext) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and context.api_version < NULL_PROTOCOL_NAME_SINCE:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment and context.api_version >= SKIP_ASSIGNMENT_SINCE,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in answer.members
        ),
    )
