"""The embedded replicator: what is in the log comes into the store, whatever happens on the way."""

import asyncio

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.event_journal_format import ACTION_HEADER, encode_action
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, SeqRange
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.record_format import Record
from exactlog.journal import Journals, partition_replicator
from exactlog.journal.parking import SkippedRecord
from exactlog.journal.partition_replicator import ActionApplier, PartitionReplicator
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.node.clock import SystemClock
from tests.unit.journal.replicating import pointer_at, replicating, until


async def stored(store, topic, key_id):
    key = JournalKey(topic, key_id)
    head = await store.head(key)
    if head is None:
        return None
    return head.seq_nr, [row.seq_nr async for row in store.rows(key, head, SeqRange(1, SEQ_NR_MAX))]


async def is_stored(store, topic, last_numbers):
    return {key_id: (await stored(store, topic, key_id) or (0,))[0] for key_id in last_numbers} == last_numbers


async def test_what_is_in_the_log_comes_into_the_store(journals, log_url, store, topic):
    first = journals[topic, "a"]
    await first.append(["1", "2"])
    async with replicating(log_url, store, topic) as replicator:
        await first.append(["3"])
        await first.delete(1)
        last = await journals[topic, "b"].append(["1"])
        await pointer_at(store, topic, last.offset)

    assert await stored(store, topic, "a") == (3, [2, 3])
    assert await stored(store, topic, "b") == (1, [1])
    assert replicator.metrics.snapshot()["exactlog_replicator_parked"] == 0


async def test_a_purge_leaves_nothing(journals, log_url, store, topic):
    journal = journals[topic, "a"]
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, (await journal.append(["1", "2"])).offset)
        await pointer_at(store, topic, (await journal.purge()).offset)
        assert await stored(store, topic, "a") is None
        told = await journal.append(["new"])
        await pointer_at(store, topic, told.offset)

    assert told.seq_nr == 1
    assert await stored(store, topic, "a") == (1, [1])


async def put(log_url, topic, key, value=b"x", header=b"not json"):
    async with connect(log_url) as client:
        (produced,) = await client.produce(topic, [NewRecord(value, key=key, headers=[(ACTION_HEADER, header)])])
    return produced.offset


async def test_a_record_that_cannot_be_read_parks_its_journal_and_no_other(journals, log_url, store, topic):
    await journals[topic, "bad"].append(["1"])
    poison = await put(log_url, topic, b"bad")
    await put(
        log_url,
        topic,
        b"bad",
        header=b'{"append":{"range":{"from":2,"to":2},"payloadType":"json"}}',
        value=b'{"events":[{"seqNr":2,"tags":[],"payload":1}]}',
    )
    async with replicating(log_url, store, topic) as replicator:
        other = journals[topic, "good"]
        for n in range(3):
            await other.append([n])
        await until(lambda: is_stored(store, topic, {"good": 3}))

        (parked,) = replicator.parked
        assert (parked.place, parked.offset, parked.key_id) == (TopicPartition(topic, 0), poison, "bad")
        assert replicator.metrics.snapshot()["exactlog_replicator_parked"] == 1
        assert await stored(store, topic, "bad") == (1, [1])
        assert await pointer_at(store, topic, 0) == poison - 1
        assert [record.event async for record in other.read()] == [0, 1, 2]

        await replicator.skip(TopicPartition(topic, 0), poison)

        assert replicator.parked == ()
        assert await stored(store, topic, "bad") == (2, [1, 2])
        assert await pointer_at(store, topic, 0) > poison


async def test_a_record_can_be_passed_over_from_the_start(journals, log_url, store, topic):
    await journals[topic, "bad"].append(["1"])
    poison = await put(log_url, topic, b"bad")
    last = await journals[topic, "good"].append([1])
    skipped = [SkippedRecord(TopicPartition(topic, 0), poison)]
    async with replicating(log_url, store, topic, skipped=skipped) as replicator:
        await pointer_at(store, topic, last.offset)
        assert replicator.parked == ()


