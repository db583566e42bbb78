"""The tables of a store in Apache Cassandra, and how they came to be.

Two rows of programs' numbered steps are kept in `setting`: kafka-journal's own, under its key and with its numbers, so
that either program brings the tables of the other up to date; and ours, which add what it has no place for. Each step
is carried out under the lock of kafka-journal's programs (`locks`), its number saved when it has succeeded, and looked
for before it is carried out: one that was done and not saved is not done again.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import uuid4

from msgspec import Struct

from exactlog.core.journal.errors import Retriable
from exactlog.journal.stores.cassandra_session import CassandraSession
from exactlog.journal.stores.errors import NewerSchemaError

LOCK: Final = "kafka-journal"
"""Its programs take this one."""
LOCK_SECONDS: Final = 60
"""A lock whose owner died ends by itself."""
LOCK_SECONDS_MAX: Final = 90
LOCK_POLL_SECONDS: Final = 0.1
NO_VERSION: Final = -1


class AddColumn(Struct, frozen=True):
    """A column that a table gets."""

    table: str
    column: str
    type: str


class CreateTable(Struct, frozen=True):
    """A table, or a table with what belongs to it."""

    table: str


class DropTable(Struct, frozen=True):
    """A table of an older version that nobody reads any more."""

    table: str


Step = AddColumn | CreateTable | DropTable

TABLES: Final[Mapping[str, str]] = {
    "metajournal": """
        id TEXT, topic TEXT, segment BIGINT, partition INT, offset BIGINT, segment_size INT, seq_nr BIGINT,
        delete_to BIGINT, created TIMESTAMP, created_date DATE, updated TIMESTAMP, expire_after DURATION,
        expire_on DATE, record_id UUID, origin TEXT, properties MAP<TEXT, TEXT>, metadata TEXT,
        PRIMARY KEY ((topic, segment), id)""",
    "journal": """
        id TEXT, topic TEXT, segment BIGINT, seq_nr BIGINT, partition INT, offset BIGINT, timestamp TIMESTAMP,
        origin TEXT, version TEXT, meta_record_id UUID, tags SET<TEXT>, metadata TEXT, payload_type TEXT,
        payload_txt TEXT, payload_bin BLOB, headers MAP<TEXT, TEXT>,
        PRIMARY KEY ((id, topic, segment), seq_nr, timestamp)""",
    "pointer2": """
        topic TEXT, partition INT, offset BIGINT, created TIMESTAMP, updated TIMESTAMP,
        PRIMARY KEY ((topic, partition))""",
    "setting": "key TEXT PRIMARY KEY, value TEXT, timestamp TIMESTAMP, origin TEXT, metadata TEXT",
    "locks": "id TEXT PRIMARY KEY, expiry_ms BIGINT, timestamp TIMESTAMP, metadata TEXT",
    "snapshot": """
        id TEXT, topic TEXT, record_id UUID, seq_nr BIGINT, partition INT, offset BIGINT, timestamp TIMESTAMP,
        payload_type TEXT, payload_txt TEXT, payload_bin BLOB, metadata TEXT,
        PRIMARY KEY ((id, topic), record_id, seq_nr)""",
}
_AFTER_COLUMNS: Final = {"snapshot": "WITH CLUSTERING ORDER BY (record_id ASC, seq_nr DESC)"}
_KAFKA_JOURNALS: Final = ("metajournal", "journal", "pointer2", "setting")
_INDEXES: Final = ("created_date", "expire_on")
"""Of `metajournal`: kafka-journal asks by them."""


class Track(Struct, frozen=True):
    """A row of steps, and the key in `setting` that says how far they are done."""

    key: str
    steps: Sequence[Step]

    @property
    def newest(self) -> int:
        """The number of the last step."""
        return len(self.steps) - 1


KAFKA_JOURNAL: Final = Track(
    "schema-version",
    (
        AddColumn("journal", "headers", "MAP<TEXT, TEXT>"),
        AddColumn("journal", "version", "TEXT"),
        DropTable("metadata"),
        CreateTable("pointer2"),
        AddColumn("journal", "meta_record_id", "UUID"),
        AddColumn("metajournal", "record_id", "UUID"),
        DropTable("pointer"),
        DropTable("metadata"),
        DropTable("pointer"),
    ),
)
OURS: Final = Track("exactlog-schema-version", (AddColumn("journal", "event_id", "TEXT"), CreateTable("snapshot")))
TRACKS: Final = (KAFKA_JOURNAL, OURS)


class CassandraSchema:
    """The tables of one keyspace."""

    def __init__(self, session: CassandraSession, *, tracks: Sequence[Track] = TRACKS) -> None:
        self._session = session
        self._keyspace = session.place.keyspace
        self._tracks = tracks

    async def set_up(self) -> None:
        """Make the tables, or bring them up to date. Where they are, it is a look and no more.

        Raises:
            NewerSchemaError: a newer version made them; nothing is done.
            Retriable: a step did not succeed for now; its number stays as it was.
        """
        tables = await self._tables()
        if tables is None:
            await self._create_keyspace()
            tables = {}
        if await self._is_up_to_date(tables):
            return
        await self._create("locks")
        owner = str(uuid4())
        await self._lock(owner)
        try:
            await self._bring_up_to_date()
        finally:
            await self._session.execute_once(
                f"DELETE FROM {self._keyspace}.locks WHERE id = %s IF metadata = %s",  # noqa: S608  checked name
                (LOCK, owner),
            )

    async def _bring_up_to_date(self) -> None:
        tables = await self._tables() or {}
        if await self._is_up_to_date(tables):
            return  # another program was here while we waited
        is_fresh = not any(name in tables for name in _KAFKA_JOURNALS)
        for name in _KAFKA_JOURNALS:
            if name not in tables:
                await self._create(name)
        for track in self._tracks:
            if is_fresh and track.key == KAFKA_JOURNAL.key:
                await self._save(track, track.newest)
                continue
            for number in range(await self._version(track) + 1, len(track.steps)):
                await self._carry_out(track.steps[number])
                await self._save(track, number)

    async def _carry_out(self, step: Step) -> None:
        tables = await self._tables() or {}
        match step:
            case CreateTable(table=table):
                await self._create(table)
            case DropTable(table=table):
                if table in tables:
                    await self._session.execute_once(f"DROP TABLE IF EXISTS {self._keyspace}.{table}")
            case AddColumn(table=table, column=column, type=kind):
                if column not in tables[table]:
                    await self._session.execute_once(f"ALTER TABLE {self._keyspace}.{table} ADD {column} {kind}")

    # --- what is there ------------------------------------------------------------------------------------------------

    async def _tables(self) -> Mapping[str, frozenset[str]] | None:
        """The columns of each table; None: there is no such keyspace."""
        name = (self._keyspace.lower(),)  # as it is written without quotes
        of_keyspace = "FROM system_schema.{} WHERE keyspace_name = %s"
        if not await self._session.execute_once(f"SELECT keyspace_name {of_keyspace.format('keyspaces')}", name):
            return None
        columns: dict[str, set[str]] = {}
        for table, column in await self._session.execute_once(
            f"SELECT table_name, column_name {of_keyspace.format('columns')}", name
        ):
            columns.setdefault(table, set()).add(column)
        return {table: frozenset(names) for table, names in columns.items()}

    async def _is_up_to_date(self, tables: Mapping[str, frozenset[str]]) -> bool:
        """Whether nothing is to be done.

        Raises:
            NewerSchemaError: nothing can be done.
        """
        if "setting" not in tables:
            return False
        versions = [await self._version(track) for track in self._tracks]
        for track, version in zip(self._tracks, versions, strict=True):
            if version > track.newest:
                place = f"{self._session.place} ({track.key})"
                raise NewerSchemaError(place, version=version, known=track.newest)
        has_all = all(name in tables for name in _KAFKA_JOURNALS)
        return has_all and versions == [track.newest for track in self._tracks]

    async def _version(self, track: Track) -> int:
        """The number of the last step; what is no number is -1, as for kafka-journal."""
        rows = await self._session.execute_once(
            f"SELECT value FROM {self._keyspace}.setting WHERE key = %s",  # noqa: S608  checked name
            (track.key,),
        )
        try:
            return int(rows[0][0]) if rows else NO_VERSION
        except (TypeError, ValueError):
            return NO_VERSION

    # --- changing it --------------------------------------------------------------------------------------------------

    async def _create_keyspace(self) -> None:
        place = self._session.place
        factor = place.replication_factor
        replication = (
            f"{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
            if place.local_dc is None
            else f"{{'class': 'NetworkTopologyStrategy', '{place.local_dc}': {factor}}}"
        )
        await self._session.execute_once(
            f"CREATE KEYSPACE IF NOT EXISTS {self._keyspace} WITH replication = {replication}"
        )

    async def _create(self, table: str) -> None:
        name = f"{self._keyspace}.{table}"
        after = _AFTER_COLUMNS.get(table, "")
        await self._session.execute_once(f"CREATE TABLE IF NOT EXISTS {name} ({TABLES[table]}) {after}")
        if table == "metajournal":
            for column in _INDEXES:
                await self._session.execute_once(
                    f"CREATE INDEX IF NOT EXISTS {table}_{column}_idx ON {name} ({column})"
                )

    async def _save(self, track: Track, number: int) -> None:
        await self._session.execute_once(
            f"INSERT INTO {self._keyspace}.setting (key, value, timestamp) VALUES (%s, %s, toTimestamp(now()))",  # noqa: S608
            (track.key, str(number)),
        )

    async def _lock(self, owner: str) -> None:
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            is_ours, *_ = (
                await self._session.execute_once(
                    f"INSERT INTO {self._keyspace}.locks (id, expiry_ms, timestamp, metadata) "  # noqa: S608
                    "VALUES (%s, %s, toTimestamp(now()), %s) IF NOT EXISTS USING TTL %s",
                    (LOCK, LOCK_SECONDS * 1_000, owner, LOCK_SECONDS),
                )
            )[0]
            if is_ours:
                return
            if time.monotonic() > deadline:
                raise Retriable(
                    f"{self._session.place}: another program holds the lock of the schema",
                    hint=f"a lock that was left ends after {LOCK_SECONDS} s; open the store again then",
                )
            await asyncio.sleep(LOCK_POLL_SECONDS)
