"""A member of a group, against a toy coordinator."""

import asyncio

import pytest

from exactlog.client.groups import MemberSettings
from exactlog.client.ports import ClientSettings, IsolationLevel
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, UnavailableError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.consumer_protocol_format import decode_assignment, encode_assignment, encode_subscription
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest
from exactlog.core.protocol.messages.offset_commit import OffsetCommitRequest
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest
from exactlog.core.record.batch_builder import NewRecord, build_batch
from tests.unit.client.toy_broker import HangUpError, running
from tests.unit.client.toy_groups import GroupCluster

PLACES = [TopicPartition("orders", partition) for partition in range(2)]
EAGER = MemberSettings(heartbeat_interval_ms=1)  # a beat between any two records
ENDS = dict.fromkeys(PLACES, 3)


def cluster_with(**options):
    """Two partitions of three records each."""
    cluster = GroupCluster(**options)
    topic = cluster.add_topic("orders", leaders=(1, 1))
    for partition, log in enumerate(topic.logs):
        for index in range(3):
            log.append(bytes(build_batch([NewRecord(b"%d%d" % (partition, index))])))
    return cluster


async def read(client, **options):
    """All records up to the ends, as a member of `g`."""
    async with client.join_group("g", "orders", ends=ENDS, **options) as member:
        return [found.record.value async for found in member.records()]


def of_kind(cluster, *kinds):
    """The requests of these kinds in the order in which they came."""
    return [request for broker in cluster.brokers for _, request in broker.requests if isinstance(request, kinds)]


# --- a life ---------------------------------------------------------------------------------------------------


async def test_a_member_joins_with_the_id_it_is_given_reads_commits_and_leaves():
    cluster = cluster_with()
    async with running(cluster) as client:
        assert sorted(await read(client)) == [b"00", b"01", b"02", b"10", b"11", b"12"]

    kinds = (JoinGroupRequest, SyncGroupRequest, OffsetFetchRequest, OffsetCommitRequest, LeaveGroupRequest)
    lived = of_kind(cluster, *kinds)
    assert [type(request) for request in lived] == [JoinGroupRequest, *kinds]
    assert [request.member_id for request in of_kind(cluster, JoinGroupRequest)] == ["", "member-0"]
    assert cluster.group.committed == ENDS
    assert lived[-2].generation_id_or_member_epoch == 1
    assert lived[-1].members[0].member_id == "member-0"


async def test_the_next_member_goes_on_behind_what_was_committed():
    cluster = cluster_with()
    cluster.group.committed = {PLACES[0]: 2, PLACES[1]: 3}
    async with running(cluster) as client:
        assert await read(client) == [b"02"]
    assert cluster.group.committed == ENDS


async def test_starts_are_for_partitions_of_which_the_group_has_no_offset():
    cluster = cluster_with()
    cluster.group.committed = {PLACES[0]: 2}
    async with running(cluster) as client:
        assert sorted(await read(client, starts=dict.fromkeys(PLACES, 1))) == [b"02", b"11", b"12"]


