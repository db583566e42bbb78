"""OffsetCommit, OffsetDelete, DeleteGroups, and what becomes of offsets with time."""

from uuid import UUID

import pytest

from exactlog.core.group.requests import CommittedOffset, NewOffset
from exactlog.core.group.timer_keys import SessionTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from tests.support.group_runtime import RANGE, REBALANCE_MS, SESSION_MS, GroupRuntime

RETENTION_MS = 7 * 24 * 60 * 60 * 1_000
OPAQUE = (("range", b"no subscription"),)


# --- OffsetCommit -----------------------------------------------------------------------------------------------


def test_a_member_commits_for_its_generation():
    group = GroupRuntime()
    member = group.stable_group(1)[0]

    assert group.commit_offset(42, member_id=member, generation_id=1).outcome.errors == (ErrorCode.NONE,)
    assert group.offset() == 42


def test_an_offset_is_kept_with_all_that_was_said_of_it():
    group = GroupRuntime()
    topic_id = UUID(int=7)
    partition = TopicPartition("cal", 3)

    group.commit_offset((NewOffset(partition, 42, 5, "note", topic_id),))

    assert group.shard.offsets("g") == {partition: CommittedOffset(42, 5, "note", group.now_ms, topic_id=topic_id)}


def test_an_offset_with_a_time_of_its_own_is_what_its_old_record_has_room_for():
    group = GroupRuntime()
    partition = TopicPartition("cal", 3)

    group.commit_offset((NewOffset(partition, 42, 5, "note", UUID(int=7)),), retention_ms=1_000)

    expected = CommittedOffset(42, -1, "note", group.now_ms, group.now_ms + 1_000)
    assert group.shard.offsets("g") == {partition: expected}
    group.crash()
    assert group.shard.offsets("g") == {partition: expected}


def test_an_offset_is_seen_once_it_is_committed():
    group = GroupRuntime()
    group.commits_at_once = False
    waiting = group.commit_offset(42)
    assert (waiting.outcome, group.offset()) == (None, None)

    group.commit()

    assert (waiting.outcome.errors, group.offset()) == ((ErrorCode.NONE,), 42)


def test_a_time_to_keep_an_offset_that_has_no_end_is_cut():
    group = GroupRuntime()

    group.commit_offset(42, retention_ms=2**63 - 1)

    assert group.shard.offsets("g")[TopicPartition("cal", 0)].expire_timestamp_ms == 2**63 - 1


def test_a_commit_from_outside_makes_a_group_of_its_own():
    group = GroupRuntime()
    group.commit_offset(42)

    described = group.shard.describe("g")
    assert (described.state, described.protocol_type) == ("Empty", "")


def test_a_commit_without_offsets_makes_none():
    group = GroupRuntime()

    assert group.commit_offset(()).outcome.errors == ()
    assert group.shard.groups() == []


