"""Producing: once each, in order, to the right leader, against a toy cluster."""

import asyncio

import pytest

from exactlog.client.ports import ACKS_LEADER, ACKS_NONE, ClientSettings, ProducedRecord, ProducerIdentity
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.codec.compression import Compression
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError, UnavailableError, UnsupportedError
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.produce import ProduceRequest
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.batch_format import decode_header, iter_headers
from exactlog.core.record.record_format import decode_records
from tests.unit.client.toy_broker import SETTINGS, HangUpError, ToyCluster, produced, running


def hang_up(*_):
    raise HangUpError


def refuse(error_code: ErrorCode, message: str | None = None):
    return lambda broker, request, version: produced(request, error_code=error_code, error_message=message)


def contents(cluster: ToyCluster, topic: str = "orders") -> list[list[bytes]]:
    """The values in each partition, in order."""
    return [
        [record.value for position, _ in iter_headers(log.batches) for record in decode_records(log.batches, position)]
        for log in cluster.topics[topic].logs
    ]


def sent_headers(cluster: ToyCluster) -> list:
    """The header of every batch sent, in order."""
    requests = cluster.requests_of(ProduceRequest)
    return [decode_header(request.topic_data[0].partition_data[0].records) for request in requests]


def cluster_with(*leaders: int, **options) -> ToyCluster:
    cluster = ToyCluster(broker_count=max(leaders, default=1), **options)
    cluster.add_topic("orders", leaders=leaders)
    return cluster


async def test_records_arrive_and_their_places_are_told():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        assert await client.produce("orders", [NewRecord(b"a"), NewRecord(b"b")]) == (
            ProducedRecord(0, 0),
            ProducedRecord(0, 1),
        )
        assert await client.produce("orders", [NewRecord(b"c")]) == (ProducedRecord(0, 2),)
        assert await client.produce("orders", []) == ()
    assert contents(cluster) == [[b"a", b"b", b"c"]]


async def test_what_a_record_carries_arrives_and_a_missing_time_is_now():
    cluster = cluster_with(1)
    given = NewRecord(b"v", key=b"k", headers=(("h", b"1"), ("h", None)), timestamp_ms=1_234)
    async with running(cluster) as client:
        await client.produce("orders", [given, NewRecord(None)], compression=Compression.LZ4)
    whole, bare = decode_records(cluster.topics["orders"].logs[0].batches)
    assert (whole.key, whole.value, whole.headers, whole.timestamp_ms) == (
        b"k",
        b"v",
        (("h", b"1"), ("h", None)),
        1_234,
    )
    assert bare.value is None
    assert bare.timestamp_ms > 1_700_000_000_000
    assert decode_header(cluster.topics["orders"].logs[0].batches).compression is Compression.LZ4


async def test_a_key_decides_the_partition_and_the_order_within_it_is_kept():
    cluster = cluster_with(1, 2, 1)
    records = [NewRecord(b"%d" % index, key=b"key %d" % (index % 7)) for index in range(50)]
    async with running(cluster) as client:
        placed = await client.produce("orders", records)
    by_key = [partition_of_key(record.key, partition_count=3) for record in records]
    assert [place.partition for place in placed] == by_key
    for partition, values in enumerate(contents(cluster)):
        assert values == [record.value for record, to in zip(records, by_key, strict=True) if to == partition]
        assert [values[place.offset] for place in placed if place.partition == partition] == values


async def test_records_without_a_key_avoid_partitions_without_a_leader():
    cluster = cluster_with(1, -1, 1)
    async with running(cluster) as client:
        placed = await client.produce("orders", [NewRecord(bytes(20_000)) for _ in range(10)])
    assert {place.partition for place in placed} == {0, 2}


async def test_a_partition_may_be_named_and_must_exist():
    cluster = cluster_with(1, 1)
    async with running(cluster) as client:
        assert await client.produce("orders", [NewRecord(b"a", key=b"k")], partition=1) == (ProducedRecord(1, 0),)
        with pytest.raises(NotFoundError, match="topic orders has 2 partitions; there is no partition 2"):
            await client.produce("orders", [NewRecord(b"a")], partition=2)


async def test_a_topic_is_created_on_the_way_if_the_broker_likes():
    cluster = ToyCluster()
    async with running(cluster) as client:
        await client.produce("new", [NewRecord(b"a")])
        assert contents(cluster, "new") == [[b"a"]]
        cluster.may_create = False
        with pytest.raises(NotFoundError, match="topic newer does not exist"):
            await client.produce("newer", [NewRecord(b"a")])


async def test_many_records_are_sent_in_batches_of_bounded_size():
    cluster = cluster_with(1)
    async with running(cluster, ClientSettings(batch_bytes_max=1_000)) as client:
        await client.produce(
            "orders", [NewRecord(bytes([index]) * 300) for index in range(9)] + [NewRecord(bytes(5_000))]
        )
    assert [header.record_count for header in sent_headers(cluster)] == [3, 3, 3, 1]
    assert [header.base_sequence for header in sent_headers(cluster)] == [0, 3, 6, 9]


