"""What a group is after a crash, and after a round that failed."""

import pytest

from exactlog.core.group.requests import Client
from exactlog.core.group.timer_keys import SessionTimer
from exactlog.core.model.decisions import Decision, UnknownRecord
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from tests.support.group_runtime import SESSION_MS, GroupRuntime


def test_members_go_on_after_a_crash_without_a_rebalance():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    before = group.shard.describe("g")
    group.crash()

    assert group.shard.describe("g") == before
    assert group.heartbeat(leader, 2) is group.heartbeat(follower, 2) is ErrorCode.NONE
    assert group.sync(follower, 2).outcome.assignment == follower.encode()
    assert group.commit_offset(42, member_id=follower, generation_id=2).outcome.errors == (ErrorCode.NONE,)


def test_an_offset_that_was_answered_is_there_after_a_crash():
    group = GroupRuntime()
    group.commit_offset(42)
    group.crash()

    assert group.offset() == 42


def test_members_that_do_not_come_after_a_crash_are_let_go():
    group = GroupRuntime()
    group.stable_group(2)
    group.crash()
    group.advance(2 * SESSION_MS)

    assert group.state() == "Empty"


def test_a_rebalance_is_forgotten_by_a_crash():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    group.join(member_id=leader)
    group.join(member_id=follower)
    assert (group.state(), group.generation_id) == ("CompletingRebalance", 3)
    group.crash()

    assert (group.state(), group.generation_id) == ("Stable", 2)
    assert group.heartbeat(follower, 3) is ErrorCode.ILLEGAL_GENERATION
    group.join(member_id=follower, protocols=(("range", b"new"),))
    assert group.join(member_id=leader).outcome.generation_id == 3


def test_an_assignment_that_was_not_committed_never_was():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    group.join(member_id=leader)
    group.join(member_id=follower)
    group.commits_at_once = False
    group.sync(leader, 3, {follower: b"new"})
    assert group.state() == "Stable"
    group.crash()

    group.commits_at_once = True
    assert group.sync(follower, 2).outcome.assignment == follower.encode()


def test_a_round_that_fails_takes_back_what_was_decided_and_sends_everybody_away():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    first = group.join(member_id=leader)
    second = group.join(member_id=follower)
    assert first.outcome.generation_id == second.outcome.generation_id == 3
    group.commits_at_once = False
    parked = group.sync(follower, 3)
    led = group.sync(leader, 3, {follower: b"new"})
    committed = group.commit_offset(1, member_id=leader, generation_id=3)
    waiting = group.join(group_id="other")

    group.fail_round()
    group.commit()

    assert [wait.error_code for wait in (parked, led, waiting)] == [ErrorCode.NOT_COORDINATOR] * 3
    assert committed.failure is ErrorCode.NOT_COORDINATOR
    assert (group.generation_id, group.state()) == (2, "Stable")
    assert group.shard.describe("other") is None
    assert group.offset() is None
    assert set(group.due) == {SessionTimer("g", leader), SessionTimer("g", follower)}


def test_who_waits_for_others_is_sent_away_by_a_failed_round():
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    waiting = [group.join(), group.join()]
    group.advance(20)
    follower = waiting[1].outcome.member_id
    sync = group.sync(follower, 1)

    group.fail_round()

    assert sync.error_code is ErrorCode.NOT_COORDINATOR
    assert group.due == {}
    assert group.join(member_id=follower).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deletion_that_was_not_committed_is_taken_back():
    group = GroupRuntime()
    group.commit_offset(1)
    group.commits_at_once = False
    group.delete_group()
    assert group.shard.describe("g") is None

    group.fail_round()

    assert (group.state(), group.offset()) == ("Empty", 1)


def test_what_a_member_can_work_with_besides_is_known_until_a_restart():
    group = GroupRuntime()
    both = (("range", b"r"), ("sticky", b"s"))
    _, follower = group.stable_group(2, protocols=both)
    assert group.join(member_id=follower, protocols=both).error_code is ErrorCode.NONE
    group.crash()

    assert group.join(member_id=follower, protocols=both).outcome is None
    assert group.state() == "PreparingRebalance"


def test_a_member_of_an_old_record_has_its_session_timeout_for_rebalances():
    group = GroupRuntime()
    group.log = [
        (
            bytes.fromhex("0002000167"),
            bytes.fromhex(
                "00000008636f6e73756d657200000005000572616e67650003632d31000000010003632d310001630002"
                "2f68000027100000000201020000000103"
            ),
        )
    ]
    group.crash()
    member = group.shard._groups["g"].members["c-1"]

    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)
    assert (member.client, member.assignment) == (Client("c", "/h"), b"\x03")


def test_the_live_records_are_all_that_is_needed():
    group = GroupRuntime()
    group.commit_offset(1)
    group.commit_offset(2)
    group.commit_offset(3, topic="other")
    group.delete_offsets("other")
    group.delete_offsets("never there")
    group.stable_group(2)
    group.commit_offset(1, group_id="deleted")
    group.delete_group("deleted")
    group.carry_out(Decision(records=(UnknownRecord(b"\x00\x03kept", b"1"), UnknownRecord(b"\x00\x03gone", b"1"))))
    group.carry_out(Decision(records=(UnknownRecord(b"\x00\x03gone", None),)))
    live = [(record.encode_key(), record.encode_value()) for record in group.shard.live_records()]

    restored = group.replayed(live)

    assert len(live) == 3
    assert restored.groups() == group.shard.groups()
    assert restored.describe("g") == group.shard.describe("g")
    assert restored.offsets("g") == group.shard.offsets("g")
    assert list(restored.live_records()) == list(group.shard.live_records())


def test_a_record_that_would_forget_somebody_who_waits_is_refused():
    group = GroupRuntime(initial_rebalance_delay_ms=10)
    group.join()

    with pytest.raises(InvariantError, match="1 wait"):
        group.shard.replay(group.shard._groups["g"].record({}))


def test_records_of_others_are_refused():
    group = GroupRuntime()

    with pytest.raises(InvariantError):
        group.shard.replay(object())