def test_metadata_that_are_too_large_are_refused_each_for_itself():
    group = GroupRuntime(offset_metadata_bytes_max=3)
    offsets = tuple(
        NewOffset(TopicPartition("cal", index), index, -1, metadata)
        for index, metadata in enumerate(("ok", "long", ""))
    )

    errors = group.commit_offset(offsets).outcome.errors

    assert errors == (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert [partition for _, partition in group.shard.offsets("g")] == [0, 2]


def test_a_stale_generation_is_told_so_and_joining_again_helps():
    group = GroupRuntime()
    _, follower = group.stable_group(2)
    stale = group.commit_offset(1, member_id=follower, generation_id=1)
    assert stale.outcome.errors == (ErrorCode.ILLEGAL_GENERATION,)

    generation_id = group.join(member_id=follower).outcome.generation_id

    assert group.commit_offset(1, member_id=follower, generation_id=generation_id).outcome.errors == (ErrorCode.NONE,)


def test_a_member_commits_while_others_join_again_and_not_before_its_new_assignment():
    group = GroupRuntime()
    leader, follower = group.stable_group(2)
    group.join(member_id=leader)
    assert group.commit_offset(1, member_id=follower, generation_id=2).outcome.errors == (ErrorCode.NONE,)
    group.join(member_id=follower)

    refused = group.commit_offset(2, member_id=follower, generation_id=3)

    assert refused.outcome.errors == (ErrorCode.REBALANCE_IN_PROGRESS,)


def test_a_commit_keeps_the_session():
    group = GroupRuntime()
    member = group.stable_group(1)[0]
    for offset in range(5):
        group.advance(SESSION_MS - 1)
        group.commit_offset(offset, member_id=member, generation_id=1)

    assert group.state() == "Stable"


@pytest.mark.parametrize(
    ("understands", "error_code"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_generation_of_no_group_is_told_so_in_the_words_of_its_version(understands, error_code):
    refused = GroupRuntime().commit_offset(1, member_id="m", generation_id=1, understands_missing_group=understands)

    assert refused.outcome.errors == (error_code,)


# --- OffsetDelete -----------------------------------------------------------------------------------------------


def test_offsets_are_deleted_unless_a_member_reads_the_topic():
    group = GroupRuntime()
    group.commit_offset(1, topic="cal")
    group.commit_offset(2, topic="other")
    group.stable_group(1)

    answer = group.delete_offsets("cal", "other", "never committed")

    assert answer.partitions == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE)
    assert (group.offset("cal"), group.offset("other")) == (1, None)


def test_offsets_of_an_empty_group_are_all_deletable():
    group = GroupRuntime()
    group.commit_offset(1)
    group.leave(*group.stable_group(1))

    assert group.delete_offsets("cal").partitions == (ErrorCode.NONE,)
    assert group.shard.offsets("g") == {}


def test_members_that_do_not_tell_what_they_read_may_read_any_topic():
    group = GroupRuntime()
    group.commit_offset(1, topic="other")
    group.stable_group(1, protocols=OPAQUE)

    assert group.delete_offsets("other").partitions == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)


# --- DeleteGroups -----------------------------------------------------------------------------------------------


def test_a_group_is_deleted_with_its_offsets():
    group = GroupRuntime()
    group.commit_offset(1)
    group.leave(*group.stable_group(1))
    given_out = group.join(needs_member_id=True).outcome.member_id

    assert group.delete_group() is ErrorCode.NONE

    assert [value for _, value in group.log[-2:]] == [None, None]
    assert group.shard.describe("g") is None
    assert SessionTimer("g", given_out) not in group.due
    group.crash()
    assert (group.shard.groups(), group.shard.offsets("g")) == ([], {})


# --- what becomes of them ---------------------------------------------------------------------------------------


def test_offsets_of_nobody_in_particular_expire_after_the_commit():
    group = GroupRuntime()
    group.commit_offset(1)
    group.advance(RETENTION_MS - 1)
    group.expire_offsets()
    assert group.offset() == 1

    group.advance(1)
    group.expire_offsets()

    assert (group.offset(), group.shard.groups()) == (None, [])


def test_offsets_of_a_group_expire_after_its_last_member_left():
    group = GroupRuntime()
    member = group.stable_group(1)[0]
    group.commit_offset(1, member_id=member, generation_id=1)
    for _ in range(3):
        group.advance(SESSION_MS - 1)
        group.heartbeat(member, 1)
    group.leave(member)
    group.advance(RETENTION_MS - 1)
    group.expire_offsets()
    assert group.offset() == 1

    group.advance(1)
    group.expire_offsets()

    assert (group.offset(), group.shard.groups()) == (None, [])


def test_a_group_that_was_left_before_times_were_written_expires_by_its_commits():
    group = GroupRuntime()
    group.commit_offset(1)
    group.leave(*group.stable_group(1))
    group.shard._groups["g"].state_timestamp_ms = -1
    group.advance(RETENTION_MS)
    group.commit_offset(2, topic="later")

    group.expire_offsets()

    assert (group.offset("cal"), group.offset("later")) == (None, 2)


def test_an_offset_with_a_time_of_its_own_expires_then():
    group = GroupRuntime()
    group.commit_offset(1, retention_ms=1_000)
    group.commit_offset(2, topic="other")
    group.advance(1_000)
    group.expire_offsets()

    assert (group.offset("cal"), group.offset("other")) == (None, 2)


@pytest.mark.parametrize(
    ("protocols", "left"), [(RANGE, ("cal",)), (OPAQUE, ("cal", "other"))], ids=["subscribed", "opaque"]
)
def test_offsets_of_topics_that_are_read_do_not_expire(protocols, left):
    group = GroupRuntime()
    group.commit_offset(1, topic="cal")
    group.commit_offset(2, topic="other")
    group.stable_group(1, protocols=protocols)
    group.now_ms += RETENTION_MS

    group.expire_offsets()

    assert tuple(topic for topic, _ in group.shard.offsets("g")) == left
    assert group.state() == "Stable"


def test_nothing_expires_in_a_rebalance_or_a_group_of_another_type():
    group = GroupRuntime()
    group.commit_offset(1, topic="other")
    leader, _ = group.stable_group(2)
    group.join(member_id=leader)
    group.now_ms += RETENTION_MS
    group.expire_offsets()
    assert group.offset("other") == 1

    connect = GroupRuntime()
    connect.commit_offset(1, topic="other")
    connect.stable_group(1, protocol_type="connect")
    connect.now_ms += RETENTION_MS
    connect.expire_offsets()

    assert connect.offset("other") == 1


def test_an_empty_group_without_offsets_goes_unless_somebody_is_about_to_join():
    group = GroupRuntime()
    group.leave(*group.stable_group(1))
    group.join(needs_member_id=True)
    group.expire_offsets()
    assert group.state() == "Empty"

    group.advance(SESSION_MS)
    group.expire_offsets()

    assert group.shard.groups() == []


def test_offsets_go_with_their_topic():
    group = GroupRuntime()
    for group_id in ("g", "h"):
        group.commit_offset(1, topic="cal", group_id=group_id)
        group.commit_offset(2, topic="other", group_id=group_id)

    group.carry_out(group.shard.delete_topic("cal", now_ms=group.now_ms))

    assert [group.offset("cal", group_id=group_id) for group_id in ("g", "h")] == [None, None]
    assert [group.offset("other", group_id=group_id) for group_id in ("g", "h")] == [2, 2]


def test_offsets_in_a_new_topic_of_the_same_name_stay():
    old, new = UUID(int=1), UUID(int=2)
    group = GroupRuntime()
    for index, topic_id in enumerate((old, new, UUID(int=0))):
        group.commit_offset((NewOffset(TopicPartition("cal", index), 1, -1, "", topic_id),))

    group.carry_out(group.shard.delete_topic("cal", topic_id=old, now_ms=group.now_ms))

    assert [partition for _, partition in group.shard.offsets("g")] == [1]


def test_rebalances_leave_offsets_alone():
    group = GroupRuntime()
    group.commit_offset(1)
    group.stable_group(2)
    group.advance(REBALANCE_MS)

    assert group.offset() == 1
