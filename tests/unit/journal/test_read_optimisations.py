"""The seven optimisations of a read (seed 003): each is seen in a metric, and in what was not done."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from exactlog.core.journal.errors import Retriable
from exactlog.core.model.ids import TopicPartition
from exactlog.journal import Journals, JournalSettings, ReadBarrier
from exactlog.journal.metrics import Spared
from exactlog.journal.stores.memory_store import MemoryJournalStore
from tests.unit.journal.replicating import pointer_at, replicating

UNCACHED = JournalSettings(head_cache=False)


@pytest.fixture
async def uncached(log_url, store):
    async with Journals.open(log_url, store=store, settings=UNCACHED) as journals:
        yield journals


async def numbers(journal):
    return [record.seq_nr async for record in journal.read()]


class Counts:
    """What a read has spared and done since."""

    def __init__(self, journals):
        self._metrics = journals.metrics
        self._before = self._now()

    def _now(self):
        metrics = self._metrics
        counted = {spared: counter.value for spared, counter in metrics.spared.items()}
        return {
            **counted,
            "scans": metrics.scans.value,
            "log_reads": metrics.log_reads.value,
            "decoded": metrics.decoded.value,
        }

    def __getitem__(self, what):
        return self._now()[what] - self._before[what]


class WaitingStore(MemoryJournalStore):
    """Tells readers its pointer only once that is at `wanted`."""

    wanted = -1

    async def pointer(self, topic_partition):
        while True:
            pointer = await super().pointer(topic_partition)
            if self.wanted < 0 or (pointer is not None and pointer.offset >= self.wanted):
                return pointer
            await asyncio.sleep(0.01)


async def test_1_a_mark_that_is_replicated_already_makes_the_log_needless(log_url, topic):
    store = WaitingStore()
    async with Journals.open(log_url, store=store, settings=UNCACHED) as journals:
        journal = journals[topic, "e"]
        told = await journal.append(["a", "b"])
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)
            counts = Counts(journals)
            store.wanted = told.offset + 1  # the mark of the read
            assert await numbers(journal) == [1, 2]
    assert (counts[Spared.LOG], counts["scans"], counts["log_reads"]) == (1, 0, 0)


async def test_1_an_end_offset_that_is_replicated_makes_the_log_needless_and_writes_nothing(log_url, store, topic):
    settings = JournalSettings(head_cache=False, barrier=ReadBarrier.END_OFFSET)
    async with Journals.open(log_url, store=store, settings=settings) as journals:
        journal = journals[topic, "e"]
        told = await journal.append(["a", "b"])
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)
        counts = Counts(journals)
        assert await numbers(journal) == [1, 2]
        assert await journal.pointer() == 2
        assert (counts[Spared.LOG], counts["scans"], counts["log_reads"]) == (2, 0, 0)
        assert (await journal.append(["c"])).offset == told.offset + 1


async def test_2_the_store_is_asked_while_the_mark_is_on_its_way(uncached, topic, store, monkeypatch):
    journal = uncached[topic, "e"]
    await journal.append(["a"])
    is_asked = asyncio.Event()
    head, write = store.head, uncached.parts.log.write

    async def asked(key):
        is_asked.set()
        return await head(key)

    async def slow_write(*arguments):
        await asyncio.wait_for(is_asked.wait(), 10)  # never comes where the mark is waited for first
        await asyncio.sleep(0)
        return await write(*arguments)

    monkeypatch.setattr(store, "head", asked)
    monkeypatch.setattr(type(uncached.parts.log), "write", lambda _, *arguments: slow_write(*arguments))
    counts = Counts(uncached)

    assert await numbers(journal) == [1]
    assert counts[Spared.WAIT_FOR_MARK] == 1


async def test_3_what_the_look_for_deletes_has_met_is_not_read_again(uncached, topic):
    journal = uncached[topic, "e"]
    await journal.append(["a"])
    await journal.append(["b"])
    counts = Counts(uncached)

    assert await numbers(journal) == [1, 2]
    assert (counts[Spared.SECOND_READ], counts["scans"], counts["log_reads"]) == (1, 1, 0)


@pytest.mark.parametrize("limit", [{"buffer_actions_max": 2}, {"buffer_bytes_max": 100}])
async def test_3_more_than_may_be_kept_is_read_again(log_url, store, topic, limit):
    settings = JournalSettings(head_cache=False, **limit)
    async with Journals.open(log_url, store=store, settings=settings) as journals:
        journal = journals[topic, "e"]
        for n in range(4):
            await journal.append(["x" * 40 + str(n)])
        counts = Counts(journals)
        assert await numbers(journal) == [1, 2, 3, 4]
        assert (counts[Spared.SECOND_READ], counts["scans"], counts["log_reads"]) == (0, 1, 1)


class CatchingUpStore(MemoryJournalStore):
    """Once told to, lets the replicator catch up while rows are read."""

    catch_up = None

    async def rows(self, key, head, seq_range):
        async for row in super().rows(key, head, seq_range):
            yield row
            if self.catch_up is not None:
                catch_up, self.catch_up = self.catch_up, None
                await catch_up()


async def test_4_what_was_replicated_while_the_store_was_read_needs_no_consumer(log_url, topic):
    store = CatchingUpStore()
    settings = JournalSettings(head_cache=False, buffer_actions_max=1)
    async with Journals.open(log_url, store=store, settings=settings) as journals:
        journal = journals[topic, "e"]
        told = await journal.append(["1", "2"])
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)
        for n in range(3, 7):
            told = await journal.append([str(n)])

        async def catch_up():
            async with replicating(log_url, store, topic):
                await pointer_at(store, topic, told.offset + 1)

        store.catch_up = catch_up
        counts = Counts(journals)
        assert await numbers(journal) == [1, 2, 3, 4, 5, 6]
        assert (counts[Spared.SECOND_CONSUMER], counts["log_reads"]) == (1, 0)


async def test_5_the_head_cache_spares_the_look_at_the_log(journals, topic):
    journal = journals[topic, "e"]
    await journal.append(["a"])
    await journal.append(["b"])
    await journal.delete(1)
    counts = Counts(journals)

    assert await journal.pointer() == 2
    assert await numbers(journal) == [2]
    assert (counts[Spared.SCAN], counts["scans"]) == (2, 0)
    assert journals.metrics.snapshot()['exactlog_journal_cache_answers_total{answer="found"}'] >= 2


async def test_5_the_head_cache_lets_go_of_what_is_replicated(log_url, store, topic):
    async with Journals.open(log_url, store=store, settings=JournalSettings(pointer_ms=20)) as journals:
        for n in range(5):
            told = await journals[topic, f"e{n}"].append(["a"])
        assert await numbers(journals[topic, "e4"]) == [1]  # the cache has come so far
        follower = journals.parts.looker._cache._followers[TopicPartition(topic, 0)]
        assert follower.cache.steps == 5
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)
        while follower.cache.steps:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)
        assert await numbers(journals[topic, "e0"]) == [1]


async def test_5_where_the_cache_cannot_tell_the_read_looks_for_itself(log_url, store, topic):
    settings = JournalSettings(cache_steps_max=2)
    async with Journals.open(log_url, store=store, settings=settings) as journals:
        for n in range(6):
            await journals[topic, f"e{n}"].append(["a"])
        counts = Counts(journals)
        assert await numbers(journals[topic, "e0"]) == [1]
        assert counts["scans"] == 1
        assert journals.metrics.snapshot()['exactlog_journal_cache_answers_total{answer="limited"}'] >= 1


async def test_6_one_partition_is_read_and_no_other(broker, log_url, store):
    topic = "four-partitions"
    broker.create_topic(topic, partitions=4)
    async with Journals.open(log_url, store=store, settings=UNCACHED) as journals:
        places = {(await journals[topic, f"e{n}"].append([n])).partition for n in range(12)}
        assert places == {0, 1, 2, 3}
        counts = Counts(journals)
        assert await numbers(journals[topic, "e3"]) == [1]
        assert counts[Spared.PARTITIONS] == 3
        assert counts[Spared.DECODING] + counts["decoded"] < 24


async def test_7_records_of_others_are_not_decoded(uncached, topic):
    for n in range(10):
        await uncached[topic, f"other-{n}"].append(["x"])
    await uncached[topic, "e"].append(["a"])
    counts = Counts(uncached)

    assert await numbers(uncached[topic, "e"]) == [1]
    assert counts["decoded"] == 2  # the append, and the mark before it; that of the read is where it ends
    assert counts[Spared.DECODING] == 20  # of each a mark and an append


@pytest.mark.parametrize("is_replicated", [False, True])
async def test_5_many_that_append_at_once_do_not_read_what_the_others_write(log_url, store, topic, is_replicated):
    """Each has to know that nothing of its own journal came between; the cache knows, or the store."""
    count = 120
    async with AsyncExitStack() as stack:
        journals = await stack.enter_async_context(Journals.open(log_url, store=store))
        if is_replicated:
            await stack.enter_async_context(replicating(log_url, store, topic))
        counts = Counts(journals)
        for seq_nr in (1, 2):
            told = await asyncio.gather(*(journals[topic, f"e{n}"].append([seq_nr]) for n in range(count)))
            assert {one.seq_nr for one in told} == {seq_nr}
        assert counts[Spared.DECODING] < count * count / 2  # each all others, twice, is four times that
        for n in range(count):
            assert await numbers(journals[topic, f"e{n}"]) == [1, 2]


async def test_5_a_partition_that_nobody_asks_for_is_followed_no_more(log_url, store, topic):
    settings = JournalSettings(cache_idle_ms=1, pointer_ms=10)
    async with Journals.open(log_url, store=store, settings=settings) as journals:
        await journals[topic, "e"].append(["a"])
        assert await numbers(journals[topic, "e"]) == [1]
        followers = journals.parts.looker._cache._followers
        first = followers[TopicPartition(topic, 0)]
        while not first.is_over:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.005)
        assert await numbers(journals[topic, "e"]) == [1]
        assert followers[TopicPartition(topic, 0)] is not first


class PointerlessStore(MemoryJournalStore):
    """Does not tell the head cache its pointer."""

    is_asked_by_cache = False

    async def pointer(self, topic_partition):
        if asyncio.current_task().get_name().startswith("exactlog head"):
            self.is_asked_by_cache = True
            raise Retriable("not now")
        return await super().pointer(topic_partition)


async def test_5_a_cache_that_fails_fails_no_read(log_url, topic):
    store = PointerlessStore()
    async with Journals.open(log_url, store=store) as journals:
        await journals[topic, "e"].append(["a"])
        counts = Counts(journals)
        assert await numbers(journals[topic, "e"]) == [1]
        assert (store.is_asked_by_cache, counts["scans"]) == (True, 1)
