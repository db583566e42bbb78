"""TxnOffsetCommit: offsets that count once their transaction commits, and what may overtake them."""

from uuid import UUID

import pytest

from exactlog.core.group import committed_offsets
from exactlog.core.group.requests import CommittedOffset, NewOffset
from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from tests.support.group_runtime import GroupRuntime, Marker, PendingRecord

RETENTION_MS = 7 * 24 * 60 * 60 * 1_000
CAL = TopicPartition("cal", 0)


@pytest.fixture(params=["live", "crashed", "rewritten", "trimmed"])
def after(request):
    """Stories end the same whether the state is the live one, one that was loaded, or one that was written anew.

    Trimmed: what stands before the rewrite is gone too, as far as it may.
    """

    def settle(group):
        if request.param in {"rewritten", "trimmed"}:
            start = len(group.log)
            rewrite(group)
            if request.param == "trimmed":
                del group.log[: min(start, last_stable(group.log))]
        if request.param != "live":
            group.crash()

    return settle


def last_stable(log):
    """The place of the first record of a transaction that is open."""
    begun = {}
    for place, entry in enumerate(log):
        if isinstance(entry, PendingRecord):
            begun.setdefault(entry.producer_id, place)
        elif isinstance(entry, Marker):
            begun.pop(entry.producer_id, None)
    return min(begun.values(), default=len(log))


def rewrite(group):
    """What a rewrite adds to the log: all that is live, and what is pending behind it."""
    group.log += [(record.encode_key(), record.encode_value()) for record in group.shard.live_records()]
    group.log += [PendingRecord(record, producer_id) for producer_id, record in group.shard.pending_records()]


def errors_of(waiting):
    return waiting.outcome.errors


# --- pending, and its end ---------------------------------------------------------------------------------------


def test_an_offset_in_a_transaction_is_seen_once_the_transaction_commits(after):
    group = GroupRuntime()
    group.commit_offset(5)
    assert errors_of(group.commit_in_transaction(42)) == (ErrorCode.NONE,)
    after(group)
    assert (group.offset(), group.unstable()) == (5, {"cal"})

    group.end_transaction()
    after(group)
    assert (group.offset(), group.unstable()) == (42, set())


def test_an_offset_in_an_aborted_transaction_was_never_there(after):
    group = GroupRuntime()
    group.commit_offset(5)
    group.commit_in_transaction(42)
    after(group)
    group.end_transaction(is_commit=False)
    after(group)
    assert (group.offset(), group.unstable()) == (5, set())


def test_pending_and_its_end_are_seen_once_they_are_committed():
    group = GroupRuntime()
    group.commits_at_once = False
    waiting = group.commit_in_transaction(42)
    assert (waiting.outcome, group.unstable()) == (None, set())
    group.commit()
    assert (errors_of(waiting), group.unstable()) == ((ErrorCode.NONE,), {"cal"})
    group.end_transaction()
    assert (group.offset(), group.unstable()) == (None, {"cal"})
    group.commit()
    assert (group.offset(), group.unstable()) == (42, set())


def test_an_offset_is_kept_with_all_that_was_said_of_it(after):
    group = GroupRuntime()
    group.commit_in_transaction((NewOffset(CAL, 42, 5, "note", UUID(int=7)),))
    after(group)
    group.end_transaction()
    assert group.shard.offsets("g") == {CAL: CommittedOffset(42, 5, "note", group.now_ms, topic_id=UUID(int=7))}


def test_a_transaction_is_its_producers_alone():
    group = GroupRuntime()
    group.commit_in_transaction(1, producer_id=1, topic="a")
    group.commit_in_transaction(2, producer_id=2, topic="b")
    group.commit_in_transaction(3, producer_id=1, topic="c", group_id="other")
    group.end_transaction(producer_id=1)
    assert (group.offset("a"), group.offset("b"), group.offset("c", group_id="other")) == (1, None, 3)
    assert group.unstable() == {"b"}


def test_the_records_of_a_decision_are_part_of_the_transaction():
    group = GroupRuntime()
    decisions = []
    carry_out = group.carry_out
    group.carry_out = lambda decision: (decisions.append(decision), carry_out(decision))
    group.commit_in_transaction(42, producer_id=7)
    group.commit_offset(42)
    assert [decision.producer for decision in decisions] == [ProducerIdentity(7, 0), None]


