"""Stores of event journals as the contract suite wants them: open, with a way past their rules."""

import sqlite3
from contextlib import asynccontextmanager, closing
from uuid import uuid4

from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore


class OpenedMemory:
    """A store in memory."""

    def __init__(self, store):
        self.store = store

    async def carry_out(self, key, steps):
        await self.store.carry_out(key, steps)

    async def stored_events(self, key):
        segments = self.store._rows.get(key, {})
        return sorted((row.seq_nr, number) for number, rows in segments.items() for row in rows.values())


@asynccontextmanager
async def open_memory(segment_size):
    async with MemoryJournalStore(segment_size=segment_size) as store:
        yield OpenedMemory(store)


class OpenedSqlite:
    """A store in a file."""

    def __init__(self, store):
        self.store = store

    async def carry_out(self, key, steps):
        await self.store.carry_out(key, steps)

    async def stored_events(self, key):
        with closing(sqlite3.connect(self.store._path)) as connection:  # as another program sees the file
            found = connection.execute("SELECT seq_nr, segment FROM journal WHERE topic = ? AND id = ?", tuple(key))
            return sorted(found)


def sqlite_opener(folder):
    """Opens stores in files of this folder, each in one of its own."""

    @asynccontextmanager
    async def open_sqlite(segment_size):
        async with SqliteJournalStore(folder / f"{uuid4()}.db", segment_size=segment_size) as store:
            yield OpenedSqlite(store)

    return open_sqlite
