"""Random histories against a naive journal: many writers, a store that follows by fits and starts, crashes.

A writer dies in the middle of an append, and another one repeats it; a replicator dies between two steps; the broker
dies under all of them.
"""

import asyncio
import random
from contextlib import AsyncExitStack, suppress

import pytest

from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.event_journal_format import decode_action
from exactlog.core.model.errors import UnavailableError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal import (
    ANY,
    NO_STREAM,
    Conflict,
    Envelope,
    ForkedJournalError,
    Journals,
    JournalSettings,
    ReadBarrier,
)
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.testing import Broker

STEPS = 150
STEPS_LONG = 10_000
STEPS_PER_BROKER = 40
"""After about so many the broker is killed, where the log is on a disk."""
SETTINGS = (
    JournalSettings(pointer_ms=20),
    JournalSettings(pointer_ms=2, cache_steps_max=4),
    JournalSettings(head_cache=False),
    JournalSettings(head_cache=False, buffer_actions_max=1, barrier=ReadBarrier.END_OFFSET),
)


class NaiveJournal:
    """What a journal is, said as plainly as can be."""

    def __init__(self):
        self.events, self.last = {}, None

    def append(self, events, first=None):
        first = (self.last or 0) + 1 if first is None else first
        self.events |= dict(enumerate(events, start=first))
        self.last = first + len(events) - 1

    def delete(self, to):
        self.events = {seq_nr: event for seq_nr, event in self.events.items() if seq_nr > to}

    def purge(self):
        self.events, self.last = {}, None


class CrashingStore(MemoryJournalStore):
    """Dies between two steps of a plan when it is told to."""

    steps_left = None

    async def carry_out(self, key, steps):
        for step in steps:
            if self.steps_left is not None:
                if self.steps_left == 0:
                    raise Retriable("the store is gone")
                self.steps_left -= 1
            await super().carry_out(key, [step])


