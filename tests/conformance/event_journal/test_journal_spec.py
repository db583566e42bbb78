"""JournalSpec: whatever is replicated, however it was appended, doubled or not, the answers are the same.

kafka-journal asks the same of 13 states of the store and 32 ways to append five events. Here too every case is asked
twice: with the last action in the log only, and with all of it replicated since.
"""

import random

import pytest

from exactlog.core.journal.keys import SEQ_NR_MAX
from exactlog.journal import JournalInputError
from tests.conformance.event_journal.worlds import KEY_ID, REPLICATIONS, SPLITS, WORLDS, World, world_with

SAMPLE = random.Random(3).sample(WORLDS, 30)


def test_the_matrix_is_whole():
    assert (len(REPLICATIONS), len(SPLITS), len(WORLDS)) == (13, 32, 13 * 32 * 4)
    assert len(set(map(str, WORLDS))) == len(WORLDS)


async def read(journal, first=1, last=None):
    records = [record async for record in journal.read(first, last)]
    assert [record.event for record in records] == [str(record.seq_nr) for record in records]
    return [record.seq_nr for record in records]


async def check_reads(journal, *, first, last):
    """The events of a journal are `first` to `last`, all others are gone; `last` 0: it was never there."""
    everything = list(range(first, last + 1))
    assert await read(journal) == everything
    assert await journal.pointer() == (last or None)
    if last:
        assert await read(journal, 1, last) == everything
        assert await read(journal, 1, last + 1) == everything
    assert await read(journal, SEQ_NR_MAX) == []
    for seq_nr in range(1, last + 2):
        assert await read(journal, seq_nr) == [number for number in everything if number >= seq_nr]
        assert await read(journal, seq_nr, seq_nr) == [number for number in everything if number == seq_nr]


async def nothing_is_done(journal, topic, client, last):
    return 1, last


async def mark(journal, topic, client, last):
    await journal.mark("a-mark")
    assert (await topic.actions(client))[-1].action.id == "a-mark"
    return 1, last


async def delete_all(journal, topic, client, last):
    deleted = await journal.delete(max(1, last))
    assert (deleted is None) == (last == 0)
    return last + 1, last


async def delete_beyond(journal, topic, client, last):
    await journal.delete(SEQ_NR_MAX)
    return last + 1, last


async def delete_first(journal, topic, client, last):
    before = await topic.actions(client)
    deleted = await journal.delete(1)
    if last == 0:
        assert deleted is None
        return 1, 0
    assert deleted.offset == before[-1].offset + 2  # a mark, and the delete
    return 2, last


async def delete_all_but_one(journal, topic, client, last):
    if last > 1:
        await journal.delete(last - 1)
    return max(1, last), last


async def purge(journal, topic, client, last):
    await journal.purge()
    return 1, 0


async def purge_and_append(journal, topic, client, last):
    await journal.purge()
    told = await journal.append(["1", "2"])
    assert told.seq_nr == 2
    return 1, 2


async def delete_and_append(journal, topic, client, last):
    await journal.delete(max(1, last))
    told = await journal.append([str(last + 1)])
    assert told.seq_nr == last + 1
    return last + 1, last + 1


STEPS = (
    nothing_is_done,
    mark,
    delete_all,
    delete_beyond,
    delete_first,
    delete_all_but_one,
    purge,
    purge_and_append,
    delete_and_append,
)


async def check(broker, log_url, world, *, steps=STEPS, store=None):
    for step in steps:
        async with world_with(broker, log_url, world, store=store) as (journal, topic, client):
            if step is nothing_is_done:
                await check_reads(journal, first=1, last=world.last)
            first, last = await step(journal, topic, client, world.last)
            await check_reads(journal, first=first, last=last)
            await topic.replicate(client)
            await check_reads(journal, first=first, last=last)


@pytest.mark.parametrize("world", SAMPLE, ids=str)
async def test_the_answers_are_the_same_in_every_world(broker, log_url, world):
    await check(broker, log_url, world)


