"""Purging journals whose time is over, on Spark: the store is looked through in shares, each by a task.

What a task does is `exactlog.journal.purge_expired`, on its share: each purge says how the journal stood when it was
found due, so an append that comes into the log first wins. Nothing is deleted by the job itself: the purges go into the
log, and the replicator carries them out. A run that was stopped, or killed, is run again: what it has not asked for is
due still, and what it has asked for twice happens once.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.client.adapters import connect
from exactlog.client.ports import LATEST, Client, ClientSettings
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.errors import Repartitioned
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.rows import DueJournal, HeadRow
from exactlog.core.model.ids import TopicPartition
from exactlog.journal import Journals, JournalSettings
from exactlog.journal.store_ports import JournalStore
from exactlog.node.clock import SystemClock
from exactlog.pipeline.export_plan import LogReplacedError
from exactlog.pipeline.upkeep_stores import Share, open_share, reachable_url, replicated_topics, shares_for
from exactlog.pipeline.upkeep_tasks import Progress, carry_out, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENT: Final = ClientSettings()
"""Of the log: how long it is tried to be reached."""
SHOWN_MAX: Final = 100
"""Journals that a report names; of the others it counts how many there are."""


class ShownJournal(Struct, frozen=True):
    """A journal that is due, as a report shows it."""

    topic: str
    id: str
    expire_on: date
    seq_nr: int


class PurgedTopic(Struct, frozen=True):
    """What was found in a topic.

    Attributes:
        due: how many journals are due, as the store has them.
        purges: of how many the purge was asked for; 0 in a dry run.
    """

    topic: str
    due: int
    purges: int


class PurgeReport(Struct, frozen=True, kw_only=True):
    """What a run purged.

    Attributes:
        through: journals were due whose day this is, or was before (UTC).
        due: how many journals are due, as the store has them; an append that is not replicated yet may say otherwise.
        purges: of how many the purge was asked for; 0 in a dry run.
        shares: how many parts of the store were looked through.
        shares_left: how many were not, for the run was told to stop.
        is_stopped: whether it was told to stop before all was done.
        is_dry_run: whether nothing was to be written.
        topics: those that were looked through.
        shown: some of the journals.
    """

    through: date
    due: int
    purges: int
    shares: int
    shares_left: int
    is_stopped: bool
    is_dry_run: bool
    topics: tuple[PurgedTopic, ...]
    shown: tuple[ShownJournal, ...]


class _Order(Struct, frozen=True, kw_only=True):
    """What all tasks of a run are told."""

    store: str
    bootstrap: str
    partition_counts: dict[str, int]
    through: date
    is_dry_run: bool


class _Told(Struct, frozen=True):
    """What a task has done."""

    topics: tuple[PurgedTopic, ...]
    shown: tuple[ShownJournal, ...]


def purge_expired(
    spark: "SparkSession",
    *,
    store: str,
    bootstrap: str,
    topics: Sequence[str] = (),
    through: date | None = None,
    dry_run: bool = False,
    share_count: int | None = None,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> PurgeReport:
    """Asks for the purge of every journal whose time is over.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        store: the url of the store: `sqlite:///FILE`, which all tasks must be able to open, or `cassandra://...`.
        bootstrap: `host:port` of the broker with the journals' topics, of any make.
        topics: to look through; all that are replicated by default.
        through: journals are due whose day this is, or was before; the present day (UTC) by default.
        dry_run: only say which are due.
        share_count: in how many parts the store is looked through; four for each core by default.
        progress: told of each round in a line.
        is_stopping: asked between rounds; what was asked for stays so.

    Raises:
        StoreUrlError, NotFoundError: there is no such store, or no such topic.
        ConfigError: it is a file, and tasks run on other machines.
        NewerSchemaError: a newer version made the store; nothing is done.
        Retriable: the store cannot be asked for now. What was asked for so far stays so; run it again.
        UnavailableError: the log cannot be written to; likewise.
        LogReplacedError, Repartitioned: the topic is not the one that was replicated; nothing of it is purged.
        ExactlogError: `explain` gives what Spark raises.
    """
    url = reachable_url(store, master=spark.sparkContext.master)
    day = through or datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date()
    counts = wait_for(_partition_counts(url, bootstrap, topics))
    order = _Order(store=url, bootstrap=bootstrap, partition_counts=counts, through=day, is_dry_run=dry_run)
    shares = shares_for(spark, share_count)
    done: list[_Told] = []
    for told_of_round in carry_out(spark, shares, partial(_purge_share, order), _Told, is_stopping=is_stopping):
        done += told_of_round
        found = sum(topic.due for told in done for topic in told.topics)
        asked = sum(topic.purges for told in done for topic in told.topics)
        progress(f"share {len(done)} of {len(shares)}: {found} journals due so far, {asked} purges asked for")
    return _report(order, done, share_count=len(shares))


def _report(order: _Order, done: Sequence[_Told], *, share_count: int) -> PurgeReport:
    due: Counter[str] = Counter()
    purges: Counter[str] = Counter()
    for topic in (topic for told in done for topic in told.topics):
        due[topic.topic] += topic.due
        purges[topic.topic] += topic.purges
    return PurgeReport(
        through=order.through,
        due=due.total(),
        purges=purges.total(),
        shares=len(done),
        shares_left=share_count - len(done),
        is_stopped=len(done) < share_count,
        is_dry_run=order.is_dry_run,
        topics=tuple(PurgedTopic(topic, due[topic], purges[topic]) for topic in sorted(order.partition_counts)),
        shown=tuple(journal for told in done for journal in told.shown)[:SHOWN_MAX],
    )


# --- before tasks -----------------------------------------------------------------------------------------------------


async def _partition_counts(url: str, bootstrap: str, topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has that is to be looked through; all of them are what was replicated."""
    async with open_share(url) as store, connect(f"kafka://{bootstrap}", CLIENT) as client:
        named = await replicated_topics(store, topics)
        return {topic: await require_same_topic(store, client, topic) for topic in named}


