"""Static members (KIP-345): they come back under another member id, and are never there twice."""

from exactlog.core.group.timer_keys import SessionTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import JOIN_AGAIN_WAIT_LEAST_MS
from tests.support.group_runtime import REBALANCE_MS, SESSION_MS, GroupRuntime


def static_group(*instance_ids, **fields):
    """A stable group of static members: the runtime, and their member ids, the leader's first."""
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    waiting = [group.join(instance_id=instance_id, **fields) for instance_id in instance_ids]
    group.advance(20)
    member_ids = [joined.outcome.member_id for joined in waiting]
    for member_id in reversed(member_ids):
        group.sync(member_id, 1, {member_id: member_id.encode() for member_id in member_ids})
    return group, member_ids


def test_a_static_member_is_not_sent_back_and_is_named_after_its_instance():
    group = GroupRuntime()

    joined = group.join(instance_id="i", needs_member_id=True)
    group.advance(0)

    assert joined.outcome.member_id == "i-id1"
    assert [member.group_instance_id for member in group.shard.describe("g").members] == ["i"]


def test_a_follower_that_comes_back_gets_a_new_id_and_its_assignment_without_a_rebalance():
    group, (leader, follower) = static_group("a", "b")

    back = group.join(instance_id="b").outcome

    assert (back.error_code, back.member_id, back.generation_id) == (ErrorCode.NONE, "b-id3", 1)
    assert (back.leader, back.members, back.skip_assignment) == (leader, (), False)
    assert group.state() == "Stable"
    assert group.sync(back.member_id, 1, instance_id="b").outcome.assignment == follower.encode()


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment():
    group, (leader, follower) = static_group("a", "b")

    back = group.join(instance_id="a").outcome

    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert {member_id for member_id, _, _ in back.members} == {back.member_id, follower}
    assert group.sync(back.member_id, 1).outcome.assignment == leader.encode()


def test_a_leader_of_an_older_client_is_told_that_it_does_not_lead():
    group, (leader, _) = static_group("a", "b")

    back = group.join(instance_id="a", may_skip_assignment=False).outcome

    assert (back.leader, back.skip_assignment, back.members) == (leader, False, ())


