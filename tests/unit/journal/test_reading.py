"""Reading: what is deleted stays deleted, waits are bounded, what is lost is told."""

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.errors import (
    HeadLost,
    JournalDeleted,
    JournalInputError,
    NotYetReplicated,
    Repartitioned,
    Retriable,
)
from exactlog.core.journal.event_journal_format import ACTION_HEADER, encode_action
from exactlog.core.journal.keys import JournalKey, SeqRange
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal import Conflict, Journals, JournalSettings
from exactlog.journal.stores.memory_store import MemoryJournalStore
from tests.unit.journal.replicating import pointer_at, replicating


async def numbers(journal, *bounds):
    return [record.seq_nr async for record in journal.read(*bounds)]


async def test_a_journal_that_was_never_written_to_is_empty(journal):
    assert await numbers(journal) == []
    assert await journal.pointer() is None
    assert await journal.delete(3) is None
    assert await journal.latest_snapshot() is None


async def test_a_delete_takes_what_there_is_and_nothing_that_comes_after_it(journal):
    await journal.append(["a", "b", "c"])
    await journal.delete(100)
    await journal.append(["d"])

    assert await numbers(journal) == [4]
    assert await journal.pointer() == 4


async def test_a_purge_on_terms_leaves_a_journal_that_is_otherwise(journal):
    await journal.append(["a", "b"])

    with pytest.raises(Conflict) as refused:
        await journal.purge(expect=1)
    assert refused.value.actual == 2
    assert await numbers(journal) == [1, 2]
    await journal.purge(expect=2)
    assert await journal.pointer() is None
    assert (await journal.append(["new"])).seq_nr == 1


async def test_marks_change_nothing(journal):
    await journal.append(["a"])
    place = await journal.mark("here")

    assert place.offset > 0
    assert await numbers(journal) == [1]


async def test_snapshots_are_of_a_life_and_go_with_it(journals, journal, log_url, store, topic):
    await journal.append(["a", "b", "c"])
    assert await journal.snapshot({"sum": 2}, seq_nr=2, metadata={"by": "me"}) == 2
    assert await journal.snapshot({"sum": 3}) == 3

    newest, older = await journal.latest_snapshot(), await journal.latest_snapshot(to_seq=2)
    assert (newest.seq_nr, newest.state, older.state, older.metadata) == (3, {"sum": 3}, {"sum": 2}, {"by": "me"})
    with pytest.raises(JournalInputError):
        await journal.snapshot({}, seq_nr=4)
    await journal.delete(3)
    assert (await journal.latest_snapshot()).seq_nr == 3

    await journal.purge()
    assert await journal.latest_snapshot() is None
    await journal.append(["new"])
    assert await journal.latest_snapshot() is None
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, (await journal.mark("x")).offset)
    assert await journal.latest_snapshot() is None
    with pytest.raises(JournalInputError):
        await journals[topic, "other"].snapshot({})


async def test_a_transaction_that_stays_open_is_waited_for_no_longer_than_allowed(log_url, store, topic):
    settings = JournalSettings(no_progress_ms=150, cache_wait_ms=50)
    async with Journals.open(log_url, store=store, settings=settings) as journals, connect(log_url) as client:
        producer = client.transactional_producer("open-for-long")
        await producer.begin()
        await producer.produce(topic, [NewRecord(b"x", key=b"e")])
        with pytest.raises(Retriable, match="nothing came for 150 ms"):
            await journals[topic, "e"].pointer()
        await producer.abort()
        assert await journals[topic, "e"].pointer() is None


async def test_what_was_aborted_is_not_read_and_what_was_committed_is(journals, topic, log_url):
    key = JournalKey(topic, "e")

    def append(text, last):
        action = new_append([NewEvent(TextPayload(text))], last_seq_nr=last)
        return encode_action(key, action, timestamp_ms=1)

    async with connect(log_url) as client:
        producer = client.transactional_producer("some")
        for is_kept in (True, False, True):
            await producer.begin()
            last = (await journals[topic, "other"].append(["o"])).seq_nr
            await producer.produce(topic, [append(str(is_kept), 0 if last == 1 else 1)])
            await (producer.commit() if is_kept else producer.abort())
    assert [record.event async for record in journals[topic, "e"].read()] == ["True", "True"]


