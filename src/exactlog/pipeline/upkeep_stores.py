"""A store of journals as tasks share it: each looks through the journals of its own segments, all leave none out.

A journal's head row is in one of `SEGMENTS` segments by the hash of its id. Share i of n has the segments i, i + n,
i + 2n, ... (`segments_of_partition`), as the nodes of kafka-journal's purge job have them. In Apache Cassandra a task
asks for nothing but its segments; rows of the older, coarser segments count by the number that they have there. A file
has no segments: a task passes over what another one sees to.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, SeqRange
from exactlog.core.journal.rows import DueJournal
from exactlog.core.journal.segments import SEGMENTS, head_segment, segments_of_partition
from exactlog.core.model.errors import ConfigError, NotFoundError
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.errors import StoreUrlError
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.journal.stores.store_url import cassandra_place, journal_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_EVENT: Final = SeqRange(SEQ_NR_MIN, SEQ_NR_MAX)
_SHARES_PER_CORE: Final = 4
"""A job ends, says how far it is, and may be stopped, after each quarter."""

_SQLITE: Final = "sqlite"
_CASSANDRA: Final = "cassandra"
_LOCAL: Final = "local"


class Share(Struct, frozen=True):
    """One part of the journals of a store.

    Attributes:
        index: from 0 on.
        count: of all shares; with 1 it is the whole store.
    """

    index: int
    count: int

    def segments(self) -> frozenset[int]:
        """Those whose journals it has."""
        return frozenset(segments_of_partition(self.index, partitions=self.count, segments=SEGMENTS))


WHOLE: Final = Share(0, 1)


def shares_of(count: int) -> tuple[Share, ...]:
    """So many shares; no more than there are segments, or two would have the same journals."""
    count = max(1, min(count, SEGMENTS))
    return tuple(Share(index, count) for index in range(count))


def shares_for(spark: "SparkSession", count: int | None) -> tuple[Share, ...]:
    """So many shares, or as many as are right for the cores of a session."""
    return shares_of(count or spark.sparkContext.defaultParallelism * _SHARES_PER_CORE)


def reachable_url(url: str, *, master: str | None, must_exist: bool = True) -> str:
    """The url of a store as tasks may open it, from whatever folder they run in.

    Args:
        url: of the store.
        master: of the session: whether tasks run on this machine.
        must_exist: whether a file has to be there; a job of upkeep makes none.

    Raises:
        StoreUrlError: it names no store, or one in the memory of a program.
        ConfigError: it is a file, and tasks run on other machines.
        DriverMissingError: the package for Apache Cassandra is not installed.
        NotFoundError: there is no such file.
    """
    journal_store(url)  # says what is wrong with it
    scheme, _, rest = url.partition(":")
    if scheme == _CASSANDRA:
        return url
    if scheme != _SQLITE:
        raise StoreUrlError(
            f"a store in {url!r} is in the memory of one program, where no task reaches it",
            hint="for example sqlite:journals.db or cassandra://127.0.0.1:9042/journal",
        )
    if not (master or _LOCAL).startswith(_LOCAL):
        raise ConfigError(
            f"{url} is a file of one machine, and tasks run on those of {master}",
            hint="run the job with a local master, or keep the journals in Apache Cassandra",
        )
    named = rest[2:].partition("/")[2] if rest.startswith("//") else rest
    path = Path(named).absolute()
    if must_exist and not path.is_file():
        raise NotFoundError(
            f"there is no store of journals {path}", hint="a replicator makes it: `exactlog journal replicate`"
        )
    return f"{_SQLITE}:{path}"


def open_share(url: str, share: Share = WHOLE) -> JournalStore:
    """A store whose `ids` and `due` are those of one share. Entering its context opens it.

    Args:
        url: as `reachable_url` gave it.
        share: which part.
    """
    if url.startswith(_CASSANDRA):
        from exactlog.pipeline.upkeep_cassandra import CassandraShare  # noqa: PLC0415  an extra

        return CassandraShare(cassandra_place(url), share.segments())
    return SqliteShare(url.partition(":")[2], share.segments())


async def replicated_topics(store: JournalStore, wanted: Sequence[str]) -> tuple[str, ...]:
    """The topics that a job is for, by name: those that are wanted; none: all that the store has something of.

    Raises:
        NotFoundError: it has nothing of one that is wanted.
    """
    there = await store.topics()
    missing = sorted(set(wanted) - there)
    if missing:
        raise NotFoundError(
            f"nothing of topic {', '.join(missing)} is replicated into the store",
            hint=f"there is something of {', '.join(sorted(there)) or 'no topic'}",
        )
    return tuple(sorted(set(wanted) or there))


class SqliteShare(SqliteJournalStore):
    """A store in a file, of which one task sees its share of the journals.

    Args:
        path: of the file.
        segments: whose journals it has.
    """

    def __init__(self, path: str | Path, segments: frozenset[int]) -> None:
        super().__init__(path)
        self._segments = segments

    async def ids(self, topic: str) -> AsyncIterator[str]:
        """The ids of the journals of a topic that are in the share."""
        async for key_id in super().ids(topic):
            if self._has(key_id):
                yield key_id

    async def due(self, topic: str, *, through: date) -> AsyncIterator[DueJournal]:
        """The journals of a topic that are in the share and due."""
        async for found in super().due(topic, through=through):
            if self._has(found.key.id):
                yield found

    def _has(self, key_id: str) -> bool:
        return head_segment(key_id, segments=SEGMENTS) in self._segments
