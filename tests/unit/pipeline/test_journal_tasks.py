"""Tasks of the journal replicator, without Spark: however a log is cut, and whatever comes again, the store is one."""

import asyncio
import sqlite3
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.journal.errors import HeadLost, Repartitioned, Retriable
from exactlog.core.journal.event_journal_format import ACTION_HEADER, encode_action
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.keys import JournalKey, record_id_of
from exactlog.core.model.ids import NO_TIMESTAMP, TopicPartition
from exactlog.core.record.record_format import Record
from exactlog.journal.partition_replicator import PartitionReplicator
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.pipeline.journal_checkpoint import OtherQueryError
from exactlog.pipeline.journal_tasks import (
    OtherReplicatorError,
    PartitionOrder,
    PartitionTask,
    TimeOfBatch,
    decode_outcome,
    records_of,
)
from exactlog.pipeline.journal_topics import check_places
from exactlog.pipeline.journal_worker import StoreAddress, store_of_worker
from exactlog.pipeline.source import Extent
from exactlog.pipeline.stream_offsets import OtherLogError
from exactlog.testing.journal_store_contract.action_script import ActionScript
from tests.support.journal_replication import LOGS, PARTITION, TOPIC, written

PLACE = TopicPartition(TOPIC, PARTITION)
NOW_MS = 1_700_000_000_000
BATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "offsets": st.integers(1, 9),
            "chunk": st.integers(1, 5),
            "dies_after": st.none() | st.integers(0, 5),  # so many steps of the store
            "is_retried": st.booleans(),  # by Spark, in the same job; else the driver has died too
        }
    ),
    max_size=8,
)


class DyingStore(MemoryJournalStore):
    """Takes so many steps, and then none before it is brought back."""

    def __init__(self):
        super().__init__(segment_size=2)
        self.steps_left = None

    async def carry_out(self, key, steps):
        for step in steps:
            if self.steps_left == 0:
                raise Retriable("the store is away")
            if self.steps_left is not None:
                self.steps_left -= 1
            await super().carry_out(key, [step])


class WholeLog:
    """A log from its start on."""

    def __init__(self, records):
        self.all = records

    async def start(self, place):
        return 0

    async def records(self, place, stretch):
        for record in self.all:
            if stretch.start <= record.offset < stretch.end:
                yield record


class Job:
    """What the driver does between two micro-batches."""

    def __init__(self, records):
        self.store = DyingStore()
        self.records = records
        self.position = 0
        self.pointer = None
        self.parked = ()

    def replicator(self, store):
        journal = store.topic(TOPIC).partition(PARTITION)
        return PartitionReplicator(
            PLACE, journal, WholeLog(self.records), TimeOfBatch(NOW_MS), metrics=ReplicationMetrics()
        )

    async def restart(self):
        replicator = self.replicator(self.store)
        await replicator.catch_up(self.position)
        self.pointer, self.parked = replicator.pointer, replicator.parking.parked

    async def run(self, batch, *, end):
        self.store.steps_left = batch["dies_after"]
        try:
            await self.attempt(batch, end, is_retried=False)
        except Retriable:
            self.store.steps_left = None
            if not batch["is_retried"]:
                await self.restart()
            await self.attempt(batch, end, is_retried=batch["is_retried"])
        self.store.steps_left = None

    async def attempt(self, batch, end, *, is_retried):
        order = PartitionOrder(start=self.position, end=end, pointer=self.pointer, parked=self.parked)
        task = PartitionTask(PLACE, order, self.store, now_ms=NOW_MS, is_retried=is_retried)
        await task.begin()
        rows = [record for record in self.records if self.position <= record.offset < end]
        for start in range(0, len(rows), batch["chunk"]):
            await task.apply(rows[start : start + batch["chunk"]])
        outcome = await task.end()
        self.position, self.pointer, self.parked = end, outcome.pointer, outcome.parked


def record_of(action, offset):
    made = encode_action(action.key, action.action, timestamp_ms=action.timestamp_ms)
    return Record(offset, made.timestamp_ms, made.key, made.value, tuple(made.headers))


def contents(store):
    return store._heads, {key: rows for key, rows in store._rows.items() if any(rows.values())}, store._pointers


@given(log=LOGS, batches=BATCHES, poison=st.sets(st.integers(0, 25), max_size=2), spread=st.integers(1, 3))
def test_any_micro_batches_with_any_deaths_leave_what_one_poll_leaves(log, batches, poison, spread):
    """`spread` leaves offsets between the actions, as markers and aborted records do."""
    records = []
    for at, action in enumerate(written(log)):
        record = record_of(action, at * spread)
        records.append(replace(record, headers=((ACTION_HEADER, b"not json"),)) if at in poison else record)
    end = len(records) * spread

    async def run():
        job = Job(records)
        for batch in batches:
            await job.run(batch, end=min(job.position + batch["offsets"], end))
        await job.run({"offsets": 0, "chunk": 100, "dies_after": None, "is_retried": False}, end=end)
        whole = MemoryJournalStore(segment_size=2)
        replicator = job.replicator(whole)
        if records:
            await replicator.apply(records)
            await replicator._applier.move_to(end)
        assert contents(job.store) == contents(whole)
        assert job.parked == replicator.parking.parked

    asyncio.run(run())