def test_a_failed_round_forgets_what_is_pending_and_what_ended():
    group = GroupRuntime()
    group.commit_in_transaction(1, topic="a")
    group.commits_at_once = False
    later = group.commit_in_transaction(2, topic="b")
    group.end_transaction()
    group.fail_round()
    assert later.failure is ErrorCode.NOT_COORDINATOR
    assert (group.unstable(), group.offset("a"), group.state()) == ({"a"}, None, "Empty")
    group.end_transaction()
    group.commit()
    assert (group.offset("a"), group.offset("b")) == (1, None)


def test_what_is_decided_after_a_failed_round_sees_what_is_pending():
    group = GroupRuntime()
    group.commit_in_transaction(1)
    group.commits_at_once = False
    group.commit_offset(2)
    group.fail_round()
    group.commits_at_once = True
    group.delete_offsets("cal")
    assert group.unstable() == set()


# --- which of several wins --------------------------------------------------------------------------------------


def test_a_plain_commit_after_it_beats_a_pending_offset(after):
    group = GroupRuntime()
    group.commit_in_transaction(42)
    group.commit_offset(5)
    after(group)
    assert (group.offset(), group.unstable()) == (5, {"cal"}), "unstable until the transaction ends all the same"
    group.end_transaction()
    after(group)
    assert (group.offset(), group.unstable()) == (5, set())


def test_a_pending_offset_beats_a_plain_commit_before_it(after):
    group = GroupRuntime()
    group.commit_in_transaction(41)
    group.commit_offset(5)
    group.commit_in_transaction(42)
    after(group)
    group.end_transaction()
    after(group)
    assert group.offset() == 42


@pytest.mark.parametrize("first_to_end", [1, 2])
def test_of_two_transactions_the_offset_that_was_decided_last_wins(after, first_to_end):
    group = GroupRuntime()
    group.commit_in_transaction(1, producer_id=1)
    group.commit_in_transaction(2, producer_id=2)
    after(group)
    group.end_transaction(first_to_end)
    after(group)
    group.end_transaction(3 - first_to_end)
    after(group)
    assert (group.offset(), group.unstable()) == (2, set())


def test_who_decides_again_is_later_than_who_decided_meanwhile(after):
    group = GroupRuntime()
    group.commit_in_transaction(1, producer_id=1)
    group.commit_in_transaction(2, producer_id=2)
    group.commit_in_transaction(3, producer_id=1)
    after(group)
    group.end_transaction(1)
    group.end_transaction(2)
    after(group)
    assert group.offset() == 3


def test_the_loser_of_an_aborted_rival_counts(after):
    group = GroupRuntime()
    group.commit_in_transaction(1, producer_id=1)
    group.commit_in_transaction(2, producer_id=2)
    group.end_transaction(2, is_commit=False)
    after(group)
    group.end_transaction(1)
    after(group)
    assert group.offset() == 1


def test_a_rewrite_that_breaks_off_anywhere_changes_nothing():
    def story(told_anew):
        group = GroupRuntime()
        for topic in ("a", "b", "c"):
            group.commit_offset(5, topic=topic)
        group.now_ms += 1
        group.commit_in_transaction(1, producer_id=1, topic="a")
        group.commit_in_transaction(2, producer_id=2, topic="a")
        group.commit_in_transaction(3, producer_id=2, topic="b")
        group.commit_in_transaction(4, producer_id=1, topic="b")
        group.commit_in_transaction(5, producer_id=1, topic="c")
        group.commit_offset(6, topic="c")
        length = len(group.log)
        rewrite(group)
        assert len(group.log) == length + 7, "but for what is superseded"
        del group.log[length + told_anew :]
        group.crash()
        group.end_transaction(2)
        group.end_transaction(1)
        return [group.offset(topic) for topic in ("a", "b", "c")]

    assert [story(told_anew) for told_anew in range(8)] == [[2, 4, 6]] * 8


# --- what takes offsets away ------------------------------------------------------------------------------------