class World:
    def __init__(self, seed, topic, client, store, writers, *, broker=None):
        self.random = random.Random(seed)
        self.topic, self.client, self.store, self.writers = topic, client, store, writers
        self.broker = broker  # None: it does not die
        self.appended = 0
        self.place = TopicPartition(topic, 0)
        self.naive = {f"e{n}": NaiveJournal() for n in range(3)}
        self.replicated_to = 0

    async def step(self):
        key_id = self.random.choice(list(self.naive))
        if self.broker is not None and self.random.randrange(STEPS_PER_BROKER) == 0:
            await self.append_in_spite_of(self.kill_broker, key_id)
        else:
            await self.do_anything(key_id)

    async def do_anything(self, key_id):
        journal, naive = self.random.choice(self.writers)[self.topic, key_id], self.naive[key_id]
        match self.random.randrange(13):
            case 0 | 1 | 2 | 3:
                events = [self.random.randrange(100) for _ in range(self.random.randint(1, 3))]
                is_expecting = naive.last is not None and self.random.random() < 0.5
                await journal.append(events, naive.last if is_expecting else ANY)
                naive.append(events)
            case 4:
                await self.fail(journal, naive)
            case 5:
                first = (naive.last or 0) + self.random.randint(1, 3)
                await journal.append([Envelope("gap", seq_nr=first)])
                naive.append(["gap"], first)
            case 6:
                to = self.random.randint(1, 12)
                await journal.delete(to)
                naive.delete(to)
            case 7:
                await journal.purge()
                naive.purge()
            case 8:
                await self.write_again()
            case 9 | 10:
                await self.replicate()
            case 11:
                await self.replicate_and_crash()
            case 12:
                await self.append_in_spite_of(self.kill_writer, key_id)

    async def append_in_spite_of(self, crash, key_id):
        """An append in whose middle somebody dies; another writer repeats it, and it is there once."""
        naive, dying, other = self.naive[key_id], *self.random.sample(self.writers, 2)
        events = [self.random.randrange(100) for _ in range(self.random.randint(1, 3))]
        self.appended += 1
        ids = [f"{self.appended}-{n}" for n in range(len(events))]
        expect = NO_STREAM if naive.last is None else naive.last
        appending = asyncio.create_task(dying[self.topic, key_id].append(events, expect, event_ids=ids))
        await asyncio.sleep(self.random.choice([0, 0, 0.0005, 0.002, 0.01]))
        await crash(appending)
        while True:
            with suppress(UnavailableError, Retriable):
                told = await other[self.topic, key_id].append(events, expect, event_ids=ids)
                break
            await asyncio.sleep(0.05)
        naive.append(events)
        assert told.seq_nr == naive.last

    async def kill_writer(self, appending):
        appending.cancel()
        await asyncio.wait([appending])

    async def kill_broker(self, appending):
        await asyncio.to_thread(self.broker.kill)
        await asyncio.to_thread(self.broker.restart)
        with suppress(UnavailableError, Retriable):
            await appending

    async def fail(self, journal, naive):
        """What must change nothing."""
        if naive.last is None:
            with pytest.raises(Conflict):
                await journal.append(["x"], 5)
            return
        with pytest.raises(Conflict) as refused:
            await journal.append(["x"], NO_STREAM)
        assert refused.value.actual == naive.last
        with pytest.raises(Conflict):
            await journal.append(["x"], naive.last + 1)
        with pytest.raises(ForkedJournalError):
            await journal.append([Envelope("x", seq_nr=naive.last)])

    async def write_again(self):
        """Writes the last record of the log again: one that says it expects nothing is a fork, others fail."""
        end = await self.end()
        records = await self.records(max(0, end - 1), end)
        if records and decode_action(self.place, records[-1]).action.__class__.__name__ in {"Append", "Mark"}:
            again = records[-1]
            record = NewRecord(again.value, again.key, again.headers, timestamp_ms=again.timestamp_ms)
            await self.client.produce(self.topic, [record], partition=0)

    async def end(self):
        return (await self.client.list_offsets({self.place: LATEST}))[self.place].offset

    async def records(self, start, end):
        if end <= start:
            return []
        found = self.client.consume({self.place: Offset(start)}, ends={self.place: Offset(end)})
        return [one.record async for one in found]

    async def replicate(self, *, is_pointer_moved=True):
        """Some of the log, in polls of any size, perhaps once more from further back."""
        start = max(0, self.replicated_to - self.random.choice([0, 0, 3]))
        records = await self.records(start, await self.end())
        records = records[: self.random.choice([len(records), self.random.randint(0, len(records))])]
        partition = self.store.topic(self.topic).partition(0)
        while records:
            size = self.random.randint(1, 5)
            poll, records = records[:size], records[size:]
            actions = [decode_action(self.place, record) for record in poll]
            for key_id in sorted({action.key.id for action in actions}):
                batches = optimize_actions([action for action in actions if action.key.id == key_id])
                await partition.key(key_id).apply(batches, now_ms=1)
            if is_pointer_moved:
                await partition.create_pointer(poll[-1].offset, now_ms=1)
                self.replicated_to = max(self.replicated_to, poll[-1].offset + 1)

    async def replicate_and_crash(self):
        if not isinstance(self.store, CrashingStore):
            return
        self.store.steps_left = self.random.randint(0, 4)
        try:
            await self.replicate(is_pointer_moved=self.random.random() < 0.5)
        except Retriable:
            pass
        finally:
            self.store.steps_left = None

    async def check(self, writers):
        for key_id, naive in self.naive.items():
            for journals in writers:
                journal = journals[self.topic, key_id]
                assert {record.seq_nr: record.event async for record in journal.read()} == naive.events
            assert await journal.pointer() == naive.last


def a_store(kind, tmp_path):
    return (
        CrashingStore(segment_size=2) if kind == "memory" else SqliteJournalStore(str(tmp_path / "j"), segment_size=2)
    )


async def check_history(log_url, topic, store, *, seed, steps, broker=None):
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(log_url))
        await stack.enter_async_context(store)
        writers = [
            await stack.enter_async_context(Journals.open(log_url, store=store, settings=settings))
            for settings in SETTINGS
        ]
        world = World(seed, topic, client, store, writers, broker=broker)
        for _ in range(steps):
            await world.step()
            if world.random.random() < 0.3:
                await world.check(world.random.sample(writers, 2))
        await world.check(writers)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", range(3))
async def test_random_histories_read_as_a_naive_journal_does(log_url, topic, tmp_path, seed, kind):
    await check_history(log_url, topic, a_store(kind, tmp_path), seed=seed, steps=STEPS)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(
    ("seed", "steps"), [(3, STEPS), *(pytest.param(seed, STEPS_LONG, marks=pytest.mark.long) for seed in range(4, 8))]
)
async def test_random_histories_on_a_broker_that_dies_read_as_a_naive_journal_does(tmp_path, seed, steps, kind):
    with Broker(tmp_path / "log", config={"flush.mode": "commit"}) as broker:
        broker.create_topic("model", partitions=1)
        log_url = f"kafka://{broker.bootstrap_servers}"
        await check_history(log_url, "model", a_store(kind, tmp_path), seed=seed, steps=steps, broker=broker)
