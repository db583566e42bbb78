"""OffsetCommit, OffsetFetch and OffsetDelete: kept once answered, by whoever may, in every version."""

import itertools
import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, Topic
from tests.support.raw_groups import (
    Member,
    commit,
    delete_group,
    delete_offset,
    describe,
    fetch_all_offsets,
    fetch_offset,
    form_group,
    list_groups,
)

NUMBERS = itertools.count(1)
COMMIT_VERSIONS = range(11)
FETCH_VERSIONS = range(11)


@pytest.fixture
def group_id():
    return f"offsets-{next(NUMBERS)}"


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_what_is_committed_is_fetched(raw, topic, group_id, version):
    """B053 (nisshi, compatibility findings): the metadata of an offset commit was lost."""
    assert commit(raw, group_id, topic, 42, metadata="up to here", version=version) is ErrorCode.NONE
    found = fetch_offset(raw, group_id, topic)
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, 42, "up to here")


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_offsets_are_fetched_in_every_version(raw, topic, group_id, version):
    commit(raw, group_id, topic, 42, metadata="text", leader_epoch=3, version=9)
    found = fetch_offset(raw, group_id, topic, version=version)
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, 42, "text")
    assert found.committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_nothing_committed_is_minus_one(raw, topic, group_id, version):
    found = fetch_offset(raw, group_id, topic, version=version)
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, -1, "")


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9])
def test_all_of_a_group_is_fetched(raw, group_id, version):
    first, second = raw.create_topic(partitions=2), raw.create_topic()
    for topic, partition, offset in ((first, 0, 1), (first, 1, 2), (second, 0, 3)):
        commit(raw, group_id, topic, offset, partition=partition)
    assert fetch_all_offsets(raw, group_id, version=version) == {
        (first.name, 0): 1,
        (first.name, 1): 2,
        (second.name, 0): 3,
    }
    assert fetch_all_offsets(raw, f"{group_id}-other", version=version) == {}


def test_several_groups_are_fetched_at_once(raw, topic, group_id):
    commit(raw, group_id, topic, 1)
    commit(raw, f"{group_id}-b", topic, 2)
    asked = (OffsetFetchRequestTopics(name=topic.name, partition_indexes=(0,)),)
    names = (group_id, f"{group_id}-b", f"{group_id}-c")
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=asked) for name in names)
    answer = raw.ask(OffsetFetchRequest(groups=groups), 9)
    assert [(group.group_id, group.topics[0].partitions[0].committed_offset) for group in answer.groups] == [
        (group_id, 1),
        (f"{group_id}-b", 2),
        (f"{group_id}-c", -1),
    ]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_an_offset_in_what_does_not_exist_is_refused(raw, topic, group_id, version):
    """B068 franz-go 05542e81: offsets for unknown partitions were accepted."""
    unknown = Topic("never-made", uuid.uuid4())
    refusal = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(raw, group_id, unknown, 1, version=version) is refusal
    for partition in (1, -1, 2**31 - 1):
        refused = commit(raw, group_id, topic, 1, partition=partition, version=version)
        assert refused is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert group_id not in list_groups(raw)


