"""A handler that fails fails its own connection; a partition that opens slowly is told so."""

import asyncio
import logging
import threading

import pytest
from msgspec.structs import replace

from exactlog.broker import dispatch, partition_lookup
from exactlog.broker.api_table import API_TABLE
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of, fetch_request
from tests.support.watching import wait_until


@pytest.fixture
def broker_in_memory():
    with Broker(config={"in.memory": True}) as broker:
        yield broker


def fail_at_once(request, context):
    raise ValueError("a bug")


async def fail_later(request, context):
    raise ValueError("a bug")


@pytest.mark.parametrize("handler", [fail_at_once, fail_later])
def test_a_handler_that_fails_closes_its_connection_alone(monkeypatch, caplog, handler):
    broken = {**API_TABLE, ApiKey.METADATA: replace(API_TABLE[ApiKey.METADATA], handler=handler)}
    monkeypatch.setattr(dispatch, "API_TABLE", broken)

    with (
        Broker(config={"in.memory": True}) as broker,
        RawClient(broker.port) as other,
        RawClient(broker.port) as unlucky,
        caplog.at_level(logging.ERROR),
    ):
        unlucky.send(MetadataRequest(), 12)
        assert unlucky.is_closed()
        assert other.ask(ApiVersionsRequest(), 0).error_code == 0

    assert "a bug" in caplog.text


def test_a_request_that_never_ends_keeps_no_broker_from_stopping(monkeypatch, caplog):
    async def wait_for_nothing(request, context):
        await asyncio.Event().wait()

    broken = {**API_TABLE, ApiKey.METADATA: replace(API_TABLE[ApiKey.METADATA], handler=wait_for_nothing)}
    monkeypatch.setattr(dispatch, "API_TABLE", broken)
    monkeypatch.setattr(dispatch, "STOP_WAIT_S", 0.01)
    broker = Broker(config={"in.memory": True})
    broker.start()

    with RawClient(broker.port) as client:
        client.send(MetadataRequest(), 12)
        wait_until(lambda: broker._node._parts.dispatcher._tasks)
    broker.stop()

    assert "> wait_for_nothing:" in caplog.text


def test_a_partition_that_takes_long_to_open_is_answered_for_and_never_hidden(monkeypatch):
    monkeypatch.setattr(partition_lookup, "OPENING_WAIT_S", 0.01)
    with Broker(config={"in.memory": True}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        store = broker._node._parts.topics._store
        may_open, open_on_disk = threading.Event(), store.open

        def open_slowly(*args):
            may_open.wait(20)
            return open_on_disk(*args)

        monkeypatch.setattr(store, "open", open_slowly)
        while_opening = [
            raw.produce(topic, batch_of(b"v")).error_code,
            raw.fetch(topic, 0, max_wait_ms=10_000).error_code,
            raw.list_offset(topic, -1).error_code,
        ]
        (described,) = raw.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)), 12).topics
        may_open.set()
        monkeypatch.setattr(partition_lookup, "OPENING_WAIT_S", 20)

        assert while_opening == [ErrorCode.LEADER_NOT_AVAILABLE] * 3
        assert (described.error_code, len(described.partitions)) == (0, 1)
        assert raw.produce(topic, batch_of(b"v")).base_offset == 0


def test_nothing_waits_for_a_client_that_has_gone(broker_in_memory):
    with RawClient(broker_in_memory.port) as raw:
        topic = raw.create_topic()
        raw.produce(topic, batch_of(b"v"))
        (partition,) = broker_in_memory._node._parts.topics.open_partitions()

        with RawClient(broker_in_memory.port) as gone:
            gone.send(fetch_request(topic, 1, max_wait_ms=2**31 - 1), 12)
            wait_until(lambda: turn(broker_in_memory) and partition.committed._watchers)
        wait_until(lambda: turn(broker_in_memory) and not partition.committed._watchers)


def turn(broker):
    """Lets the broker's event loop turn once."""
    return broker.metrics() is not None
