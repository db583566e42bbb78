"""Consuming, against a toy cluster."""

import asyncio

import pytest

from exactlog.client.ports import LATEST, ClientSettings, IsolationLevel
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import (
    DecodeError,
    KafkaError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from tests.unit.client.toy_broker import SETTINGS, HangUpError, ToyCluster, ToyLog, running

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def fill(log: ToyLog, *values: bytes) -> None:
    """A batch of these values."""
    log.append(build_batch([NewRecord(value, timestamp_ms=0) for value in values]))


def cluster_with(*leaders: int, **options) -> ToyCluster:
    cluster = ToyCluster(broker_count=max(2, *leaders), **options)
    for index, log in enumerate(cluster.add_topic("orders", leaders=leaders).logs):
        fill(log, b"%d0" % index, b"%d1" % index)
        fill(log, b"%d2" % index)
    return cluster


async def values_of(records) -> list[bytes]:
    return [consumed.record.value async for consumed in records]


async def test_records_come_from_the_start_to_the_end_without_it():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        consumed = [found async for found in client.consume({PLACE: 0}, ends={PLACE: 3})]
        assert [found.record.value for found in consumed] == [b"00", b"01", b"02"]
        assert [found.record.offset for found in consumed] == [0, 1, 2]
        assert [found.batch.base_offset for found in consumed] == [0, 0, 2]
        assert {found.place for found in consumed} == {PLACE}
        assert await values_of(client.consume({PLACE: 1}, ends={PLACE: 2})) == [b"01"]
        assert await values_of(client.consume({PLACE: 2}, ends={PLACE: 2})) == []
        assert await values_of(client.consume({}, ends={})) == []


async def test_partitions_of_several_leaders_are_read_each_in_order():
    cluster = cluster_with(1, 2)
    async with running(cluster) as client:
        ends = {
            place: found.offset for place, found in (await client.list_offsets({PLACE: LATEST, OTHER: LATEST})).items()
        }
        values = await values_of(client.consume({PLACE: 0, OTHER: 1}, ends=ends))
    assert [value for value in values if value.startswith(b"0")] == [b"00", b"01", b"02"]
    assert [value for value in values if value.startswith(b"1")] == [b"11", b"12"]


async def test_a_partition_without_an_end_is_followed():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        records = client.consume({PLACE: 2})
        assert (await anext(records)).record.value == b"02"
        coming = asyncio.create_task(anext(records))
        await client.describe_cluster()
        fill(cluster.topics["orders"].logs[0], b"new")
        assert (await coming).record.value == b"new"
        await records.aclose()


def with_transactions() -> ToyCluster:
    cluster = ToyCluster()
    log = cluster.add_topic("orders").logs[0]
    for producer_id, value, is_commit in [(1, b"aborted", False), (2, b"committed", True)]:
        record = NewRecord(value, timestamp_ms=0)
        log.append(
            build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        )
        marker = TransactionMarker(is_commit, 0)
        log.append(build_marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=0))
    log.aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    return cluster


async def test_a_committed_reader_does_not_see_what_was_aborted():
    cluster = with_transactions()
    async with running(cluster) as client:
        assert await values_of(client.consume({PLACE: 0}, ends={PLACE: 4})) == [b"aborted", b"committed"]
        committed = client.consume({PLACE: 0}, ends={PLACE: 4}, isolation=IsolationLevel.READ_COMMITTED)
        assert await values_of(committed) == [b"committed"]
    assert [request.isolation_level for request in cluster.requests_of(FetchRequest)] == [0, 1]


async def test_control_records_come_when_asked_for():
    cluster = with_transactions()
    async with running(cluster) as client:
        records = client.consume({PLACE: 0}, ends={PLACE: 4}, include_control=True)
        assert [(found.record.offset, found.batch.is_control) async for found in records] == [
            (0, False),
            (1, True),
            (2, False),
            (3, True),
        ]


@pytest.mark.parametrize(("has_topic_ids", "highest", "version"), [(True, 18, 18), (False, 18, 12), (True, 11, 11)])
async def test_topics_are_named_by_id_where_they_have_one(has_topic_ids, highest, version):
    cluster = ToyCluster(versions={ApiKey.FETCH: Versions(4, highest)})
    cluster.has_topic_ids = has_topic_ids
    fill(cluster.add_topic("orders").logs[0], b"a")
    async with running(cluster) as client:
        assert await values_of(client.consume({PLACE: 0}, ends={PLACE: 1})) == [b"a"]
    assert cluster.versions_of(FetchRequest) == [version]