@pytest.mark.parametrize("is_retried", [False, True], ids=["job died", "task failed"])
@pytest.mark.parametrize("steps", range(9))
async def test_what_comes_again_around_a_purge_on_terms_is_of_no_other_life(steps, is_retried):
    script = ActionScript(JournalKey(TOPIC, "a"), partition=PARTITION)
    life = Expectation(exists=True, seq_nr=4, record_id=record_id_of(PLACE, 0))
    actions = [script.append(1, 2, 3), script.append(4), script.purge(expect=life), script.append(1, 2)]
    job = Job([record_of(action, action.offset) for action in actions])
    batch = {"chunk": 10, "dies_after": steps, "is_retried": is_retried}

    await job.run({**batch, "dies_after": None}, end=1)
    await job.run(batch, end=4)

    head = job.store._heads[script.key]
    assert (head.seq_nr, head.record_id, job.parked) == (2, record_id_of(PLACE, 3), ())


async def test_a_pointer_that_somebody_else_has_moved_ends_the_task():
    store = MemoryJournalStore()
    journal = store.topic(TOPIC).partition(PARTITION)
    order = PartitionOrder(start=5, end=9, pointer=4)
    for moved_to, is_retried, is_refused in ((4, False, False), (6, True, False), (6, False, True), (9, True, True)):
        await journal.create_pointer(moved_to, now_ms=1)
        begun = PartitionTask(PLACE, order, store, now_ms=1, is_retried=is_retried).begin()
        if is_refused:
            with pytest.raises(OtherReplicatorError, match=f"up to offset 4 when .* now up to offset {moved_to}"):
                await begun
        else:
            await begun


def test_rows_become_records():
    noon = datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC)
    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([7, 8], pa.int64()),
            "timestamp": pa.array([noon, None], pa.timestamp("us", "UTC")),
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([None, b"v"], pa.binary()),
            "headers": pa.array([[{"name": "h", "value": None}, {"name": "h", "value": b"2"}], []], pa.list_(header)),
        }
    )

    assert records_of(batch) == [
        Record(7, 1_700_000_000_123, b"k", None, (("h", None), ("h", b"2"))),
        Record(8, NO_TIMESTAMP, None, b"v", ()),
    ]


def test_an_outcome_comes_back_as_it_was():
    text = (
        '{"place":["t",1],"pointer":null,"parked":[{"place":["t",1],"offset":3,"key_id":null,"reason":"x"}],'
        '"records":1,"actions":2,"refused":0,"forks":0}'
    )
    outcome = decode_outcome(text)
    assert (outcome.place, outcome.parked[0].place) == (TopicPartition("t", 1), TopicPartition("t", 1))


# --- whether a store can go on ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "position", "pointer", "error", "words"),
    [
        (Extent(0, 10), None, None, None, ""),
        (Extent(5, 10), None, None, None, ""),  # it begins where the log does
        (Extent(5, 10), None, 4, None, ""),
        (Extent(5, 10), None, 3, HeadLost, "offsets 4 to 4 are neither"),
        (Extent(5, 10), 5, None, HeadLost, "offsets 0 to 4 are neither"),
        (Extent(5, 10), 4, 3, HeadLost, "offsets 4 to 4 are neither"),
        (Extent(5, 10), 4, 7, OtherQueryError, "stands at offset 4 of topic-1, which is gone from the log"),
        (Extent(0, 10), 10, 9, None, ""),
        (Extent(0, 10), 11, 9, OtherLogError, "up to offset 10, and ends before offset 10"),
        (Extent(0, 10), None, 10, OtherLogError, "up to offset 10, and ends before offset 10"),
        (None, 3, None, Repartitioned, "topic-1 was replicated, and is not there any more"),
        (None, None, 3, Repartitioned, "topic-1 was replicated, and is not there any more"),
    ],
)
def test_a_store_goes_on_where_the_log_has_what_it_lacks(extent, position, pointer, error, words):
    def check(name=TOPIC):
        check_places(
            {} if extent is None else {PLACE: extent},
            positions={} if position is None else {PLACE: position},
            pointers={PLACE: pointer} if extent or pointer is not None else {},
            names=[name],
        )

    check("another topic")
    if error is None:
        check()
        return
    with pytest.raises(error) as raised:
        check()
    assert words in str(raised.value)
    assert raised.value.hint


# --- the store of a worker --------------------------------------------------------------------------------------------


def test_a_worker_keeps_its_store_for_one_run_and_until_a_task_fails(tmp_path):
    address = StoreAddress(url=f"sqlite:{tmp_path}/j.db", segment_size=5, run_id="1")

    def opened(address):
        with store_of_worker(address) as (loop, store):
            assert loop.wait(store.topics()) == frozenset()
            return store

    first = opened(address)
    assert opened(address) is first
    second = opened(StoreAddress(url=address.url, segment_size=5, run_id="2"))
    assert second is not first
    with pytest.raises(KeyError), store_of_worker(StoreAddress(url=address.url, segment_size=5, run_id="2")):
        raise KeyError
    third = opened(StoreAddress(url=address.url, segment_size=5, run_id="2"))
    assert third is not second
    with pytest.raises(Retriable), store_of_worker(StoreAddress(url="sqlite:/no/such/j.db", segment_size=5, run_id="")):
        pass
    with pytest.raises(Retriable, match="is not open"):
        asyncio.run(third.topics())
    assert sqlite3.connect(tmp_path / "j.db").execute("SELECT count(*) FROM pointer2").fetchone() == (0,)