async def test_records_of_others_are_passed_over(journals, log_url, store, topic):
    async with connect(log_url) as client:
        await client.produce(topic, [NewRecord(b"x"), NewRecord(b"y", key=b"a"), NewRecord(None, key=b"a")])
    await put(log_url, topic, b"a", header=b'{"fly":{}}')
    await put(log_url, topic, b"a", header=b'{"append":{"range":{"from":2,"to":2},"payloadType":"json"}}', value=None)
    async with replicating(log_url, store, topic) as replicator:
        told = await journals[topic, "a"].append(["1"])
        await pointer_at(store, topic, told.offset)
        assert replicator.parked == ()
    assert await stored(store, topic, "a") == (1, [1])


class FailingStore(MemoryJournalStore):
    """Fails now and then, before and after it has done something."""

    def __init__(self):
        super().__init__()
        self.failures = 0
        self.calls = 0

    async def carry_out(self, key, steps):
        for step in steps:
            await super().carry_out(key, [step])
            self.calls += 1
            if self.calls % 3 == 0:
                self.failures += 1
                raise Retriable("the store is away")


async def test_a_store_that_fails_is_written_to_again_and_nothing_is_missing_or_doubled(log_url, topic):
    store = FailingStore()
    async with Journals.open(log_url, store=store) as journals, replicating(log_url, store, topic) as replicator:
        written = [journals[topic, f"e{n % 4}"].append([n]) for n in range(24)]
        last = max(told.offset for told in await asyncio.gather(*written))
        await pointer_at(store, topic, last)

    assert store.failures > 2
    assert replicator.metrics.snapshot()["exactlog_replicator_restarts_total"] > 2
    for n in range(4):
        assert await stored(store, topic, f"e{n}") == (6, [1, 2, 3, 4, 5, 6])


async def test_partitions_go_from_one_replicator_to_another_and_nothing_is_missing_or_doubled(broker, log_url, store):
    topic = "shared-journals"
    broker.create_topic(topic, partitions=4)
    async with Journals.open(log_url, store=store) as journals:

        async def write(rounds):
            for n in rounds:
                await asyncio.gather(*(journals[topic, f"e{k}"].append([n]) for k in range(8)))

        async with replicating(log_url, store, topic) as first:
            await write(range(5))
            async with replicating(log_url, store, topic) as second:
                while not second.metrics.polls.value:
                    await write(range(1))
                await write(range(5))
            await write(range(5))
            expected = {f"e{k}": await journals[topic, f"e{k}"].pointer() for k in range(8)}
            await until(lambda: is_stored(store, topic, expected))
        assert first.metrics.forks.value == second.metrics.forks.value == 0
    for key_id, seq_nr in expected.items():
        assert await stored(store, topic, key_id) == (seq_nr, list(range(1, seq_nr + 1)))


async def test_a_new_store_gets_what_an_old_group_has_committed_long_ago(journals, log_url, store, topic):
    told = await journals[topic, "a"].append(["1"])
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, told.offset)
    new = MemoryJournalStore()
    async with replicating(log_url, new, topic):
        await pointer_at(new, topic, told.offset)
    assert await stored(new, topic, "a") == (1, [1])


async def test_an_append_whose_expectation_failed_is_not_replicated(journals, log_url, store, topic):
    journal = journals[topic, "a"]
    await journal.append(["1"])
    with pytest.raises(Exception, match="expected"):
        await journal.append(["x"], 7)
    last = await journal.append(["2"])
    async with replicating(log_url, store, topic) as replicator:
        await pointer_at(store, topic, last.offset)
    assert await stored(store, topic, "a") == (2, [1, 2])
    assert replicator.metrics.refused.value == 1


async def test_a_fork_is_reported_and_who_came_first_stands(journals, log_url, store, topic):
    def append(text):
        action = new_append([NewEvent(TextPayload(text), seq_nr=1)], last_seq_nr=0)
        return encode_action(JournalKey(topic, "a"), action, timestamp_ms=1)

    async with connect(log_url) as client:
        for text in ("first", "second"):
            (produced,) = await client.produce(topic, [append(text)])
    async with replicating(log_url, store, topic) as replicator:
        await pointer_at(store, topic, produced.offset)
    assert replicator.metrics.forks.value == 1
    assert [record.event async for record in journals[topic, "a"].read()] == ["first"]


