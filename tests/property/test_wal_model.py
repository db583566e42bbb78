"""A region against a naive model: writes, marks, drops, clean-ups, crashes, moves and copied records, in any order."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactlog.core.wal.log_entry_format import LogKey, encode_log_key, encode_log_value
from exactlog.wal import MemoryBackend, RegionFenced, Wal
from tests.unit.wal.failing_backend import CrashedError, FailingBackend

TABLES = (0, 1, 2)
DATA = "ts_data_1"

writes = st.tuples(st.just("write"), st.dictionaries(st.sampled_from(TABLES), st.integers(1, 4), min_size=1))
marks = st.tuples(st.just("mark"), st.sampled_from(TABLES), st.floats(0, 1), st.booleans())
plain = st.sampled_from([("clean",), ("close",), ("move",), ("snapshot",)])
copies = st.tuples(st.just("copy"), st.integers(0, 1_000))
crashes = st.tuples(st.just("crash"), st.integers(0, 6))
steps = st.lists(st.one_of(writes, writes, marks, plain, copies, crashes), max_size=25)


class Model:
    """What must be in the region: every entry that was acknowledged and not marked."""

    def __init__(self):
        self.payloads = {table: [] for table in TABLES}
        self.known = dict.fromkeys(TABLES, 0)
        self.marked = dict.fromkeys(TABLES, 0)
        self.durably_marked = dict.fromkeys(TABLES, 0)

    def made_durable(self):
        self.durably_marked = dict(self.marked)


class Run:
    """One sequence of steps on one store."""

    def __init__(self):
        self.store = MemoryBackend()
        self.model = Model()
        self.counter = 0

    async def open(self):
        self.backend = FailingBackend(self.store)
        self.wal = await Wal.open(self.backend, namespace="ts", clean_interval_s=None).__aenter__()
        self.region = await self.wal.open_region(1, create=True)

    async def step(self, step):
        try:
            await self.do(step)
        except CrashedError:
            await self.open()
            await self.settle()
        await self.check()

    async def do(self, step):
        match step:
            case ("write", counts):
                await self.write(counts)
            case ("mark", table, part, durable):
                await self.mark(table, part, durable=durable)
            case ("clean",):
                await self.region.clean()
            case ("snapshot",):
                await self.region.write_snapshot()
                self.model.made_durable()
            case ("close",):
                await self.wal.close()
                self.model.made_durable()
                await self.open()
                await self.settle()
            case ("move",):
                await self.move()
            case ("copy", which):
                self.copy(which)
            case ("crash", at):
                self.backend.crash_at = len(self.backend.steps) + at

    async def write(self, counts):
        batch = {}
        for table, count in counts.items():
            batch[table] = [b"%d" % (self.counter + number) for number in range(count)]
            self.counter += count
            self.model.payloads[table] = self.model.payloads[table][: self.model.known[table]] + batch[table]
        last = await self.region.write_batch(batch)
        for table, payloads in batch.items():
            self.model.known[table] += len(payloads)
            assert last[table] == self.model.known[table]

    async def mark(self, table, part, *, durable):
        known, marked = self.model.known[table], self.model.marked[table]
        if not known:
            return
        up_to = marked + int(part * (known - marked))
        self.model.marked[table] = up_to
        await self.region.mark_deleted(table, up_to, durable=durable)
        if durable:
            self.model.made_durable()

    async def move(self):
        """Somebody else opens the region; the owner before notices, and can do nothing any more."""
        fenced = self.region
        await self.open()
        await self.settle()
        with pytest.raises((RegionFenced, CrashedError)) as refused:
            await fenced.write(0, [b"late"])
        if refused.type is RegionFenced:
            with pytest.raises(RegionFenced):
                await fenced.clean()

    def copy(self, which):
        """An exact copy of a record that is there comes once more, as after a retry of another writer."""
        topic = self.store._topics[DATA]
        if topic.records:
            self.store.put(DATA, *topic.records[which % len(topic.records)])

    async def settle(self):
        """After an opening: what was not acknowledged is there whole or not at all, what was marked may be back."""
        counted = set()
        for table in TABLES:
            last, known = await self.region.sequence_num(table), self.model.known[table]
            written = len(self.model.payloads[table])
            assert last in (known, written)
            if written != known:
                counted.add(last == written)
            self.model.known[table] = last
            self.model.payloads[table] = self.model.payloads[table][:last]
            mark = self.region._meta.tables[table].latest_mark_deleted - 1 if last else 0
            assert self.model.durably_marked[table] <= mark <= self.model.marked[table]
            self.model.marked[table] = self.model.durably_marked[table] = mark
        assert len(counted) <= 1, "a write of several tables came through in part"

    async def check(self):
        model = self.model
        found = {table: [] for table in TABLES}
        offsets = []
        async for entry in self.region.scan():
            found[entry.table].append((entry.sequence, entry.payload))
            offsets.append(entry.offset)
        assert offsets == sorted(offsets)
        for table in TABLES:
            kept = list(enumerate(model.payloads[table][: model.known[table]], start=1))[model.marked[table] :]
            assert found[table] == kept
            if model.known[table]:
                assert [(entry.sequence, entry.payload) async for entry in self.region.read(table)] == kept


async def run(found):
    this = Run()
    await this.open()
    for step in found:
        await this.step(step)
    this.backend.crash_at = None
    await this.wal.close()
    await this.open()
    this.model.made_durable()
    await this.settle()
    await this.check()


@settings(max_examples=150)
@given(steps)
def test_whatever_happens_a_region_keeps_what_it_promised(found):
    asyncio.run(run(found))


@given(st.binary())
def test_a_copy_of_an_entry_is_the_entry(payload):
    store = MemoryBackend()

    async def twice():
        async with Wal.open(store, namespace="ts") as wal:
            await (await wal.open_region(1, create=True)).write(3, [payload])
        store.put(DATA, encode_log_key(LogKey(1, 3, 1)), encode_log_value(payload))
        async with Wal.open(store, namespace="ts") as wal:
            region = await wal.open_region(1)
            return [entry.payload async for entry in region.scan()], await region.sequence_num(3)

    assert asyncio.run(twice()) == ([payload], 1)
