"""How a group comes from one generation to the next, up to the point where its members ask for their assignment.

A rebalance waits until every member has joined again, or has been given up: a member after its session timeout, all
that have not joined after the longest rebalance timeout of the group (KIP-62). The first rebalance of an empty group
waits a moment for more members instead, again and again while some come (KIP-134).
"""

from exactlog.core.group.classic_group import ClassicGroup, GroupState
from exactlog.core.group.draft import Draft
from exactlog.core.group.member import Member
from exactlog.core.group.requests import JoinAnswer, SyncAnswer
from exactlog.core.group.timer_keys import JoinTimer, SessionTimer, SyncTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import JOIN_AGAIN_WAIT_LEAST_MS


def restart_session(group: ClassicGroup, member: Member, draft: Draft) -> None:
    """The member has shown that it lives."""
    draft.set_timer(SessionTimer(group.group_id, member.member_id), member.session_timeout_ms)


def start_rebalance(group: ClassicGroup, draft: Draft) -> None:
    """Has everybody join again; who waits for an assignment of this generation will get none."""
    for member_id, waiter in group.syncs.items():
        draft.answer(waiter, SyncAnswer(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        restart_session(group, group.members[member_id], draft)
    group.syncs.clear()
    group.unsynced.clear()
    draft.cancel_timer(SyncTimer(group.group_id))
    is_initial = group.state is GroupState.EMPTY
    _enter(group, GroupState.PREPARING_REBALANCE, draft)
    if is_initial:
        delay_ms = draft.limits.initial_rebalance_delay_ms
        group.initial_wait_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_more_members = False
        draft.set_timer(JoinTimer(group.group_id), delay_ms)
    elif group.have_all_joined:
        complete_join(group, draft)
    else:
        draft.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)


def go_on(group: ClassicGroup, draft: Draft) -> None:
    """Does what a change of the members asks for: a rebalance, or the end of one that has waited for nobody else."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        start_rebalance(group, draft)
    elif group.initial_wait_left_ms is None and group.have_all_joined:
        complete_join(group, draft)


def join_timed_out(group: ClassicGroup, draft: Draft) -> None:
    """Goes on with those that have joined; the first rebalance is put off once more if somebody came."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_wait_left_ms and group.has_more_members:
        delay_ms = min(draft.limits.initial_rebalance_delay_ms, group.initial_wait_left_ms)
        group.initial_wait_left_ms -= delay_ms
        group.has_more_members = False
        draft.set_timer(JoinTimer(group.group_id), delay_ms)
    else:
        complete_join(group, draft)


def complete_join(group: ClassicGroup, draft: Draft) -> None:
    """Begins the next generation with those that have joined, and static members that are still in their session.

    Without members the group is empty, which goes into the log. Where only static members are left and none has joined,
    they are waited for once more.
    """
    draft.cancel_timer(JoinTimer(group.group_id))
    for member in list(group.members.values()):
        if member.member_id not in group.joins and member.group_instance_id is None:
            group.remove(member.member_id)
            draft.cancel_timer(SessionTimer(group.group_id, member.member_id))
    if not group.members:
        _enter_empty(group, draft)
    elif group.elect_joined_leader():
        _enter_next_generation(group, draft)
    else:
        draft.set_timer(JoinTimer(group.group_id), max(group.rebalance_timeout_ms, JOIN_AGAIN_WAIT_LEAST_MS))


def sync_timed_out(group: ClassicGroup, draft: Draft) -> None:
    """Lets go of the members that never asked for their assignment (KAFKA-13435)."""
    if group.state is GroupState.PREPARING_REBALANCE or not group.unsynced:
        return
    for member_id in list(group.unsynced):
        dismiss(group, member_id, draft)
    start_rebalance(group, draft)


def session_timed_out(group: ClassicGroup, member_id: str, draft: Draft) -> None:
    """Lets go of a member that was not heard of; one that waits for an answer lives, unless it never had any."""
    waits = member_id in group.joins or member_id in group.syncs
    if member_id in group.pending:
        group.remove(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            go_on(group, draft)
    elif member_id in group.members and (not waits or member_id in group.newcomers):
        dismiss(group, member_id, draft)
        go_on(group, draft)


def dismiss(group: ClassicGroup, member_id: str, draft: Draft) -> None:
    """Takes a member out; what it waits for is answered UNKNOWN_MEMBER_ID, so that it joins anew if it lives."""
    join = group.joins.pop(member_id, None)
    if join is not None:
        draft.answer(join, JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    sync = group.syncs.pop(member_id, None)
    if sync is not None:
        draft.answer(sync, SyncAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member_id)
    draft.cancel_timer(SessionTimer(group.group_id, member_id))


def _enter_next_generation(group: ClassicGroup, draft: Draft) -> None:
    group.generation_id = group.next_generation_id
    group.protocol_name = group.select_protocol()
    _enter(group, GroupState.COMPLETING_REBALANCE, draft)
    for member_id, waiter in group.joins.items():
        draft.answer(waiter, group.join_answer(member_id))
    for member in group.members.values():
        restart_session(group, member, draft)
    group.joins.clear()
    group.newcomers.clear()
    group.unsynced = set(group.members)
    draft.set_timer(SyncTimer(group.group_id), group.rebalance_timeout_ms)


def _enter_empty(group: ClassicGroup, draft: Draft) -> None:
    group.generation_id = group.next_generation_id
    group.protocol_name = None
    _enter(group, GroupState.EMPTY, draft)
    draft.record(group.record({}))


def _enter(group: ClassicGroup, state: GroupState, draft: Draft) -> None:
    group.state = state
    group.state_timestamp_ms = draft.now_ms
    group.initial_wait_left_ms = None