class DyingStore(MemoryJournalStore):
    """Takes so many steps, and then none before it is brought back."""

    def __init__(self, steps_left):
        super().__init__()
        self.steps_left = steps_left

    async def carry_out(self, key, steps):
        for step in steps:
            if self.steps_left == 0:
                raise Retriable("the store is away")
            self.steps_left -= 1
            await super().carry_out(key, [step])


async def a_purge_on_terms_and_another_life(journal):
    """Behind what the journal has, in the log, for a replicator that finds all of it in one poll."""
    await journal.append(["4"])
    state = (await journal._parts.looker.look(journal.key)).state
    await journal.purge(expect=Expectation(exists=True, seq_nr=4, record_id=state.record_id))  # as purge_expired does
    return await journal.append(["new 1", "new 2"])


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_replicator_that_dies_around_a_purge_on_terms_loses_nothing_of_the_next_life(
    journals, log_url, topic, steps
):
    journal = journals[topic, "a"]
    store = DyingStore(-1)
    begun = await journal.append(["1", "2", "3"])
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, begun.offset)
    last = await a_purge_on_terms_and_another_life(journal)
    store.steps_left = steps
    async with replicating(log_url, store, topic):
        for _ in range(30):
            if store.steps_left == 0 or (await store.pointer(TopicPartition(topic, 0))).offset == last.offset:
                break
            await asyncio.sleep(0.01)
    store.steps_left = -1
    async with replicating(log_url, store, topic) as replicator:
        await pointer_at(store, topic, last.offset)
        assert replicator.parked == ()

    assert await stored(store, topic, "a") == (2, [1, 2])


async def test_a_purge_on_terms_waits_behind_a_parked_record_of_another_journal(journals, log_url, store, topic):
    poison = await put(log_url, topic, b"bad")
    await journals[topic, "a"].append(["1", "2", "3"])
    last = await a_purge_on_terms_and_another_life(journals[topic, "a"])
    async with replicating(log_url, store, topic) as replicator:
        await until(lambda: is_stored(store, topic, {"a": 4}))
        await journals[topic, "b"].append(["1"])
        await until(lambda: is_stored(store, topic, {"b": 1}))

        assert [parked.key_id for parked in replicator.parked] == ["bad", "a"]
        assert f"waits for offset {poison}" in replicator.parked[1].reason
        assert await stored(store, topic, "a") == (4, [1, 2, 3, 4])

        await replicator.skip(TopicPartition(topic, 0), poison)

        await pointer_at(store, topic, last.offset)
        assert replicator.parked == ()
        assert await stored(store, topic, "a") == (2, [1, 2])


class LogOfRecords:
    """The log of a partition, in a list."""

    def __init__(self, records):
        self._records = records

    async def start(self, place):
        return 0

    async def records(self, place, stretch):
        for record in self._records:
            if stretch.start <= record.offset < stretch.end:
                yield record


@pytest.mark.parametrize(("bytes_max", "records_max", "parts"), [(100, 50, [3, 3, 3, 1]), (10_000, 4, [4, 4, 2])])
async def test_of_a_gap_no_more_than_so_many_records_and_bytes_are_in_memory(
    store, monkeypatch, bytes_max, records_max, parts
):
    monkeypatch.setattr(partition_replicator, "GAP_BYTES_MAX", bytes_max)
    monkeypatch.setattr(partition_replicator, "GAP_RECORDS_MAX", records_max)
    place, applied, apply = TopicPartition("gap", 0), [], ActionApplier.apply

    async def counting(applier, records):
        applied.append(len(records))
        await apply(applier, records)

    monkeypatch.setattr(ActionApplier, "apply", counting)
    records = [Record(offset, 1, b"no-journal", bytes(40), ()) for offset in range(11)]
    replicator = PartitionReplicator(
        place, store.topic("gap").partition(0), LogOfRecords(records), SystemClock(), ReplicationMetrics()
    )
    await replicator.apply(records[10:])
    assert applied == [*parts, 1]
    assert replicator.pointer == 10
