"""Event journals on a real Apache Kafka, with a store in a file and one in a real Apache Cassandra."""

import asyncio
import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.read_plan import ReadPath
from exactlog.core.model.ids import TopicPartition
from exactlog.journal import NO_STREAM, Conflict, Envelope, ForkedJournalError, Journals, JournalSettings
from exactlog.journal.stores.store_url import journal_store
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply, seq_nrs
from tests.conformance.event_journal.test_journal_spec import check
from tests.conformance.event_journal.worlds import WORLDS
from tests.unit.journal.replicating import pointer_at, replicating

pytestmark = [pytest.mark.peer, pytest.mark.slow]

_numbers = itertools.count()
UNCACHED, CACHED = JournalSettings(head_cache=False), JournalSettings()


@pytest.fixture
def log_url(apache_kafka):
    return f"kafka://{apache_kafka.bootstrap_servers}"


@pytest.fixture(params=["sqlite", "cassandra"])
async def store(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'journals.db'}"
    if request.param == "cassandra":
        url = f"cassandra://127.0.0.1:{request.getfixturevalue('apache_cassandra').port}/journals_{next(_numbers)}"
    async with journal_store(url, segment_size=2) as store:
        yield store


@pytest.fixture
async def topic(log_url):
    name = f"event-journals-{next(_numbers)}"
    async with connect(log_url) as client:
        await client.create_topic(name, partition_count=2)
    return name


async def numbers(journal, *bounds):
    return [record.seq_nr async for record in journal.read(*bounds)]


async def replicate_all(log_url, store, topic, journal):
    """All that is in the partition of a journal by now; then the replicator is off again."""
    place = await journal.mark("replicate up to here")
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, place.offset, partition=place.partition)


@pytest.mark.parametrize("settings", [UNCACHED, CACHED], ids=["log", "head cache"])
async def test_events_are_read_by_every_path(log_url, store, topic, settings):
    async with Journals.open(log_url, store=store, settings=settings) as journals:
        journal, other = journals[topic, "order-7"], journals[topic, "order-8"]

        async def read(path, expected, *bounds):
            before = journals.metrics.reads[path].value
            assert await numbers(journal, *bounds) == expected
            assert journals.metrics.reads[path].value == before + 1

        await read(ReadPath.NOTHING, [])
        await journal.append([str(n) for n in range(1, 6)], NO_STREAM, metadata={"by": "a"}, headers={"h": "v"})
        await other.append(["x"])
        await read(ReadPath.LOG, [1, 2, 3, 4, 5])
        await replicate_all(log_url, store, topic, journal)
        await read(ReadPath.STORE, [1, 2, 3, 4, 5])
        await journal.append(["6", "7"], 5)
        await read(ReadPath.STORE_THEN_LOG, [1, 2, 3, 4, 5, 6, 7])
        await read(ReadPath.STORE_THEN_LOG, [4, 5, 6], 4, 6)
        await read(ReadPath.LOG, [6, 7], 6)
        await read(ReadPath.STORE, [2, 3], 2, 3)
        assert [record.seq_nr async for record in journal.read_replicated()] == [1, 2, 3, 4, 5]
        (first,) = [record async for record in journal.read(1, 1)]
        assert (first.event, first.metadata, first.headers) == ("1", {"by": "a"}, {"h": "v"})


@pytest.mark.parametrize("is_replicated", [False, True], ids=["replication off", "replication on"])
async def test_deletes_and_purges_count_at_once(log_url, store, topic, is_replicated):
    async with Journals.open(log_url, store=store, settings=CACHED) as journals:
        journal = journals[topic, "order-7"]

        async def answers(events, pointer):
            assert (await numbers(journal), await journal.pointer()) == (events, pointer)
            if is_replicated:
                await replicate_all(log_url, store, topic, journal)
                assert (await numbers(journal), await journal.pointer()) == (events, pointer)

        await journal.append([str(n) for n in range(1, 8)])
        await answers([1, 2, 3, 4, 5, 6, 7], 7)
        assert await journal.snapshot({"sum": 6}, seq_nr=3) == 3
        await journal.delete(3)
        await answers([4, 5, 6, 7], 7)
        assert (await journal.latest_snapshot()).state == {"sum": 6}
        await journal.delete(2**63 - 1)
        await answers([], 7)
        assert (await journal.append(["8"])).seq_nr == 8
        await answers([8], 8)
        await journal.purge()
        await answers([], None)
        assert await journal.latest_snapshot() is None
        assert (await journal.append(["anew"], NO_STREAM)).seq_nr == 1
        await answers([1], 1)
        with pytest.raises(Conflict):
            await journal.purge(expect=5)
        await answers([1], 1)