# --- what goes wrong ------------------------------------------------------------------------------------------


async def test_a_partition_whose_leader_has_moved_is_followed():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        records = client.consume({PLACE: 0}, ends={PLACE: 4})
        assert (await anext(records)).record.value == b"00"
        fill(cluster.topics["orders"].logs[0], b"03")
        cluster.topics["orders"].logs[0].leader_id = 2
        assert await values_of(records) == [b"01", b"02", b"03"]


async def test_a_lost_connection_is_opened_again_and_nothing_comes_twice():
    def hang_up(*_):
        raise HangUpError

    cluster = cluster_with(1)
    cluster.scripts[ApiKey.FETCH].extend([hang_up, hang_up])
    async with running(cluster) as client:
        assert await values_of(client.consume({PLACE: 0}, ends={PLACE: 3})) == [b"00", b"01", b"02"]


async def test_a_topic_that_is_not_there_is_not_found():
    async with running(ToyCluster()) as client:
        with pytest.raises(NotFoundError, match="topic orders does not exist"):
            await values_of(client.consume({PLACE: 0}))


async def test_an_offset_that_was_removed_is_told_with_the_first_that_is_left():
    cluster = cluster_with(1)
    cluster.topics["orders"].logs[0].log_start = 2
    async with running(cluster) as client:
        with pytest.raises(OffsetOutOfRangeError, match=r"orders-0 at offset 1: .*; the first one left is 2") as error:
            await values_of(client.consume({PLACE: 1}, ends={PLACE: 3}))
    assert error.value.oldest == 2


async def test_an_offset_behind_the_end_is_told():
    async with running(cluster_with(1)) as client:
        with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE \(offset 9 is behind the end\)"):
            await values_of(client.consume({PLACE: 9}))


async def test_a_partition_that_fails_for_good_ends_the_reading_although_others_are_well():
    def forbid_one(broker, request, version):
        response = cluster.answer_fetch(broker, request, version)
        (topic,) = response.responses
        well, _ = topic.partitions
        refused = PartitionData(partition_index=1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return FetchResponse(responses=(FetchableTopicResponse(topic_id=topic.topic_id, partitions=(well, refused)),))

    cluster = cluster_with(1, 1)
    cluster.scripts[ApiKey.FETCH].append(forbid_one)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="fetch from orders-1: TOPIC_AUTHORIZATION_FAILED"):
            await values_of(client.consume({PLACE: 0, OTHER: 0}, ends={PLACE: 3, OTHER: 3}))


async def test_a_partition_without_a_leader_stops_the_others_only_at_the_deadline():
    cluster = cluster_with(1, -1)
    settings = ClientSettings(deadline_ms=300, backoff_ms=1, fetch_wait_ms_max=1)
    async with running(cluster, settings) as client:
        records = client.consume({PLACE: 0, OTHER: 0})
        assert [(await anext(records)).record.value for _ in range(3)] == [b"00", b"01", b"02"]
        with pytest.raises(UnavailableError, match=r"orders-1: gave up after 300 ms: .*LEADER_NOT_AVAILABLE"):
            await anext(records)


async def test_a_damaged_batch_is_told_with_its_place():
    cluster = cluster_with(1)
    cluster.topics["orders"].logs[0].batches[-1] ^= 1
    async with running(cluster) as client:
        records = client.consume({PLACE: 0}, ends={PLACE: 3})
        assert [(await anext(records)).record.value for _ in range(2)] == [b"00", b"01"]
        with pytest.raises(DecodeError, match="orders-0: the batch at offset 2 fails its checksum"):
            await anext(records)


async def test_a_partition_that_was_not_asked_for_is_malformed():
    strange = FetchResponse(responses=(FetchableTopicResponse(partitions=(PartitionData(partition_index=7),)),))
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.FETCH].append(lambda *_: strange)
    async with running(cluster, SETTINGS) as client:
        with pytest.raises(DecodeError, match="the answer to Fetch has -7, which was not asked for"):
            await values_of(client.consume({PLACE: 0}, ends={PLACE: 3}))
