"""Transactions over several journals: all of it counts, or nothing."""

import asyncio

import pytest

from exactlog.client.adapters import connect
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal import (
    NO_STREAM,
    Conflict,
    Envelope,
    Fenced,
    ForkedJournalError,
    Journals,
    JournalSettings,
    Retriable,
)


@pytest.fixture
def topic(broker, request):
    name = f"{request.node.name.replace('[', '-').replace(']', '')}"[:200]
    broker.create_topic(name, partitions=3)
    return name


async def events(journal):
    return [record.event async for record in journal.read()]


async def test_all_appends_of_a_transaction_count(journals, topic):
    keys = [journals[topic, f"e{n}"] for n in range(6)]
    await keys[0].append(["before"])
    async with journals.transaction() as transaction:
        pending = [transaction.append(journal, ["a", "b"]) for journal in keys]
        second = transaction.append(keys[5], ["c"])
        assert pending[0].appended is None

    assert [one.appended.seq_nr for one in (*pending, second)] == [3, 2, 2, 2, 2, 2, 3]
    assert await events(keys[0]) == ["before", "a", "b"]
    assert await events(keys[5]) == ["a", "b", "c"]
    assert (await keys[5].append(["d"])).seq_nr == 4


async def test_one_conflict_leaves_nothing_of_all(journals, topic):
    first, second = journals[topic, "a"], journals[topic, "b"]
    await second.append(["there"])

    with pytest.raises(Conflict) as refused:  # noqa: PT012  the block is what is tested
        async with journals.transaction() as transaction:
            transaction.append(first, ["x"])
            transaction.append(second, ["y"], NO_STREAM)

    assert (refused.value.key, refused.value.actual) == (second.key, 1)
    assert [record.event for record in refused.value.events] == ["there"]
    assert await events(first) == []
    assert await events(second) == ["there"]


async def test_an_exception_in_the_block_writes_nothing(journals, topic):
    with pytest.raises(RuntimeError):  # noqa: PT012  the block is what is tested
        async with journals.transaction() as transaction:
            transaction.append(journals[topic, "a"], ["x"])
            raise RuntimeError

    assert await events(journals[topic, "a"]) == []


async def test_numbers_that_were_given_fail_the_transaction(journals, topic):
    await journals[topic, "a"].append(["x", "y"])
    with pytest.raises(ForkedJournalError):  # noqa: PT012  the block is what is tested
        async with journals.transaction() as transaction:
            transaction.append(journals[topic, "b"], ["z"])
            transaction.append(journals[topic, "a"], [Envelope("x", seq_nr=2)])
    assert await events(journals[topic, "b"]) == []


async def test_offsets_of_consumers_are_part_of_it(journals, topic, log_url):
    place = TopicPartition(topic, 1)
    async with connect(log_url) as client:
        async with journals.transaction() as transaction:
            transaction.append(journals[topic, "a"], ["x"])
            transaction.commit_offsets("readers", {place: 5})
        assert (await client.list_committed_offsets("readers"))[place].offset == 5
        with pytest.raises(Conflict):  # noqa: PT012  the block is what is tested
            async with journals.transaction() as transaction:
                transaction.append(journals[topic, "a"], ["x"], NO_STREAM)
                transaction.commit_offsets("readers", {place: 9})
        assert (await client.list_committed_offsets("readers"))[place].offset == 5


async def test_transactions_and_appends_beside_each_other_lose_and_double_nothing(log_url, store, topic):
    async with Journals.open(log_url, store=store) as one, Journals.open(log_url, store=store) as other:

        async def transact(journals, name, keys):
            for n in range(4):
                async with journals.transaction(name) as transaction:
                    for key_id in keys:
                        transaction.append(journals[topic, key_id], [f"{name}-{n}"])

        async def append(journals, name):
            for n in range(6):
                await journals[topic, f"e{n % 3}"].append([f"{name}-{n}"])

        keys = ["e0", "e1", "e2"]
        await asyncio.gather(
            transact(one, "t1", keys), transact(other, "t2", keys[::-1]), append(one, "a1"), append(other, "a2")
        )
        found = {key_id: await events(one[topic, key_id]) for key_id in keys}
    for n, key_id in enumerate(keys):
        expected = [f"{name}-{k}" for name in ("t1", "t2") for k in range(4)]
        expected += [f"{name}-{k}" for name in ("a1", "a2") for k in (n, n + 3)]
        assert sorted(found[key_id]) == sorted(expected)


async def test_the_writer_that_came_later_fences_the_one_before(log_url, store, topic):
    async with Journals.open(log_url, store=store) as old, Journals.open(log_url, store=store) as new:
        for journals in (old, new):
            async with journals.transaction("same") as transaction:
                transaction.append(journals[topic, "a"], ["x"])
        with pytest.raises(Fenced):
            async with old.transaction("same") as transaction:
                transaction.append(old[topic, "a"], ["late"])
        assert await events(new[topic, "a"]) == ["x", "x"]


async def test_a_transaction_of_others_is_waited_for_no_longer_than_allowed(log_url, store, topic):
    settings = JournalSettings(no_progress_ms=200, head_cache=False)
    async with (
        Journals.open(log_url, store=store) as patient,
        Journals.open(log_url, store=store, settings=settings) as journals,
        connect(log_url) as client,
    ):
        await patient[topic, "a"].append(["x"])
        producer = client.transactional_producer("others")
        await producer.begin()
        told = await patient[topic, "a"].append(["y"])
        await producer.produce(topic, [NewRecord(b"x", key=b"a")], partition=told.partition)
        with pytest.raises(Retriable):
            async with journals.transaction() as transaction:
                transaction.append(journals[topic, "a"], ["z"])
        await producer.abort()
        assert await events(patient[topic, "a"]) == ["x", "y"]
