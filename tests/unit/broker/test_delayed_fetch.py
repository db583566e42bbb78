"""A fetch that waits goes off once, harms nobody when it fails, and is gone with its client."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from exactlog.broker.delayed_fetch import DelayedFetch
from exactlog.broker.request_context import RequestContext, abandon_requests
from exactlog.broker.timers import Timers
from exactlog.core.protocol.headers import RequestHeader
from tests.support.partitions import ManualClock

NEVER_MS = 3_600_000


class FakePartition:
    def __init__(self):
        self.committed = self  # what a fetch watches and counts by
        self.size_bytes = 0
        self.failure = None
        self.watchers = []

    def watch(self, callback):
        self.watchers.append(callback)

    def unwatch(self, callback):
        if callback in self.watchers:
            self.watchers.remove(callback)

    def grow(self, size):
        self.size_bytes += size
        for callback in list(self.watchers):
            callback()


class FakeConnection:
    def __init__(self):
        self.session = None
        self.is_closing = False
        self.peer = "a peer"

    def close(self, reason):
        self.is_closing = True
        self.reason = reason


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def timers(clock):
    timers = Timers(asyncio.get_running_loop(), clock)
    yield timers
    timers.stop()


@pytest.fixture
def context_of(timers):
    """Makes a request that came over a connection and is never to be answered for real."""

    def context_of(connection):
        header = RequestHeader(api_key=1, api_version=12, correlation_id=1)
        broker = SimpleNamespace(timers=timers)
        return RequestContext(broker=broker, connection=connection, header=header, reply=None, form=None)

    return context_of


@pytest.fixture
def connection():
    return FakeConnection()


@pytest.fixture
def start(connection, context_of):
    """Begins to wait for 100 bytes of some partitions; gives the times it went off."""

    def start(*partitions, wait_ms=NEVER_MS, then=None):
        went_off = []
        DelayedFetch(
            partitions,
            bytes_wanted=100,
            wait_ms=wait_ms,
            then=then or (lambda: went_off.append(sum(partition.committed.size_bytes for partition in partitions))),
            context=context_of(connection),
        )
        return went_off

    return start


async def test_it_goes_off_once_its_partitions_have_grown_by_enough_together(start):
    one, two = FakePartition(), FakePartition()
    one.size_bytes = 5_000
    went_off = start(one, two)

    one.grow(60)
    assert went_off == []
    two.grow(40)
    two.grow(1_000)

    assert went_off == [5_100]
    assert one.watchers == two.watchers == []


async def test_it_goes_off_when_a_partition_fails(start):
    one, two = FakePartition(), FakePartition()
    went_off = start(one, two)

    two.failure = "the disk is gone"
    two.grow(0)

    assert went_off == [0]


async def test_it_goes_off_when_its_time_is_over_by_the_brokers_clock(start, clock, timers):
    partition = FakePartition()
    went_off = start(partition, wait_ms=NEVER_MS)

    clock.time_ms += NEVER_MS - 1
    timers.look()
    assert went_off == []

    clock.time_ms += 1
    timers.look()
    assert went_off == [0]
    assert partition.watchers == []


async def test_it_is_gone_with_its_connection(start, connection):
    partition = FakePartition()
    went_off = start(partition)

    abandon_requests(connection)

    assert partition.watchers == []
    assert connection.session == {}
    partition.grow(1_000)
    assert went_off == []


async def test_it_leaves_nothing_at_its_connection_when_it_has_gone_off(start, connection):
    partition = FakePartition()
    for _ in range(3):
        start(partition)

    partition.grow(100)

    assert connection.session == {}


async def test_it_does_not_read_for_a_connection_that_is_closing(start, connection):
    partition = FakePartition()
    went_off = start(partition)

    connection.is_closing = True
    partition.grow(100)

    assert went_off == []


async def test_one_that_fails_closes_its_own_connection_and_wakes_the_others_all_the_same(
    start, connection, context_of, caplog
):
    partition = FakePartition()

    def fail():
        raise ValueError("a bug")

    start(partition, then=fail)
    other_connection_went_off = []
    DelayedFetch(
        [partition],
        bytes_wanted=1,
        wait_ms=NEVER_MS,
        then=lambda: other_connection_went_off.append(True),
        context=context_of(FakeConnection()),
    )

    with caplog.at_level(logging.ERROR):
        partition.grow(100)

    assert connection.reason == "handler-error"
    assert other_connection_went_off == [True]
    assert "a bug" in caplog.text


async def test_a_client_that_was_gone_before_the_wait_began_is_not_waited_for(connection, start):
    connection.is_closing = True
    partition = FakePartition()

    start(partition)

    assert partition.watchers == []
    assert connection.session is None
