"""JoinGroup, and the rebalances that it starts and ends."""

import pytest

from exactlog.core.group.timer_keys import JoinTimer
from exactlog.core.model.decisions import NOTHING
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import (
    GROUP_METADATA_BYTES_MAX,
    MEMBER_ID_PREFIX_LENGTH_MAX,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
)
from tests.support.group_runtime import RANGE, REBALANCE_MS, SESSION_MS, GroupRuntime

BOTH = (("sticky", b"s"), ("range", b"r"))
STICKY = (("sticky", b"s"),)


# --- the first member -------------------------------------------------------------------------------------------


def test_a_first_join_is_sent_back_with_a_member_id():
    group = GroupRuntime()

    sent_back = group.join(needs_member_id=True).outcome

    assert (sent_back.error_code, sent_back.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-id1")
    assert group.state() == "Empty"


def test_the_member_that_was_sent_back_joins_with_its_id_and_leads():
    group = GroupRuntime()
    member_id = group.join(needs_member_id=True).outcome.member_id

    joined = group.join(member_id=member_id, needs_member_id=True)
    group.advance(0)

    answer = joined.outcome
    assert (answer.error_code, answer.member_id, answer.leader) == (ErrorCode.NONE, member_id, member_id)
    assert (answer.generation_id, answer.protocol_type, answer.protocol_name) == (1, "consumer", "range")
    assert answer.members == ((member_id, None, RANGE[0][1]),)


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout():
    group = GroupRuntime()
    member_id = group.join(needs_member_id=True).outcome.member_id
    group.advance(SESSION_MS)

    group.join(needs_member_id=True)

    assert group.join(member_id=member_id).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_holds_a_rebalance_up_until_it_is_used_or_given_up():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    group.join(needs_member_id=True, session_timeout_ms=7_000)
    rejoined = [group.join(member_id=leader), group.join(member_id=follower, protocols=BOTH)]
    assert [waiting.outcome for waiting in rejoined] == [None, None]

    group.advance(7_000)

    assert [waiting.error_code for waiting in rejoined] == [ErrorCode.NONE, ErrorCode.NONE]


def test_only_so_many_ids_are_given_out_at_a_time(monkeypatch):
    monkeypatch.setattr("exactlog.core.group.joining.PENDING_MEMBERS_PER_GROUP_MAX", 2)
    group = GroupRuntime()
    first, _, third = (group.join(needs_member_id=True) for _ in range(3))

    assert third.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    group.leave(first.outcome.member_id)
    assert group.join(needs_member_id=True).error_code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_long_client_id_is_cut_in_member_ids():
    group = GroupRuntime()

    member_id = group.join(client_id="x" * 32_767, needs_member_id=True).outcome.member_id

    assert member_id == "x" * MEMBER_ID_PREFIX_LENGTH_MAX + "-id1"


def test_an_id_that_was_given_out_cannot_be_used_by_a_static_member():
    group = GroupRuntime()
    member_id = group.join(needs_member_id=True).outcome.member_id

    assert group.join(member_id=member_id, instance_id="i").error_code is ErrorCode.UNKNOWN_MEMBER_ID


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error_code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_no_group_can_take_is_refused_and_leaves_no_group(fields, error_code):
    group = GroupRuntime()

    refused = group.join(**fields).outcome

    assert (refused.error_code, refused.member_id) == (error_code, fields.get("member_id", ""))
    assert group.shard.groups() == []


@pytest.mark.parametrize("fields", [{"protocols": STICKY}, {"protocol_type": "connect"}])
def test_a_member_must_share_type_and_a_protocol_with_all_others(fields):
    group = GroupRuntime()
    group.stable_group(2)

    assert group.join(**fields).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.state() == "Stable"


def test_the_type_of_a_group_may_change_once_it_is_empty():
    group = GroupRuntime()
    group.leave(*group.stable_group(1))

    group.join(protocol_type="connect", protocols=STICKY)

    assert group.shard.describe("g").protocol_type == "connect"


def test_a_group_takes_only_so_many_members():
    group = GroupRuntime(members_max=2)
    leader, follower = group.stable_group(2)

    assert group.join().error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join(member_id=follower).error_code is ErrorCode.NONE
    assert group.join(member_id=leader).outcome is None
    assert group.join(needs_member_id=True).error_code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_group_that_is_too_large_after_a_restart_loses_the_last_to_join():
    group = GroupRuntime()
    leader, second, third = group.stable_group(3)
    group.limits = type(group.limits)(members_max=2)
    group.crash()
    assert group.state() == "PreparingRebalance"

    waiting = [group.join(member_id=leader), group.join(member_id=second)]
    late = group.join(member_id=third)

    assert late.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [joined.error_code for joined in waiting] == [ErrorCode.NONE, ErrorCode.NONE]
    assert [member.member_id for member in group.shard.describe("g").members] == [leader, second]


# --- the rebalance ----------------------------------------------------------------------------------------------


def test_the_first_rebalance_waits_for_more_members_while_some_come():
    group = GroupRuntime(initial_rebalance_delay_ms=3_000)
    first = group.join()
    group.advance(2_000)
    second = group.join()
    group.advance(2_000)
    third = group.join()
    group.advance(1_999)
    assert first.outcome is None

    group.advance(3_001)

    assert [waiting.outcome.generation_id for waiting in (first, second, third)] == [1, 1, 1]


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout():
    group = GroupRuntime(initial_rebalance_delay_ms=3_000)
    first = group.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        group.advance(1_000)
        group.join(rebalance_timeout_ms=7_000)
    assert first.outcome is None

    group.advance(1_000)

    assert first.outcome.generation_id == 1


def test_the_first_rebalance_ends_empty_when_everybody_left_meanwhile():
    group = GroupRuntime(initial_rebalance_delay_ms=3_000)
    sent_back = group.join(needs_member_id=True).outcome.member_id
    joined = group.join(member_id=sent_back)
    group.leave(sent_back)
    assert joined.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state() == "PreparingRebalance"

    group.advance(3_000)

    assert group.state() == "Empty"
    assert len(group.log) == 1


def test_a_new_member_makes_everybody_join_again():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)

    third = group.join()
    assert group.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    others = [group.join(member_id=follower), group.join(member_id=leader)]

    answers = [waiting.outcome for waiting in (third, *others)]
    assert [answer.generation_id for answer in answers] == [3, 3, 3]
    assert {answer.leader for answer in answers} == {leader}
    assert [len(answer.members) for answer in answers] == [0, 0, 3]