def test_deleting_an_offset_drops_what_is_pending_too(after):
    group = GroupRuntime()
    group.commit_in_transaction(1, producer_id=1)
    group.commit_in_transaction(2, producer_id=2)
    group.commit_in_transaction(3, producer_id=2, topic="kept")
    assert group.delete_offsets("cal").partitions == (ErrorCode.NONE,)
    after(group)
    assert group.unstable() == {"kept"}
    group.end_transaction(1)
    group.end_transaction(2)
    after(group)
    assert (group.offset(), group.offset("kept")) == (None, 3)


def test_deleting_a_group_drops_what_is_pending_too(after):
    group = GroupRuntime()
    group.commit_offset(1, topic="a")
    group.commit_in_transaction(2)
    assert group.delete_group() is ErrorCode.NONE
    after(group)
    group.end_transaction()
    after(group)
    assert (group.state(), group.offset(), group.offset("a"), group.unstable()) == (None, None, None, set())


def test_deleting_a_topic_drops_what_is_pending_in_it():
    group = GroupRuntime()
    group.commit_in_transaction(1, topic="gone")
    group.commit_in_transaction(2, topic="kept")
    group.carry_out(group.shard.delete_topic("gone", now_ms=group.now_ms))
    group.end_transaction()
    assert (group.offset("gone"), group.offset("kept")) == (None, 2)


@pytest.mark.parametrize("stored_id", [None, 1, 2])
def test_an_offset_that_is_pending_in_a_new_topic_of_the_name_stays(stored_id):
    group = GroupRuntime()
    if stored_id is not None:
        group.commit_offset((NewOffset(CAL, 1, -1, "", UUID(int=stored_id)),))
    group.commit_in_transaction((NewOffset(CAL, 2, -1, "", UUID(int=2)),))
    group.carry_out(group.shard.delete_topic("cal", topic_id=UUID(int=1), now_ms=group.now_ms))
    group.end_transaction()
    assert group.offset() == 2


def test_offsets_do_not_expire_while_a_transaction_has_others_for_their_partitions():
    group = GroupRuntime(offsets_retention_ms=RETENTION_MS)
    group.commit_offset(1)
    group.commit_offset(2, topic="idle")
    group.commit_in_transaction(3)
    group.advance(RETENTION_MS)
    group.expire_offsets()
    assert (group.offset(), group.offset("idle"), group.state()) == (1, None, "Empty")
    group.end_transaction(is_commit=False)
    group.expire_offsets()
    assert (group.offset(), group.state()) == (None, None)


def test_a_group_without_offsets_does_not_expire_while_a_transaction_has_some_for_it():
    group = GroupRuntime(offsets_retention_ms=RETENTION_MS)
    group.commit_in_transaction(3)
    group.advance(RETENTION_MS)
    group.expire_offsets()
    assert group.state() == "Empty"
    group.end_transaction()
    assert group.offset() == 3


# --- who may ----------------------------------------------------------------------------------------------------


