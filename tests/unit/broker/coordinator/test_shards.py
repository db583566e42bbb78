"""Which shard a key belongs to, and what becomes of one that cannot be loaded."""

import asyncio

import pytest

from exactlog.broker.coordinator import loading
from exactlog.broker.coordinator.shards import LOAD_RETRY_DELAY_MS, UNASKED_LOAD_DELAY_MS, Shards
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import NotOpenYet
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from tests.support.partitions import DataDirectory, ManualClock
from tests.support.rounds_by_hand import RoundsByHand
from tests.support.shard_runtime import Numbers, Waiter

PARTITIONS = 3


class Topics:
    """As much of a registry as shards ask for: one topic, whose partitions are opened at once."""

    def __init__(self, directory):
        self.directory = directory
        self.partition_count = 0
        self.opened = {}
        self.deleted = []

    def by_name(self, name):
        return self if self.partition_count and name == CONSUMER_OFFSETS else None

    name = CONSUMER_OFFSETS

    async def create(self, name, *, partition_count, config, topic_id):
        await asyncio.sleep(0)
        assert not self.partition_count, "made twice"
        self.partition_count = partition_count
        return self

    async def open(self, name, index):
        if index not in self.opened:
            self.opened[index] = self.directory.make(TopicPartition(name, index))

    def partition(self, name, index):
        return self.opened.get(index, NotOpenYet())

    def when_deleted(self, callback):
        self.deleted.append(callback)


@pytest.fixture
def directory():
    with DataDirectory() as directory:
        yield directory


class Coordinator:
    """Shards of numbers, and what was told of them."""

    def __init__(self, directory):
        self.topics = Topics(directory)
        self.clock = ManualClock()
        self.timers = Timers(asyncio.get_running_loop(), self.clock)
        self.rounds = RoundsByHand(directory)
        self.loaded, self.dismissed = [], []
        self.shards = Shards(
            topic=CONSUMER_OFFSETS,
            partition_count=PARTITIONS,
            config=lambda: None,
            make_machine=lambda index: Numbers(),
            topics=self.topics,
            rounds=self.rounds,
            timers=self.timers,
            clock=self.clock,
            new_topic_id=lambda: None,
            on_loaded=self.loaded.append,
            on_dismissed=self.dismissed.append,
        )


@pytest.fixture
async def coordinator(directory):
    return Coordinator(directory)


async def test_a_key_has_its_shard_once_it_is_loaded(coordinator):
    shards = coordinator.shards
    assert (shards.find("a"), shards.partition_of("a"), await shards.load_all()) == (None, None, [])
    runner = await shards.load("a")
    assert shards.find("a") is shards.find_index(shards.partition_of("a")) is runner
    assert coordinator.loaded == [runner]
    assert await shards.load("a") is runner
    assert len(coordinator.loaded) == 1


async def test_who_ask_at_once_share_a_load(coordinator):
    shards = coordinator.shards
    found = await asyncio.gather(*(shards.load("a") for _ in range(5)))
    assert len(set(found)) == len(coordinator.loaded) == 1


async def test_all_shards_are_loaded(coordinator):
    runner = await coordinator.shards.load("a")
    loaded = await coordinator.shards.load_all()
    assert [each.partition.topic_partition.partition for each in loaded] == list(range(PARTITIONS))
    assert runner in loaded
    assert set(coordinator.shards.runners()) == set(loaded)


async def test_the_place_of_a_key_is_made_and_opened(coordinator):
    place = await coordinator.shards.open_partition_of("a")
    assert place == (CONSUMER_OFFSETS, coordinator.shards.partition_of("a"))
    assert list(coordinator.topics.opened) == [place.partition]
    assert coordinator.shards.find("a") is None