async def test_of_two_writers_that_expect_the_same_exactly_one_wins(log_url, store, topic):
    rounds = 20
    async with (
        Journals.open(log_url, store=store, settings=CACHED) as one,
        Journals.open(log_url, store=store, settings=UNCACHED) as other,
        replicating(log_url, store, topic) as replicator,
    ):

        async def write(journals, name, last):
            try:
                return await journals[topic, "order-7"].append([f"{name}-{last}"], last or NO_STREAM)
            except Conflict as conflict:
                return conflict

        winners = []
        for last in range(rounds):
            told = await asyncio.gather(write(one, "one", last), write(other, "other", last))
            won = [
                name for name, answer in zip(("one", "other"), told, strict=True) if not isinstance(answer, Conflict)
            ]
            assert len(won) == 1
            assert [answer.actual for answer in told if isinstance(answer, Conflict)] == [last + 1]
            winners.append(f"{won[0]}-{last}")
        place = await one[topic, "order-7"].mark("x")
        await pointer_at(store, topic, place.offset, partition=place.partition)
        for journals in (one, other):
            assert [record.event async for record in journals[topic, "order-7"].read()] == winners
        assert [record.event async for record in one[topic, "order-7"].read_replicated()] == winners
        assert (replicator.metrics.refused.value, replicator.metrics.forks.value) == (rounds, 0)


async def test_replication_goes_off_and_on_and_nothing_is_missing_or_doubled(log_url, store, topic):
    keys = [f"order-{n}" for n in range(8)]
    async with Journals.open(log_url, store=store, settings=CACHED) as journals:

        async def write(count):
            for _ in range(count):
                await asyncio.gather(*(journals[topic, key_id].append([key_id]) for key_id in keys))

        async def check(last):
            for key_id in keys:
                assert await numbers(journals[topic, key_id]) == list(range(1, last + 1))

        await write(3)
        await check(3)
        async with replicating(log_url, store, topic):
            await write(3)
            await check(6)
        await write(3)
        await check(9)
        async with replicating(log_url, store, topic):
            for key_id in keys:
                place = await journals[topic, key_id].mark("x")
                await pointer_at(store, topic, place.offset, partition=place.partition)
        for key_id in keys:
            assert [record.seq_nr async for record in journals[topic, key_id].read_replicated()] == list(range(1, 10))
        await check(9)


async def test_a_transaction_of_two_journals_counts_whole_or_not_at_all(log_url, store, topic):
    async with Journals.open(log_url, store=store, settings=CACHED) as journals:
        one, other = journals[topic, "a"], journals[topic, "b"]
        async with journals.transaction() as transaction:
            transaction.append(one, ["1"], NO_STREAM)
            transaction.append(other, ["1"], NO_STREAM)
        with pytest.raises(Conflict):  # noqa: PT012  the block is what is tested
            async with journals.transaction() as transaction:
                transaction.append(one, ["2"], 1)
                transaction.append(other, ["2"], 7)
        for journal in (one, other):
            await replicate_all(log_url, store, topic, journal)
            assert await numbers(journal) == [1]


async def test_without_expectations_a_fork_is_told_to_its_writer_and_by_the_replicator(log_url, store, topic):
    async with (
        Journals.open(log_url, store=store, settings=CACHED) as one,
        Journals.open(log_url, store=store, settings=UNCACHED) as other,
    ):
        await one[topic, "order-7"].append([Envelope("first", seq_nr=1), Envelope("second", seq_nr=2)])
        with pytest.raises(ForkedJournalError, match="had come to 2"):
            await other[topic, "order-7"].append([Envelope("forked", seq_nr=2)])
        told = await asyncio.gather(*(each[topic, "order-7"].append(["x"]) for each in (one, other) for _ in range(5)))
        assert sorted(answer.seq_nr for answer in told) == list(range(3, 13))
        place = await one[topic, "order-7"].mark("x")
        async with replicating(log_url, store, topic) as replicator:
            await pointer_at(store, topic, place.offset, partition=place.partition)
            assert replicator.metrics.forks.value == 1
        assert [record.event async for record in one[topic, "order-7"].read()] == ["first", "second", *["x"] * 10]


