"""What a writer reads of the log to know what became of its appends: nothing of what it wrote itself.

Counted are the Fetches that reach the broker.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal import NO_STREAM, Conflict, Journals, JournalSettings
from exactlog.journal import head_cache as head_cache_module
from exactlog.journal.metrics import Spared
from tests.unit.journal.replicating import pointer_at, replicating

ENTITIES = 40
"""More than are read at once in place of asking the cache."""
STEADY = JournalSettings(pointer_ms=3_600_000)
"""The cache reads what it is asked for, and nothing by itself."""


@pytest.fixture
def fetches(broker):
    """How many Fetches the broker has had."""
    return lambda: broker.metrics().get('exactlog_requests_total{api="Fetch"}', 0)


@asynccontextmanager
async def programs(log_url, count):
    """So many programs, as they come: each with journals of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Journals.open(log_url, settings=STEADY)) for _ in range(count)]


class Entities:
    """Journals of one topic, each appended to on the expectation that it is as it was left here."""

    def __init__(self, topic):
        self.topic, self.last = topic, dict.fromkeys(range(ENTITIES))

    async def append(self, journals, entity):
        last = self.last[entity]
        told = await journals[self.topic, f"e{entity}"].append(["x"], NO_STREAM if last is None else last)
        assert told.seq_nr == (last or 0) + 1
        self.last[entity] = told.seq_nr


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_program_that_writes_alone_fetches_nothing_to_append_and_to_look(log_url, topic, fetches, at_once):
    entities = Entities(topic)
    async with programs(log_url, 1) as (journals,):
        await entities.append(journals, 0)
        await entities.append(journals, 1)  # the cache has begun
        before = fetches()
        for _ in range(3):
            if at_once:
                await asyncio.gather(*(entities.append(journals, entity) for entity in range(ENTITIES)))
            else:
                for entity in range(ENTITIES):
                    await entities.append(journals, entity)
        await journals[topic, "e2"].delete(1)
        assert await journals[topic, "e2"].pointer() == 3
        assert fetches() == before
        assert [record.seq_nr async for record in journals[topic, "e2"].read()] == [2, 3]
        assert fetches() == before + 1  # the events themselves


async def test_what_was_replicated_meanwhile_is_not_read_again_either(log_url, topic, store):
    """The cache has let go of it, and knows where the last action of each journal stood."""
    entities, scans = Entities(topic), []
    async with Journals.open(log_url, store=store, settings=JournalSettings(pointer_ms=5)) as journals:
        for _ in range(3):
            for entity in range(ENTITIES):
                await entities.append(journals, entity)
            scans.append(journals.metrics.scans.value)
            last = (await journals[topic, "e0"].mark("replicated to here")).offset
            async with replicating(log_url, store, topic):
                await pointer_at(store, topic, last)
            follower = journals.parts.looker._cache._followers[TopicPartition(topic, 0)]
            while follower.cache.start <= last:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.005)
            assert follower.cache.steps == 0
    assert scans == [scans[0]] * 3


async def test_two_programs_with_entities_of_their_own_fetch_once_for_an_append_at_most(log_url, topic, fetches):
    """What the other one has written meanwhile has to be seen: by one Fetch, through the cache or beside it."""
    entities, rounds = Entities(topic), 3
    async with programs(log_url, 2) as both:
        for entity in range(4):
            await entities.append(both[entity % 2], entity)  # the caches have begun
        before = fetches()
        for _ in range(rounds):
            for entity in range(ENTITIES):
                await entities.append(both[entity % 2], entity)
        assert fetches() - before <= rounds * ENTITIES
        for entity, journals in enumerate(both):
            assert await journals[topic, f"e{entity}"].pointer() == rounds + 1


async def test_what_another_program_wrote_between_is_seen_though_it_was_not_told(log_url, topic):
    """The own append before it and the one behind it are known without being read; what lies between is not."""
    key = JournalKey(topic, "e0")
    async with programs(log_url, 1) as (journals,), connect(log_url) as client:
        journal = journals[topic, "e0"]
        assert (await journal.append(["1"])).seq_nr == 1
        others = new_append([NewEvent(TextPayload("2"))], last_seq_nr=1)
        await client.produce(topic, [encode_action(key, others, timestamp_ms=1)], partition=0)
        with pytest.raises(Conflict) as conflict:
            await journal.append(["2"], 1)
        assert conflict.value.actual == 2
        assert [record.event for record in conflict.value.events] == ["2"]


async def test_what_was_written_here_counts_only_once_all_before_it_is_known(log_url, topic):
    """Many records of others lie between the own ones: none is taken for the next, and all are judged."""
    async with programs(log_url, 1) as (journals,), connect(log_url) as client:
        entities = Entities(topic)
        for _ in range(3):
            for entity in range(ENTITIES):
                await client.produce(topic, [NewRecord(b"x", key=b"nobody")] * (entity % 3), partition=0)
                await entities.append(journals, entity)
        follower = journals.parts.looker._cache._followers[TopicPartition(topic, 0)]
        assert not follower._own
        for entity in range(ENTITIES):
            assert await journals[topic, f"e{entity}"].pointer() == 3


async def test_marks_that_nobody_asks_for_do_not_pile_up(log_url, topic, monkeypatch):
    monkeypatch.setattr(head_cache_module, "_OWN_RECORDS_MAX", 5)
    async with programs(log_url, 1) as (journals,), connect(log_url) as client:
        journal = journals[topic, "e"]
        await journal.append(["1"])
        await client.produce(topic, [NewRecord(b"x", key=b"nobody")], partition=0)
        for n in range(20):
            await journal.mark(f"{n}")
        follower = journals.parts.looker._cache._followers[TopicPartition(topic, 0)]
        assert len(follower._own) == 5
        before = journals.metrics.spared[Spared.SCAN].value
        assert await journal.pointer() == 1
        assert journals.metrics.spared[Spared.SCAN].value == before + 1
        assert not follower._own


async def test_what_nobody_asks_for_is_read_now_and_then(log_url, topic):
    async with Journals.open(log_url, settings=JournalSettings(pointer_ms=10)) as journals, connect(log_url) as client:
        await journals[topic, "e"].append(["1"])
        assert await journals[topic, "e"].pointer() == 1
        follower = journals.parts.looker._cache._followers[TopicPartition(topic, 0)]
        (last,) = await client.produce(topic, [NewRecord(b"x", key=b"nobody")], partition=0)
        while follower.end <= last.offset:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.005)


class SlowTopic:
    """A client that does not say where one topic ends until it is told to."""

    def __init__(self, client, topic):
        self._client, self._topic = client, topic
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def list_offsets(self, places, **options):
        if any(place.topic == self._topic for place in places):
            self.is_asked.set()
            await self.may_answer.wait()
        return await self._client.list_offsets(places, **options)


async def test_a_topic_that_cannot_be_looked_at_yet_holds_up_no_other_one(broker, log_url, topic, monkeypatch):
    slow, quick = f"{topic}-slow", f"{topic}-quick"
    for name in (slow, quick):
        broker.create_topic(name, partitions=2)
    async with programs(log_url, 1) as (journals,):
        client = SlowTopic(journals.parts.client, slow)
        monkeypatch.setattr(journals.parts.log, "_client", client)
        waiting = [asyncio.create_task(journals[slow, f"e{n}"].append(["a"])) for n in range(2)]
        await client.is_asked.wait()
        assert (await journals[quick, "e"].append(["a"])).seq_nr == 1
        assert not any(task.done() for task in waiting)
        client.may_answer.set()
        assert [told.seq_nr for told in await asyncio.gather(*waiting)] == [1, 1]