async def require_same_topic(store: JournalStore, client: Client, topic: str) -> int:
    """How many partitions a topic has, which is the one that the store was filled from, as far as its pointers tell.

    Raises:
        NotFoundError: there is no such topic.
        Repartitioned: it has fewer partitions than were replicated.
        LogReplacedError: it ends before what was replicated.
    """
    count = len((await client.describe_topic(topic)).partitions)
    pointers = await store.pointers(topic)
    if any(partition >= count for partition in pointers):
        raise Repartitioned(
            f"topic {topic} has {count} partitions, and partition {max(pointers)} of it was replicated",
            hint="the topic was made anew: its journals are others; give it a store of its own",
        )
    places = [TopicPartition(topic, partition) for partition in pointers]
    ends = await client.list_offsets(dict.fromkeys(places, LATEST)) if places else {}
    for place in places:
        end, offset = int(ends[place].offset or 0), pointers[place.partition].offset
        if end <= offset:
            raise LogReplacedError(
                f"{place} ends at offset {end}, and is replicated up to offset {offset}: it is another log",
                hint="the topic was made anew, or is an older copy of itself: give it a store of its own",
            )
    return count


# --- in a task --------------------------------------------------------------------------------------------------------


def _purge_share(order: _Order, share: Share) -> _Told:
    return wait_for(_purge(order, share))


async def _purge(order: _Order, share: Share) -> _Told:
    topics: list[PurgedTopic] = []
    shown: list[ShownJournal] = []
    async with (
        open_share(order.store, share) as store,
        Journals.open(
            f"kafka://{order.bootstrap}",
            store=store,
            settings=JournalSettings(head_cache=False),
            client_settings=CLIENT,
        ) as journals,
    ):
        for topic, partition_count in order.partition_counts.items():
            due = 0
            async for found in _due_in_place(store, topic, partition_count=partition_count, through=order.through):
                due += 1
                if len(shown) < SHOWN_MAX:
                    shown.append(ShownJournal(topic, found.key.id, found.expire_on, found.seq_nr))
            # Written only now: where one journal of the share is not where it should be, none of the topic is purged.
            purges = 0 if order.is_dry_run or not due else await journals.purge_expired([topic], today=order.through)
            topics.append(PurgedTopic(topic, due, purges))
    return _Told(tuple(topics), tuple(shown))


async def _due_in_place(
    store: JournalStore, topic: str, *, partition_count: int, through: date
) -> AsyncIterator[DueJournal]:
    """The journals that are due; each stands in the partition that its purge will go to.

    Raises:
        Repartitioned: one does not.
    """
    async for found in store.due(topic, through=through):
        head = await store.head(found.key)
        if head is not None:
            require_its_partition(found.key, head, partition_count=partition_count)
        yield found


def require_its_partition(key: JournalKey, head: HeadRow, *, partition_count: int) -> None:
    """Check that what is written for a journal now goes where its actions are.

    Raises:
        Repartitioned: it would go elsewhere.
    """
    partition = partition_of_key(key.id.encode(), partition_count=partition_count)
    if head.place.partition != partition:
        raise Repartitioned(
            f"journal {key} is in partition {head.place.partition}, and would be in {partition} of the "
            f"{partition_count} that the topic has now",
            hint="its actions would stand in two partitions: copy the topic into one of the new number",
        )
