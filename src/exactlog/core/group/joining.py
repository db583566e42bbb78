"""JoinGroup: becoming a member, staying one, coming back as one.

A new member is first sent back with its id (KIP-394), then waits for the rebalance that it causes. One that joins again
causes a rebalance if its metadata changed or if it leads; otherwise it is told the generation it belongs to. A static
member that comes back without its member id gets a new one, and whoever has the old one is fenced off (KIP-345).
"""

from collections.abc import Callable

from msgspec.structs import replace

from exactlog.core.group.classic_group import ClassicGroup, GroupState
from exactlog.core.group.draft import Draft
from exactlog.core.group.limits import GroupLimits
from exactlog.core.group.member import joined_member, own_bytes
from exactlog.core.group.rebalancing import dismiss, go_on, restart_session
from exactlog.core.group.requests import JoinAnswer, JoinRequest, SyncAnswer
from exactlog.core.group.timer_keys import SessionTimer
from exactlog.core.model.decisions import Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import (
    GROUP_METADATA_BYTES_MAX,
    MEMBER_ID_PREFIX_LENGTH_MAX,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBERS_PER_GROUP_MAX,
)

REPLACED_JOIN = JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
"""What a JoinGroup is told whose member has sent another one; Apache Kafka leaves it without an answer."""


def join(
    groups: dict[str, ClassicGroup],
    request: JoinRequest,
    waiter: Waiter,
    *,
    new_id: Callable[[], str],
    draft: Draft,
) -> None:
    """Decides about a JoinGroup: an answer now, or a rebalance that it waits for."""
    refusal = _check_request(request, draft.limits)
    group = groups.get(request.group_id)
    if refusal is ErrorCode.NONE and group is None and request.member_id:
        refusal = ErrorCode.UNKNOWN_MEMBER_ID
    if refusal is not ErrorCode.NONE:
        draft.answer(waiter, JoinAnswer(error_code=refusal, member_id=request.member_id))
        return
    group = group or ClassicGroup(request.group_id)
    if not _has_room(group, request, draft.limits.members_max):
        _turn_away(group, request.member_id, draft)
        draft.answer(waiter, JoinAnswer(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.can_work_with(request.protocol_type, frozenset(name for name, _ in request.protocols)):
        refused = JoinAnswer(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
        draft.answer(waiter, refused)
    elif request.member_id:
        _join_again(group, request, waiter, draft)
    else:
        groups[group.group_id] = group
        _join_first(group, request, waiter, _new_member_id(request, new_id), draft)


def _check_request(request: JoinRequest, limits: GroupLimits) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not limits.session_timeout_ms_min <= request.session_timeout_ms <= limits.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _new_member_id(request: JoinRequest, new_id: Callable[[], str]) -> str:
    prefix = request.client.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{prefix[:MEMBER_ID_PREFIX_LENGTH_MAX]}-{new_id()}"


def _has_room(group: ClassicGroup, request: JoinRequest, members_max: int) -> bool:
    """Whether a member may join; in a group that is too large now, the last ones of a rebalance may not."""
    member_id = request.member_id
    known = group.members.get(member_id or group.static_members.get(request.group_instance_id or "", ""))
    size_bytes = own_bytes(request.client, request.group_instance_id, request.protocols)
    if group.size_bytes - (known.size_bytes if known is not None else 0) + size_bytes > GROUP_METADATA_BYTES_MAX:
        return False
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            return member_id in group.joins or len(group.joins) < members_max
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.members or len(group.members) < members_max


def _turn_away(group: ClassicGroup, member_id: str, draft: Draft) -> None:
    if member_id in group.members or member_id in group.pending:
        dismiss(group, member_id, draft)
        if group.state is GroupState.PREPARING_REBALANCE:
            go_on(group, draft)


# --- without a member id ------------------------------------------------------------------------------------------


def _join_first(group: ClassicGroup, request: JoinRequest, waiter: Waiter, member_id: str, draft: Draft) -> None:
    instance_id = request.group_instance_id
    if instance_id is not None and instance_id in group.static_members:
        _come_back(group, request, waiter, member_id, draft)
    elif instance_id is None and request.needs_member_id:
        _send_back(group, request, waiter, member_id, draft)
    else:
        _add(group, request, waiter, member_id, draft)


def _send_back(group: ClassicGroup, request: JoinRequest, waiter: Waiter, member_id: str, draft: Draft) -> None:
    if len(group.pending) >= PENDING_MEMBERS_PER_GROUP_MAX:
        draft.answer(waiter, JoinAnswer(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
        return
    group.pending.add(member_id)
    draft.set_timer(SessionTimer(group.group_id, member_id), request.session_timeout_ms)
    draft.answer(waiter, JoinAnswer(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))


def _add(group: ClassicGroup, request: JoinRequest, waiter: Waiter, member_id: str, draft: Draft) -> None:
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(joined_member(member_id, request))
    group.joins[member_id] = waiter
    group.newcomers.add(member_id)
    group.has_more_members = True
    draft.set_timer(SessionTimer(group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    go_on(group, draft)


def _come_back(group: ClassicGroup, request: JoinRequest, waiter: Waiter, member_id: str, draft: Draft) -> None:
    """A static member is here again, and does not know its member id: it gets a new one in the same place."""
    old_leader_id = group.leader_id
    old = group.members[group.static_members[request.group_instance_id or ""]]
    _fence(group, old.member_id, draft)
    new = replace(
        old,
        member_id=member_id,
        protocols=request.protocols,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )
    group.replace_static_member(old.member_id, new)
    restart_session(group, new, draft)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        draft.record(group.record({member.member_id: member.assignment for member in group.members.values()}))
        is_leader = group.leader_id == member_id
        if request.may_skip_assignment:
            draft.answer(waiter, group.join_answer(member_id, skip_assignment=is_leader))
        else:  # it must not assign again, and cannot be told so: the leader it hears of is its former self
            draft.answer(waiter, group.join_answer(member_id, leader=old_leader_id))
    else:
        group.joins[member_id] = waiter
        go_on(group, draft)


def _fence(group: ClassicGroup, member_id: str, draft: Draft) -> None:
    """Two processes with one group instance id are never both members: the earlier one is told so."""
    draft.cancel_timer(SessionTimer(group.group_id, member_id))
    join_waiter = group.joins.pop(member_id, None)
    if join_waiter is not None:
        draft.answer(join_waiter, JoinAnswer(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=member_id))
    sync_waiter = group.syncs.pop(member_id, None)
    if sync_waiter is not None:
        draft.answer(sync_waiter, SyncAnswer(error_code=ErrorCode.FENCED_INSTANCE_ID))


# --- with a member id ---------------------------------------------------------------------------------------------


def _join_again(group: ClassicGroup, request: JoinRequest, waiter: Waiter, draft: Draft) -> None:
    member_id = request.member_id
    if member_id in group.pending and request.group_instance_id is None:
        _add(group, request, waiter, member_id, draft)
        return
    refusal = group.check_member(member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        draft.answer(waiter, JoinAnswer(error_code=refusal, member_id=member_id))
    elif _needs_no_rebalance(group, request):
        draft.answer(waiter, group.join_answer(member_id))
    else:
        _rejoin(group, request, waiter, draft)


def _needs_no_rebalance(group: ClassicGroup, request: JoinRequest) -> bool:
    """Whether this generation still holds for a member that has perhaps only missed an answer.

    The leader of a stable group joins again because something changed that members do not tell, such as partitions.
    """
    if group.members[request.member_id].protocols != request.protocols:
        return False
    if group.state is GroupState.STABLE:
        return group.leader_id != request.member_id
    return group.state is GroupState.COMPLETING_REBALANCE


def _rejoin(group: ClassicGroup, request: JoinRequest, waiter: Waiter, draft: Draft) -> None:
    member_id = request.member_id
    earlier = group.joins.get(member_id)
    if earlier is not None:
        draft.answer(earlier, REPLACED_JOIN)
    group.update(
        replace(
            group.members[member_id],
            protocols=request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
        )
    )
    group.joins[member_id] = waiter
    go_on(group, draft)