def test_members_that_do_not_join_again_are_let_go_after_the_longest_rebalance_timeout():
    group = GroupRuntime()
    leader, follower = group.stable_group(2, session_timeout_ms=60_000)
    third = group.join(session_timeout_ms=60_000)
    again = group.join(member_id=leader, session_timeout_ms=60_000)
    group.advance(REBALANCE_MS - 1)
    assert third.outcome is None

    group.advance(1)

    assert [member_id for member_id, _, _ in again.outcome.members] == [leader, third.outcome.member_id]
    assert group.heartbeat(follower, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_is_replaced():
    group = GroupRuntime()
    _, follower = group.stable_group(2, session_timeout_ms=60_000)
    third = group.join(session_timeout_ms=60_000)
    again = group.join(member_id=follower, session_timeout_ms=60_000)
    group.advance(REBALANCE_MS)

    assert third.outcome.leader == again.outcome.leader == follower


def test_the_protocol_with_the_most_votes_among_common_ones_is_selected():
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    waiting = [
        group.join(protocols=(("sticky", b"s"), ("range", b"r"), ("own", b""))),
        group.join(protocols=(("range", b"r"), ("sticky", b"s"))),
        group.join(protocols=(("range", b"r"), ("sticky", b"s"))),
    ]
    group.advance(20)

    assert {joined.outcome.protocol_name for joined in waiting} == {"range"}


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_that_is():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)

    answer = group.join(member_id=follower).outcome

    assert (answer.generation_id, answer.leader, answer.members) == (2, leader, ())
    assert group.state() == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance():
    group = GroupRuntime()
    leader, _ = group.stable_group(2)

    assert group.join(member_id=leader).outcome is None
    assert group.state() == "PreparingRebalance"


def test_a_member_that_changes_its_metadata_starts_a_rebalance():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    changed = group.join(member_id=follower, protocols=(("range", b"changed"),))
    again = group.join(member_id=leader)

    assert changed.outcome.generation_id == 3
    assert {member_id: metadata for member_id, _, metadata in again.outcome.members}[follower] == b"changed"


def test_a_member_that_missed_its_answer_is_told_again_before_the_assignment():
    group = GroupRuntime()
    leader = group.join()
    group.advance(0)
    leader_id = leader.outcome.member_id

    again = group.join(member_id=leader_id)

    assert again.outcome == leader.outcome
    assert group.state() == "CompletingRebalance"


