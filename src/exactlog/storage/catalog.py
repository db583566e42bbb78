"""The catalog: what one node knows besides the records themselves, in SQLite, every commit synced (decision 0010).

Cluster and node id, the owner epoch (one higher at every start: the leader epoch of every partition of this node),
topics with their ids, partition counts and configurations, what was set on brokers while they run, and how far producer
ids have been handed out.

A topic is `creating` until all of its partitions exist and `deleting` from the moment its deletion is promised, and has
a plan while it is given more partitions; all are finished or undone at the next start, so that a crash leaves no half
topic behind. Calls block for a disk sync: make
them from a thread of their own.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import ProducerId
from exactlog.core.model.limits import PRODUCER_ID_BLOCK_SIZE

CATALOG_NAME = "catalog.db"

_FORMAT_VERSION = 1
_BROKER_CONFIG = "broker_config."
_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS topics (
    name TEXT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    partitions INTEGER NOT NULL CHECK (partitions > 0),
    config TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('creating', 'live', 'deleting')),
    created_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS partition_plans (topic_id TEXT PRIMARY KEY, partitions INTEGER NOT NULL) STRICT;
"""


class BrokerScope(StrEnum):
    """For which brokers a setting was made while they run."""

    CLUSTER = "cluster"
    """Every broker."""
    NODE = "node"
    """This one alone."""


class TopicState(StrEnum):
    """Where a topic stands between its creation and its deletion."""

    CREATING = "creating"
    LIVE = "live"
    DELETING = "deleting"


class CatalogTopic(Struct, frozen=True):
    """A topic as the catalog holds it; `config` has only what was set for this topic."""

    name: str
    topic_id: UUID
    partition_count: int
    config: Mapping[str, str]
    state: TopicState
    created_ms: int


class CatalogRefusedError(OSError):
    """The catalog could not be read or written: a full disk, above all, or a name that is not free."""