def test_a_member_commits_for_its_generation():
    group = GroupRuntime()
    member = group.stable_group(1)[0]
    assert errors_of(group.commit_in_transaction(42, member_id=member, generation_id=1)) == (ErrorCode.NONE,)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"member_id": "stranger", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "static", "generation_id": 1}, ErrorCode.FENCED_INSTANCE_ID),
        ({"group_instance_id": "static", "member_id": "stranger"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_who_is_no_member_is_refused(fields, expected):
    group = GroupRuntime()
    group.stable_group(1, group_instance_id="static")
    assert errors_of(group.commit_in_transaction(42, **fields)) == (expected,)
    assert group.unstable() == set()


@pytest.mark.parametrize("generation_id", [-1, 0, 2])
def test_a_member_of_another_generation_is_refused(generation_id):
    group = GroupRuntime()
    member = group.stable_group(1)[0]
    refused = group.commit_in_transaction(42, member_id=member, generation_id=generation_id)
    assert errors_of(refused) == (ErrorCode.ILLEGAL_GENERATION,)


def test_without_members_anybody_without_a_generation_may_commit():
    group = GroupRuntime()
    group.commit_offset(1)
    assert group.state() == "Empty"
    assert errors_of(group.commit_in_transaction(42, member_id="stranger")) == (ErrorCode.NONE,)
    refused = group.commit_in_transaction(42, member_id="stranger", generation_id=0)
    assert errors_of(refused) == (ErrorCode.UNKNOWN_MEMBER_ID,)


def test_who_does_not_say_that_it_is_a_member_is_not_checked():
    group = GroupRuntime()
    group.stable_group(1)
    assert errors_of(group.commit_in_transaction(42)) == (ErrorCode.NONE,)


@pytest.mark.parametrize(
    ("understands", "expected"), [(False, ErrorCode.ILLEGAL_GENERATION), (True, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(understands, expected):
    group = GroupRuntime()
    refused = group.commit_in_transaction(42, generation_id=0, understands_missing_group=understands)
    assert errors_of(refused) == (expected,)
    assert group.state() is None


def test_a_rebalance_is_no_obstacle_at_any_point_and_offsets_resolve_in_it():
    """B029 (redpanda #5543, #6423): offsets of a transaction stayed pending for ever when their group rebalanced."""
    group = GroupRuntime()
    leader, other = group.stable_group(2)
    group.commit_in_transaction(1, member_id=leader, generation_id=group.generation_id, topic="stable")

    group.join(member_id=leader, protocols=(("range", b"changed"),))
    assert group.state() == "PreparingRebalance"
    preparing = group.commit_in_transaction(
        2, member_id=other, generation_id=group.generation_id, producer_id=2, topic="preparing"
    )
    group.end_transaction(1)
    assert group.offset("stable") == 1

    group.join(member_id=other)
    assert group.state() == "CompletingRebalance"
    completing = group.commit_in_transaction(
        3, member_id=other, generation_id=group.generation_id, producer_id=3, topic="completing"
    )
    plain = group.commit_offset(4, member_id=other, generation_id=group.generation_id)
    assert errors_of(plain) == (ErrorCode.REBALANCE_IN_PROGRESS,)
    group.end_transaction(2)
    group.end_transaction(3)
    assert errors_of(preparing) == errors_of(completing) == (ErrorCode.NONE,)
    assert (group.offset("preparing"), group.offset("completing"), group.unstable()) == (2, 3, set())
    assert group.state() == "CompletingRebalance"


def test_a_transactional_commit_is_no_sign_of_life():
    group = GroupRuntime()
    member = group.stable_group(1)[0]
    due = dict(group.due)
    group.now_ms += 1_000
    group.commit_in_transaction(42, member_id=member, generation_id=1)
    assert group.due == due


def test_a_text_that_is_too_long_is_refused_alone():
    group = GroupRuntime(offset_metadata_bytes_max=4)
    offsets = (NewOffset(CAL, 1, -1, "short"), NewOffset(TopicPartition("b", 0), 2, -1, "four"))
    refused = group.commit_in_transaction(offsets)
    assert errors_of(refused) == (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert group.unstable() == {"b"}


# --- the bound --------------------------------------------------------------------------------------------------


def test_what_is_pending_is_bounded_in_all(monkeypatch):
    monkeypatch.setattr(committed_offsets, "PENDING_OFFSETS_BYTES_MAX", 3_000)
    group = GroupRuntime()
    taken = [errors_of(group.commit_in_transaction(1, producer_id=number)) for number in range(6)]
    assert taken == [(ErrorCode.NONE,)] * 5 + [(ErrorCode.COORDINATOR_NOT_AVAILABLE,)]
    group.end_transaction(0)
    text = (NewOffset(CAL, 1, -1, "!"),)
    assert errors_of(group.commit_in_transaction(text)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,), "texts count"
    assert errors_of(group.commit_in_transaction(1)) == (ErrorCode.NONE,)


def test_what_has_ended_takes_no_room(after):
    group = GroupRuntime()
    for number in range(4):
        group.commit_in_transaction((NewOffset(CAL, 1, -1, "x" * number),), producer_id=number)
        group.commit_in_transaction((NewOffset(CAL, 2, -1, "y"),), producer_id=number)
        group.commit_in_transaction(3, producer_id=number, topic="deleted")
    after(group)
    group.delete_offsets("deleted")
    for number in range(4):
        group.end_transaction(number, is_commit=number > 2)
    after(group)
    assert group.shard._head.pending.size_bytes == group.shard._committed.pending.size_bytes == 0
    assert not group.shard._head.pending