@pytest.mark.parametrize("has_cache", [False, True])
async def test_a_head_that_retention_took_is_told(log_url, store, topic, has_cache):
    async with (
        Journals.open(log_url, store=store, settings=JournalSettings(head_cache=has_cache)) as journals,
        connect(log_url) as client,
    ):
        told = await journals[topic, "e"].append(["a"])
        await client.delete_records({TopicPartition(topic, 0): Offset(told.offset + 1)})
        with pytest.raises(HeadLost):
            await numbers(journals[topic, "e"])
        if not has_cache:  # a cache had seen that there is nothing of others
            with pytest.raises(HeadLost):
                await journals[topic, "other"].pointer()


async def test_what_was_replicated_before_retention_took_it_is_read(journals, log_url, store, topic):
    told = await journals[topic, "e"].append(["a"])
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, told.offset)
    async with connect(log_url) as client:
        await client.delete_records({TopicPartition(topic, 0): Offset(told.offset + 1)})
    await journals[topic, "e"].append(["b"])
    assert await numbers(journals[topic, "e"]) == [1, 2]


async def test_a_topic_that_has_grown_is_refused(log_url, store, broker):
    topic = "growing"
    broker.create_topic(topic, partitions=1)
    async with Journals.open(log_url, store=store) as journals, connect(log_url) as client:
        keys = [f"e{n}" for n in range(8)]
        for key_id in keys:
            told = await journals[topic, key_id].append(["a"])
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)
        await client.create_partitions(topic, 3)
    async with Journals.open(log_url, store=store) as journals:
        for key_id in keys:
            with pytest.raises(Repartitioned):
                await numbers(journals[topic, key_id])


async def test_an_action_that_cannot_be_read_fails_its_journal_and_no_other(journals, topic, log_url):
    await journals[topic, "bad"].append(["a"])
    async with connect(log_url) as client:
        await client.produce(topic, [NewRecord(b"x", key=b"bad", headers=[(ACTION_HEADER, b"no json")])])
    await journals[topic, "good"].append(["a"])

    with pytest.raises(DecodeError, match="offset"):
        await numbers(journals[topic, "bad"])
    assert await numbers(journals[topic, "good"]) == [1]


class PagingStore(MemoryJournalStore):
    """Reads two numbers at a time, and lets something happen after the first row."""

    happen = None

    async def rows(self, key, head, seq_range):
        for first in range(seq_range.first, min(seq_range.last, head.seq_nr) + 1, 2):
            async for row in super().rows(key, head, SeqRange(first, first + 1)):
                yield row
            if self.happen is not None:
                happen, self.happen = self.happen, None
                await happen()


@pytest.mark.parametrize("what", ["purge", "delete"])
async def test_events_that_go_while_they_are_read_are_told(log_url, topic, what):
    store = PagingStore(segment_size=2)
    async with Journals.open(log_url, store=store) as journals:
        journal = journals[topic, "e"]
        told = await journal.append([str(n) for n in range(10)])
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)

            async def happen():
                place = await (journal.purge() if what == "purge" else journal.delete(6))
                await pointer_at(store, topic, place.offset)

            store.happen = happen
            with pytest.raises(JournalDeleted):
                await numbers(journal)


async def test_gaps_are_no_deletes(log_url, store, topic):
    from exactlog.journal import Envelope

    async with Journals.open(log_url, store=store) as journals:
        told = await journals[topic, "e"].append([Envelope("a", seq_nr=2), Envelope("b", seq_nr=5)])
        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, told.offset)
        assert await numbers(journals[topic, "e"]) == [2, 5]
        assert await numbers(journals[topic, "e"], 3, 4) == []


async def test_the_store_alone_says_when_it_has_not_come_so_far(journal, log_url, store, topic):
    first = await journal.append(["a", "b"])
    with pytest.raises(NotYetReplicated):
        [record async for record in journal.read_replicated(at_least=first)]
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, first.offset)
    await journal.append(["c"])
    assert [record.event async for record in journal.read_replicated(at_least=first)] == ["a", "b"]
    assert [record.event async for record in journal.read_replicated(2)] == ["b"]


async def test_a_reader_may_stop_at_any_time(journal):
    await journal.append([str(n) for n in range(100)])
    async for record in journal.read():
        if record.seq_nr == 3:
            break
    assert await journal.pointer() == 100
