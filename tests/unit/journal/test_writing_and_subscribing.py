"""Loading to write, following a topic, purging what is expired, the synchronous twin."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.errors import HeadLost, JournalInputError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal import Conflict, Envelope, Journals
from tests.unit.journal.replicating import pointer_at, replicating


class Added(msgspec.Struct, tag="added"):
    amount: int


class Account(msgspec.Struct, tag="account"):
    balance: int = 0
    seen: int = 0


def evolve(account, event):
    return Account(account.balance + event.amount, account.seen + 1)


@pytest.fixture
async def journals(log_url, store):
    async with Journals.open(log_url, store=store, events=[Added, Account]) as journals:
        yield journals


async def test_what_is_decided_from_a_state_counts_if_it_is_still_the_state(journals, topic):
    journal = journals[topic, "account"]
    for _ in range(3):
        async with journal.for_writing(Account, evolve) as account:
            account.append(Added(account.state.balance + 1))
        assert account.appended is not None

    assert [record.event.amount async for record in journal.read()] == [1, 2, 4]
    with pytest.raises(Conflict) as refused:  # noqa: PT012  the block is what is tested
        async with journal.for_writing(Account, evolve) as account:
            await journal.append([Added(10)])
            account.append(Added(account.state.balance))
    assert (refused.value.expected.seq_nr, refused.value.actual) == (3, 4)
    assert [record.event.amount for record in refused.value.events] == [10]


async def test_a_snapshot_spares_the_events_before_it(journals, topic):
    journal = journals[topic, "account"]
    await journal.append([Added(1), Added(2), Added(3)])
    await journal.snapshot(Account(3, 100), seq_nr=2)
    await journal.delete(2)

    async with journal.for_writing(Account, evolve) as account:
        assert (account.state, account.seq_nr) == (Account(6, 101), 3)
    assert account.appended is None


async def test_a_block_that_fails_appends_nothing(journals, topic):
    with pytest.raises(RuntimeError):  # noqa: PT012  the block is what is tested
        async with journals[topic, "account"].for_writing(Account, evolve) as account:
            account.append(Added(1))
            raise RuntimeError
    assert await journals[topic, "account"].pointer() is None


async def taken(journals, topic, *arguments, **options):
    return [
        (event.key_id, event.record.seq_nr, event.record.event)
        async for event in journals.subscribe(topic, *arguments, follow=False, **options)
    ]


async def test_a_subscription_tells_all_events_that_count_in_their_order(journals, topic):
    await journals[topic, "a"].append([Added(1), "text"])
    second = await journals[topic, "b"].append([Envelope(Added(2), frozenset({"big"}))])
    with pytest.raises(Conflict):
        await journals[topic, "b"].append([Added(3)], 7)
    await journals[topic, "a"].purge()
    await journals[topic, "a"].append([Added(4)])

    everything = [("a", 1, Added(1)), ("a", 2, "text"), ("b", 1, Added(2)), ("a", 1, Added(4))]
    assert await taken(journals, topic) == everything
    assert await taken(journals, topic, second.offset) == everything[2:]
    assert await taken(journals, topic, types=[str]) == everything[1:2]
    assert await taken(journals, topic, tags=["big", "other"]) == everything[2:3]


async def test_a_subscription_follows(journals, topic):
    await journals[topic, "a"].append([Added(1)])
    subscription = journals.subscribe(topic)
    assert (await anext(subscription)).record.event == Added(1)
    waiting = asyncio.ensure_future(anext(subscription))
    await journals[topic, "b"].append([Added(2)])
    assert (await waiting).key_id == "b"
    await subscription.aclose()


async def test_a_topic_of_many_partitions_has_no_one_order(journals, broker):
    broker.create_topic("many-partitions", partitions=2)
    with pytest.raises(JournalInputError, match="2 partitions"):
        await taken(journals, "many-partitions")
    with pytest.raises(JournalInputError):
        await taken(journals, "many-partitions", -1)


async def test_a_subscription_to_a_topic_without_its_beginning_is_refused(journals, topic, log_url):
    told = await journals[topic, "a"].append([Added(1)])
    await journals[topic, "a"].append([Added(2)])
    async with connect(log_url) as client:
        await client.delete_records({TopicPartition(topic, 0): Offset(told.offset + 1)})
    with pytest.raises(HeadLost):
        await taken(journals, topic)


async def test_journals_whose_time_is_over_are_purged_and_no_others(journals, topic, log_url, store):
    today = datetime.now(UTC).date()
    await journals[topic, "over"].append(["x"], expire_after="1 minute")
    await journals[topic, "extended"].append(["x"], expire_after=timedelta(minutes=1))
    told = await journals[topic, "kept"].append(["x"])
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, told.offset)
    await journals[topic, "extended"].append(["y"], expire_after="30 days")  # not replicated yet

    yesterday = today - timedelta(days=1)
    assert await journals.purge_expired(today=yesterday) == 0
    assert await journals.purge_expired(today=today + timedelta(days=5)) == 2

    assert await journals[topic, "over"].pointer() is None
    assert await journals[topic, "extended"].pointer() == 2
    assert await journals[topic, "kept"].pointer() == 1
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, (await journals[topic, "kept"].mark("x")).offset)
    assert await journals.purge_expired(today=today + timedelta(days=5)) == 0
    assert await journals.purge_expired([topic], today=today + timedelta(days=40)) == 1
