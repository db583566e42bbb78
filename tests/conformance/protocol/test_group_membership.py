"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as every version of them says it, and a group's whole life."""

import itertools

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from exactlog.core.protocol.messages.metadata import MetadataRequest
from tests.support.raw_groups import (
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Member,
    assign,
    delete_group,
    describe,
    form_group,
    list_groups,
)

NUMBERS = itertools.count(1)


@pytest.fixture
def group_id():
    return f"group-{next(NUMBERS)}"


@pytest.fixture
def member(connect, group_id):
    """Makes members of one group."""
    return lambda **fields: Member(connect(), group_id, **fields)


# --- one member ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_first_member_is_the_leader_and_sees_itself(member, version):
    first = member()
    joined = first.join(version=version)

    assert joined.error_code == ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.protocol_name == "range"
    assert joined.leader == joined.member_id != ""
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, b"range-metadata")]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(6))
def test_the_leader_gets_what_it_assigns_to_itself(member, version):
    first = member()
    first.join()
    synced = first.sync({first.member_id: b"mine"}, version=version)

    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize("version", range(5))
def test_a_member_of_a_stable_group_may_go_on(member, version):
    first = member()
    form_group(first)
    assert first.heartbeat(version=version) is ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_who_has_left_is_unknown(member, version):
    first = member()
    form_group(first)
    assert first.leave(version=version) is ErrorCode.NONE
    assert first.leave(version=version) is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [4, 5, 9])
def test_a_first_join_is_sent_back_with_a_member_id(member, version):
    first = member()
    first.send_join(version=version)
    refused = first.receive_join()

    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert refused.member_id.startswith("raw-"), "it begins with the client id"
    assert refused.generation_id == -1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "never-met"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_cannot_be_is_refused(member, fields, error):
    first = member()
    first.send_join(version=3, **fields)
    assert first.receive_join().error_code == error


def test_nobody_of_another_protocol_comes_in(member):
    form_group(member())
    for stranger in (member(protocols=(("sticky", b""),)), member(protocol_type="connect")):
        stranger.send_join(version=3)
        assert stranger.receive_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- several members -------------------------------------------------------------------------------------------


def test_every_member_gets_the_bytes_the_leader_gave_it(member):
    """B056 nisshi #679: followers got no assignment bytes."""
    first, second = member(), member()
    first.join()
    second.ask_to_join()
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.send_join()
    assert first.receive_join().error_code == ErrorCode.NONE
    assert second.receive_join().error_code == ErrorCode.NONE
    assert first.generation_id == second.generation_id == 2
    assert first.is_leader
    assert {each.member_id for each in first.joined.members} == {first.member_id, second.member_id}
    assert second.joined.members == ()

    got = assign(first, second, assignments={first.member_id: b"one", second.member_id: b"two"})
    assert got == [b"one", b"two"]


def test_a_follower_waits_for_the_leader_to_assign(member):
    first, second = member(), member()
    form_group(first)
    second.ask_to_join()
    first.send_join()
    first.receive_join()
    second.receive_join()
    second.send_sync()
    assert not second.raw.has_answer()

    assert first.sync({second.member_id: b"later"}).assignment == b""
    assert second.raw.receive().assignment == b"later"


def test_when_a_member_leaves_the_others_are_told_to_come_together_again(member):
    first, second = member(), member()
    form_group(first, second)
    assert second.leave() is ErrorCode.NONE
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert first.join().error_code == ErrorCode.NONE
    assert [each.member_id for each in first.joined.members] == [first.member_id]


@pytest.mark.parametrize("stale", ["generation", "member"])
def test_who_speaks_of_what_is_over_is_refused(member, stale):
    first = member()
    form_group(first)
    fields, error = {
        "generation": ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        "member": ({"member_id": "never-met"}, ErrorCode.UNKNOWN_MEMBER_ID),
    }[stale]
    assert first.heartbeat(**fields) is error
    assert first.sync(**fields).error_code == error


