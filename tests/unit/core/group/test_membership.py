"""SyncGroup, Heartbeat and LeaveGroup."""

import pytest

from exactlog.core.group.requests import JoinAnswer, SyncAnswer
from exactlog.core.group.timer_keys import SessionTimer, SyncTimer
from exactlog.core.model.decisions import NOTHING
from exactlog.core.model.error_code import ErrorCode
from tests.support.group_runtime import REBALANCE_MS, SESSION_MS, GroupRuntime


def joined_group(size=2, **fields):
    """A group whose members have joined, and have no assignment yet: the runtime, and the ids, the leader's first."""
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    waiting = [group.join(**fields) for _ in range(size)]
    group.advance(20)
    return group, [joined.outcome.member_id for joined in waiting]


# --- SyncGroup --------------------------------------------------------------------------------------------------


def test_each_member_gets_the_bytes_that_the_leader_gave_it():
    group, (leader, *followers) = joined_group(3)
    parked = [group.sync(member_id, 1) for member_id in followers]
    assert [waiting.outcome for waiting in parked] == [None, None]

    led = group.sync(leader, 1, {leader: b"L", followers[0]: b"A", followers[1]: b"B"})

    assert [waiting.outcome.assignment for waiting in (led, *parked)] == [b"L", b"A", b"B"]
    assert parked[0].outcome == SyncAnswer(protocol_type="consumer", protocol_name="range", assignment=b"A")
    assert [member.assignment for member in group.shard.describe("g").members] == [b"L", b"A", b"B"]


def test_a_follower_that_asks_late_gets_its_assignment_too():
    group, (leader, follower) = joined_group()
    group.sync(leader, 1, {follower: b"A"})

    assert group.sync(follower, 1).outcome.assignment == b"A"


def test_a_member_that_the_leader_forgot_gets_no_bytes():
    group, (leader, follower) = joined_group()
    parked = group.sync(follower, 1)

    group.sync(leader, 1, {leader: b"L", "somebody else": b"X"})

    assert (parked.error_code, parked.outcome.assignment) == (ErrorCode.NONE, b"")


def test_assignments_leave_when_they_are_committed():
    group, (leader, follower) = joined_group()
    group.commits_at_once = False
    waiting = [group.sync(follower, 1), group.sync(leader, 1, {follower: b"A"}), group.sync(follower, 1)]
    assert [sync.outcome for sync in waiting[1:]] == [None, None]

    group.commit()

    assert waiting[2].outcome.assignment == b"A"
    assert len(group.log) == 1


def test_a_sync_that_is_sent_again_takes_the_place_of_the_first():
    group, (leader, follower) = joined_group()
    first, second = group.sync(follower, 1), group.sync(follower, 1)
    assert (first.error_code, second.outcome) == (ErrorCode.REBALANCE_IN_PROGRESS, None)

    group.sync(leader, 1, {follower: b"A"})

    assert second.outcome.assignment == b"A"


def test_who_waits_for_an_assignment_is_told_when_it_will_not_come():
    group, (_, follower) = joined_group()
    parked = group.sync(follower, 1)

    group.join()

    assert parked.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state() == "PreparingRebalance"


