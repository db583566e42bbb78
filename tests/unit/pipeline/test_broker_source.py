"""Reading from a broker, against a toy cluster that answers what a real one seldom does."""

import asyncio
import itertools
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.adapters import ClientUrlError
from exactlog.client.ports import ClientSettings
from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import (
    DamageError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
    UnsupportedError,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.model.metrics import Registry
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from exactlog.core.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BATCH_OVERHEAD, checksum, decode_header
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from exactlog.core.record.record_format import decode_records
from exactlog.network import NetworkLimits, TcpServer
from exactlog.pipeline import broker_source
from exactlog.pipeline.broker_source import BrokerSource
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Extent, Slice
from tests.unit.client.toy_broker import SETTINGS, ToyCluster, running
from tests.unit.network.harness import ManualClock

PLACE = TopicPartition("orders", 0)


def batch(*values: bytes, producer_id: int = -1, **options) -> bytes:
    if producer_id >= 0:
        options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return build_batch([NewRecord(value, timestamp_ms=0) for value in values], **options)


def cluster_with(*batches: bytes) -> ToyCluster:
    """One topic with one partition of these batches."""
    cluster = ToyCluster()
    (log,) = cluster.add_topic("orders").logs
    for each in batches:
        log.append(each)
    return cluster


async def asked(cluster: ToyCluster, work, *, settings=SETTINGS, **options):
    """What a source of the cluster answers to `work`, in a thread of its own, as its event loop is its own."""
    for broker in cluster.brokers:  # a server is started once
        broker.server = TcpServer(broker, NetworkLimits(), Registry(), ManualClock())
    async with running(cluster):
        bootstrap = f"127.0.0.1:{cluster.brokers[0].port}"

        def run():
            source = BrokerSource(ReadOptions(bootstrap=bootstrap, **options), settings)
            try:
                return work(source)
            finally:
                source.close()

        return await asyncio.to_thread(run)


def piece(start: int, end: int, **fields) -> Slice:
    return Slice("orders", 0, start, end, **fields)


def values(source: BrokerSource, start: int, end: int) -> list[bytes]:
    """What is seen of a piece."""
    return [
        record.value
        for found in source.batches(piece(start, end))
        for record in decode_records(stored(found.header, found.records))
        if found.start_offset <= record.offset < found.end_offset
    ]


def stored(header, records: bytes) -> bytes:
    """A batch as it would be without compression."""
    placed = bytearray(build_batch([NewRecord(b"", timestamp_ms=0)], base_offset=header.base_offset))
    del placed[BATCH_OVERHEAD:]
    placed += records
    placed[8:12] = (len(placed) - 12).to_bytes(4, "big")
    placed[57:61] = header.record_count.to_bytes(4, "big")
    return bytes(placed)


async def test_an_extent_is_what_there_is_now_with_the_ids_and_sizes_that_the_broker_tells():
    cluster = cluster_with(batch(b"0", b"1"), batch(b"2"))
    (log,) = cluster.topics["orders"].logs
    log.log_start, log.last_stable_offset = 1, 2
    cluster.add_topic("__of_its_own", is_internal=True)

    def look(source):
        return source.extents(), source.cluster_id, source.topic_ids

    size = len(log.batches)
    committed, cluster_id, topic_ids = await asked(cluster, look)
    assert committed == {PLACE: Extent(1, 2, size_bytes=size)}
    assert (cluster_id, topic_ids) == ("toy", {"orders": str(UUID(int=1))})
    uncommitted, *_ = await asked(cluster, look, isolation=IsolationLevel.READ_UNCOMMITTED)
    assert uncommitted == {PLACE: Extent(1, 3, size_bytes=size)}
    named, *_ = await asked(cluster, look, topics=("__of_its_own",))
    assert named == {TopicPartition("__of_its_own", 0): Extent(0, 0)}


async def test_topics_and_partitions_that_join_are_found():
    cluster = cluster_with(batch(b"0"))

    def look_twice(source):
        before = set(source.extents())
        cluster.add_topic("payments", leaders=(1, 1))
        return before, set(source.extents())

    before, after = await asked(cluster, look_twice)
    assert before == {PLACE}
    assert after == {PLACE, TopicPartition("payments", 0), TopicPartition("payments", 1)}


async def test_a_topic_that_was_named_and_does_not_exist_is_told():
    with pytest.raises(NotFoundError, match="topic payments does not exist"):
        await asked(cluster_with(), lambda source: source.extents(), topics=("orders", "payments"))


@pytest.mark.parametrize("compression", Compression)
async def test_batches_come_decompressed_with_the_range_that_is_asked_for(compression):
    cluster = cluster_with(batch(b"0", b"1", b"2", compression=compression), batch(b"3", b"4"))
    assert await asked(cluster, lambda source: values(source, 1, 4)) == [b"1", b"2", b"3"]
    assert await asked(cluster, lambda source: source.count_rows(piece(1, 4))) == 3
    assert await asked(cluster, lambda source: source.count_rows(piece(0, 5))) == 5
    assert await asked(cluster, lambda source: values(source, 3, 3)) == []


async def test_a_batch_behind_the_end_of_a_piece_is_none_of_it():
    cluster = cluster_with(batch(b"0"))
    (log,) = cluster.topics["orders"].logs
    log.log_end += 5  # what compaction has taken
    log.append(batch(b"6"))

    def first_offsets(source):
        return [[found.header.base_offset for found in source.batches(piece(0, end))] for end in (1, 4, 6, 7)]

    assert await asked(cluster, first_offsets) == [[0], [0], [0], [0, 6]]


async def test_what_was_aborted_is_neither_read_nor_counted():
    cluster = cluster_with(
        batch(b"aborted", producer_id=7),
        batch(b"1"),
        build_marker_batch(TransactionMarker(False, 0), producer_id=7, producer_epoch=0, timestamp_ms=0),
        batch(b"3"),
    )
    cluster.topics["orders"].logs[0].aborted.append(AbortedTransaction(producer_id=7, first_offset=0))
    assert await asked(cluster, lambda source: values(source, 0, 4)) == [b"1", b"3"]
    assert await asked(cluster, lambda source: source.count_rows(piece(0, 4))) == 2
    everything = {"isolation": IsolationLevel.READ_UNCOMMITTED, "include_control": True}
    assert await asked(cluster, lambda source: source.count_rows(piece(0, 4)), **everything) == 4


@pytest.mark.parametrize("isolation", IsolationLevel)
async def test_offsets_that_no_batch_has_end_a_piece_too(isolation):
    """Compaction may take the last batches below the end of a piece (B106: SPARK-25005)."""
    cluster = cluster_with(batch(b"0"))

    def empty(broker, request, version):
        (topic,) = request.topics
        looked = PartitionData(
            partition_index=0, high_watermark=9, last_stable_offset=9 if request.isolation_level else 4
        )
        response = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=(looked,))
        return FetchResponse(responses=(response,))

    cluster.scripts[ApiKey.FETCH].extend([cluster.answer_fetch.__get__(cluster), empty])
    assert await asked(cluster, lambda source: values(source, 0, 9), isolation=isolation) == [b"0"]