def test_a_sync_that_speaks_of_another_protocol_is_refused(member):
    first = member()
    first.join()
    assert first.sync(protocol_name="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert first.sync(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert first.sync(protocol_name=None).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_all_have_is_chosen_by_their_votes(member):
    first = member(protocols=(("sticky", b"a"), ("range", b"b")))
    second = member(protocols=(("range", b"c"),))
    form_group(first, second)
    assert first.joined.protocol_name == second.joined.protocol_name == "range"


# --- static members --------------------------------------------------------------------------------------------


def test_a_static_member_that_starts_again_takes_its_place_without_a_rebalance(member, connect, group_id):
    first, second = member(instance_id="one"), member(instance_id="two")
    form_group(first, second, assignments={})
    generation = second.generation_id

    again = Member(connect(), group_id, instance_id="two")
    assert again.join().error_code == ErrorCode.NONE
    assert again.generation_id == generation
    assert again.member_id != second.member_id
    assert again.sync().error_code == ErrorCode.NONE
    assert first.heartbeat() is ErrorCode.NONE
    assert second.heartbeat() is ErrorCode.FENCED_INSTANCE_ID, "B117: never two with one instance id"


def test_a_static_member_is_taken_out_by_its_instance_id(member):
    first, second = member(instance_id="one"), member(instance_id="two")
    form_group(first, second)
    gone = (MemberIdentity(member_id="", group_instance_id="two"), MemberIdentity(member_id="", group_instance_id="x"))
    answer = first.raw.ask(LeaveGroupRequest(group_id=first.group_id, members=gone), 5)
    assert [(each.group_instance_id, each.error_code) for each in answer.members] == [
        ("two", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


# --- seen from outside -----------------------------------------------------------------------------------------


def test_a_group_is_described_with_its_members(member, raw, group_id):
    first = member(instance_id="one")
    form_group(first)
    group = describe(raw, group_id)
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (shown,) = group.members
    assert (shown.member_id, shown.group_instance_id) == (first.member_id, "one")
    assert (shown.client_id, shown.client_host) == ("raw", "/127.0.0.1")
    assert shown.member_metadata == b"range-metadata"


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead(raw, version):
    group = describe(raw, "nobody-knows-it", version=version)
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(member, raw, group_id, version):
    form_group(member())
    listed = list_groups(raw, version=version)[group_id]
    assert listed.protocol_type == "consumer"
    assert listed.group_state == ("Stable" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")


def test_groups_are_filtered_by_state_and_type(member, raw, group_id):
    form_group(member())
    assert group_id in list_groups(raw, states_filter=("Stable",))
    assert group_id in list_groups(raw, states_filter=("stable", "Empty"), types_filter=("classic",))
    assert group_id not in list_groups(raw, states_filter=("Empty",))
    assert group_id not in list_groups(raw, types_filter=("consumer",))


@pytest.mark.parametrize("version", range(4))
def test_only_a_group_without_members_is_deleted(member, raw, group_id, version):
    first = member()
    form_group(first)
    assert delete_group(raw, group_id, version=version) is ErrorCode.NON_EMPTY_GROUP
    first.leave()
    assert describe(raw, group_id).group_state == "Empty"
    assert delete_group(raw, group_id, version=version) is ErrorCode.NONE
    assert delete_group(raw, group_id, version=version) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group_id not in list_groups(raw)


def test_the_topic_of_the_groups_is_there_and_internal(member, raw):
    form_group(member())
    (topic,) = [
        topic for topic in raw.ask(MetadataRequest(topics=None), 12).topics if topic.name == "__consumer_offsets"
    ]
    assert topic.is_internal


# --- time ------------------------------------------------------------------------------------------------------


def test_who_is_silent_for_its_session_is_taken_out(broker, member):
    """B093 aiokafka #727: then a join with an empty member id works."""
    first, second = member(), member()
    form_group(first, second)
    broker.clock.advance_ms(SESSION_TIMEOUT_MS - 1_000)
    assert second.heartbeat() is ErrorCode.NONE
    broker.clock.advance_ms(2_000)
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    assert second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.member_id = ""
    first.ask_to_join()
    second.send_join()
    assert (first.receive_join().error_code, second.receive_join().error_code) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_rebalance_waits_no_longer_than_its_timeout(broker, member):
    first, second = member(), member()
    form_group(first)
    second.ask_to_join()
    assert not second.raw.has_answer(), "the first has its time to come, too"
    broker.clock.advance_ms(REBALANCE_TIMEOUT_MS + 1)
    joined = second.receive_join()
    assert joined.error_code == ErrorCode.NONE
    assert [each.member_id for each in joined.members] == [second.member_id]
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
