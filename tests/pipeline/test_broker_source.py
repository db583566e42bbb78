"""Reading from a real broker, our own and Apache Kafka, against what was written and what our consumer finds."""

import asyncio

import pytest

from exactlog.client.adapters import connect
from exactlog.client.ports import ClientSettings
from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import ExactlogError, NotFoundError, OffsetOutOfRangeError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.batch_builder import NewRecord
from exactlog.pipeline.broker_source import BrokerSource
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Slice
from exactlog.pipeline.stream_offsets import OtherLogError
from exactlog.testing import Broker
from tests.support.stream_queries import StreamQuery

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
    return f"source-{name}"


def with_client(bootstrap, work):
    """What `work` comes to, with a client of the broker."""

    async def run():
        async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
            return await work(client)

    return asyncio.run(run())


def records(*values, size=0):
    return [NewRecord(value + bytes(size), key=b"key", timestamp_ms=1_000) for value in values]


async def write_everything(client, topic):
    """Two partitions: plain records in every compression; committed, aborted and, at the tail, open transactions.

    Returns:
        The producer of the one that is open.
    """
    await client.create_topic(topic, partition_count=2)
    for compression in Compression:
        for partition in range(2):
            await client.produce(topic, records(b"plain", b"too"), partition=partition, compression=compression)
    for number, outcome in enumerate(["commit", "abort", "commit", "abort", "open"]):
        producer = client.transactional_producer(f"{topic}-{number}")
        await producer.begin()
        await producer.produce(topic, records(b"%s%d" % (outcome.encode(), number)), partition=0)
        await client.produce(topic, records(b"between"), partition=0)
        await producer.produce(topic, records(b"more", size=50), partition=0, compression=Compression.ZSTD)
        if outcome != "open":
            await (producer.commit() if outcome == "commit" else producer.abort())
    return producer


@pytest.mark.parametrize("include_control", [False, True])
@pytest.mark.parametrize("isolation", IsolationLevel)
def test_the_source_sees_what_the_consumer_sees(bootstrap, topic, isolation, include_control):
    async def naive(client):
        producer = await write_everything(client, topic)
        places = [TopicPartition(topic, partition) for partition in range(2)]
        source = BrokerSource(ReadOptions(bootstrap=bootstrap, topics=(topic,), isolation=isolation))
        extents = await asyncio.to_thread(lambda: look_and_close(source))
        options = {"isolation": isolation, "include_control": include_control}
        starts = {place: extents[place].start_offset for place in places}
        ends = {place: extents[place].end_offset for place in places}
        found = {place: [] for place in places}
        async for consumed in client.consume(starts, ends=ends, **options):
            found[consumed.place].append(consumed.record.offset)
        await producer.abort()
        return extents, found

    extents, found = with_client(bootstrap, naive)
    source = BrokerSource(
        ReadOptions(bootstrap=bootstrap, topics=(topic,), isolation=isolation, include_control=include_control)
    )
    for place, extent in extents.items():
        whole = Slice(*place, extent.start_offset, extent.end_offset, size_bytes=extent.size_bytes)
        assert source.count_rows(whole) == len(found[place])
        for size in (1, 300, 1 << 20):
            pieces = source.split(whole, bytes_max=size)
            counts = [source.count_rows(piece) for piece in pieces]
            expected = [sum(p.start_offset <= offset < p.end_offset for offset in found[place]) for p in pieces]
            assert counts == expected
        assert sum(batch.header.record_count for batch in source.batches(whole)) == len(found[place])
    open_tail = extents[TopicPartition(topic, 0)]
    last = max(found[TopicPartition(topic, 0)])
    if isolation is IsolationLevel.READ_COMMITTED:  # what is behind the open transaction's first record waits for it
        assert last < open_tail.end_offset
    else:
        assert last == open_tail.end_offset - 1
    source.close()


def look_and_close(source):
    try:
        return source.extents()
    finally:
        source.close()