@pytest.mark.long
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: "+".join(str(len(group)) for group in split) or "none")
async def test_the_answers_are_the_same_in_the_whole_matrix(broker, log_url, split):
    for world in WORLDS:
        if world.split == split:
            await check(broker, log_url, world)


@pytest.mark.parametrize("has_cache", [False, True])
@pytest.mark.parametrize("replication", REPLICATIONS, ids=lambda replication: replication.name)
async def test_deletes_between_appends(broker, log_url, replication, has_cache):
    world = World(((1,),), replication, is_doubled=False, has_cache=has_cache)
    async with world_with(broker, log_url, world) as (journal, topic, client):
        await journal.delete(3)
        await journal.append(["2", "3"])
        await journal.delete(2)
        await journal.append(["4"])
        for behind in (None, 2, 0):
            if behind is not None:
                await topic.replicate(client, behind=behind)
            bounds = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
            assert [await read(journal, *pair) for pair in bounds] == [[], [3], [3, 4], [4], []]
            assert await journal.pointer() == 4
        await journal.purge()
        assert await read(journal) == []
        assert await journal.pointer() is None


async def test_a_purge_in_the_head_hides_what_the_store_still_has(broker, log_url):
    """The store has events 1 to 10; the log ahead of it has a purge, and events 1 and 2 of a new life."""
    world = World((tuple(range(1, 11)),), REPLICATIONS[2], is_doubled=False, has_cache=False)
    async with world_with(broker, log_url, world) as (journal, topic, client):
        await journal.purge()
        await topic.write(client, KEY_ID, [1])
        await topic.write(client, KEY_ID, [2])
        assert [record.seq_nr async for record in journal.read()] == [1, 2]
        assert await journal.pointer() == 2


async def test_a_range_that_is_none_is_refused(broker, log_url):
    async with world_with(broker, log_url, WORLDS[0]) as (journal, _, _):
        for first, last in ((0, None), (-1, 4), (3, 2), (1, 2**63), (2**63, None)):
            with pytest.raises(JournalInputError):
                await read(journal, first, last)
        with pytest.raises(JournalInputError):
            await journal.delete(0)


THOUSAND = tuple((n,) for n in range(1, 1001))


LONG = pytest.mark.long
WHERE = [
    pytest.param(0, False, True, id="log-cached"),
    pytest.param(500, False, False, id="half-and-half"),
    pytest.param(500, True, True, id="half-and-half-doubled-cached"),
    pytest.param(1000, False, False, id="store"),
    pytest.param(0, False, False, id="log", marks=LONG),
    pytest.param(0, True, False, id="log-doubled", marks=LONG),
    pytest.param(0, True, True, id="log-doubled-cached", marks=LONG),
    pytest.param(500, False, True, id="half-and-half-cached", marks=LONG),
    pytest.param(500, True, False, id="half-and-half-doubled", marks=LONG),
    pytest.param(1000, True, True, id="store-doubled-cached", marks=LONG),
]


@pytest.mark.parametrize(("replicated", "is_doubled", "has_cache"), WHERE)
async def test_a_thousand_events_wherever_they_are(broker, log_url, replicated, is_doubled, has_cache):
    world = World(THOUSAND, REPLICATIONS[0], is_doubled=is_doubled, has_cache=has_cache)
    async with world_with(broker, log_url, world) as (journal, topic, client):
        await topic.replicate(client, behind=(1000 - replicated) * (1 + is_doubled))
        for _ in range(2):  # cold, then warm
            assert await read(journal) == list(range(1, 1001))
            assert await read(journal, 501) == list(range(501, 1001))
        for to in range(1, 500, 10):
            await journal.delete(to)
        assert await read(journal) == list(range(492, 1001))
        await journal.delete(SEQ_NR_MAX)
        assert await read(journal) == []
        assert await journal.pointer() == 1000
        await journal.purge()
        assert await read(journal) == []
        assert await journal.pointer() is None