def test_the_new_member_id_outlives_a_crash_once_it_was_told():
    group, (_, follower) = static_group("a", "b")
    back = group.join(instance_id="b").outcome.member_id
    group.crash()

    assert group.heartbeat(back, 1, instance_id="b") is ErrorCode.NONE
    assert group.heartbeat(follower, 1, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    assert group.sync(back, 1).outcome.assignment == follower.encode()


def test_the_one_that_was_replaced_is_fenced_in_every_request():
    group, (_, former) = static_group("a", "b")
    present = group.join(instance_id="b").outcome.member_id

    assert group.heartbeat(former, 1, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    assert group.sync(former, 1, instance_id="b").error_code is ErrorCode.FENCED_INSTANCE_ID
    assert group.join(member_id=former, instance_id="b").error_code is ErrorCode.FENCED_INSTANCE_ID
    committed = group.commit_offset(1, member_id=former, generation_id=1, group_instance_id="b")
    assert committed.outcome.errors == (ErrorCode.FENCED_INSTANCE_ID,)
    assert group.heartbeat(former, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert SessionTimer("g", former) not in group.due
    assert SessionTimer("g", present) in group.due


def test_a_duplicate_in_the_middle_of_a_rebalance_fences_the_join_that_waits():
    group, (leader, follower) = static_group("a", "b")
    first = group.join(member_id=leader, instance_id="a")
    duplicate = group.join(instance_id="a")
    assert (first.error_code, duplicate.outcome) == (ErrorCode.FENCED_INSTANCE_ID, None)

    group.join(member_id=follower, instance_id="b")

    assert duplicate.outcome.leader == duplicate.outcome.member_id


def test_a_duplicate_before_the_assignment_fences_the_sync_that_waits_and_starts_over():
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    waiting = [group.join(instance_id=instance_id) for instance_id in ("a", "b", "c")]
    group.advance(20)
    _, second, third = (joined.outcome.member_id for joined in waiting)
    syncs = [group.sync(second, 1, instance_id="b"), group.sync(third, 1, instance_id="c")]

    duplicate = group.join(instance_id="b")

    assert [sync.error_code for sync in syncs] == [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REBALANCE_IN_PROGRESS]
    assert duplicate.outcome is None
    assert group.state() == "PreparingRebalance"


def test_a_duplicate_in_the_first_rebalance_takes_the_place_of_the_first():
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    first, duplicate = group.join(instance_id="a"), group.join(instance_id="a")
    group.advance(20)

    assert first.error_code is ErrorCode.FENCED_INSTANCE_ID
    assert len(duplicate.outcome.members) == 1


def test_one_that_comes_back_with_another_choice_of_protocol_starts_a_rebalance():
    protocols = (("range", b"r"), ("sticky", b"s"))
    group, _ = static_group("a", protocols=protocols)

    back = group.join(instance_id="a", protocols=protocols[::-1])

    assert back.outcome.protocol_name == "sticky"
    assert back.outcome.generation_id == 2


def test_a_static_member_that_does_not_join_again_stays_for_its_session():
    group, (leader, follower) = static_group("a", "b", session_timeout_ms=60_000)
    again = group.join(member_id=leader, instance_id="a", session_timeout_ms=60_000)
    group.advance(REBALANCE_MS)

    assert {member_id for member_id, _, _ in again.outcome.members} == {leader, follower}
    assert group.heartbeat(follower, 1, instance_id="b") is ErrorCode.ILLEGAL_GENERATION


def test_static_members_of_whom_none_joins_again_are_waited_for_until_their_sessions_end():
    group, _ = static_group("a", "b", session_timeout_ms=70_000)
    group.carry_out(group.shard.force_rebalance("g", now_ms=group.now_ms))
    group.advance(2 * REBALANCE_MS)
    assert group.state() == "PreparingRebalance"

    group.advance(SESSION_MS)

    assert group.state() == "Empty"


def test_one_that_comes_back_after_its_session_is_a_new_member():
    group, (leader, follower) = static_group("a", "b")
    group.advance(SESSION_MS - 1)
    group.heartbeat(leader, 1, instance_id="a")
    group.advance(1)
    assert group.state() == "PreparingRebalance"

    assert group.join(member_id=follower, instance_id="b").error_code is ErrorCode.UNKNOWN_MEMBER_ID
    back = group.join(instance_id="b")
    again = group.join(member_id=leader, instance_id="a")

    assert back.outcome.generation_id == again.outcome.generation_id == 2


def test_a_static_leader_that_does_not_join_again_stays_and_leads_no_more():
    group, (leader, follower) = static_group("a", "b", session_timeout_ms=60_000)
    again = group.join(
        member_id=follower, instance_id="b", session_timeout_ms=60_000, protocols=(("range", b"changed"),)
    )
    group.advance(REBALANCE_MS)

    assert again.outcome.leader == follower
    assert {member_id for member_id, _, _ in again.outcome.members} == {leader, follower}


def test_static_members_that_allow_no_time_are_not_waited_for_in_a_circle():
    group, member_ids = static_group("a", "b")
    for member_id in member_ids:
        group.join(member_id=member_id, rebalance_timeout_ms=0)
    for member_id in reversed(member_ids):
        group.sync(member_id, 2, {})
    assert group.state() == "Stable"
    group.carry_out(group.shard.force_rebalance("g", now_ms=group.now_ms))
    went_off = []
    time_out = group.shard.time_out
    group.shard.time_out = lambda key, *, now_ms: went_off.append(key) or time_out(key, now_ms=now_ms)

    group.advance(SESSION_MS - 1)

    assert 0 < len(went_off) <= 1 + SESSION_MS / JOIN_AGAIN_WAIT_LEAST_MS
    assert group.state() == "PreparingRebalance"
