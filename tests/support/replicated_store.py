"""Journals that were written and replicated into a SQLite file, for jobs that look after it; and what is in it."""

import asyncio
import sqlite3
from contextlib import closing

from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST
from exactlog.core.model.ids import TopicPartition
from exactlog.journal import Journals, JournalSettings
from exactlog.journal.stores.store_url import cassandra_place, journal_store
from tests.unit.journal.replicating import pointer_at, replicating

NO_CACHE = JournalSettings(head_cache=False)
TABLES = ("metajournal", "journal", "pointer2", "snapshot", "setting")


def write_journals(broker, store, write, *, clock=None):
    """Lets `write(journals)` write; `clock` is when."""

    async def run():
        url = f"kafka://{broker.bootstrap_servers}"
        async with Journals.open(url, store=store, settings=NO_CACHE, clock=clock) as journals:
            await write(journals)

    asyncio.run(run())


def replicate(broker, store, topic):
    """Replicates a topic into a store, as far as it has come."""

    async def run():
        url = f"kafka://{broker.bootstrap_servers}"
        async with connect(url) as client, journal_store(store) as opened, replicating(url, opened, topic):
            for partition, end in enumerate(await ends_of(client, topic)):
                if end:
                    await pointer_at(opened, topic, end - 1, partition=partition)

    asyncio.run(run())


def rows_in(path):
    """All rows of all tables."""
    with closing(sqlite3.connect(path)) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


async def rows_of_table(url, table, columns):
    """The id and these columns of all rows of a table, whether a reader is given them or not; of any store at a URL."""
    statement = f"SELECT id, {columns} FROM "
    if not url.startswith("cassandra"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as connection:
            return sorted(connection.execute(statement + table))
    from exactlog.journal.stores.cassandra_session import CassandraSession  # an extra

    place = cassandra_place(url)
    session = await CassandraSession.connect(place)
    try:
        return sorted(await session.execute_once(f"{statement}{place.keyspace}.{table}"))
    finally:
        await session.close()


def ids_in(path):
    """The ids of the journals that there are."""
    return {row[1] for row in rows_in(path)["metajournal"]}


def log_ends(broker, topic):
    """The end of each partition."""

    async def run():
        async with connect(f"kafka://{broker.bootstrap_servers}") as client:
            return await ends_of(client, topic)

    return asyncio.run(run())


async def ends_of(client, topic):
    """The end of each partition, as a client is told it."""
    places = [TopicPartition(topic, partition) for partition in range(await client.partition_count(topic))]
    found = await client.list_offsets(dict.fromkeys(places, LATEST))
    return [found[place].offset for place in places]
