"""Groups seen from outside, against a toy coordinator."""

import pytest

from exactlog.client.groups import CommittedOffset, GroupDescription, GroupListing, GroupMember
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError, UnsupportedError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.consumer_protocol_format import encode_assignment
from exactlog.core.protocol.messages.describe_groups import DescribedGroupMember
from exactlog.core.protocol.messages.offset_commit import OffsetCommitRequest
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.unit.client.toy_broker import running
from tests.unit.client.toy_groups import GroupCluster

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def member(assignment):
    return DescribedGroupMember(
        member_id="m", client_id="c", client_host="/127.0.0.1", member_assignment=assignment, group_instance_id="i"
    )


async def test_groups_are_listed_from_every_broker_by_name():
    async with running(GroupCluster(broker_count=2)) as client:
        assert await client.list_groups() == (
            GroupListing("g1", "Stable", "consumer", "classic"),
            GroupListing("g2", "Stable", "consumer", "classic"),
        )


async def test_what_an_old_broker_does_not_tell_of_groups_is_not_known():
    cluster = GroupCluster(versions={ApiKey.LIST_GROUPS: Versions(0, 3)})
    async with running(cluster) as client:
        assert await client.list_groups() == (GroupListing("g1", None, "consumer", None),)


@pytest.mark.parametrize("highest", [0, 4, 6])
async def test_a_group_is_described_with_what_its_members_read(highest):
    cluster = GroupCluster(broker_count=2, versions={ApiKey.DESCRIBE_GROUPS: Versions(0, highest)})
    cluster.coordinator_id = 2
    cluster.group.state = "Stable"
    cluster.group.described_members = (member(encode_assignment([OTHER, PLACE])),)
    async with running(cluster) as client:
        described = await client.describe_group("g")
    assert described == GroupDescription(
        "g",
        "Stable",
        "consumer",
        "range",
        f"127.0.0.1:{cluster.brokers[1].port}",
        (GroupMember("m", "i" if highest >= 4 else None, "c", "/127.0.0.1", (PLACE, OTHER)),),
    )


@pytest.mark.parametrize(("protocol_type", "assignment"), [("connect", b"\0\1whatever"), ("consumer", b"\0\1\0")])
async def test_assignments_that_are_not_of_the_consumer_protocol_are_not_known(protocol_type, assignment):
    cluster = GroupCluster()
    cluster.group.protocol_type = protocol_type
    cluster.group.described_members = (member(assignment),)
    async with running(cluster) as client:
        assert (await client.describe_group("g")).members[0].assigned is None


@pytest.mark.parametrize(("state", "code"), [("Dead", 0), ("", ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_group_that_is_not_there_is_not_found(state, code):
    cluster = GroupCluster()
    cluster.group.state = state
    cluster.fail_next(ApiKey.DESCRIBE_GROUPS, code)
    cluster.fail_next(ApiKey.DELETE_GROUPS, ErrorCode.GROUP_ID_NOT_FOUND)
    cluster.fail_next(ApiKey.OFFSET_DELETE, ErrorCode.GROUP_ID_NOT_FOUND)
    async with running(cluster) as client:
        for operation in (
            client.describe_group("g"),
            client.delete_group("g"),
            client.delete_offsets("g", [PLACE]),
        ):
            with pytest.raises(NotFoundError, match="group g does not exist") as error:
                await operation
            assert error.value.kafka_error is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_is_deleted_by_its_coordinator_wherever_that_has_gone():
    cluster = GroupCluster(broker_count=2)
    async with running(cluster) as client:
        await client.delete_group("g")
        cluster.coordinator_id = 2
        await client.delete_group("g")


async def test_a_group_with_members_is_not_deleted():
    cluster = GroupCluster()
    cluster.fail_next(ApiKey.DELETE_GROUPS, ErrorCode.NON_EMPTY_GROUP)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=r"delete group g: NON_EMPTY_GROUP \(it has members\)") as error:
            await client.delete_group("g")
    assert "stop its members first" in error.value.hint


@pytest.mark.parametrize("highest", [2, 5, 7, 8, 10])
async def test_all_offsets_of_a_group_are_listed(highest):
    cluster = GroupCluster(versions={ApiKey.OFFSET_FETCH: Versions(0, highest)})
    cluster.group.committed = {PLACE: 7, OTHER: 0}
    async with running(cluster) as client:
        assert await client.list_committed_offsets("g") == {
            PLACE: CommittedOffset(7, -1, ""),
            OTHER: CommittedOffset(0, -1, ""),
        }
    assert cluster.versions_of(OffsetFetchRequest) == [min(highest, 9)]


async def test_a_broker_that_cannot_list_all_offsets_is_not_asked():
    cluster = GroupCluster(versions={ApiKey.OFFSET_FETCH: Versions(0, 1)})
    async with running(cluster) as client:
        with pytest.raises(UnsupportedError, match="OffsetFetch 0 to 1; needed is 2 to 9"):
            await client.list_committed_offsets("g")


async def test_offsets_are_set_as_nobody():
    cluster = GroupCluster()
    async with running(cluster) as client:
        await client.commit_offsets("g", {PLACE: 3, OTHER: 4})
    assert cluster.group.committed == {PLACE: 3, OTHER: 4}
    (request,) = cluster.requests_of(OffsetCommitRequest)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)


async def test_offsets_of_a_group_with_members_are_not_set():
    cluster = GroupCluster()
    cluster.fail_next(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=r"set offsets of group g: NON_EMPTY_GROUP") as error:
            await client.commit_offsets("g", {PLACE: 3})
    assert error.value.kafka_error is ErrorCode.NON_EMPTY_GROUP


async def test_an_offset_that_is_refused_is_named():
    cluster = GroupCluster()
    cluster.fail_next(ApiKey.OFFSET_COMMIT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=r"TOPIC_AUTHORIZATION_FAILED \(orders-0\)"):
            await client.commit_offsets("g", {PLACE: 3})


async def test_offsets_are_forgotten():
    cluster = GroupCluster()
    cluster.group.committed = {PLACE: 3, OTHER: 4}
    async with running(cluster) as client:
        await client.delete_offsets("g", [PLACE])
    assert cluster.group.committed == {OTHER: 4}


async def test_offsets_that_are_read_are_not_forgotten():
    cluster = GroupCluster()
    cluster.group.committed = {PLACE: 3}
    cluster.fail_next(ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=r"GROUP_SUBSCRIBED_TO_TOPIC \(orders-0\)"):
            await client.delete_offsets("g", [PLACE])