@pytest.mark.parametrize("leader_assigns", [True, False])
def test_members_that_never_ask_for_their_assignment_are_let_go(leader_assigns):
    group, (leader, follower, idle) = joined_group(3, session_timeout_ms=60_000)
    asked = follower
    parked = group.sync(follower, 1)
    if leader_assigns:
        group.sync(leader, 1, {})
    group.advance(REBALANCE_MS)

    expected = ErrorCode.NONE if leader_assigns else ErrorCode.REBALANCE_IN_PROGRESS
    assert parked.error_code is expected
    assert group.state() == "PreparingRebalance"
    left = [member.member_id for member in group.shard.describe("g").members]
    assert left == ([leader, asked] if leader_assigns else [asked])
    assert group.heartbeat(idle, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_in_which_nobody_asks_for_an_assignment_ends_empty():
    group, _ = joined_group(2, session_timeout_ms=60_000)
    group.advance(REBALANCE_MS)

    assert (group.state(), group.generation_id) == ("Empty", 2)


def test_nobody_is_let_go_once_all_have_asked():
    group, (leader, follower) = joined_group()
    group.sync(leader, 1, {})
    group.sync(follower, 1)

    assert SyncTimer("g") not in group.due
    assert group.shard.time_out(SyncTimer("g"), now_ms=group.now_ms) == NOTHING


@pytest.mark.parametrize("field", ["protocol_type", "protocol_name"])
def test_a_sync_under_another_protocol_is_refused(field):
    group, (leader, _) = joined_group()

    assert group.sync(leader, 1, **{field: "other"}).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.sync(leader, 1, protocol_type="consumer", protocol_name="range").error_code is ErrorCode.NONE


# --- Heartbeat and sessions -------------------------------------------------------------------------------------


def test_heartbeats_keep_a_session():
    group = GroupRuntime()
    (member,) = group.stable_group(1)
    for _ in range(5):
        group.advance(SESSION_MS - 1)
        assert group.heartbeat(member, group.generation_id) is ErrorCode.NONE


def test_a_member_that_is_not_heard_of_is_let_go_and_the_others_rebalance():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    group.advance(SESSION_MS - 1)
    group.heartbeat(follower, 2)
    group.advance(1)
    assert group.state() == "PreparingRebalance"

    again = group.join(member_id=follower)

    assert again.outcome.leader == follower
    assert group.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.join().error_code is None  # and joins anew


def test_a_heartbeat_counts_while_the_group_rebalances():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    waiting = group.join(member_id=leader)
    group.advance(SESSION_MS - 1)
    assert group.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    group.advance(1)
    assert waiting.outcome is None

    group.advance(SESSION_MS - 1)

    assert waiting.outcome.generation_id == 3


def test_a_member_that_waits_for_its_assignment_outlives_its_session():
    group, (leader, follower) = joined_group()
    parked = group.sync(follower, 1)
    for _ in range(2):
        group.advance(SESSION_MS - 1)
        group.heartbeat(leader, 1)
    assert parked.outcome is None

    group.sync(leader, 1, {follower: b"A"})

    assert parked.outcome.assignment == b"A"
    assert group.due[SessionTimer("g", follower)] == group.now_ms + SESSION_MS


def test_a_session_timer_that_is_late_does_nothing():
    group = GroupRuntime()
    group.stable_group(1)

    for key in (SessionTimer("g", "gone"), SessionTimer("no group", "c"), SyncTimer("no group"), "another's key"):
        assert group.shard.time_out(key, now_ms=group.now_ms) == NOTHING


# --- LeaveGroup -------------------------------------------------------------------------------------------------


def test_members_leave_each_for_itself_and_the_others_rebalance_once():
    group = GroupRuntime()
    leader, second, third = group.stable_group(3)

    answer = group.leave(leader, "stranger", third)

    assert answer.members == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE)
    assert group.state() == "PreparingRebalance"
    assert group.join(member_id=second).outcome.leader == second


def test_the_last_member_leaves_an_empty_group_behind():
    group = GroupRuntime()
    group.leave(*group.stable_group(2))

    described = group.shard.describe("g")
    assert (described.state, described.protocol_type, described.members) == ("Empty", "consumer", ())
    assert group.generation_id == 3


def test_leaving_ends_a_rebalance_that_waited_for_nobody_else():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    waiting = group.join(member_id=leader)

    group.leave(follower)

    assert waiting.outcome.generation_id == 3


def test_a_member_that_leaves_while_it_waits_is_answered():
    group, (_, follower) = joined_group()
    sync = group.sync(follower, 1)
    group.leave(follower)
    assert sync.outcome == SyncAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    group = GroupRuntime()
    leader, _ = group.stable_group(2)
    join = group.join(member_id=leader)
    group.leave(leader)

    assert join.outcome == JoinAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)


def test_an_id_that_was_given_out_can_be_given_back():
    group = GroupRuntime()
    group.stable_group(1)
    given_out = group.join(needs_member_id=True).outcome.member_id

    assert group.leave(given_out).members == (ErrorCode.NONE,)
    assert group.state() == "Stable"
    assert SessionTimer("g", given_out) not in group.due


def test_an_operator_takes_out_a_static_member_by_its_instance_id():
    group = GroupRuntime()
    member = group.stable_group(1, instance_id="i")[0]

    answer = group.leave(("", "unknown"), ("", None), ("", "i"))

    assert answer.members == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE)
    assert group.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_cannot_be_taken_out_under_a_former_id():
    group = GroupRuntime()
    former = group.stable_group(1, instance_id="i")[0]
    present = group.join(instance_id="i").outcome.member_id

    assert group.leave((former, "i"), (present, "i")).members == (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE)


def test_who_still_waits_is_handed_over_when_the_shard_is_given_up():
    group, (_, follower) = joined_group()
    sync = group.sync(follower, 1)
    join = group.join(group_id="other")
    answered = group.join(group_id="third", needs_member_id=True)

    assert group.shard.resign() == [sync, join]
    assert group.shard.resign() == []
    assert answered.is_done
