"""A fetch that waits goes off once, harms nobody when it fails, and is gone with its client."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from exactlog.broker.delayed_fetch import DelayedFetch, Watched
from exactlog.broker.request_context import RequestContext, abandon_requests
from exactlog.broker.timers import Timers
from exactlog.core.model.errors import DamageError
from exactlog.core.protocol.headers import RequestHeader
from tests.support.partitions import ManualClock

NEVER_MS = 3_600_000


class FakePartition:
    """Of ten bytes at each offset."""

    def __init__(self):
        self.committed = self  # what a fetch watches and counts by
        self.size_bytes = 0
        self.last_stable_offset = 0
        self.failure = None
        self.damage = None
        self.watchers = []

    def bytes_between(self, start_offset, end_offset):
        if self.damage is not None:
            raise self.damage
        return 10 * (end_offset - start_offset)

    def watch(self, callback):
        self.watchers.append(callback)

    def unwatch(self, callback):
        if callback in self.watchers:
            self.watchers.remove(callback)

    def grow(self, size):
        self.size_bytes += size
        self.notify()

    def decide(self, stable_offset):
        self.last_stable_offset = stable_offset
        self.notify()

    def notify(self):
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

    def start(*partitions, wait_ms=NEVER_MS, then=None, is_committed_only=False, offset=0, bytes_wanted=100):
        went_off = []
        DelayedFetch(
            [Watched(partition, offset) for partition in partitions],
            bytes_wanted=bytes_wanted,
            wait_ms=wait_ms,
            is_committed_only=is_committed_only,
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
        [Watched(partition, 0)],
        bytes_wanted=1,
        wait_ms=NEVER_MS,
        is_committed_only=False,
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


# --- of what is stable ----------------------------------------------------------------------------------------------


@pytest.fixture
def start_stable(start):
    """Begins to wait for what is stable behind an offset, 100 bytes of it."""
    return lambda *partitions, **fields: start(*partitions, is_committed_only=True, **fields)


async def test_what_is_committed_and_not_stable_does_not_wake_a_reader_of_what_is(start_stable):
    partition = FakePartition()
    went_off = start_stable(partition)

    partition.grow(5_000)
    assert went_off == []
    partition.decide(9)
    assert went_off == []
    partition.decide(10)

    assert went_off == [5_000]


async def test_what_becomes_stable_counts_over_all_partitions(start_stable):
    one, two = FakePartition(), FakePartition()
    went_off = start_stable(one, two)

    one.decide(6)
    assert went_off == []
    two.decide(4)

    assert len(went_off) == 1
    assert one.watchers == two.watchers == []


@pytest.mark.parametrize("bytes_wanted", [1, 10])
async def test_what_becomes_stable_below_its_offset_does_not_count(start_stable, bytes_wanted):
    partition = FakePartition()
    went_off = start_stable(partition, offset=7, bytes_wanted=bytes_wanted)

    partition.decide(7)
    assert went_off == []
    partition.decide(8)

    assert len(went_off) == 1


@pytest.mark.parametrize("damage", [DamageError("for a test"), OSError("for a test")])
async def test_one_that_cannot_count_goes_off_so_that_its_answer_tells_why(start_stable, damage):
    partition = FakePartition()
    partition.damage = damage
    went_off = start_stable(partition)

    partition.decide(1)

    assert len(went_off) == 1
