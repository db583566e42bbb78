"""Numbered migrations of a SQLite file: under a lock, each once, and a newer file is left alone."""

import sqlite3
import threading
from contextlib import closing

import pytest

from exactlog.core.journal.errors import Retriable
from exactlog.core.model.errors import DamageError
from exactlog.journal.stores.errors import NewerSchemaError, StoreSchemaError
from exactlog.journal.stores.sqlite_schema import MIGRATIONS, SCHEMA_VERSION, migrate_schema, schema_version
from exactlog.journal.stores.sqlite_store import SqliteJournalStore

TABLES = {"metajournal", "journal", "pointer2", "snapshot", "setting"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journals.db"


def connect(path):
    return closing(sqlite3.connect(path, isolation_level=None, timeout=30))


def tables(connection):
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def set_version(connection, version):
    connection.execute("UPDATE setting SET value = ? WHERE key = 'schema-version'", (version,))


def test_a_fresh_file_gets_every_table_and_the_newest_version(path):
    with connect(path) as connection:
        assert schema_version(connection, place="here") == -1
        migrate_schema(connection, place="here")

        assert tables(connection) == TABLES
        assert schema_version(connection, place="here") == SCHEMA_VERSION == len(MIGRATIONS) - 1


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_an_older_file_gets_what_it_lacks_and_nothing_twice(path, version):
    with connect(path) as connection:
        migrate_schema(connection, place="here", migrations=MIGRATIONS[: version + 1])
        assert schema_version(connection, place="here") == version
        carried_out = []
        connection.set_trace_callback(carried_out.append)

        migrate_schema(connection, place="here")

        created = [
            statement for statement in carried_out if statement.strip().startswith(("CREATE TABLE m", "CREATE INDEX"))
        ]
        assert schema_version(connection, place="here") == SCHEMA_VERSION
        assert tables(connection) == TABLES
        assert all(statement.strip() in {text.strip() for text in MIGRATIONS[version + 1 :]} for statement in created)


def test_a_version_moves_only_after_its_statement(path):
    broken = (*MIGRATIONS[:2], "CREATE TABLE journal (no such thing", *MIGRATIONS[3:])
    with connect(path) as connection:
        with pytest.raises(StoreSchemaError, match="statement 2 of its schema was refused"):
            migrate_schema(connection, place="here", migrations=broken)

        assert schema_version(connection, place="here") == 1
        assert tables(connection) == {"metajournal", "setting"}

        migrate_schema(connection, place="here")
        assert schema_version(connection, place="here") == SCHEMA_VERSION


async def test_a_newer_file_is_refused_and_left_as_it_is(path):
    with connect(path) as connection:
        migrate_schema(connection, place="here")
        set_version(connection, "987654321")
    before = path.read_bytes()

    with pytest.raises(NewerSchemaError) as refused:
        async with SqliteJournalStore(path):
            pass

    assert (refused.value.version, refused.value.known) == (987_654_321, SCHEMA_VERSION)
    assert refused.value.hint
    assert path.read_bytes() == before
    assert [found.name for found in path.parent.iterdir()] == [path.name]


async def test_a_version_that_is_no_number_is_refused(path):
    with connect(path) as connection:
        migrate_schema(connection, place="here")
        set_version(connection, "eight")

    with pytest.raises(StoreSchemaError, match="'eight'"):
        async with SqliteJournalStore(path):
            pass


async def test_the_tables_of_another_program_are_not_touched(path):
    with connect(path) as connection:
        connection.execute("CREATE TABLE journal (entry TEXT)")
        connection.execute("INSERT INTO journal VALUES ('dear diary')")

    with pytest.raises(StoreSchemaError, match="already exists"):
        async with SqliteJournalStore(path):
            pass

    with connect(path) as connection:
        assert connection.execute("SELECT * FROM journal").fetchall() == [("dear diary",)]


async def test_tables_of_another_program_may_be_beside_ours(path):
    with connect(path) as connection:
        connection.execute("CREATE TABLE diary (entry TEXT)")

    async with SqliteJournalStore(path) as store:
        assert await store.topics() == frozenset()

    with connect(path) as connection:
        assert tables(connection) == TABLES | {"diary"}


async def test_a_file_that_is_no_database_is_damage(path):
    path.write_bytes(b"no database at all " * 1_000)

    with pytest.raises(DamageError, match=r"journals\.db"):
        async with SqliteJournalStore(path):
            pass


async def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Retriable, match="unable to open") as refused:
        async with SqliteJournalStore(tmp_path / "missing" / "journals.db"):
            pass

    assert "folder" in refused.value.hint


def test_programs_that_open_one_file_at_once_migrate_it_once(path):
    failures = []

    def migrate():
        try:
            with connect(path) as connection:
                started.wait()
                migrate_schema(connection, place="here")
        except Exception as error:  # noqa: BLE001  told to the test below
            failures.append(error)

    started = threading.Barrier(6)
    threads = [threading.Thread(target=migrate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    with connect(path) as connection:
        assert tables(connection) == TABLES