async def test_a_shard_that_cannot_be_loaded_is_not_read_again_for_a_while(coordinator, monkeypatch):
    reads = []

    async def fail(settling):
        reads.append(settling)
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(loading, "until_settled", fail)
        for _ in range(5):
            assert await coordinator.shards.load("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(reads) == 1
        coordinator.clock.time_ms += LOAD_RETRY_DELAY_MS
        coordinator.timers.look()
        assert await coordinator.shards.load("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(reads) == 2

    coordinator.clock.time_ms += LOAD_RETRY_DELAY_MS
    coordinator.timers.look()
    assert await coordinator.shards.load("a") in coordinator.loaded


@pytest.mark.parametrize("error", [InvariantError, ZeroDivisionError])
async def test_a_shard_whose_rules_break_at_its_load_cannot_be_had(coordinator, monkeypatch, error):
    def fail(numbers, key, value, *, producer_id=None):
        raise error("on purpose")

    first = await coordinator.shards.load("a")
    first.decide(lambda machine, _: machine.put("a", 1, Waiter()))
    coordinator.rounds.run()
    first.resign()
    monkeypatch.setattr(Numbers, "restore", fail)

    assert await coordinator.shards.load("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_other_shards_are_loaded_while_one_cannot_be(coordinator):
    await coordinator.shards.ensure_topic()
    await coordinator.topics.open(CONSUMER_OFFSETS, 0)
    coordinator.topics.opened[0].fail("on purpose")
    assert await coordinator.shards.load_index(0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await coordinator.shards.load_all() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await coordinator.shards.load_index(1) in coordinator.loaded


async def test_a_shard_that_broke_is_dismissed_and_loaded_anew(coordinator):
    first = await coordinator.shards.load("a")
    first.resign()
    assert coordinator.shards.find("a") is None
    second = await coordinator.shards.load("a")
    assert second is not first
    assert (coordinator.dismissed, coordinator.loaded) == ([first], [first, second])


def break_down(machine, now_ms):
    raise AssertionError("on purpose")


class Clockwork:
    """Lets time pass, and what it has set off come to an end."""

    def __init__(self, coordinator):
        self.coordinator = coordinator

    async def advance(self, duration_ms):
        self.coordinator.clock.time_ms += duration_ms
        self.coordinator.timers.look()
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
def clockwork(coordinator):
    return Clockwork(coordinator)


async def test_a_shard_whose_rules_broke_is_loaded_though_nobody_asks(coordinator, clockwork):
    first = await coordinator.shards.load("a")
    first.decide(break_down)

    await clockwork.advance(UNASKED_LOAD_DELAY_MS - 1)
    assert coordinator.loaded == [first]
    await clockwork.advance(1)

    assert coordinator.dismissed == [first]
    assert coordinator.shards.find("a") is coordinator.loaded[1]


async def test_a_shard_that_breaks_at_every_load_is_loaded_once_in_a_while(coordinator, clockwork, monkeypatch):
    loads = []

    def loaded(self, *, now_ms):
        loads.append(now_ms)
        raise AssertionError("on purpose")

    await coordinator.shards.ensure_topic()
    monkeypatch.setattr(Numbers, "loaded", loaded)
    await coordinator.shards.load("a")
    for _ in range(5):
        await clockwork.advance(UNASKED_LOAD_DELAY_MS)

    assert len(loads) == 6


async def test_a_shard_that_could_not_be_loaded_is_loaded_though_nobody_asks(coordinator, clockwork, monkeypatch):
    async def fail(settling):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(loading, "until_settled", fail)
        assert await coordinator.shards.load("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await clockwork.advance(UNASKED_LOAD_DELAY_MS)
        assert coordinator.shards.find("a") is None
    await clockwork.advance(UNASKED_LOAD_DELAY_MS)

    assert [coordinator.shards.find("a")] == coordinator.loaded


async def test_who_asked_meanwhile_has_the_shard_that_is_there(coordinator, clockwork):
    (await coordinator.shards.load("a")).decide(break_down)
    second = await coordinator.shards.load("a")

    await clockwork.advance(UNASKED_LOAD_DELAY_MS)

    assert coordinator.shards.find("a") is second


@pytest.mark.parametrize("end", ["resigned", "deleted"])
async def test_nothing_is_loaded_unasked_once_there_is_nothing_to_coordinate(coordinator, clockwork, end):
    (await coordinator.shards.load("a")).decide(break_down)
    if end == "resigned":
        coordinator.shards.resign()
    else:
        coordinator.topics.partition_count = 0
    await clockwork.advance(UNASKED_LOAD_DELAY_MS)

    assert len(coordinator.loaded) == 1


async def test_each_shard_is_loaded_that_can_be_and_of_the_others_is_told_why(coordinator):
    await coordinator.shards.ensure_topic()
    await coordinator.topics.open(CONSUMER_OFFSETS, 0)
    coordinator.topics.opened[0].fail("on purpose")

    found = await coordinator.shards.load_each()

    assert found.missing == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert [each.partition.topic_partition.partition for each in found.runners] == [1, 2]


async def test_who_resigns_has_no_shards_any_more(coordinator):
    runner = await coordinator.shards.load("a")
    coordinator.shards.resign()
    assert coordinator.dismissed == [runner]
    assert coordinator.shards.find("a") is None
    assert await coordinator.shards.load("a") is ErrorCode.NOT_COORDINATOR


async def test_a_shard_whose_topic_goes_while_it_is_loaded_is_not_found(coordinator, monkeypatch):
    async def delete_topic(settling):
        coordinator.topics.partition_count = 0
        for callback in coordinator.topics.deleted:
            callback(coordinator.topics)

    monkeypatch.setattr(loading, "until_settled", delete_topic)
    await coordinator.shards.load("a")
    assert coordinator.shards.find("a") is None


async def test_shards_go_with_their_topic(coordinator):
    runner = await coordinator.shards.load("a")
    for callback in coordinator.topics.deleted:
        callback(coordinator.topics)
    assert coordinator.dismissed == [runner]
    assert coordinator.shards.runners() == []


async def test_who_has_given_up_waiting_harms_nobody_when_it_is_settled():
    tellers = []
    given_up, waiting = (asyncio.ensure_future(loading.until_settled(tellers.append)) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.sleep(0)
    for tell in tellers:
        tell(ErrorCode.NOT_COORDINATOR)

    assert await waiting is ErrorCode.NOT_COORDINATOR
    assert given_up.cancelled()
