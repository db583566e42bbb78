"""Members, and what can be read in their metadata."""

import pytest

from exactlog.core.group.classic_group import ClassicGroup
from exactlog.core.group.group_metadata_format import GroupMetadata, GroupMetadataMember
from exactlog.core.group.member import Member
from exactlog.core.group.requests import Client
from exactlog.core.model.errors import DecodeError, InvariantError
from exactlog.core.protocol.consumer_protocol_format import decode_subscribed_topics


def member(*protocol_names):
    return Member(
        member_id="m",
        group_instance_id=None,
        client=Client("c", "/h"),
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocols=tuple((name, b"") for name in protocol_names),
    )


def test_a_member_votes_for_what_it_prefers_among_the_candidates():
    assert member("a", "b", "c").vote({"b", "c"}) == "b"


def test_a_member_cannot_vote_where_it_can_work_with_nothing():
    with pytest.raises(InvariantError, match="m can work with none of"):
        member("a").vote({"b"})


@pytest.mark.parametrize("version", ["0000", "0003", "7fff"])
def test_the_topics_of_a_subscription_are_read_in_any_version(version):
    metadata = bytes.fromhex(version + "00000002" + "000161" + "000162" + "ffffffff")

    assert decode_subscribed_topics(metadata) == {"a", "b"}


@pytest.mark.parametrize("metadata", ["", "00", "ffff00000000", "0000000000020001", "0000ffffffff"])
def test_other_bytes_are_no_subscription(metadata):
    with pytest.raises(DecodeError):
        decode_subscribed_topics(bytes.fromhex(metadata))


def test_a_group_of_another_kind_subscribes_to_nothing():
    group = ClassicGroup("g")
    group.protocol_type = "connect"

    assert group.subscribed_topics() is None
    assert group.topics_in_use(["a"]) == set()


def test_a_log_in_which_a_group_instance_is_there_twice_is_read_for_what_it_is():
    twice = tuple(GroupMetadataMember(member_id=member_id, group_instance_id="i") for member_id in ("a", "b"))
    group = ClassicGroup("g")
    group.replay(GroupMetadata(protocol_type="consumer", generation=1, protocol="range", leader="a", members=twice))

    group.remove("a")
    assert group.static_members == {"i": "b"}
    group.remove("b")

    assert group.static_members == {}
