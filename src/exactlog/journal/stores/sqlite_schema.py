"""The tables of a store in a SQLite file, and how they came to be: numbered statements, each applied once.

The version is that of the last statement that was carried out, from 0 on, under `schema-version` in `setting`. A
statement and its version are one transaction, which takes the write lock of the file first: of two programs that open
it at once one waits. A statement is never changed; a new one goes to the end.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

from exactlog.journal.stores.errors import NewerSchemaError, StoreSchemaError

SCHEMA_VERSION_KEY: Final = "schema-version"
NO_VERSION: Final = -1

MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE metajournal (
      topic TEXT NOT NULL,
      id TEXT NOT NULL,
      partition INTEGER NOT NULL,
      offset INTEGER NOT NULL,
      segment_size INTEGER NOT NULL,
      seq_nr INTEGER NOT NULL,
      delete_to INTEGER,
      created INTEGER NOT NULL,
      updated INTEGER NOT NULL,
      expire_after INTEGER,
      expire_on TEXT,
      record_id TEXT,
      origin TEXT,
      is_reset INTEGER NOT NULL,
      PRIMARY KEY (topic, id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX metajournal_expire_on ON metajournal (topic, expire_on, id) WHERE expire_on IS NOT NULL",
    # by journal, not by time of writing: all events of one stand together, and are read so
    """
    CREATE TABLE journal (
      topic TEXT NOT NULL,
      id TEXT NOT NULL,
      seq_nr INTEGER NOT NULL,
      timestamp INTEGER NOT NULL,
      segment INTEGER NOT NULL,
      partition INTEGER NOT NULL,
      offset INTEGER NOT NULL,
      origin TEXT,
      version TEXT,
      meta_record_id TEXT,
      event_id TEXT,
      tags TEXT,
      metadata TEXT,
      payload_type TEXT,
      payload_txt TEXT,
      payload_bin BLOB,
      headers TEXT,
      PRIMARY KEY (topic, id, seq_nr, timestamp)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE pointer2 (
      topic TEXT NOT NULL,
      partition INTEGER NOT NULL,
      offset INTEGER NOT NULL,
      created INTEGER NOT NULL,
      updated INTEGER NOT NULL,
      PRIMARY KEY (topic, partition)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE snapshot (
      topic TEXT NOT NULL,
      id TEXT NOT NULL,
      record_id TEXT NOT NULL,
      seq_nr INTEGER NOT NULL,
      partition INTEGER NOT NULL,
      offset INTEGER NOT NULL,
      timestamp INTEGER NOT NULL,
      payload_type TEXT,
      payload_txt TEXT,
      payload_bin BLOB,
      metadata TEXT,
      PRIMARY KEY (topic, id, record_id, seq_nr)
    ) WITHOUT ROWID
    """,
)
SCHEMA_VERSION: Final = len(MIGRATIONS) - 1


def schema_version(connection: sqlite3.Connection, *, place: str) -> int:
    """The version of the tables that are there; -1: none is.

    Raises:
        StoreSchemaError: the version is no number.
        NewerSchemaError: it is greater than the newest that is known.
    """
    has_settings = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'setting'"
    if connection.execute(has_settings).fetchone() is None:
        return NO_VERSION
    row = connection.execute("SELECT value FROM setting WHERE key = ?", (SCHEMA_VERSION_KEY,)).fetchone()
    if row is None:
        return NO_VERSION
    try:
        version = int(row[0])
    except ValueError:
        raise StoreSchemaError(
            f"{place} has the schema version {row[0]!r}, which is no number", hint="restore it from a copy"
        ) from None
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(place, version=version, known=SCHEMA_VERSION)
    return version


def migrate_schema(connection: sqlite3.Connection, *, place: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the tables up to date. `connection` commits by itself (isolation level None).

    Raises:
        StoreSchemaError: a statement was refused: there is such a table of another program. The version stays.
        NewerSchemaError: the tables are newer; nothing is done.
        sqlite3.Error: the file cannot be written.
    """
    while schema_version(connection, place=place) < len(migrations) - 1:
        _migrate_once(connection, migrations, place=place)


def _migrate_once(connection: sqlite3.Connection, migrations: Sequence[str], *, place: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = schema_version(connection, place=place) + 1  # another program may have been here meanwhile
        if version < len(migrations):
            connection.execute(
                "CREATE TABLE IF NOT EXISTS setting (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
            )
            try:
                connection.execute(migrations[version])
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    raise
                raise StoreSchemaError(
                    f"{place}: statement {version} of its schema was refused: {error}",
                    hint="keep the journals in a file of their own",
                ) from error
            connection.execute(
                "INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)", (SCHEMA_VERSION_KEY, str(version))
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
