import socket

import pytest

from exactlog.client.adapters import connect
from exactlog.client.ports import EARLIEST
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DirectoryLockedError, KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of
from tests.support.raw_groups import Member, commit, form_group


async def produce(broker, topic, *values):
    async with connect(f"kafka://{broker.bootstrap_servers}") as client:
        await client.produce(topic, [NewRecord(value) for value in values])


async def consume(broker, topic):
    place = TopicPartition(topic, 0)
    async with connect(f"kafka://{broker.bootstrap_servers}") as client:
        [start] = (await client.list_offsets({place: EARLIEST})).values()
        [end] = (await client.list_offsets({place: -1})).values()
        return [found.record.value async for found in client.consume({place: start.offset}, ends={place: end.offset})]


async def test_a_created_topic_can_be_written_and_read():
    with Broker() as broker:
        broker.create_topic("orders", partitions=2, config={"segment.bytes": 1_000_000})
        await produce(broker, "orders", b"a")

        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            described = await client.describe_topic("orders")

    assert len(described.partitions) == 2
    assert {config.value for config in described.configs if not config.is_default} == {"1000000"}


def test_a_topic_that_cannot_be_created_is_an_error(exactlog_broker, exactlog_topic):
    with pytest.raises(KafkaError) as caught:
        exactlog_broker.create_topic(exactlog_topic)
    assert caught.value.kafka_error is ErrorCode.TOPIC_ALREADY_EXISTS

    with pytest.raises(KafkaError, match=r"Did you mean segment.bytes\?"):
        exactlog_broker.create_topic("fresh", config={"segment.byte": 1})


async def test_what_was_acknowledged_survives_a_crash_and_the_address_stays():
    with Broker() as broker:
        address = broker.bootstrap_servers
        broker.create_topic("orders")
        await produce(broker, "orders", b"a", b"b")

        broker.kill()
        broker.restart()

        assert broker.bootstrap_servers == address
        assert await consume(broker, "orders") == [b"a", b"b"]


async def test_a_killed_broker_does_not_listen():
    with Broker() as broker:
        broker.kill()

        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", broker.port)):
            pass


async def test_records_survive_a_restart_in_the_directory_that_was_given(tmp_path):
    with Broker(tmp_path) as broker:
        broker.create_topic("orders")
        await produce(broker, "orders", b"a")
        broker.restart()
        assert await consume(broker, "orders") == [b"a"]

    with Broker(str(tmp_path)) as broker:
        assert await consume(broker, "orders") == [b"a"]


async def test_in_memory_a_restart_forgets():
    with Broker(config={"in.memory": True}) as broker:
        broker.create_topic("orders")
        assert broker.metrics()["exactlog_topics"] == 1
        broker.restart()
        assert broker.metrics()["exactlog_topics"] == 0


def test_two_brokers_do_not_share_a_directory(tmp_path):
    with Broker(tmp_path), pytest.raises(DirectoryLockedError):
        Broker(tmp_path).start()


async def test_the_brokers_time_can_be_moved():
    with Broker() as broker:
        broker.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
        broker.clock.advance_ms(10 * 365 * 86_400_000)
        await produce(broker, "orders", b"in ten years")
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            place = TopicPartition("orders", 0)
            [record] = [found.record async for found in client.consume({place: 0}, ends={place: 1})]

    assert abs(record.timestamp_ms - broker.clock.now_ms()) < 3_600_000


def test_what_a_broker_holds_can_be_read():
    with Broker(config={"in.memory": True}) as broker, RawClient(broker.port) as raw:
        for number in range(12):
            raw.create_topic(f"topic-{number}", partitions=10)
        topic = raw.create_topic("orders", partitions=2)
        raw.produce(topic, batch_of(b"a", b"b"), partition=1)
        member = Member(raw, "billing")
        form_group(member)
        member.commit(topic, 1, partition=1)
        commit(raw, "idle", topic, 0)

        text = broker.describe()

    first, second, *others = text.splitlines()
    assert first == f"broker {broker.bootstrap_servers}: 13 topics, 2 groups"
    assert second == "  topic orders: 0: not used yet, 1: 0 to 2"
    assert sum("topic topic-" in line for line in others) == 9
    assert "  group billing: Stable, raw\n    committed: orders-1 1" in text
    assert "7: not used yet, and 2 more\n" in text
    assert "  group idle: Empty, no members\n    committed: orders-0 0" in text


def test_many_brokers_run_side_by_side():
    with Broker() as one, Broker() as other:
        one.create_topic("mine")

        assert one.port != other.port
        assert (one.metrics()["exactlog_topics"], other.metrics()["exactlog_topics"]) == (1, 0)