async def test_a_batch_too_large_for_the_topic_is_sent_in_halves():
    def too_large(broker, request, version):
        batch = request.topic_data[0].partition_data[0].records
        if decode_header(batch).record_count > 2:
            return produced(request, error_code=ErrorCode.MESSAGE_TOO_LARGE)
        return cluster.answer_produce(broker, request, version)

    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].extend([too_large] * 20)
    records = [NewRecord(b"%d" % index) for index in range(7)]
    async with running(cluster) as client:
        placed = await client.produce("orders", records)
    assert [place.offset for place in placed] == list(range(7))
    assert contents(cluster) == [[record.value for record in records]]


async def test_a_single_record_too_large_is_refused_in_the_brokers_words():
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(refuse(ErrorCode.MESSAGE_TOO_LARGE, "at most 10 bytes"))
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=r"produce to orders-0: MESSAGE_TOO_LARGE \(at most 10 bytes\)"):
            await client.produce("orders", [NewRecord(b"a")])


# --- once each ------------------------------------------------------------------------------------------------


async def test_a_batch_whose_answer_was_lost_is_sent_again_under_the_same_sequence():
    def append_and_hang_up(broker, request, version):
        cluster.answer_produce(broker, request, version)
        raise HangUpError

    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(append_and_hang_up)
    async with running(cluster) as client:
        assert await client.produce("orders", [NewRecord(b"a"), NewRecord(b"b")]) == (
            ProducedRecord(0, 0),
            ProducedRecord(0, 1),
        )
        await client.produce("orders", [NewRecord(b"c")])
    assert contents(cluster) == [[b"a", b"b", b"c"]]
    assert [header.base_sequence for header in sent_headers(cluster)] == [0, 0, 2]
    assert len(cluster.requests_of(InitProducerIdRequest)) == 1


async def test_a_duplicate_that_the_broker_has_forgotten_counts_as_appended():
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    async with running(cluster) as client:
        assert await client.produce("orders", [NewRecord(b"a")]) == (ProducedRecord(0, None),)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_producer_id_that_lost_count_is_not_used_again(code):
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(refuse(code))
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match=code.name):
            await client.produce("orders", [NewRecord(b"a")])
        await client.produce("orders", [NewRecord(b"b")])
    first, second = sent_headers(cluster)
    assert first.producer_id != second.producer_id
    assert (first.base_sequence, second.base_sequence) == (0, 0)


async def test_a_refusal_uses_up_no_sequence():
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(refuse(ErrorCode.INVALID_RECORD))
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await client.produce("orders", [NewRecord(b"a")])
        await client.produce("orders", [NewRecord(b"b")])
    first, second = sent_headers(cluster)
    assert (first.producer_id, first.base_sequence) == (second.producer_id, second.base_sequence)


async def test_a_batch_that_was_given_up_leaves_its_producer_id_behind():
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(lambda *_: None)
    async with running(cluster, ClientSettings(deadline_ms=300)) as client:
        with pytest.raises(UnavailableError, match="produce to orders-0: gave up after 300 ms") as error:
            await client.produce("orders", [NewRecord(b"a")])
        assert not error.value.retryable
        assert "look before sending them again" in error.value.hint
        await client.produce("orders", [NewRecord(b"b")])
    first, second = sent_headers(cluster)
    assert first.producer_id != second.producer_id
    assert contents(cluster) == [[b"b"]]


async def test_concurrent_calls_keep_each_partition_in_sequence():
    cluster = cluster_with(1, 1)
    async with running(cluster) as client:
        placed = await asyncio.gather(
            *(client.produce("orders", [NewRecord(b"%d" % index)], partition=index % 2) for index in range(20))
        )
    assert sorted(place.offset for (place,) in placed) == sorted([*range(10)] * 2)
    assert contents(cluster) == [[b"%d" % index for index in range(first, 20, 2)] for first in (0, 1)]


async def test_without_acknowledgement_from_all_a_lost_connection_leaves_it_open():
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].append(hang_up)
    async with running(cluster) as client:
        with pytest.raises(UnavailableError, match="connection lost") as error:
            await client.produce("orders", [NewRecord(b"a")], acks=ACKS_LEADER)
        assert not error.value.retryable
        assert "look before sending them again" in error.value.hint
        assert await client.produce("orders", [NewRecord(b"a")], acks=ACKS_LEADER) == (ProducedRecord(0, 0),)
    assert len(sent_headers(cluster)) == 2
    assert not any(header.has_producer_id for header in sent_headers(cluster))


async def test_without_acknowledgement_no_offset_is_told():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        assert await client.produce("orders", [NewRecord(b"a")], acks=ACKS_NONE) == (ProducedRecord(0, None),)
        await client.describe_cluster()
    assert contents(cluster) == [[b"a"]]


async def test_a_producer_id_may_be_asked_for():
    cluster = cluster_with(1)
    async with running(cluster) as client:
        assert await client.init_producer_id() == ProducerIdentity(1_001, 0)
        assert await client.init_producer_id() == ProducerIdentity(1_002, 0)


# --- leaders, versions, errors --------------------------------------------------------------------------------


