"""The same stories against our own broker and against Apache Kafka."""

import pytest
from confluent_kafka import Producer as ConfluentProducer

from exactlog.broker.request_context import RequestContext
from exactlog.client.adapters import connect
from exactlog.client.ports import EARLIEST, HIGH_WATERMARK, LATEST, ClientSettings, IsolationLevel
from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import Committed, Conflicted, PayloadDiffers
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import (
    KafkaError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
    UnsupportedError,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.produce import ProduceResponse
from exactlog.core.record.batch_builder import NewRecord
from exactlog.testing import Broker

SETTINGS = ClientSettings(deadline_ms=60_000)


@pytest.fixture(scope="module")
def our_broker():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["exactlog", pytest.param("apache kafka", marks=pytest.mark.peer)])
def bootstrap(request):
    if request.param == "exactlog":
        return request.getfixturevalue("our_broker")
    return request.getfixturevalue("apache_kafka").bootstrap_servers


@pytest.fixture
def topic(request):
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"client-{name}"


async def read_all(client, topic, partition_count, **options) -> list[tuple[int, int, bytes | None]]:
    places = [TopicPartition(topic, partition) for partition in range(partition_count)]
    isolation = options.get("isolation", IsolationLevel.READ_UNCOMMITTED)
    starts = await client.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(places, LATEST), isolation=isolation)
    return [
        (found.place.partition, found.record.offset, found.record.value)
        async for found in client.consume(
            {place: starts[place].offset for place in places},
            ends={place: ends[place].offset for place in places},
            **options,
        )
    ]


async def test_a_topic_lives_and_dies(bootstrap, topic):
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        cluster = await client.describe_cluster()
        assert f"{cluster.brokers[0].host}:{cluster.brokers[0].port}" == bootstrap
        created = await client.create_topic(topic, partition_count=3, configs={"retention.ms": "123456"})
        assert created in await client.list_topics()
        described = await client.describe_topic(topic)
        assert [partition.partition for partition in described.partitions] == [0, 1, 2]
        assert described.topic_id == created.topic_id is not None
        assert {c.name: c.value for c in described.configs if not c.is_default} == {"retention.ms": "123456"}
        with pytest.raises(KafkaError) as refused:
            await client.create_topic(topic)
        assert refused.value.kafka_error is ErrorCode.TOPIC_ALREADY_EXISTS
        await client.delete_topic(topic)
        with pytest.raises(NotFoundError):
            await client.delete_topic(topic)


@pytest.mark.parametrize("compression", Compression)
async def test_what_is_produced_is_consumed(bootstrap, topic, compression):
    records = [NewRecord(b"%d" % index, key=b"%d" % (index % 5), headers=(("h", b"x"),)) for index in range(40)]
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=2)
        first = await client.produce(topic, records[:20], compression=compression)
        second = await client.produce(topic, records[20:], compression=compression)
        placed = {
            (place.partition, place.offset): record for place, record in zip(first + second, records, strict=True)
        }
        read = await read_all(client, topic, 2)
    assert len(read) == len(placed) == 40
    assert all(placed[partition, offset].value == value for partition, offset, value in read)


async def test_times_and_offsets_are_told(bootstrap, topic):
    place = TopicPartition(topic, 0)
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=1)
        await client.produce(topic, [NewRecord(b"a", timestamp_ms=1_000_000_000_000 + step) for step in (10, 20, 30)])
        for timestamp, offset in [(EARLIEST, 0), (LATEST, 3), (1_000_000_000_015, 1), (1_000_000_000_031, None)]:
            assert (await client.list_offsets({place: timestamp}))[place].offset == offset
        with pytest.raises((OffsetOutOfRangeError, KafkaError)) as refused:
            await anext(client.consume({place: 99}))
        assert refused.value.kafka_error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_records_are_deleted(bootstrap, topic):
    places = [TopicPartition(topic, partition) for partition in (0, 1)]
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=2)
        for place in places:
            await client.produce(topic, [NewRecord(b"%d" % index) for index in range(3)], partition=place.partition)
        assert await client.delete_records({places[0]: 2, places[1]: HIGH_WATERMARK}) == {places[0]: 2, places[1]: 3}
        assert await client.delete_records({places[0]: 1}) == {places[0]: 2}
        with pytest.raises(KafkaError) as refused:
            await client.delete_records({places[0]: 4})
        assert refused.value.kafka_error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await read_all(client, topic, 2) == [(0, 2, b"2")]


