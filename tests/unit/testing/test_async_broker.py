"""The asynchronous twin does what `Broker` does, and neither blocks nor is blocked."""

import asyncio
import inspect
import threading

import aiokafka
import pytest
from confluent_kafka import Producer

from exactlog.core.model.errors import KafkaError
from exactlog.testing import AsyncBroker, Broker, BrokerNotRunningError, ErrorCode


def public(kind):
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


def test_it_has_the_names_of_its_twin_with_their_parameters_and_documentation():
    ours, theirs = public(AsyncBroker), public(Broker)

    assert ours.keys() == theirs.keys()
    for name, method in theirs.items():
        if inspect.isfunction(method):
            assert inspect.iscoroutinefunction(ours[name])
            assert inspect.signature(ours[name]) == inspect.signature(method)
        assert ours[name].__doc__ == method.__doc__


async def test_what_is_written_is_read_and_outlives_a_crash():
    async with AsyncBroker() as broker:
        address = broker.bootstrap_servers
        await broker.create_topic("orders", partitions=2)
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=address) as producer:
            await producer.send_and_wait("orders", b"v", partition=1)

        await broker.kill()
        with pytest.raises(BrokerNotRunningError):
            await broker.metrics()
        await broker.restart()

        assert broker.bootstrap_servers == address
        assert f":{broker.port}" in address
        assert (await broker.metrics())["exactlog_topics"] == 1
        async with aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=address, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"v"
        directory = broker.data_dir
        assert directory.exists()

    assert not directory.exists()


async def test_a_synchronous_client_that_blocks_the_loop_is_served():
    async with AsyncBroker(config={"in.memory": True}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("orders", b"v")

        assert producer.flush(30) == 0
        assert "topic orders: 0: 0 to 1" in await broker.describe()


async def test_errors_reach_who_awaits():
    async with AsyncBroker(config={"in.memory": True}) as broker:
        await broker.create_topic("orders")
        with pytest.raises(KafkaError) as caught:
            await broker.create_topic("orders")

    assert caught.value.kafka_error is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_producer_is_refused_by_order_and_comes_again():
    async with AsyncBroker(config={"in.memory": True}) as broker:
        await broker.create_topic("orders")
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=1
        ) as producer:
            with broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2) as fault:
                written = await producer.send_and_wait("orders", b"v")

    assert (fault.hits, written.offset) == (2, 0)


class SlowNode:
    """Begins to start and goes on when it may; any port."""

    port, bootstrap_servers, stop_reason = 4711, "127.0.0.1:4711", None

    def __init__(self):
        self.begun, self.may_go_on, self.done = threading.Event(), threading.Event(), []

    async def start(self):
        self.begun.set()
        await asyncio.to_thread(self.may_go_on.wait)
        self.done.append("start")

    async def stop(self):
        self.done.append("stop")


async def test_one_that_is_cancelled_while_it_starts_is_stopped_again():
    node = SlowNode()

    async def use():
        async with AsyncBroker(make_node=lambda *_: node):
            raise AssertionError("it has never started")

    using = asyncio.create_task(use())
    await asyncio.to_thread(node.begun.wait)
    using.cancel()
    node.may_go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await using
    assert node.done == ["start", "stop"]


async def test_what_was_begun_is_finished_before_anything_else_begins_however_often_it_is_cancelled():
    node = SlowNode()
    broker = AsyncBroker(make_node=lambda *_: node)
    starting = asyncio.create_task(broker.start())
    await asyncio.to_thread(node.begun.wait)
    for _ in range(3):
        starting.cancel()
        for _ in range(5):  # turns of the loop in which it could end
            await asyncio.sleep(0)
    is_left_alone = starting.done()
    node.may_go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await starting
    await broker.stop()
    assert not is_left_alone
    assert node.done == ["start", "stop"]
