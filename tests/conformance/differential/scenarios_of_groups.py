"""Groups: membership and administration. Steps that wait for others are sent on connections of their own."""

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.differential.scenario import scenario

MEMBER_ID_REQUIRED = 79


def _join(group, member_id="", *, instance=None, protocols=("range",), kind="consumer", **fields):
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in protocols),
        **{"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000} | fields,
    )


def _sync(group, generation, member_id, *, instance=None, kind="consumer", protocol="range", assignments=()):
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments
        ),
    )


def _beat(group, generation, member_id, *, instance=None):
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def _leave(peer, group, *members):
    """`members` are pairs of a member id and an instance id."""
    if peer.version_of(LeaveGroupRequest()) < 3:
        return LeaveGroupRequest(group_id=group, member_id=members[0][0])
    return LeaveGroupRequest(
        group_id=group,
        members=tuple(
            MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members
        ),
    )


def _join_alone(peer, group, **fields):
    """Joins an empty group in the scenario's version, as it asks it to be done, and takes the steps down."""
    joined = peer.ask(_join(group, **fields))
    if joined.error_code == MEMBER_ID_REQUIRED:
        joined = peer.ask(_join(group, joined.member_id, **fields))
    return joined


# --- JoinGroup ----------------------------------------------------------------------------------------------------


@scenario(ApiKey.JOIN_GROUP)
def a_member_alone(peer):
    group = peer.name("group")
    joined = _join_alone(peer, group)
    peer.ask(_sync(group, joined.generation_id, joined.member_id, assignments=((joined.member_id, b"all"),)))
    peer.ask(_beat(group, joined.generation_id, joined.member_id))
    peer.ask(DescribeGroupsRequest(groups=(group,)))
    peer.ask(_leave(peer, group, (joined.member_id, None)))
    peer.ask(DescribeGroupsRequest(groups=(group,)))
    peer.ask(_beat(group, joined.generation_id, joined.member_id))


@scenario(ApiKey.JOIN_GROUP)
def a_member_that_joins_again(peer):
    group = peer.name("group")
    member = peer.member(group)
    peer.ask(_join(group, member.member_id))
    peer.ask(_join(group, member.member_id, protocols=("range", "sticky")))


@scenario(ApiKey.JOIN_GROUP)
def who_may_not_join(peer):
    member = peer.member(peer.name("group"))
    peer.ask(_join(member.group, "nobody"))
    peer.ask(_join(peer.name("empty"), "nobody"))
    peer.ask(_join(""))
    peer.ask(_join(member.group, member.member_id, kind="connect"))
    peer.ask(_join(member.group, member.member_id, kind=""))
    peer.ask(_join(member.group, member.member_id, protocols=()))
    peer.ask(_join(member.group, kind="connect"))
    peer.ask(_join(member.group, protocols=("sticky",)))
    peer.ask(_join(peer.name("new"), kind=""))
    peer.ask(_join(peer.name("new"), protocols=()))
    for session_timeout_ms in (5_999, 1_800_001, 0, -1):
        peer.ask(_join(peer.name("new"), session_timeout_ms=session_timeout_ms))


@scenario(ApiKey.JOIN_GROUP, "5+")
def a_static_member_that_comes_back(peer):
    group = peer.name("group")
    first = _join_alone(peer, group, instance="one")
    peer.ask(
        _sync(group, first.generation_id, first.member_id, instance="one", assignments=((first.member_id, b"a"),)), 5
    )
    again = peer.ask(_join(group, instance="one"))
    peer.ask(_beat(group, again.generation_id, first.member_id, instance="one"), 4)
    peer.ask(_beat(group, again.generation_id, again.member_id, instance="one"), 4)
    peer.ask(_join(group, first.member_id, instance="one"))
    peer.ask(_join(group, "nobody", instance="other"))
    peer.ask(_sync(group, again.generation_id, first.member_id, instance="one"), 5)
    peer.ask(_sync(group, again.generation_id, again.member_id, instance="one"), 5)
    peer.ask(DescribeGroupsRequest(groups=(group,)))