async def test_records_that_are_gone_are_told_with_where_they_were_and_what_to_do():
    cluster = cluster_with(batch(b"0"), batch(b"1"), batch(b"2"))
    cluster.topics["orders"].logs[0].log_start = 2
    with pytest.raises(
        OffsetOutOfRangeError, match=r"topic orders, partition 0, offset 0.* first one left is 2"
    ) as told:
        await asked(cluster, lambda source: values(source, 0, 3))
    assert "read from offset 2 on" in told.value.hint


async def test_a_damaged_batch_is_told_with_its_place():
    cluster = cluster_with(batch(b"0"), batch(b"1"))
    cluster.topics["orders"].logs[0].batches[-1] ^= 1
    with pytest.raises(DamageError, match=r"topic orders, partition 0, offset 1 cannot be read: .* checksum"):
        await asked(cluster, lambda source: values(source, 0, 2))
    assert await asked(cluster, lambda source: values(source, 0, 1)) == [b"0"]


@pytest.mark.parametrize("work", [lambda source: values(source, 0, 2), lambda source: source.count_rows(piece(0, 1))])
async def test_records_that_do_not_decompress_are_told_with_their_place(work):
    damaged = bytearray(batch(b"0", b"0" * 100, compression=Compression.GZIP))
    damaged[BATCH_OVERHEAD + 12 :] = bytes(len(damaged) - BATCH_OVERHEAD - 12)
    header = decode_header(damaged)
    damaged[17:21] = checksum(damaged, 0, header.size_bytes).to_bytes(4, "big")
    with pytest.raises(DamageError, match=r"topic orders, partition 0, offset 0 cannot be read: .*gzip"):
        await asked(cluster_with(bytes(damaged)), work)