def test_metadata_that_change_before_the_assignment_start_over():
    group = GroupRuntime()
    leader = group.join()
    group.advance(0)
    again = group.join(member_id=leader.outcome.member_id, protocols=(("range", b"changed"),))

    assert again.outcome.generation_id == 2


def test_a_join_that_is_sent_again_takes_the_place_of_the_first():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    first = group.join(member_id=leader)
    second = group.join(member_id=leader)
    assert (first.error_code, second.outcome) == (ErrorCode.UNKNOWN_MEMBER_ID, None)

    group.join(member_id=follower)

    assert second.outcome.generation_id == 3


def test_a_generation_never_becomes_negative():
    group = GroupRuntime()
    leader, _ = group.stable_group(2)
    group.shard._groups["g"].generation_id = 2**31 - 1
    group.leave(leader)
    group.advance(REBALANCE_MS)

    assert (group.state(), group.generation_id) == ("Empty", 1)


def test_a_member_whose_first_join_waits_for_too_long_is_let_go():
    group = GroupRuntime()
    group.stable_group(1, session_timeout_ms=1_800_000, rebalance_timeout_ms=1_800_000)
    newcomer = group.join(rebalance_timeout_ms=1_800_000)
    group.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert newcomer.outcome is None

    group.advance(1)

    assert newcomer.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_a_rebalance_outlives_its_session():
    group = GroupRuntime()
    leader, _ = group.stable_group(2, rebalance_timeout_ms=60_000, session_timeout_ms=45_000)
    waiting = group.join(member_id=leader, rebalance_timeout_ms=60_000, session_timeout_ms=6_000)
    group.advance(44_999)
    assert waiting.outcome is None

    group.advance(1)  # the other one's session ends

    assert waiting.outcome.generation_id == 3
    assert group.heartbeat(leader, 3) is ErrorCode.NONE


def test_a_join_timer_that_is_late_does_nothing():
    group = GroupRuntime()
    group.stable_group(1)

    assert group.shard.time_out(JoinTimer("g"), now_ms=group.now_ms) == NOTHING


def test_a_forced_rebalance_makes_everybody_join_again():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    group.carry_out(group.shard.force_rebalance("g", now_ms=group.now_ms))
    assert group.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS

    waiting = [group.join(member_id=leader), group.join(member_id=follower)]

    assert [joined.outcome.generation_id for joined in waiting] == [3, 3]


@pytest.mark.parametrize("story", ["nothing", "empty", "preparing"])
def test_a_rebalance_cannot_be_forced_where_there_is_nobody_to_have_one(story):
    group = GroupRuntime()
    if story == "empty":
        group.leave(*group.stable_group(1))
    if story == "preparing":
        group.join()
    before = group.shard.describe("g")

    assert group.shard.force_rebalance("g", now_ms=group.now_ms) == NOTHING
    assert group.shard.describe("g") == before


# --- bytes --------------------------------------------------------------------------------------------------------


def test_what_members_say_of_themselves_is_bounded_for_the_whole_group():
    group = GroupRuntime()
    half = (("range", bytes(GROUP_METADATA_BYTES_MAX // 2)),)
    first = group.join(protocols=half)
    group.advance(0)

    assert group.join(protocols=half).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join().error_code is not ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.error_code is ErrorCode.NONE


def test_a_member_that_joins_again_is_counted_once():
    group = GroupRuntime()
    most = GROUP_METADATA_BYTES_MAX * 3 // 4
    first = group.join(protocols=(("range", bytes(most)),))
    group.advance(0)

    again = group.join(member_id=first.outcome.member_id, protocols=(("range", b"1" * most),))

    assert again.error_code is ErrorCode.NONE


def test_a_member_that_says_too_much_when_it_joins_again_is_turned_away():
    group = GroupRuntime()
    leader, _ = group.stable_group(2)

    again = group.join(member_id=leader, protocols=(("range", bytes(GROUP_METADATA_BYTES_MAX)),))

    assert again.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert leader not in {member.member_id for member in group.shard.describe("g").members}


def test_the_bytes_of_members_that_are_gone_are_free_again():
    group = GroupRuntime()
    most = (("range", bytes(GROUP_METADATA_BYTES_MAX * 3 // 4)),)
    first = group.join(protocols=most)
    group.advance(0)
    group.leave(first.outcome.member_id)

    second = group.join(protocols=most)
    group.advance(0)

    assert second.error_code is ErrorCode.NONE
    assert group.shard.group_count == 1