@scenario(ApiKey.JOIN_GROUP)
def two_members(peer):
    group = peer.name("group")
    leader = peer.member(group)
    second = peer.another_connection()
    version = peer.version
    if version >= 4:
        asked = second.ask(peer.fitting(_join(group)), version)
        peer.compare("second asked", asked)
        member_id = asked.member_id
    else:
        member_id = ""
    second.send(peer.fitting(_join(group, member_id)), version)
    peer.until_rebalance(leader)
    peer.ask(_beat(group, leader.generation, leader.member_id))
    led = peer.ask(_join(group, leader.member_id))
    joined = second.receive()
    peer.compare("second joined", joined)
    second.send(peer.fitting(_sync(group, joined.generation_id, joined.member_id), 5), 5)
    assignments = ((leader.member_id, b"mine"), (joined.member_id, b"yours"))
    peer.ask(_sync(group, led.generation_id, leader.member_id, assignments=assignments))
    peer.compare("second synced", second.receive())
    peer.ask(DescribeGroupsRequest(groups=(group,)))
    peer.ask(_leave(peer, group, (joined.member_id, None)))
    peer.ask(_beat(group, led.generation_id, leader.member_id))
    peer.ask(_sync(group, led.generation_id, leader.member_id))


# --- SyncGroup, Heartbeat, LeaveGroup -----------------------------------------------------------------------------


@scenario(ApiKey.SYNC_GROUP)
def syncs_good_and_bad(peer):
    member = peer.member(peer.name("group"))
    for generation, member_id in (
        (member.generation, member.member_id),
        (member.generation + 1, member.member_id),
        (member.generation - 1, member.member_id),
        (-1, member.member_id),
        (member.generation, "nobody"),
        (member.generation, ""),
        (-1, ""),
    ):
        peer.ask(_sync(member.group, generation, member_id))
    peer.ask(_sync(peer.name("nobody"), 1, member.member_id))
    peer.ask(_sync("", 1, member.member_id))
    for kind, protocol in (("connect", "range"), ("consumer", "sticky"), (None, None), ("", "")):
        peer.ask(_sync(member.group, member.generation, member.member_id, kind=kind, protocol=protocol))


@scenario(ApiKey.SYNC_GROUP)
def an_assignment_that_leaves_somebody_out(peer):
    group = peer.name("group")
    joined = peer.joined(group)
    peer.ask(_sync(group, joined.generation_id, joined.member_id, assignments=(("nobody", b"x"),)))
    peer.ask(DescribeGroupsRequest(groups=(group,)))


@scenario(ApiKey.HEARTBEAT)
def beats_good_and_bad(peer):
    member = peer.member(peer.name("group"))
    for generation, member_id in (
        (member.generation, member.member_id),
        (member.generation + 1, member.member_id),
        (member.generation - 1, member.member_id),
        (-1, member.member_id),
        (member.generation, "nobody"),
        (member.generation, ""),
    ):
        peer.ask(_beat(member.group, generation, member_id))
    peer.ask(_beat(peer.name("nobody"), 1, member.member_id))
    peer.ask(_beat("", 1, member.member_id))


@scenario(ApiKey.HEARTBEAT)
def a_beat_before_the_assignment(peer):
    group = peer.name("group")
    joined = peer.joined(group)
    peer.ask(_beat(group, joined.generation_id, joined.member_id))


@scenario(ApiKey.HEARTBEAT, "3+")
def beats_of_a_static_member(peer):
    member = peer.member(peer.name("group"), instance="one")
    for member_id, instance in (
        (member.member_id, "one"),
        (member.member_id, None),
        (member.member_id, "other"),
        ("nobody", "one"),
        ("", "one"),
    ):
        peer.ask(_beat(member.group, member.generation, member_id, instance=instance))