async def test_a_topic_that_is_made_again_while_it_is_read_is_no_end_of_the_reading():
    cluster = cluster_with(batch(b"0"))

    def make_again(broker, request, version):
        del cluster.topics["orders"]
        cluster.add_topic("others")
        log = cluster.add_topic("orders").logs[0]
        log.append(batch(b"another"))
        (topic,) = request.topics
        refused = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        response = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=(refused,))
        return FetchResponse(responses=(response,))

    cluster.scripts[ApiKey.FETCH].append(make_again)
    with pytest.raises(NotFoundError, match="topic orders was deleted and made again while partition 0 was read"):
        await asked(cluster, lambda source: values(source, 0, 1))


async def test_a_broker_that_tells_no_sizes_is_read_without_and_not_asked_all_the_time():
    cluster = cluster_with(batch(b"0"))
    cluster.scripts[ApiKey.DESCRIBE_LOG_DIRS].append(
        lambda *_: DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    )

    def look_twice(source):
        return source.extents(), source.extents()

    assert await asked(cluster, look_twice) == ({PLACE: Extent(0, 1)}, {PLACE: Extent(0, 1)})
    assert not cluster.scripts[ApiKey.DESCRIBE_LOG_DIRS]


async def test_limits_in_bytes_are_kept_by_the_average_size_of_an_offset():
    cluster = cluster_with(*(batch(b"%d" % number) for number in range(10)))
    average = len(cluster.topics["orders"].logs[0].batches) // 10

    def measure(source):
        source.extents()
        whole = piece(0, 10)
        return (
            source.size(whole),
            source.size(piece(4, 4)),
            source.end_within(whole, 3 * average),
            source.end_within(whole, average - 1),
            source.end_within(whole, 10**9),
            source.first_end(whole),
        )

    assert await asked(cluster, measure) == (10 * average, 0, 3, 0, 10, 1)


async def test_a_partition_that_had_nothing_when_sizes_were_asked_for_is_asked_for_again():
    cluster = cluster_with()

    def measure(source):
        source.extents()
        cluster.topics["orders"].logs[0].append(batch(b"0"))
        source.extents()
        return source.size(piece(0, 1))

    assert await asked(cluster, measure) == len(batch(b"0"))


async def test_a_limit_in_bytes_that_cannot_be_kept_is_told():
    cluster = cluster_with(batch(b"0"))
    refusal = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster.scripts[ApiKey.DESCRIBE_LOG_DIRS].extend([lambda *_: refusal] * 2)

    def measure(source):
        source.extents()
        return source.size(piece(0, 1))

    with pytest.raises(UnsupportedError, match=r"does not tell how large topic orders, partition 0, is") as told:
        await asked(cluster, measure)
    assert "maxRowsPerTrigger" in told.value.hint


def test_a_broker_that_is_not_there_is_told_in_one_sentence_in_time(monkeypatch):
    monkeypatch.setattr(broker_source, "CONTACT_MS_MAX", 200)
    source = BrokerSource(ReadOptions(bootstrap="127.0.0.1:1"), ClientSettings(deadline_ms=3_600_000))
    with pytest.raises(UnavailableError, match=r"^read from 127.0.0.1:1: gave up after 200 ms: .*refused$") as told:
        source.extents()
    source.close()
    assert "option bootstrap" in told.value.hint


def test_an_address_that_is_none_is_told():
    with pytest.raises(ClientUrlError, match="not HOST:PORT"):
        BrokerSource(ReadOptions(bootstrap="127.0.0.1:9092/x"))


@given(
    start=st.integers(0, 10_000),
    count=st.integers(1, 3_000_000),
    size=st.integers(0, 10_000_000),
    bytes_max=st.integers(1, 10_000_000),
)
def test_pieces_follow_each_other_and_are_the_whole(start, count, size, bytes_max):
    whole = piece(start, start + min(count, 5_000), size_bytes=size, first_row=3)
    pieces = BrokerSource(ReadOptions(bootstrap="127.0.0.1:1")).split(whole, bytes_max=bytes_max)
    assert [pieces[0].start_offset, pieces[-1].end_offset] == [whole.start_offset, whole.end_offset]
    assert all(left.end_offset == right.start_offset for left, right in itertools.pairwise(pieces))
    assert all(each.start_offset < each.end_offset for each in pieces)
    assert all(each.size_bytes <= bytes_max or each.end_offset - each.start_offset == 1 for each in pieces)
    assert [each.first_row for each in pieces] == [3] + [None] * (len(pieces) - 1)


def test_a_piece_of_unknown_size_is_split_by_offsets():
    pieces = BrokerSource(ReadOptions(bootstrap="127.0.0.1:1")).split(piece(0, 1_200_000), bytes_max=1)
    assert [(each.start_offset, each.end_offset) for each in pieces] == [
        (0, 400_000),
        (400_000, 800_000),
        (800_000, 1_200_000),
    ]