async def test_appends_on_terms_go_to_our_broker_alone(bootstrap, topic, our_broker):
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=1)
        appending = client.append(topic, 0, [NewRecord(b"a"), NewRecord(b"b")], expected_version=0, txn_id="t")
        if bootstrap != our_broker:
            with pytest.raises(UnsupportedError, match=r"does not have the feature exactlog\.append"):
                await appending
            assert await read_all(client, topic, 1) == []
            return
        assert await appending == Committed(1, 0, 1)
        assert await client.append(topic, 0, [NewRecord(b"a"), NewRecord(b"b")], txn_id="t") == Committed(1, 0, 1)
        differs = await client.append(topic, 0, [NewRecord(b"other")], txn_id="t")
        assert isinstance(differs, PayloadDiffers)
        assert differs.version == 1
        assert await client.append(topic, 0, [NewRecord(b"c")], expected_version=0) == Conflicted(0, 1)
        assert await client.append(topic, 0, [NewRecord(b"c")], expected_version=1) == Committed(2, 2, 2)
        assert [value for *_, value in await read_all(client, topic, 1)] == [b"a", b"b", b"c"]


@pytest.fixture
def lose_answer(monkeypatch):
    """Lets our broker carry out the next Produce and close the connection in place of its answer."""
    answer = RequestContext.answer
    losses = []

    def answer_or_lose(context, response):
        if losses and isinstance(response, ProduceResponse):
            losses.pop()
            context.close("test-loses-answer")
        else:
            answer(context, response)

    monkeypatch.setattr(RequestContext, "answer", answer_or_lose)
    return lambda: losses.append("one")


async def test_an_append_with_an_id_whose_answer_is_lost_gets_its_first_result(our_broker, topic, lose_answer):
    async with connect(f"kafka://{our_broker}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=1)
        lose_answer()
        assert await client.append(topic, 0, [NewRecord(b"a")], expected_version=0, txn_id="t") == Committed(1, 0, 0)
        assert await read_all(client, topic, 1) == [(0, 0, b"a")]


async def test_an_append_without_an_id_whose_answer_is_lost_does_not_meet_itself(our_broker, topic, lose_answer):
    async with connect(f"kafka://{our_broker}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=1)
        lose_answer()
        with pytest.raises(UnavailableError, match="outcome unknown") as error:
            await client.append(topic, 0, [NewRecord(b"a")], expected_version=0)
        assert not error.value.retryable
        assert await read_all(client, topic, 1) == [(0, 0, b"a")]


async def markers_written(client, place, *, end):
    """Waits for the last stable offset: a commit is answered before its markers are in the partitions."""
    while True:
        found = await client.list_offsets({place: LATEST}, isolation=IsolationLevel.READ_COMMITTED)
        if found[place].offset == end:
            return


@pytest.mark.peer
async def test_aborted_transactions_of_a_foreign_producer_are_left_out(apache_kafka, topic):
    async with connect(f"kafka://{apache_kafka.bootstrap_servers}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=1)
        producer = ConfluentProducer({"bootstrap.servers": apache_kafka.bootstrap_servers, "transactional.id": topic})
        producer.init_transactions()
        for index, is_commit in enumerate([True, False, False, True]):
            producer.begin_transaction()
            producer.produce(topic, value=b"%d %d" % (index, is_commit), partition=0)
            producer.flush()
            if is_commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        await markers_written(client, TopicPartition(topic, 0), end=8)
        committed = await read_all(client, topic, 1, isolation=IsolationLevel.READ_COMMITTED)
        uncommitted = await read_all(client, topic, 1)
        markers = await read_all(client, topic, 1, include_control=True)
    assert [value for _, _, value in committed] == [b"0 1", b"3 1"]
    assert [value for _, _, value in uncommitted] == [b"0 1", b"1 0", b"2 0", b"3 1"]
    assert [offset for _, offset, _ in markers] == list(range(8))