async def test_a_partition_whose_leader_has_moved_is_followed():
    cluster = cluster_with(1, 2)
    async with running(cluster) as client:
        await client.produce("orders", [NewRecord(b"a")], partition=0)
        cluster.topics["orders"].logs[0].leader_id = 2
        assert await client.produce("orders", [NewRecord(b"b")], partition=0) == (ProducedRecord(0, 1),)
    assert contents(cluster)[0] == [b"a", b"b"]


async def test_a_partition_whose_leader_has_died_is_followed_to_the_next():
    cluster = cluster_with(2)
    async with running(cluster) as client:
        await client.produce("orders", [NewRecord(b"a")])
        await cluster.brokers[1].server.stop(drain_ms=0)
        cluster.topics["orders"].logs[0].leader_id = 1
        assert await client.produce("orders", [NewRecord(b"b")]) == (ProducedRecord(0, 1),)
    assert contents(cluster) == [[b"a", b"b"]]


async def test_a_leader_at_an_address_that_nobody_reaches_is_told_with_the_address():
    cluster = cluster_with(2)
    async with running(cluster, ClientSettings(deadline_ms=300, backoff_ms=1)) as client:
        await cluster.brokers[1].server.stop(drain_ms=0)
        message = r"broker 2 at 127\.0\.0\.1:\d+, as the cluster advertises it: .*refused"
        with pytest.raises(UnavailableError, match=message) as error:
            await client.produce("orders", [NewRecord(b"a")])
        assert error.value.retryable


async def test_a_leader_that_is_no_member_is_told():
    cluster = cluster_with(1)
    cluster.topics["orders"].logs[0].leader_id = 9
    async with running(cluster, ClientSettings(deadline_ms=300, backoff_ms=1)) as client:
        with pytest.raises(UnavailableError, match="broker 9 is not a member of the cluster"):
            await client.produce("orders", [NewRecord(b"a")])


async def test_a_refusal_for_now_is_tried_again():
    cluster = cluster_with(1)
    cluster.scripts[ApiKey.PRODUCE].extend(
        [refuse(ErrorCode.NOT_ENOUGH_REPLICAS), refuse(ErrorCode.KAFKA_STORAGE_ERROR)]
    )
    async with running(cluster) as client:
        assert await client.produce("orders", [NewRecord(b"a")]) == (ProducedRecord(0, 0),)


@pytest.mark.parametrize(("has_topic_ids", "version"), [(True, 13), (False, 12)])
async def test_topics_are_named_by_id_where_they_have_one(has_topic_ids, version):
    cluster = ToyCluster()
    cluster.has_topic_ids = has_topic_ids
    cluster.add_topic("orders")
    async with running(cluster) as client:
        await client.produce("orders", [NewRecord(b"a")])
    assert cluster.versions_of(ProduceRequest) == [version]


async def test_zstd_needs_a_broker_that_knows_it():
    cluster = cluster_with(1, versions={ApiKey.PRODUCE: Versions(0, 6)})
    async with running(cluster) as client:
        with pytest.raises(UnsupportedError, match="serves Produce 0 to 6; needed is 7"):
            await client.produce("orders", [NewRecord(b"a")], compression=Compression.ZSTD)
        await client.produce("orders", [NewRecord(b"a")], compression=Compression.GZIP)


async def test_when_one_partition_fails_the_error_says_how_much_was_appended():
    cluster = cluster_with(1, 1)
    async with running(cluster, SETTINGS) as client:
        await client.produce("orders", [NewRecord(b"a", key=b"1")])
        refused = partition_of_key(b"x", partition_count=2)
        good_key = next(b"%d" % key for key in range(9) if partition_of_key(b"%d" % key, partition_count=2) != refused)

        def refuse_one(broker, request, version):
            if request.topic_data[0].partition_data[0].index == refused:
                return produced(request, error_code=ErrorCode.POLICY_VIOLATION)
            return cluster.answer_produce(broker, request, version)

        cluster.scripts[ApiKey.PRODUCE].extend([refuse_one] * 2)
        records = [NewRecord(b"a", key=good_key), NewRecord(b"b", key=b"x"), NewRecord(b"c", key=good_key)]
        with pytest.raises(KafkaError, match="POLICY_VIOLATION") as error:
            await client.produce("orders", records)
    assert error.value.hint == "2 of 3 records were appended for certain"


async def test_the_partitions_of_a_topic_are_counted_and_it_is_created_where_the_broker_does_that():
    cluster = cluster_with(1, 1, 1)
    async with running(cluster) as client:
        assert await client.partition_count("orders") == 3
        assert await client.partition_count("made on demand") == 1
        cluster.may_create = False
        with pytest.raises(NotFoundError, match="topic nowhere does not exist"):
            await client.partition_count("nowhere")


async def test_a_topic_that_is_denied_while_it_is_created_is_asked_for_again():
    cluster = cluster_with(1)
    cluster.may_create = False
    async with running(cluster) as client:
        counting = asyncio.create_task(client.partition_count("soon"))
        await asyncio.sleep(0.1)
        cluster.add_topic("soon", leaders=(1, 1))
        assert await counting == 2
