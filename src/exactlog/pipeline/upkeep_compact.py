"""Compacting a store of journals on Spark: rows of events that no reader is ever given go.

Such rows are those at or below the `delete_to` of their journal, those of another life than its present one, and those
of journals that there are not. exactlog's own replicator leaves none; other programs, and older ones, have. In a file
each journal is judged and cleared in one transaction, head row and rows together, so that a replicator may run beside.
What is free in the file afterwards is used again by SQLite; the file stays as large as it is.

A store in Apache Cassandra is refused: there nothing holds head row and rows together, and a purge between the look at
the one and the deletion of the others would take events of the next life along.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.core.model.errors import UnsupportedError
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.pipeline.upkeep_stores import Share, SqliteShare, reachable_url, replicated_topics, shares_for
from exactlog.pipeline.upkeep_tasks import Progress, carry_out, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDS_PER_PAGE: Final = 200
"""Journals that are cleared in one transaction: a replicator waits no longer than that takes."""

_NO_JOURNAL: Final = "m.id IS NULL"
_DELETED: Final = "m.id IS NOT NULL AND j.seq_nr <= coalesce(m.delete_to, 0)"
_OTHER_LIFE: Final = (
    "m.record_id IS NOT NULL AND j.meta_record_id IS NOT m.record_id AND j.seq_nr > coalesce(m.delete_to, 0)"
)
_COUNT: Final = (
    f"SELECT count(*) FILTER (WHERE {_NO_JOURNAL}), count(*) FILTER (WHERE {_DELETED}), "  # noqa: S608  all ours
    f"count(*) FILTER (WHERE {_OTHER_LIFE}) FROM journal j "
    "LEFT JOIN metajournal m ON m.topic = j.topic AND m.id = j.id WHERE j.topic = ? AND j.id = ?"
)
_DELETE: Final = (
    "DELETE FROM journal WHERE (topic, id, seq_nr, timestamp) IN ("  # noqa: S608  all ours
    "SELECT j.topic, j.id, j.seq_nr, j.timestamp FROM journal j "
    "LEFT JOIN metajournal m ON m.topic = j.topic AND m.id = j.id WHERE j.topic = ? AND j.id = ? "
    f"AND ({_NO_JOURNAL} OR {_DELETED} OR {_OTHER_LIFE}))"
)
_NEXT_ID: Final = "SELECT min(id) FROM journal WHERE topic = ? AND id > ?"
"""One after the other: to list them all would be to read all rows."""


class CompactedTopic(Struct, frozen=True):
    """What was found in a topic.

    Attributes:
        journals: how many have rows.
        of_no_journal, deleted, of_other_lives: rows that were removed, or would be, by why nobody reads them.
    """

    topic: str
    journals: int
    of_no_journal: int
    deleted: int
    of_other_lives: int

    @property
    def rows(self) -> int:
        """How many rows were removed, or would be."""
        return self.of_no_journal + self.deleted + self.of_other_lives


class CompactReport(Struct, frozen=True, kw_only=True):
    """What a run compacted.

    Attributes:
        rows: how many rows were removed, or would be.
        journals: how many have rows.
        shares: how many parts of the store were looked through.
        shares_left: how many were not, for the run was told to stop.
        is_stopped: whether it was told to stop before all was done.
        is_dry_run: whether nothing was to be removed.
        topics: those that were looked through.
    """

    rows: int
    journals: int
    shares: int
    shares_left: int
    is_stopped: bool
    is_dry_run: bool
    topics: tuple[CompactedTopic, ...]


def compact_store(
    spark: "SparkSession",
    *,
    store: str,
    topics: Sequence[str] = (),
    dry_run: bool = False,
    share_count: int | None = None,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CompactReport:
    """Removes the rows of a store that no reader is ever given.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        store: the url of the store, `sqlite:///FILE`, which all tasks must be able to open.
        topics: to look through; all that are replicated by default.
        dry_run: only say how many there are.
        share_count: in how many parts the store is looked through; four for each core by default.
        progress: told of each round in a line.
        is_stopping: asked between rounds; what was removed is.

    Raises:
        StoreUrlError, NotFoundError: there is no such store, or no such topic in it.
        UnsupportedError: it is in Apache Cassandra.
        ConfigError: it is a file, and tasks run on other machines.
        NewerSchemaError: a newer version made the store; nothing is done.
        Retriable: the store cannot be written to for now; what was removed is. Run it again.
        ExactlogError: `explain` gives what Spark raises.
    """
    url = reachable_url(store, master=spark.sparkContext.master)
    scheme, _, path = url.partition(":")
    if scheme != "sqlite":
        raise UnsupportedError(
            "the rows of a store in Apache Cassandra are not compacted: nothing holds head row and rows together there",
            hint="`exactlog pipeline verify --store` says what is in it that should not be",
        )
    named = wait_for(_topics(path, topics))
    shares = shares_for(spark, share_count)
    work = partial(_compact_share, path=path, topics=named, is_dry_run=dry_run)
    done: list[list[CompactedTopic]] = []
    for told_of_round in carry_out(spark, shares, work, list[CompactedTopic], is_stopping=is_stopping):
        done += told_of_round
        rows = sum(topic.rows for told in done for topic in told)
        progress(f"share {len(done)} of {len(shares)}: {rows} rows {'to remove' if dry_run else 'removed'} so far")
    found = tuple(_total(topic, [each for told in done for each in told if each.topic == topic]) for topic in named)
    return CompactReport(
        rows=sum(topic.rows for topic in found),
        journals=sum(topic.journals for topic in found),
        shares=len(done),
        shares_left=len(shares) - len(done),
        is_stopped=len(done) < len(shares),
        is_dry_run=dry_run,
        topics=found,
    )


def _total(topic: str, parts: Sequence[CompactedTopic]) -> CompactedTopic:
    names = ("journals", "of_no_journal", "deleted", "of_other_lives")
    return CompactedTopic(topic, **{name: sum(getattr(part, name) for part in parts) for name in names})


async def _topics(path: str, wanted: Sequence[str]) -> tuple[str, ...]:
    async with SqliteJournalStore(path) as store:
        return await replicated_topics(store, wanted)


# --- in a task --------------------------------------------------------------------------------------------------------


def _compact_share(share: Share, *, path: str, topics: Sequence[str], is_dry_run: bool) -> list[CompactedTopic]:
    async def compact() -> list[CompactedTopic]:
        async with _ClearedShare(path, share.segments()) as store:
            return [await store.clear(topic, is_dry_run=is_dry_run) for topic in topics]

    return wait_for(compact())


class _ClearedShare(SqliteShare):
    """A store in a file, of whose journals one share is cleared of rows that nobody reads."""

    async def clear(self, topic: str, *, is_dry_run: bool) -> CompactedTopic:
        """Clears the journals of a topic, some at a time."""
        counts = [0, 0, 0, 0]
        thread = self._reader if is_dry_run else self._writer
        after: str | None = ""
        while after is not None:
            after, found = await thread.ask(partial(self._clear_page, topic=topic, after=after, is_dry_run=is_dry_run))
            counts = [count + more for count, more in zip(counts, found, strict=True)]
        return CompactedTopic(topic, *counts)

    def _clear_page(
        self, connection: sqlite3.Connection, *, topic: str, after: str, is_dry_run: bool
    ) -> tuple[str | None, list[int]]:
        """Where to go on (None: that was all), and what was found: journals, and rows by why nobody reads them."""
        counts = [0, 0, 0, 0]
        for _ in range(_IDS_PER_PAGE):
            (key_id,) = connection.execute(_NEXT_ID, (topic, after)).fetchone()
            if key_id is None:
                return None, counts
            after = key_id
            if not self._has(key_id):
                continue
            rows = connection.execute(_COUNT, (topic, key_id)).fetchone()
            counts = [counts[0] + 1, *(count + more for count, more in zip(counts[1:], rows, strict=True))]
            if any(rows) and not is_dry_run:
                connection.execute(_DELETE, (topic, key_id))
        return after, counts