class Catalog:
    """The catalog of one data directory, or of memory when `path` is None.

    Raises:
        DamageError: the file is not a catalog, is damaged, or was written by a newer version.
    """

    def __init__(self, path: str | None) -> None:
        self._lock = threading.Lock()
        self._path = path or "in memory"
        try:
            self._connection = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.DatabaseError as error:
            raise DamageError(
                f"{self._path}: not readable as a catalog: {error}", hint="restore the file from a copy"
            ) from error

    @contextmanager
    def _working(self) -> Iterator[None]:
        """One caller at a time; what SQLite refuses, the disk refused.

        Raises:
            CatalogRefusedError: nothing was changed, or it is not known whether it was.
        """
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise CatalogRefusedError(f"{self._path}: {error}") from error

    def close(self) -> None:
        """Closes the database; nothing is pending, every change is durable when its call returns."""
        with self._working():
            self._connection.close()

    def get(self, name: str) -> str | None:
        """A setting of this node by name."""
        with self._working():
            row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, value: str) -> None:
        """Keeps a setting of this node, durably."""
        with self._working():
            self._put(name, value)

    def next_owner_epoch(self) -> int:
        """The one that `advance_owner_epoch` would give."""
        with self._working():
            return self._number("owner_epoch", default=-1) + 1

    def advance_owner_epoch(self) -> int:
        """One more than at the last start, durably: writes of an earlier owner can be told from ours."""
        with self._working():
            epoch = self._number("owner_epoch", default=-1) + 1
            self._put("owner_epoch", str(epoch))
        return epoch

    def reserve_producer_ids(self, count: int = PRODUCER_ID_BLOCK_SIZE) -> range:
        """The next block of producer ids. Durable before it returns, so no id is ever given twice."""
        with self._working():
            first = self._number("next_producer_id", default=0)
            self._put("next_producer_id", str(first + count))
        return range(ProducerId(first), ProducerId(first + count))

    def topics(self) -> list[CatalogTopic]:
        """All topics in whatever state, by name."""
        with self._working():
            rows = self._connection.execute(
                "SELECT name, id, partitions, config, state, created_ms FROM topics ORDER BY name"
            ).fetchall()
        return [
            CatalogTopic(name, UUID(topic_id), partitions, json.loads(config), TopicState(state), created_ms)
            for name, topic_id, partitions, config, state, created_ms in rows
        ]

    def add_topic(self, topic: CatalogTopic) -> None:
        """Adds a topic whose name and id must be new: one that could not be removed altogether keeps its name."""
        row = (
            topic.name,
            str(topic.topic_id),
            topic.partition_count,
            json.dumps(dict(topic.config)),
            topic.state.value,
            topic.created_ms,
        )
        with self._working():
            self._connection.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?, ?)", row)

    def set_topic_state(self, topic_id: UUID, state: TopicState) -> None:
        """Moves a topic to another state."""
        with self._working():
            self._connection.execute("UPDATE topics SET state = ? WHERE id = ?", (state.value, str(topic_id)))

    def set_topic_config(self, topic_id: UUID, config: Mapping[str, str]) -> None:
        """Keeps what is set on a topic, instead of what was."""
        row = (json.dumps(dict(config)), str(topic_id))
        with self._working():
            self._connection.execute("UPDATE topics SET config = ? WHERE id = ?", row)

    def remove_topic(self, topic_id: UUID) -> None:
        """Forgets a topic, and what was planned for it."""
        with self._working(), self._transaction():
            self._connection.execute("DELETE FROM topics WHERE id = ?", (str(topic_id),))
            self._connection.execute("DELETE FROM partition_plans WHERE topic_id = ?", (str(topic_id),))

    # --- more partitions for a topic --------------------------------------------------------------------------

    def partition_plans(self) -> dict[UUID, int]:
        """To how many partitions topics are about to grow."""
        with self._working():
            rows = self._connection.execute("SELECT topic_id, partitions FROM partition_plans").fetchall()
        return {UUID(topic_id): partitions for topic_id, partitions in rows}

    def plan_partitions(self, topic_id: UUID, count: int) -> None:
        """Says that a topic is about to have so many partitions."""
        with self._working():
            self._connection.execute("INSERT OR REPLACE INTO partition_plans VALUES (?, ?)", (str(topic_id), count))

    def carry_out_plan(self, topic_id: UUID) -> None:
        """From now on the topic has as many partitions as were planned."""
        ids = {"id": str(topic_id)}
        with self._working(), self._transaction():
            self._connection.execute(
                "UPDATE topics SET partitions = (SELECT partitions FROM partition_plans WHERE topic_id = :id) "
                "WHERE id = :id",
                ids,
            )
            self._connection.execute("DELETE FROM partition_plans WHERE topic_id = :id", ids)

    def drop_plan(self, topic_id: UUID) -> None:
        """The topic stays as it is, and nothing is left of the plan."""
        with self._working():
            self._connection.execute("DELETE FROM partition_plans WHERE topic_id = ?", (str(topic_id),))

    # --- what was set on brokers --------------------------------------------------------------------------------

    def broker_config(self, scope: BrokerScope) -> dict[str, str]:
        """What was set on brokers while they run."""
        found = self.get(f"{_BROKER_CONFIG}{scope}")
        config: dict[str, str] = {} if found is None else json.loads(found)
        return config

    def set_broker_config(self, scope: BrokerScope, config: Mapping[str, str]) -> None:
        """Keeps what is set on brokers, instead of what was."""
        self.put(f"{_BROKER_CONFIG}{scope}", json.dumps(dict(config)))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the statements, or none."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode = DELETE")
        # FULL, and the unlinking of the journal, which is what commits, is synced as well: a power cut right afterwards
        # would otherwise roll back.
        self._connection.execute("PRAGMA synchronous = EXTRA")
        self._connection.executescript(_SCHEMA)
        self._check_format()

    def _check_format(self) -> None:
        found = self._number("format_version", default=0)
        if found > _FORMAT_VERSION:
            raise DamageError(
                f"{self._path}: catalog format {found} is newer than {_FORMAT_VERSION}",
                hint="open it with the version of exactlog that wrote it",
            )
        if found < _FORMAT_VERSION:
            self._put("format_version", str(_FORMAT_VERSION))

    def _number(self, name: str, *, default: int) -> int:
        row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else int(row[0])

    def _put(self, name: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))