def test_removed_records_and_missing_topics_are_told(bootstrap, topic):
    async def write(client):
        await client.create_topic(topic)
        await client.produce(topic, records(b"0", b"1"), partition=0)
        await client.produce(topic, records(b"2"), partition=0)
        await client.delete_records({TopicPartition(topic, 0): 2})

    with_client(bootstrap, write)
    source = BrokerSource(ReadOptions(bootstrap=bootstrap, topics=(topic,)))
    assert source.extents()[TopicPartition(topic, 0)].start_offset == 2
    with pytest.raises(OffsetOutOfRangeError, match=f"topic {topic}, partition 0, offset 0.* the first one left is 2"):
        list(source.batches(Slice(topic, 0, 0, 3)))
    source.close()
    source = BrokerSource(ReadOptions(bootstrap=bootstrap, topics=("there-is-none",)))
    with pytest.raises(NotFoundError, match="topic there-is-none does not exist"):
        source.extents()
    source.close()


def test_a_stream_has_each_committed_row_once_and_goes_on(bootstrap, topic):
    async def write(client):
        producer = await write_everything(client, topic)
        query = StreamQuery(bootstrap=bootstrap, topics=topic, maxRowsPerTrigger=7)
        first = await asyncio.to_thread(query.run_available)
        assert not any(row[3].startswith((b"open", b"abort")) for row in query.rows)
        await producer.commit()
        await client.create_partitions(topic, 3)
        await client.produce(topic, records(b"joined"), partition=2)
        await asyncio.to_thread(query.run_available)
        places = [TopicPartition(topic, partition) for partition in range(3)]
        ends = {
            place: listed.offset for place, listed in (await client.list_offsets(dict.fromkeys(places, -1))).items()
        }
        seen = client.consume(dict.fromkeys(places, 0), ends=ends, isolation=IsolationLevel.READ_COMMITTED)
        expected = {place: [] for place in places}
        async for found in seen:
            expected[found.place].append((found.record.offset, found.record.value))
        return query, first, expected

    query, first, expected = with_client(bootstrap, write)
    assert first > 2
    assert all(len(batch) <= 7 for batch in query.batches)
    for place, rows in expected.items():
        assert [row[2:] for row in query.rows if row[1] == place.partition] == [
            (*row, number) for number, row in enumerate(rows)
        ]


def test_a_limit_in_bytes_makes_several_batches(bootstrap, topic):
    async def write(client):
        await client.create_topic(topic, partition_count=2)
        for partition in range(2):
            for number in range(20):
                await client.produce(topic, records(b"%d" % number, size=500), partition=partition)

    with_client(bootstrap, write)
    query = StreamQuery(bootstrap=bootstrap, topics=topic, maxBytesPerTrigger=4_000)
    assert query.run_available() >= 5
    assert len(query.rows) == 40
    assert max(len(batch) for batch in query.batches) <= 8


def test_a_topic_that_is_made_again_ends_a_stream(bootstrap, topic):
    async def make(client):
        await client.create_topic(topic)
        await client.produce(topic, records(b"0", b"1"), partition=0)

    async def make_again(client):
        await client.delete_topic(topic)
        for _ in range(100):  # Apache Kafka deletes it in its own time
            try:
                return await make(client)
            except ExactlogError:
                await asyncio.sleep(0.1)
        return await make(client)

    with_client(bootstrap, make)
    query = StreamQuery(bootstrap=bootstrap, topics=topic)
    query.run_available()
    with_client(bootstrap, make_again)
    with pytest.raises(OtherLogError, match=f"topic {topic} is not the one that the stream was reading.*offset 2"):
        query.run_available()
    query.reader.stop()


def test_another_cluster_ends_a_stream(bootstrap, topic):
    async def write(client):
        await client.create_topic(topic)
        await client.produce(topic, records(b"0", b"1"), partition=0)

    with_client(bootstrap, write)
    query = StreamQuery(bootstrap=bootstrap, topics=topic)
    query.run_available()
    with Broker() as other:
        with_client(other.bootstrap_servers, write)
        with pytest.raises(OtherLogError, match=r"is of a stream from cluster .*, and this one reads cluster"):
            query.restart(bootstrap=other.bootstrap_servers).run_available()
    query.reader.stop()