async def test_a_commit_that_fails_on_the_way_out_does_not_take_the_place_of_why_it_went(caplog):
    cluster = cluster_with()
    cluster.fail_next(ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    async def read_one_and_go(client):
        async with client.join_group("g", "orders", ends=ENDS) as member:
            async for _ in member.records():
                member.done()
                raise asyncio.CancelledError

    async with running(cluster) as client:
        with pytest.raises(asyncio.CancelledError):
            await read_one_and_go(client)
    assert len(of_kind(cluster, LeaveGroupRequest)) == 1
    assert "was not committed on the way out" in caplog.text


async def test_who_keeps_progress_elsewhere_begins_there_in_each_partition_it_is_given():
    cluster = cluster_with()
    cluster.group.committed = {PLACES[0]: 3, PLACES[1]: 0}  # a member before it had read more of one than it had done
    done = {PLACES[0]: 1, PLACES[1]: 2}

    async def find_start(place):
        return done[place]

    async with running(cluster) as client:
        assert sorted(await read(client, find_start=find_start)) == [b"01", b"02", b"12"]
    assert cluster.group.committed == ENDS


async def test_offsets_whose_records_are_gone_are_passed_over_with_a_warning(caplog):
    cluster = cluster_with()
    cluster.group.committed = {PLACES[0]: 1, PLACES[1]: 3}
    cluster.topics["orders"].logs[0].log_start = 2
    async with running(cluster) as client:
        assert await read(client) == [b"02"]
    assert "orders-0: the group was at offset 1; the first record left is 2, so 1 offsets are passed" in caplog.text


async def test_a_partition_without_an_end_is_left_to_others_where_there_are_ends():
    cluster = cluster_with()
    async with running(cluster) as client, client.join_group("g", "orders", ends={PLACES[0]: 3}) as member:
        assert [found.record.value async for found in member.records()] == [b"00", b"01", b"02"]
    assert cluster.group.committed == {PLACES[0]: 3}


async def test_a_committed_reader_waits_for_offsets_that_are_about_to_be_committed():
    cluster = cluster_with()
    cluster.fail_next(ApiKey.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    async with running(cluster) as client:
        assert len(await read(client, isolation=IsolationLevel.READ_COMMITTED)) == 6
    assert [request.require_stable for request in of_kind(cluster, OffsetFetchRequest)] == [True, True]


@pytest.mark.parametrize("step", range(5))
async def test_every_version_is_spoken(step):
    versions = {
        ApiKey.FIND_COORDINATOR: (0, 1, 3, 4, 6),
        ApiKey.JOIN_GROUP: (0, 4, 5, 7, 9),
        ApiKey.SYNC_GROUP: (0, 3, 4, 5, 5),
        ApiKey.HEARTBEAT: (0, 1, 3, 4, 4),
        ApiKey.LEAVE_GROUP: (0, 2, 3, 4, 5),
        ApiKey.OFFSET_COMMIT: (1, 5, 8, 9, 10),
        ApiKey.OFFSET_FETCH: (1, 5, 7, 8, 10),
    }
    cluster = cluster_with(versions={key: Versions(0, highest[step]) for key, highest in versions.items()})
    async with running(cluster) as client:
        assert len(await read(client)) == 6
    assert cluster.group.committed == ENDS


# --- what is done ---------------------------------------------------------------------------------------------


async def test_a_record_is_done_when_the_next_is_asked_for():
    cluster = cluster_with()
    async with running(cluster) as client:
        async with client.join_group("g", "orders") as member:
            records = member.records()
            for _ in range(2):
                await anext(records)

        assert cluster.group.committed == {PLACES[0]: 1, PLACES[1]: 0}


async def test_the_last_record_is_done_when_it_is_said_to_be():
    cluster = cluster_with()
    async with running(cluster) as client:
        async with client.join_group("g", "orders") as member:
            member.done()  # nothing came yet
            await anext(member.records())
            member.done()
        assert cluster.group.committed == {PLACES[0]: 1, PLACES[1]: 0}


async def test_what_prevents_a_commit_does_not_prevent_leaving():
    def refuse():
        raise BrokenPipeError

    cluster = cluster_with()
    async with running(cluster) as client:
        with pytest.raises(BrokenPipeError):
            await read(client, before_commit=refuse)
    assert cluster.group.committed == {}
    assert len(of_kind(cluster, LeaveGroupRequest)) == 1


async def test_what_is_done_is_committed_now_and_then():
    cluster = cluster_with()
    settings = MemberSettings(commit_interval_ms=0)
    async with running(cluster) as client, client.join_group("g", "orders", settings=settings) as member:
        records = member.records()
        for _ in range(6):
            await anext(records)
        reading = asyncio.create_task(anext(records))
        await cluster.until(lambda: cluster.group.committed == ENDS)
        assert of_kind(cluster, LeaveGroupRequest) == []
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


# --- rebalances -----------------------------------------------------------------------------------------------


async def test_a_rebalance_commits_what_is_done_and_goes_on_with_the_new_assignment():
    cluster = cluster_with()
    cluster.group.assignment = encode_assignment(PLACES[:1])
    async with running(cluster) as client, client.join_group("g", "orders", settings=EAGER) as member:
        records = member.records()
        values = [(await anext(records)).record.value for _ in range(3)]
        cluster.group.assignment = encode_assignment(PLACES[1:])
        cluster.fail_next(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        values += [(await anext(records)).record.value for _ in range(3)]
    assert values == [b"00", b"01", b"02", b"10", b"11", b"12"]
    joins_and_commits = of_kind(cluster, JoinGroupRequest, OffsetCommitRequest)
    assert [type(request) for request in joins_and_commits] == [
        *[JoinGroupRequest] * 2,
        OffsetCommitRequest,
        JoinGroupRequest,
        OffsetCommitRequest,
    ]
    assert cluster.group.committed == {PLACES[0]: 3, PLACES[1]: 2}


async def test_a_rebalance_ends_the_reading_of_what_was_fetched_already():
    cluster = cluster_with()
    cluster.group.assignment = encode_assignment(PLACES[:1])
    async with running(cluster) as client, client.join_group("g", "orders", ends=ENDS, settings=EAGER) as member:
        records = member.records()
        await anext(records)
        beats = len(of_kind(cluster, HeartbeatRequest))
        cluster.group.assignment = encode_assignment(PLACES[1:])
        cluster.fail_next(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await cluster.until(lambda: len(of_kind(cluster, HeartbeatRequest)) > beats + 2)
        assert [found.record.value async for found in records] == [b"10", b"11", b"12"]
        member.done()
    assert cluster.group.committed == {PLACES[0]: 1, PLACES[1]: 3}


async def test_what_came_last_of_a_partition_that_is_no_longer_ours_is_not_ours_to_commit():
    cluster = cluster_with()
    cluster.group.assignment = encode_assignment(PLACES[:1])
    async with running(cluster) as client, client.join_group("g", "orders", ends=ENDS, settings=EAGER) as member:
        records = member.records()
        await anext(records)
        beats = len(of_kind(cluster, HeartbeatRequest))
        cluster.group.assignment = b""
        cluster.fail_next(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await cluster.until(lambda: len(of_kind(cluster, HeartbeatRequest)) > beats + 2)
        assert [found async for found in records] == []
        cluster.group.committed = {PLACES[0]: 2}  # by whom they belong to now
        member.done()
    assert cluster.group.committed == {PLACES[0]: 2}


async def test_a_member_that_was_forgotten_commits_nothing_and_joins_as_a_new_one():
    cluster = cluster_with()
    async with running(cluster) as client, client.join_group("g", "orders", settings=EAGER) as member:
        records = member.records()
        await anext(records)
        cluster.fail_next(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        while len(of_kind(cluster, JoinGroupRequest)) < 4:
            await anext(records)
    member_ids = [request.member_id for request in of_kind(cluster, JoinGroupRequest)]
    assert member_ids == ["", "member-0", "", "member-1"]
    assert {request.member_id for request in of_kind(cluster, OffsetCommitRequest)} == {"member-1"}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
async def test_a_commit_that_comes_too_late_is_told_and_the_member_joins_again(code, caplog):
    cluster = cluster_with()
    cluster.fail_next(ApiKey.OFFSET_COMMIT, code)
    async with running(cluster) as client:
        assert len(await read(client)) == 12
    assert "some records may come again" in caplog.text
    assert [request.member_id for request in of_kind(cluster, JoinGroupRequest)] == ["", "member-0", "member-0"]


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
async def test_a_group_that_comes_together_anew_while_it_joins_is_joined_again(code):
    cluster = cluster_with()
    cluster.fail_next(ApiKey.SYNC_GROUP, code)
    async with running(cluster) as client:
        assert len(await read(client)) == 6
    assert cluster.group.generation == 2


async def test_a_member_without_partitions_waits_for_the_next_rebalance():
    cluster = cluster_with()
    cluster.fail_next(ApiKey.HEARTBEAT, ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    cluster.group.assignment = b""
    async with running(cluster) as client, client.join_group("g", "orders", settings=EAGER) as member:
        reading = asyncio.create_task(anext(member.records()))
        await cluster.until(lambda: of_kind(cluster, SyncGroupRequest))
        cluster.group.assignment = encode_assignment(PLACES[:1])
        assert (await reading).record.value == b"00"


# --- leading --------------------------------------------------------------------------------------------------


async def test_the_leader_deals_out_the_partitions_of_every_member():
    cluster = cluster_with()
    cluster.add_topic("others")
    cluster.group.others = (
        JoinGroupResponseMember(member_id="a", metadata=encode_subscription(["orders", "others", "gone"])),
    )
    async with running(cluster) as client:
        assert await read(client) == [b"10", b"11", b"12"]
    (sync,) = of_kind(cluster, SyncGroupRequest)
    assert {each.member_id: decode_assignment(each.assignment) for each in sync.assignments} == {
        "a": (TopicPartition("orders", 0), TopicPartition("others", 0)),
        "member-0": (TopicPartition("orders", 1),),
    }


async def test_who_follows_takes_what_the_leader_gives():
    cluster = cluster_with()
    cluster.group.leader = "somebody"
    cluster.group.assignment = encode_assignment(PLACES[1:])
    async with running(cluster) as client:
        assert await read(client) == [b"10", b"11", b"12"]
    assert of_kind(cluster, SyncGroupRequest)[0].assignments == ()


async def test_the_leader_sees_that_a_topic_grows():
    cluster = cluster_with()
    settings = MemberSettings(heartbeat_interval_ms=1, metadata_interval_ms=0)
    async with running(cluster) as client, client.join_group("g", "orders", settings=settings) as member:
        records = member.records()
        for _ in range(6):
            await anext(records)
        grown = cluster.add_topic("orders", leaders=(1, 1, 1))
        grown.logs[0].log_end = grown.logs[1].log_end = 3
        grown.logs[2].append(bytes(build_batch([NewRecord(b"20")])))
        assert (await anext(records)).record.value == b"20"


# --- what goes wrong ------------------------------------------------------------------------------------------


async def test_a_coordinator_that_is_not_ready_is_asked_again():
    cluster = cluster_with()
    for key in (ApiKey.JOIN_GROUP, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT):
        cluster.fail_next(key, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.fail_next(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    cluster.fail_next(ApiKey.SYNC_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    async with running(cluster) as client:
        assert len(await read(client)) == 6
    assert cluster.group.committed == ENDS


async def test_a_coordinator_that_has_moved_is_followed():
    cluster = cluster_with(broker_count=2)
    async with running(cluster) as client, client.join_group("g", "orders", ends=ENDS, settings=EAGER) as member:
        records = member.records()
        await anext(records)
        cluster.coordinator_id = 2
        assert len([found async for found in records]) == 5
    assert cluster.group.committed == ENDS
    assert len(cluster.brokers[1].requests_of(OffsetCommitRequest)) == 1
    assert len(of_kind(cluster, FindCoordinatorRequest)) > 1


async def test_a_lost_connection_to_the_coordinator_is_opened_again():
    def hang_up(*_):
        raise HangUpError

    cluster = cluster_with()
    for key in (ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP):
        cluster.scripts[key].append(hang_up)
    async with running(cluster) as client:
        assert len(await read(client, settings=EAGER)) == 6
    assert cluster.group.committed == ENDS


async def test_a_group_of_another_kind_is_not_joined():
    cluster = cluster_with()
    cluster.fail_next(ApiKey.JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="join group g: INCONSISTENT_GROUP_PROTOCOL") as error:
            await read(client)
    assert "another assignor than range" in error.value.hint
    assert of_kind(cluster, LeaveGroupRequest) == []


async def test_a_refusal_for_good_is_told():
    cluster = cluster_with()
    cluster.fail_next(ApiKey.JOIN_GROUP, ErrorCode.UNKNOWN_MEMBER_ID)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="join group g: UNKNOWN_MEMBER_ID"):
            await read(client)


async def test_a_heartbeat_that_is_refused_for_good_ends_the_reading_where_joining_meets_the_same():
    cluster = cluster_with()
    async with running(cluster) as client, client.join_group("g", "orders", settings=EAGER) as member:
        records = member.records()
        await anext(records)
        cluster.fail_next(ApiKey.HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        cluster.fail_next(ApiKey.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            assert [found async for found in records]


async def test_no_coordinator_at_all_ends_at_the_deadline():
    cluster = cluster_with()
    cluster.fail_next(ApiKey.JOIN_GROUP, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000)
    async with running(cluster, ClientSettings(deadline_ms=50, backoff_ms=1, backoff_ms_max=1)) as client:
        with pytest.raises(UnavailableError, match=r"join group g: gave up after 50 ms: .*LOAD_IN_PROGRESS") as error:
            await read(client)
    assert error.value.kafka_error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_coordinator_that_went_away_is_named():
    cluster = cluster_with(broker_count=2)
    cluster.coordinator_id = 2
    settings = ClientSettings(deadline_ms=200, backoff_ms=1, backoff_ms_max=5)
    async with running(cluster, settings) as client:
        await cluster.brokers[1].server.stop(drain_ms=0)
        with pytest.raises(UnavailableError, match=r"join group g: gave up .*: coordinator of group g: 127\.0\.0\.1"):
            await read(client)
