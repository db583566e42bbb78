"""Replication was off for long: what is in the log alone is read in little memory, and then the store catches up."""

import tracemalloc

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.read_plan import ReadPath
from exactlog.journal import Journals, JournalSettings
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.node.clock import SystemClock
from tests.unit.journal.replicating import pointer_at, replicating

EVENTS, EVENTS_LONG = 100_000, 5_000_000
PER_APPEND = 100
PRODUCED_TOGETHER = 20
BYTES_MAX = 16 * 1024 * 1024
"""The answers to a few fetches, of reader and broker, which are one program here; however many events there are."""

SETTINGS = {
    "log": JournalSettings(head_cache=False, buffer_actions_max=50),
    "cache": JournalSettings(buffer_actions_max=50),
}


async def fill(log_url, topic, size):
    """Event n of the journal says "n"."""
    key = JournalKey(topic, "e")
    async with connect(log_url) as client:
        records = []
        for last in range(0, size, PER_APPEND):
            events = [NewEvent(TextPayload(str(number))) for number in range(last + 1, last + PER_APPEND + 1)]
            records.append(
                encode_action(key, new_append(events, last_seq_nr=last), timestamp_ms=SystemClock().now_ms())
            )
            if len(records) == PRODUCED_TOGETHER or last + PER_APPEND == size:
                produced = await client.produce(topic, records, partition=0)
                records = []
    return produced[-1].offset


async def check_read(journal, size):
    """Every event is told once, in order, and no more than so much is in memory."""
    tracemalloc.start()
    try:
        count = 0
        async for record in journal.read():
            count += 1
            assert (record.seq_nr, record.event) == (count, str(count))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == size
    assert peak < BYTES_MAX


@pytest.mark.slow
@pytest.mark.parametrize("size", [EVENTS, pytest.param(EVENTS_LONG, marks=pytest.mark.long)])
async def test_a_long_head_is_read_in_little_memory_and_then_the_store_catches_up(log_url, topic, tmp_path, size):
    last_offset = await fill(log_url, topic, size)
    async with SqliteJournalStore(str(tmp_path / "journals.db")) as store:
        for settings in SETTINGS.values():
            async with Journals.open(log_url, store=store, settings=settings) as journals:
                journal = journals[topic, "e"]
                await check_read(journal, size)
                assert journals.metrics.reads[ReadPath.LOG].value == 1
                assert await journal.pointer() == size
                assert [record.seq_nr async for record in journal.read(size - 1)] == [size - 1, size]
        async with Journals.open(log_url, store=store, settings=SETTINGS["log"]) as journals:
            journal = journals[topic, "e"]
            async with replicating(log_url, store, topic) as replicator:
                await pointer_at(store, topic, last_offset // 2)
                assert await journal.pointer() == size
                await pointer_at(store, topic, last_offset)
                assert (replicator.metrics.forks.value, replicator.parked) == (0, ())
            await check_read(journal, size)
            assert journals.metrics.reads[ReadPath.STORE].value == 1