# --- a sample of kafka-journal's own matrix ---------------------------------------------------------------------------


class RealTopics:
    """Makes topics as a broker of a test does; every client finds them when it returns."""

    def __init__(self, log_url):
        self._log_url = log_url

    def create_topic(self, name, *, partitions, config):
        with ThreadPoolExecutor(1) as threads:  # a loop of its own: who calls does not await
            threads.submit(asyncio.run, self._create(name, partitions, config)).result()

    async def _create(self, name, partitions, config):
        configs = {key: str(value) for key, value in config.items()}
        async with connect(self._log_url) as client:
            await client.create_topic(name, partition_count=partitions, configs=configs)


SAMPLE = random.Random(4).sample(WORLDS, 4)


@pytest.mark.parametrize("world", SAMPLE, ids=str)
async def test_the_answers_are_those_of_the_matrix(log_url, store, world):
    await check(RealTopics(log_url), log_url, world, store=store)


# --- Apache Cassandra, and replicators that have lost their partition -------------------------------------------------


@pytest.mark.parametrize("store", ["cassandra"], indirect=True)
@pytest.mark.parametrize("is_there", [False, True], ids=["create", "move"])
async def test_a_replicator_that_lost_its_partition_cannot_move_the_pointer_back(store, monkeypatch, is_there):
    """It has looked where the pointer is; then the one that has the partition now moves it."""
    place = TopicPartition("taken-over", 0)
    partition = store.topic(place.topic).partition(0)
    if is_there:
        await partition.create_pointer(5, now_ms=1)
    looked = await store.pointer(place)

    async def pointer_before(_):
        return looked

    await partition.move_pointer(20, now_ms=2)
    with monkeypatch.context() as zombie:
        zombie.setattr(store, "pointer", pointer_before)
        await partition.move_pointer(10, now_ms=3)

    pointer = await store.pointer(place)
    assert (pointer.offset, pointer.updated_ms) == (20, 2)


@pytest.mark.parametrize("store", ["cassandra"], indirect=True)
async def test_the_pointer_ends_where_the_furthest_of_many_replicators_has_come(store):
    partition = store.topic("all-at-once").partition(0)
    offsets = [3, 17, 1, 12, 16, 9, 17, 2]
    await asyncio.gather(*(partition.move_pointer(offset, now_ms=offset) for offset in offsets))
    assert (await partition.pointer()).offset == 17
    assert await store.head(JournalKey("all-at-once", "nobody")) is None


@pytest.mark.parametrize("store", ["cassandra"], indirect=True)
@pytest.mark.parametrize("late", ["append", "delete", "purge"])
async def test_a_replicator_that_lost_its_partition_changes_nothing_of_what_the_next_one_wrote(
    store, monkeypatch, late
):
    """It stands still between reading the head row and what it makes of it, while the next one goes on and on."""
    key, script = JournalKey(f"taken-over-{late}", "a"), ActionScript(JournalKey(f"taken-over-{late}", "a"))
    await apply(store, script.append(1, 2, 3))
    do_late = {"append": script.append(4), "delete": script.delete(3), "purge": script.purge()}[late]
    then = (
        [script.append(4, 5), script.append(6)]
        if late == "delete"
        else [script.append(1, 2, 3, 4, 5), script.append(6)]
    )
    goes_on, looked = asyncio.Event(), store.located_head

    async def located_head(_):
        found = await looked(key)
        goes_on.set()
        await next_is_done.wait()
        return found

    next_is_done = asyncio.Event()
    monkeypatch.setattr(store, "located_head", located_head)
    zombie = asyncio.create_task(apply(store, do_late))
    await goes_on.wait()
    monkeypatch.setattr(store, "located_head", looked)
    await apply(store, do_late, *then, at_once=False)
    head, stored = await store.head(key), await seq_nrs(store, key)
    next_is_done.set()
    await zombie

    assert await store.head(key) == head
    assert await seq_nrs(store, key) == stored
    assert head.seq_nr == 6
