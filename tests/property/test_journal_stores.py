"""Stores of event journals under a replicator that crashes and is told things twice, against a naive journal."""

import asyncio
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.keys import JournalKey
from exactlog.journal.stores import sqlite_tables
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.testing.journal_store_contract.action_script import rows_of
from tests.support.journal_replication import IDS, LOGS, POLLS, TOPIC, Crashing, replicate, written
from tests.support.opened_stores import OpenedMemory, OpenedSqlite


@pytest.mark.parametrize("segment_size", [2, 5, 10_000])
@given(log=LOGS, polls=POLLS)
def test_a_store_without_transactions_is_as_the_log_whatever_crashes(segment_size, log, polls):
    store = MemoryJournalStore(segment_size=segment_size)
    crashing = store._carry_out = Crashing(store._carry_out)

    asyncio.run(replicate(OpenedMemory(store), written(log), polls, crashing.at))


@given(log=LOGS, polls=POLLS, segment_size=st.sampled_from([2, 5, 10_000]))
def test_a_store_with_transactions_is_as_the_log_whatever_crashes(log, polls, segment_size):
    async def in_a_file():
        with tempfile.TemporaryDirectory() as folder:
            async with SqliteJournalStore(Path(folder) / "journals.db", segment_size=segment_size) as store:
                await replicate(OpenedSqlite(store), written(log), polls, crashing.at)

    crashing = Crashing(sqlite_tables.carry_out_step)
    with patch.object(sqlite_tables, "carry_out_step", crashing):
        asyncio.run(in_a_file())


@given(log=LOGS, polls=POLLS)
def test_both_stores_come_to_the_same(log, polls):
    """Column for column."""
    records = written(log)

    async def outcome(opened):
        await replicate(opened, records, polls, lambda *_: Crashing(None))
        heads = [await opened.store.head(JournalKey(TOPIC, key_id)) for key_id in IDS]
        rows = [await rows_of(opened.store, JournalKey(TOPIC, key_id)) for key_id in IDS]
        ids = sorted([key_id async for key_id in opened.store.ids(TOPIC)])
        return heads, rows, ids

    async def both():
        in_memory = await outcome(OpenedMemory(MemoryJournalStore(segment_size=3)))
        with tempfile.TemporaryDirectory() as folder:
            async with SqliteJournalStore(Path(folder) / "journals.db", segment_size=3) as store:
                assert await outcome(OpenedSqlite(store)) == in_memory

    asyncio.run(both())
