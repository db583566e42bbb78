"""Groups against our own broker and against Apache Kafka, shared with members of another make."""

import asyncio

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from exactlog.client.adapters import connect
from exactlog.client.groups import MemberSettings
from exactlog.client.ports import LATEST, ClientSettings
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, NotFoundError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.testing import Broker

SETTINGS = ClientSettings(deadline_ms=60_000)
EAGER = MemberSettings(heartbeat_interval_ms=50)
PARTITIONS = range(4)


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


async def fill(client, topic, value):
    """One record of that value into each partition."""
    for partition in PARTITIONS:
        await client.produce(topic, [NewRecord(b"%s-%d" % (value, partition))], partition=partition)


async def test_what_one_member_has_read_the_next_one_does_not(bootstrap, topic):
    places = [TopicPartition(topic, partition) for partition in PARTITIONS]

    async def read_as_member():
        ends = {
            place: listed.offset for place, listed in (await client.list_offsets(dict.fromkeys(places, LATEST))).items()
        }
        async with client.join_group(topic, topic, ends=ends) as member:
            return sorted([found.record.value async for found in member.records()])

    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=len(PARTITIONS))
        await fill(client, topic, b"a")
        assert await read_as_member() == [b"a-0", b"a-1", b"a-2", b"a-3"]
        await fill(client, topic, b"b")
        assert await read_as_member() == [b"b-0", b"b-1", b"b-2", b"b-3"]
        assert await read_as_member() == []
        described = await client.describe_group(topic)
        assert (described.state, described.protocol_type, described.members) == ("Empty", "consumer", ())
        assert {place: found.offset for place, found in (await client.list_committed_offsets(topic)).items()} == (
            dict.fromkeys(places, 2)
        )


async def test_members_of_two_makes_share_a_topic_and_one_takes_over_from_the_other(bootstrap, topic):
    ours, theirs, is_over = asyncio.Queue(), asyncio.Queue(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def read_ours(client):
        async with client.join_group(topic, topic, settings=EAGER) as member:
            async for found in member.records():
                ours.put_nowait(found.record.value)

    def read_theirs():
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 50,
                "session.timeout.ms": 10_000,
            }
        )
        consumer.subscribe([topic])
        while not is_over.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                loop.call_soon_threadsafe(theirs.put_nowait, message.value())
        consumer.close()

    async def shares(client):
        """How many partitions each member has, once there are two."""
        while True:
            described = await client.describe_group(topic)
            if described.state == "Stable" and len(described.members) == 2:
                return sorted(len(member.assigned or ()) for member in described.members)

    async with connect(f"kafka://{bootstrap}", SETTINGS) as client, connect(f"kafka://{bootstrap}", SETTINGS) as other:
        await client.create_topic(topic, partition_count=len(PARTITIONS))
        await fill(client, topic, b"a")
        reading = asyncio.create_task(read_ours(other))
        assert sorted([await ours.get() for _ in PARTITIONS]) == [b"a-0", b"a-1", b"a-2", b"a-3"]
        polling = asyncio.create_task(asyncio.to_thread(read_theirs))
        try:
            assert await shares(client) == [2, 2]
            await fill(client, topic, b"b")
            read = sorted([await ours.get() for _ in range(2)] + [await theirs.get() for _ in range(2)])
            assert read == [b"b-0", b"b-1", b"b-2", b"b-3"]
        finally:
            is_over.set()
            await polling
        await fill(client, topic, b"c")
        assert sorted([await ours.get() for _ in PARTITIONS]) == [b"c-0", b"c-1", b"c-2", b"c-3"]
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert (await client.describe_group(topic)).state == "Empty"
        assert ours.empty()
        assert theirs.empty()


async def test_offsets_are_set_and_forgotten_and_the_group_with_them(bootstrap, topic):
    place = TopicPartition(topic, 0)
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client, connect(f"kafka://{bootstrap}", SETTINGS) as other:
        await client.create_topic(topic, partition_count=1)
        await client.produce(topic, [NewRecord(b"a"), NewRecord(b"b")])
        await client.commit_offsets(topic, {place: 1})
        assert (await client.list_committed_offsets(topic))[place].offset == 1
        async with other.join_group(topic, topic) as member:
            assert (await anext(member.records())).record.value == b"b"
            for operation in (client.commit_offsets(topic, {place: 0}), client.delete_group(topic)):
                with pytest.raises(KafkaError) as refused:
                    await operation
                assert refused.value.kafka_error is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(KafkaError) as refused:
                await client.delete_offsets(topic, [place])
            assert refused.value.kafka_error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert topic in [group.group_id for group in await client.list_groups()]
        await client.delete_offsets(topic, [place])
        assert await client.list_committed_offsets(topic) == {}
        await client.delete_group(topic)
        with pytest.raises(NotFoundError):
            await client.describe_group(topic)


async def settled(client, topic, wanted):
    """Waits until what was set is told: Apache Kafka's brokers hear of it a moment after it was answered."""
    found = None
    async with asyncio.timeout(30):
        while found != wanted:
            described = await client.describe_topic(topic)
            found = {config.name: config.value for config in described.configs if not config.is_default}


async def test_a_topic_grows_and_is_set_anew(bootstrap, topic):
    async with connect(f"kafka://{bootstrap}", SETTINGS) as client:
        await client.create_topic(topic, partition_count=1)
        assert (await client.create_partitions(topic, 3)).partition_count == 3
        await client.produce(topic, [NewRecord(b"a")], partition=2)
        await client.alter_topic_configs(topic, {"retention.ms": "123456"})
        await settled(client, topic, {"retention.ms": "123456"})
        await client.alter_topic_configs(topic, {"retention.ms": None})
        await settled(client, topic, {})
        (directory,) = await client.describe_log_dirs()
        assert directory.partitions[TopicPartition(topic, 2)] > 0