@scenario(ApiKey.LEAVE_GROUP)
def who_may_not_leave(peer):
    member = peer.member(peer.name("group"))
    peer.ask(_leave(peer, member.group, ("nobody", None)))
    peer.ask(_leave(peer, member.group, ("", None)))
    peer.ask(_leave(peer, peer.name("nobody"), (member.member_id, None)))
    peer.ask(_leave(peer, "", (member.member_id, None)))
    peer.ask(_leave(peer, member.group, (member.member_id, None)))
    peer.ask(_leave(peer, member.group, (member.member_id, None)))


@scenario(ApiKey.LEAVE_GROUP, "3+")
def many_leave_at_once(peer):
    member = peer.member(peer.name("group"))
    peer.ask(_leave(peer, member.group, ("nobody", None), (member.member_id, None), (member.member_id, None)))
    peer.ask(LeaveGroupRequest(group_id=member.group))


@scenario(ApiKey.LEAVE_GROUP, "3+")
def static_members_leave(peer):
    member = peer.member(peer.name("group"), instance="one")
    peer.ask(_leave(peer, member.group, ("", "other")))
    peer.ask(_leave(peer, member.group, ("nobody", "one")))
    peer.ask(_leave(peer, member.group, ("", "one")))
    peer.ask(DescribeGroupsRequest(groups=(member.group,)))


# --- administration -----------------------------------------------------------------------------------------------


@scenario(ApiKey.DESCRIBE_GROUPS)
def groups_in_every_state(peer):
    topic = peer.topic()
    stable = peer.member(peer.name("stable"))
    joined = peer.joined(peer.name("completing"))
    peer.commit(peer.name("offsets"), topic, 3)
    left = peer.member(peer.name("left"))
    peer.quietly(LeaveGroupRequest(group_id=left.group, members=(MemberIdentity(member_id=left.member_id),)), 3)
    names = ("stable", "completing", "offsets", "left", "nobody")
    peer.ask(DescribeGroupsRequest(groups=(*(peer.name(name) for name in names), "")))
    assert stable.member_id != joined.member_id


@scenario(ApiKey.DESCRIBE_GROUPS, "3+")
def groups_with_authorized_operations(peer):
    group = peer.member(peer.name("group")).group
    peer.ask(DescribeGroupsRequest(groups=(group, peer.name("nobody")), include_authorized_operations=True))


@scenario(ApiKey.DESCRIBE_GROUPS, "4+")
def a_group_with_a_static_member(peer):
    peer.ask(DescribeGroupsRequest(groups=(peer.member(peer.name("group"), instance="one").group,)))


@scenario(ApiKey.LIST_GROUPS)
def all_groups(peer):
    peer.member(peer.name("stable"))
    peer.joined(peer.name("completing"))
    peer.commit(peer.name("offsets"), peer.topic(), 3)
    peer.ask(ListGroupsRequest())


@scenario(ApiKey.LIST_GROUPS, "4+")
def groups_by_state(peer):
    peer.member(peer.name("stable"))
    peer.joined(peer.name("completing"))
    peer.commit(peer.name("offsets"), peer.topic(), 3)
    for states in (
        ("Stable",),
        ("stable",),
        ("Empty", "CompletingRebalance"),
        ("PreparingRebalance",),
        ("Dead",),
        ("",),
        ("Nonsense",),
    ):
        peer.ask(ListGroupsRequest(states_filter=states))


@scenario(ApiKey.LIST_GROUPS, "5+")
def groups_by_type(peer):
    peer.member(peer.name("stable"))
    for types in (("classic",), ("Classic",), ("consumer",), ("share",), ("",), ("nonsense",), ("classic", "consumer")):
        peer.ask(ListGroupsRequest(types_filter=types))


@scenario(ApiKey.DELETE_GROUPS)
def groups_deleted_good_and_bad(peer):
    stable, offsets = peer.member(peer.name("stable")).group, peer.name("offsets")
    peer.commit(offsets, peer.topic(), 3)
    peer.ask(DeleteGroupsRequest(groups_names=(stable, offsets, peer.name("nobody"))))
    peer.ask(DeleteGroupsRequest(groups_names=(offsets,)))
    peer.ask(DeleteGroupsRequest(groups_names=()))
    peer.ask(DescribeGroupsRequest(groups=(stable, offsets)))
