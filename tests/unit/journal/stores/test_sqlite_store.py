"""The store in a SQLite file: transactions, other programs beside it, full disks, kills."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from exactlog.core.journal.actions import ActionRecord
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.stores import sqlite_store
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.journal.stores.sqlite_thread import WRITES_TOGETHER_MAX, SqliteThread
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply, seq_nrs

KEY = JournalKey("topic", "entity-1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journals.db"


async def test_what_was_written_is_there_when_the_file_is_opened_again(path):
    async with SqliteJournalStore(path) as store:
        await apply(store, ActionScript(KEY).append(1, 2))
        await store.topic("topic").partition(0).create_pointer(7, now_ms=5)

    async with SqliteJournalStore(path) as store:
        assert await seq_nrs(store, KEY) == [1, 2]
        assert (await store.pointer(TopicPartition("topic", 0))).offset == 7


async def test_the_file_is_in_wal_mode_and_every_commit_is_synced(path):
    async with SqliteJournalStore(path) as store:
        writer, reader = store._threads
        settings = [
            await writer.ask(lambda c, name=name: c.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("journal_mode", "synchronous")
        ]

        assert settings == ["wal", 2]
        assert await reader.ask(lambda c: c.execute("PRAGMA query_only").fetchone()) == (1,)


async def test_a_store_that_was_not_entered_or_was_left_says_so(path):
    store = SqliteJournalStore(path)
    with pytest.raises(Retriable, match="is not open"):
        await store.head(KEY)

    async with store:
        await store.head(KEY)

    with pytest.raises(Retriable, match="is not open"):
        await store.head(KEY)


async def test_a_store_may_be_opened_again(path):
    store = SqliteJournalStore(path)
    for number in (1, 2):
        async with store:
            await apply(store, ActionScript(KEY, offset=number).append(number))
            assert (await store.head(KEY)).seq_nr == number


# --- one transaction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_before", range(3))
async def test_a_poll_that_fails_between_two_steps_leaves_nothing(path, monkeypatch, steps_before):
    script = ActionScript(KEY)
    first, rest = script.append(1, 2), [script.append(3), script.delete(2)]
    left = steps_before

    def failing(connection, key, step):
        nonlocal left
        if left == 0:
            raise RuntimeError("crash")
        left -= 1
        carry_out_step(connection, key, step)

    async with SqliteJournalStore(path) as store:
        await apply(store, first)
        carry_out_step = sqlite_store.tables.carry_out_step
        monkeypatch.setattr(sqlite_store.tables, "carry_out_step", failing)
        with pytest.raises(RuntimeError, match="crash"):
            await apply(store, *rest)
        monkeypatch.undo()

        assert await seq_nrs(store, KEY) == [1, 2]
        assert (await store.head(KEY)).offset == 0
        await apply(store, *rest)
        assert await seq_nrs(store, KEY) == [3]


async def test_a_journal_that_fails_takes_none_of_those_along_that_are_written_at_the_same_time(path):
    scripts = [ActionScript(JournalKey("topic", f"entity-{number}")) for number in range(10)]
    actions = [script.append(1, 2) for script in scripts]
    poison = actions[4]
    append = poison.action
    actions[4] = ActionRecord(
        poison.key,
        poison.place,
        poison.timestamp_ms,
        type(append)(range=append.range, payload_type=append.payload_type, payload=b"{not json"),
    )

    async with SqliteJournalStore(path) as store:
        outcomes = await asyncio.gather(*(apply(store, action) for action in actions), return_exceptions=True)

        assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [4]
        assert isinstance(outcomes[4], DecodeError)
        for number, script in enumerate(scripts):
            assert await seq_nrs(store, script.key) == ([] if number == 4 else [1, 2])


async def in_hand(writer, may_go_on):
    """A thread has this in hand until it may go on: what is asked meanwhile waits."""
    has_begun = threading.Event()

    def wait(_):
        has_begun.set()
        may_go_on.wait(30)

    blocked = asyncio.ensure_future(writer.ask(wait))
    await asyncio.to_thread(has_begun.wait)
    return blocked


async def test_what_is_written_at_one_time_shares_a_commit(path):
    traced = []
    may_go_on = threading.Event()

    def connect():
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("CREATE TABLE t (n INTEGER)")
        connection.set_trace_callback(traced.append)
        return connection

    writer = SqliteThread("here", connect, is_writer=True)
    await writer.start()
    blocked = await in_hand(writer, may_go_on)
    asked = [
        asyncio.ensure_future(writer.ask(lambda c, n=n: c.execute("INSERT INTO t VALUES (?)", (n,)).rowcount))
        for n in range(WRITES_TOGETHER_MAX + 10)
    ]
    await asyncio.sleep(0)  # all have asked
    may_go_on.set()
    await asyncio.gather(blocked, *asked)
    await writer.close()

    assert traced.count("COMMIT") == 3  # the one that was in hand, as many as go together, and the rest
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (WRITES_TOGETHER_MAX + 10,)


async def test_who_was_cancelled_before_it_was_its_turn_has_nothing_done(path):
    may_go_on = threading.Event()
    done = []
    writer = SqliteThread("here", lambda: sqlite3.connect(path, isolation_level=None), is_writer=True)
    await writer.start()
    blocked = await in_hand(writer, may_go_on)
    cancelled = asyncio.ensure_future(writer.ask(lambda _: done.append("cancelled")))
    other = asyncio.ensure_future(writer.ask(lambda _: done.append("other")))
    await asyncio.sleep(0)  # all have asked
    cancelled.cancel()
    await asyncio.sleep(0)
    may_go_on.set()

    await asyncio.gather(blocked, other)
    await writer.close()

    assert done == ["other"]


async def test_closing_waits_for_what_was_asked(path):
    async with SqliteJournalStore(path) as store:
        asked = [
            asyncio.ensure_future(apply(store, ActionScript(JournalKey("topic", str(number))).append(1)))
            for number in range(50)
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*asked)

    async with SqliteJournalStore(path) as store:
        assert len([key_id async for key_id in store.ids("topic")]) == 50


# --- beside others ----------------------------------------------------------------------------------------------------


async def test_readers_go_on_beside_a_writer_and_see_what_was_committed(path):
    async with SqliteJournalStore(path) as store, SqliteJournalStore(path) as other:
        await apply(store, ActionScript(KEY).append(1))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM journal")

            assert await seq_nrs(store, KEY) == await seq_nrs(other, KEY) == [1]
            connection.execute("ROLLBACK")

        await apply(other, ActionScript(KEY, offset=1).append(2))
        assert await seq_nrs(store, KEY) == [1, 2]


async def test_a_file_that_another_program_writes_to_for_long_is_told_and_nothing_is_done(path):
    async with SqliteJournalStore(path, busy_ms_max=20) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(Retriable, match="locked") as refused:
                await apply(store, ActionScript(KEY).append(1))
            connection.execute("ROLLBACK")

        assert (refused.value.retryable, bool(refused.value.hint)) == (True, True)
        assert await seq_nrs(store, KEY) == []
        await apply(store, ActionScript(KEY).append(1))
        assert await seq_nrs(store, KEY) == [1]


async def test_a_full_disk_is_told_and_what_was_there_stays(path):
    async with SqliteJournalStore(path) as store:
        script = ActionScript(KEY)
        await apply(store, script.append(1))
        writer, _ = store._threads
        await writer.ask(lambda c: c.execute("PRAGMA max_page_count = 1").fetchone())
        large = script.append(2, header_data='"' + "x" * 1_000_000 + '"')
        with pytest.raises(Retriable, match="full"):
            await apply(store, large)

        assert await seq_nrs(store, KEY) == [1]
        await writer.ask(lambda c: c.execute("PRAGMA max_page_count = 100000").fetchone())
        await apply(store, large)
        assert await seq_nrs(store, KEY) == [1, 2]


async def test_a_journal_of_large_events_is_read_a_few_at_a_time(path, monkeypatch):
    pages = []
    async with SqliteJournalStore(path) as store:
        script = ActionScript(KEY)
        await apply(store, *(script.append(number, header_data='"small"') for number in (1, 2)))
        large = [script.append(number, payload_data='"small"') for number in range(3, 9)]
        monkeypatch.setattr(sqlite_store.tables, "PAGE_BYTES_MAX", 20)
        await apply(store, *large)
        select_rows = sqlite_store.tables.select_rows

        def watched(*arguments, **named):
            page = select_rows(*arguments, **named)
            pages.append(len(page[0]))
            return page

        monkeypatch.setattr(sqlite_store.tables, "select_rows", watched)

        assert await seq_nrs(store, KEY) == list(range(1, 9))
        assert max(pages) <= 3
        assert sum(pages) == 8


# --- kills ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from exactlog.core.journal.keys import JournalKey
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply

async def write(path):
    async with SqliteJournalStore(path, segment_size=3) as store:
        script = ActionScript(JournalKey("topic", "entity-1"))
        number = 0
        while True:
            await apply(store, script.append(number + 1, number + 2), script.append(number + 3), script.delete(number))
            number += 3
            print(number, flush=True)

asyncio.run(write(sys.argv[1]))
"""


def test_a_program_that_is_killed_leaves_whole_polls(path):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, text=True) as program:
        told = [int(program.stdout.readline()) for _ in range(40)]
        program.send_signal(signal.SIGKILL)
        told += [int(line) for line in program.stdout.read().splitlines()]

    asyncio.run(check_whole_polls(path, told=told[-1]))


async def check_whole_polls(path, *, told):
    async with SqliteJournalStore(path) as store:
        head = await store.head(KEY)
        assert head.seq_nr in {told, told + 3}
        assert await seq_nrs(store, KEY) == [head.seq_nr - 2, head.seq_nr - 1, head.seq_nr]
        assert head.offset == head.seq_nr - 1