@pytest.mark.parametrize("version", [10])
def test_an_unknown_topic_id_is_told(raw, group_id, version):
    found = fetch_offset(raw, group_id, Topic("", uuid.uuid4()), version=version)
    assert (found.error_code, found.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


def test_a_text_that_is_too_long_is_refused_alone(raw, topic, group_id):
    assert commit(raw, group_id, topic, 1, metadata="x" * 4096) is ErrorCode.NONE
    assert commit(raw, group_id, topic, 2, metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch_offset(raw, group_id, topic).committed_offset == 1


# --- who may commit --------------------------------------------------------------------------------------------


def test_a_member_commits_in_its_generation_only(connect, topic, group_id):
    """B079 franz-go #1326: a stale generation is told once, then a rejoin succeeds."""
    member = Member(connect(), group_id)
    form_group(member)
    assert member.commit(topic, 5) is ErrorCode.NONE
    assert member.commit(topic, 6, generation_id_or_member_epoch=9) is ErrorCode.ILLEGAL_GENERATION
    assert member.commit(topic, 6, member_id="never-met") is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.join().error_code == ErrorCode.NONE
    assert fetch_offset(member.raw, group_id, topic).committed_offset == 5


def test_nobody_else_commits_while_there_are_members(connect, raw, topic, group_id):
    form_group(Member(connect(), group_id))
    assert commit(raw, group_id, topic, 5) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_who_says_it_is_a_member_of_a_group_that_is_not_there_is_told(raw, topic, group_id, version, error):
    refused = commit(raw, group_id, topic, 5, version=version, generation_id_or_member_epoch=1, member_id="me")
    assert refused is error


def test_nothing_is_committed_between_the_join_and_the_assignment(connect, topic, group_id):
    member = Member(connect(), group_id)
    member.join()
    assert member.commit(topic, 1) is ErrorCode.REBALANCE_IN_PROGRESS


# --- going -----------------------------------------------------------------------------------------------------


def test_an_offset_is_deleted_where_nobody_reads(connect, raw, topic, group_id):
    assert delete_offset(raw, group_id, topic) is ErrorCode.GROUP_ID_NOT_FOUND
    commit(raw, group_id, topic, 5)
    assert delete_offset(raw, group_id, Topic("never-made", None)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offset(raw, group_id, topic) is ErrorCode.NONE
    assert fetch_offset(raw, group_id, topic).committed_offset == -1


def test_a_group_that_is_deleted_has_no_offsets(raw, topic, group_id):
    commit(raw, group_id, topic, 5)
    assert describe(raw, group_id).group_state == "Empty"
    assert delete_group(raw, group_id) is ErrorCode.NONE
    assert fetch_offset(raw, group_id, topic).committed_offset == -1


def test_the_offsets_in_a_deleted_topic_are_gone_and_those_in_a_new_one_of_its_name_begin_anew(raw, group_id):
    topic, other = raw.create_topic(), raw.create_topic()
    commit(raw, group_id, topic, 5)
    commit(raw, group_id, other, 6)
    raw.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=topic.name),), timeout_ms=10_000), 6)
    again = raw.create_topic(topic.name)
    assert fetch_offset(raw, group_id, again).committed_offset == -1
    assert fetch_all_offsets(raw, group_id) == {(other.name, 0): 6}


def test_offsets_of_a_deleted_topic_that_a_crash_left_behind_count_nowhere(broker, raw, group_id, monkeypatch):
    topic, other = raw.create_topic(), raw.create_topic()
    commit(raw, group_id, topic, 5)
    commit(raw, group_id, other, 6)
    monkeypatch.setattr(broker._node.services.topics, "_on_deleted", [])  # as if it had crashed before
    raw.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=topic.name),), timeout_ms=10_000), 6)
    again = raw.create_topic(topic.name)
    assert fetch_offset(raw, group_id, again).committed_offset == -1
    assert fetch_all_offsets(raw, group_id) == {(other.name, 0): 6}
    assert commit(raw, group_id, again, 7) is ErrorCode.NONE
    assert fetch_all_offsets(raw, group_id) == {(topic.name, 0): 7, (other.name, 0): 6}


# --- lasting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_what_was_answered_is_there_after_a_restart(tmp_path, ends):
    """B104 seaweedfs 833b09c: an answered commit was not stored, and records were skipped."""
    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            member = Member(raw, "readers")
            form_group(member)
            for offset in range(20):
                assert member.commit(topic, offset, metadata=f"{offset}") is ErrorCode.NONE
            assert commit(raw, "others", topic, 7) is ErrorCode.NONE
            assert delete_group(raw, "others") is ErrorCode.NONE
        if ends == "kill":
            broker.kill()
        broker.restart()
        with RawClient(broker.port) as raw:
            found = fetch_offset(raw, "readers", topic)
            assert (found.committed_offset, found.metadata) == (19, "19")
            assert set(list_groups(raw)) == {"readers"}
            member.raw = raw
            assert member.heartbeat() is ErrorCode.NONE, "a member goes on where it was"
            assert member.commit(topic, 20) is ErrorCode.NONE


def test_offsets_expire_when_nobody_has_read_for_long(tmp_path):
    config = {"offsets.retention.minutes": 10, "connections.max.idle.ms": 3_600_000}
    with Broker(tmp_path, config=config) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        commit(raw, "simple", topic, 1)
        broker.clock.advance_ms(9 * 60_000)
        commit(raw, "later", topic, 2)
        broker.clock.advance_ms(11 * 60_000)  # the next check is due as well
        commit(raw, "now", topic, 3)
        assert fetch_offset(raw, "simple", topic).committed_offset == -1
        assert fetch_offset(raw, "now", topic).committed_offset == 3
        assert "simple" not in list_groups(raw)
