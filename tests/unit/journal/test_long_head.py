"""Replication was off for long: what is in the log alone is read in little memory, and then the store catches up.

`make test` asks it of a hundred thousand events, `--long` of five million.
"""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing

import pytest
from msgspec.structs import replace

from exactlog.client.adapters import connect
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.read_plan import ReadPath
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.node.clock import SystemClock
from tests.peers import PROJECT
from tests.unit.journal.replicating import QUICK, pointer_at, replicating

EVENTS, EVENTS_LONG = 100_000, 5_000_000
PER_APPEND = 100
PRODUCED_TOGETHER = 20
FEW_AT_A_TIME = replace(QUICK, poll_records_max=100)
GROWN_BYTES_MAX = 12 * 1024 * 1024
"""A few answers to Fetches, and what is made of them; however many events there are."""


async def fill(log_url, topic, size):
    """Event n of the journal says "n"; the answer is the offset of the last append."""
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


class Reader:
    """Programs that read the journal and end."""

    def __init__(self, log_url, store_url, topic, size):
        self._arguments, self._size = (log_url, store_url, topic), size

    async def check(self, settings, path):
        """One tells every event once and in order, and has never had more than so much of it in memory."""
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.unit.journal.long_reader",
            *self._arguments,
            settings,
            cwd=PROJECT,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await program.communicate()
        assert program.returncode == 0
        told = json.loads(output)
        assert (told["count"], told["pointer"], told["last"]) == (self._size, self._size, [self._size - 1, self._size])
        assert path.value in told["paths"]
        assert told["kept"] == 0, "more than may be kept is not kept"
        assert (told["log_reads"] > 0) == (path is not ReadPath.STORE)
        assert told["grown_bytes"] < GROWN_BYTES_MAX


def rows_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*), count(DISTINCT seq_nr), max(seq_nr) FROM journal").fetchone()


@pytest.mark.slow
@pytest.mark.parametrize("size", [EVENTS, pytest.param(EVENTS_LONG, marks=pytest.mark.long)])
async def test_a_long_head_is_read_in_little_memory_and_then_the_store_catches_up(
    broker, log_url, topic, tmp_path, size
):
    path = tmp_path / "journals.db"
    broker.create_topic(f"{topic}-quiet", partitions=1)
    last_offset = await fill(log_url, topic, size)
    reader = Reader(log_url, f"sqlite:///{path}", topic, size)
    async with SqliteJournalStore(str(path)) as store:
        await reader.check("log", ReadPath.LOG)
        await reader.check("cache", ReadPath.LOG)
        for until, read in ((last_offset // 2, ReadPath.STORE_THEN_LOG), (last_offset, ReadPath.STORE)):
            # The first replicator ends on the way, the second one goes on where that has come to.
            async with replicating(log_url, store, topic, settings=FEW_AT_A_TIME) as replicator:
                await pointer_at(store, topic, until)
                assert (replicator.metrics.forks.value, replicator.parked) == (0, ())
            await reader.check("log", read)
    assert rows_of(path) == (size, size, size)
