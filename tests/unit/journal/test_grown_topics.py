"""A topic that has got more partitions while nobody was there: journals are not looked for where they are not."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.errors import Repartitioned
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal import Journals, JournalSettings
from exactlog.journal.stores.memory_store import MemoryJournalStore
from tests.unit.journal.replicating import pointer_at, replicating

KEYS = [f"order-{n}" for n in range(8)]
_numbers = itertools.count()


def new_topic(broker, partition_count):
    name = f"growing-{next(_numbers)}"
    broker.create_topic(name, partitions=partition_count)
    return name


async def written(log_url, topic, keys=KEYS):
    async with Journals.open(log_url) as journals:
        for key_id in keys:
            await journals[topic, key_id].append(["a"])


async def grow(log_url, topic, partition_count):
    async with connect(log_url) as client:
        await client.create_partitions(topic, partition_count)


async def ends(log_url, topic, partition_count):
    async with connect(log_url) as client:
        places = [TopicPartition(topic, partition) for partition in range(partition_count)]
        return [listed.offset for listed in (await client.list_offsets(dict.fromkeys(places, LATEST))).values()]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 3), (2, 3), (2, 4), (3, 7), (1, 20)])
async def test_a_program_that_begins_notices_that_the_topic_has_grown(broker, log_url, before, after):
    """Nothing of it is replicated, so that no head row could tell."""
    topic = new_topic(broker, before)
    await written(log_url, topic)
    await grow(log_url, topic, after)
    was = await ends(log_url, topic, after)

    async with Journals.open(log_url, store=MemoryJournalStore()) as journals:
        for key_id in [*KEYS, "new"]:
            journal = journals[topic, key_id]
            for ask in (
                journal.append(["b"]),
                journal.pointer(),
                journal.delete(1),
                journal.purge(),
                journal.mark("x"),
                anext(journal.read()),
                anext(journal.read_replicated()),
            ):
                with pytest.raises(Repartitioned, match=f"has {after} partitions"):
                    await ask
    assert await ends(log_url, topic, after) == was  # nothing was written where it does not belong


async def test_a_program_that_was_there_notices_it_when_it_hears_of_the_topic_again(broker, log_url):
    topic = new_topic(broker, 1)
    async with Journals.open(log_url) as journals:
        await journals[topic, "a"].append(["a"])
        await grow(log_url, topic, 2)
        journals.parts.client._cluster.forget(topic)
        with pytest.raises(Repartitioned, match="had 1 partitions and now has 2"):
            await journals[topic, "a"].pointer()


async def test_a_topic_whose_first_records_are_gone_is_taken_for_what_it_is(broker, log_url):
    """What is left of its journals is in the store, and each head row says where it was."""
    topic, store = new_topic(broker, 1), MemoryJournalStore()
    await written(log_url, topic)
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, (await ends(log_url, topic, 1))[0] - 1)
    async with connect(log_url) as client:
        place = TopicPartition(topic, 0)
        await client.delete_records({place: (await client.list_offsets({place: LATEST}))[place].offset})
    await grow(log_url, topic, 3)

    async with Journals.open(log_url, store=store) as journals:
        for key_id in KEYS:
            moved = partition_of_key(key_id.encode(), partition_count=3) != 0
            if moved:
                with pytest.raises(Repartitioned, match="journal of partition 0 now belongs to"):
                    await journals[topic, key_id].pointer()
            else:
                assert await journals[topic, key_id].pointer() == 1


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(partition_count=st.integers(1, 12), keys=st.lists(st.text(min_size=1, max_size=5), max_size=12, unique=True))
async def test_a_topic_that_has_not_grown_is_never_refused(broker, log_url, partition_count, keys):
    topic = new_topic(broker, partition_count)
    await written(log_url, topic, keys)
    async with Journals.open(log_url, settings=JournalSettings(head_cache=False)) as journals:
        for key_id in keys:
            assert await journals[topic, key_id].pointer() == 1


async def test_records_that_are_no_actions_say_nothing(broker, log_url):
    topic = new_topic(broker, 4)
    async with connect(log_url) as client:
        for partition in range(4):
            await client.produce(topic, [NewRecord(b"x", key=b"anything"), NewRecord(b"y")], partition=partition)
    await written(log_url, topic)


async def test_a_transaction_that_stays_open_does_not_hold_the_look_up(broker, log_url):
    topic = new_topic(broker, 2)
    await written(log_url, topic)
    async with connect(log_url) as client:
        open_one = client.transactional_producer("open-for-long")
        await open_one.begin()
        await open_one.produce(topic, [NewRecord(b"x", key=b"x")], partition=0)
        async with Journals.open(log_url, settings=JournalSettings(no_progress_ms=500)) as journals:
            elsewhere = next(key for key in KEYS if partition_of_key(key.encode(), partition_count=2) == 1)
            assert await journals[topic, elsewhere].pointer() == 1
        await open_one.abort()
