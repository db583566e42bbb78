"""SyncGroup, Heartbeat and LeaveGroup: what members ask of a generation, and how they take their leave."""

from exactlog.core.group.classic_group import ClassicGroup, GroupState
from exactlog.core.group.draft import Draft
from exactlog.core.group.rebalancing import dismiss, go_on, restart_session
from exactlog.core.group.requests import HeartbeatRequest, LeaveRequest, SyncAnswer, SyncRequest
from exactlog.core.group.timer_keys import SyncTimer
from exactlog.core.model.decisions import Waiter
from exactlog.core.model.error_code import ErrorCode

REPLACED_SYNC = SyncAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
"""What a SyncGroup is told whose member has sent another one; Apache Kafka leaves it without an answer."""


def sync(group: ClassicGroup, request: SyncRequest, waiter: Waiter, draft: Draft) -> None:
    """Hands out an assignment, now or when the leader has made it.

    The leader's assignments become a record; the answers of all that wait go with it.
    """
    refusal = _check_sync(group, request)
    if refusal is not ErrorCode.NONE:
        draft.answer(waiter, SyncAnswer(error_code=refusal))
        return
    member_id = request.member_id
    group.unsynced.discard(member_id)
    if not group.unsynced:
        draft.cancel_timer(SyncTimer(group.group_id))
    if group.state is GroupState.STABLE:
        draft.answer(waiter, _sync_answer(group, group.members[member_id].assignment))
        return
    earlier = group.syncs.get(member_id)
    if earlier is not None:
        draft.answer(earlier, REPLACED_SYNC)
    group.syncs[member_id] = waiter
    if member_id == group.leader_id:
        _assign(group, request, draft)


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, draft: Draft) -> ErrorCode:
    """Keeps a member's session; tells it when it must join again."""
    refusal = group.check_member(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    restart_session(group, group.members[request.member_id], draft)
    is_preparing = group.state is GroupState.PREPARING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE


def leave(group: ClassicGroup, request: LeaveRequest, draft: Draft) -> tuple[ErrorCode, ...]:
    """Takes members out, each for itself; those that are left rebalance once."""
    count_before = len(group.members)
    errors = tuple(_leave_one(group, member_id, instance_id, draft) for member_id, instance_id in request.members)
    if len(group.members) < count_before or group.state is GroupState.PREPARING_REBALANCE:
        go_on(group, draft)
    return errors


def _check_sync(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    refusal = group.check_member(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _contradicts(request.protocol_type, group.protocol_type) or _contradicts(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _contradicts(requested: str | None, agreed: str | None) -> bool:
    return requested is not None and agreed is not None and requested != agreed


def _assign(group: ClassicGroup, request: SyncRequest, draft: Draft) -> None:
    draft.record(group.record(request.assignments))
    for member_id, waiter in group.syncs.items():
        draft.answer(waiter, _sync_answer(group, request.assignments.get(member_id, b"")))
        restart_session(group, group.members[member_id], draft)
    group.syncs.clear()


def _sync_answer(group: ClassicGroup, assignment: bytes) -> SyncAnswer:
    return SyncAnswer(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment)


def _leave_one(group: ClassicGroup, member_id: str, instance_id: str | None, draft: Draft) -> ErrorCode:
    if not member_id:  # an operator takes out a static member
        member_id = group.static_members.get(instance_id or "", "")
        error = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending:
        error = ErrorCode.NONE
    else:
        error = group.check_member(member_id, instance_id)
    if error is ErrorCode.NONE:
        dismiss(group, member_id, draft)
    return error
