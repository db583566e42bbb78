"""The replicator (`exactlog journal replicate`): topics of journals go into a store.

Replicators of one store share the partitions of each topic as a consumer group. How far a partition is replicated
stands in the store, which is the truth; the group's offsets, committed every few seconds and when partitions go to
another replicator, are for those who watch.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from typing import Final

from msgspec import Struct

from exactlog.client.groups import MemberSettings
from exactlog.client.ports import Client, ConsumedRecord, GroupConsumer
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ExactlogError, NotFoundError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.record_format import Record
from exactlog.journal.action_log import ActionLog
from exactlog.journal.brokers import Connect
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.parking import ParkedRecord, SkippedRecord
from exactlog.journal.partition_replicator import PartitionReplicator
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.store_ports import ReplicatedJournal

_log = logging.getLogger(__name__)

_INTERVAL_COMMIT_SHARE: Final = 0.9


class ReplicatorSettings(Struct, frozen=True, kw_only=True):
    """How a replicator behaves.

    Attributes:
        group_prefix: the group of a topic is called this and the topic. Replicators of different stores need different
            ones.
        discovery_ms: between two looks for new topics.
        poll_records_max: records that are applied together.
        poll_bytes_max: likewise, of their values.
        backoff_ms: after a first failure; it doubles from one to the next.
        backoff_ms_max: where it stops doubling.
        no_progress_ms: a gap that is read from the log and gives nothing for so long is given up for now.
        member: of the groups.
    """

    group_prefix: str = "replicator-"
    discovery_ms: int = 3_000
    poll_records_max: int = 1_000
    poll_bytes_max: int = 16 * 1024 * 1024
    backoff_ms: int = 100
    backoff_ms_max: int = 60_000
    no_progress_ms: int = 10_000
    member: MemberSettings = MemberSettings()


class _Shared(Struct, frozen=True, kw_only=True):
    """What the topics of one replicator have in common."""

    brokers: Connect
    store: ReplicatedJournal
    clock: Clock
    metrics: ReplicationMetrics
    settings: ReplicatorSettings


class Replicator:
    """Replicates topics until it is stopped. Nothing happens before `run`.

    Args:
        brokers: makes clients of the log: one for each topic, and one to find topics with.
        store: to write to.
        clock: for the times in the store.
        topic_prefixes: topics with names that begin so are replicated.
        skipped: records that an operator has decided to pass over.
        settings: how it behaves.
    """

    def __init__(
        self,
        brokers: Connect,
        store: ReplicatedJournal,
        clock: Clock,
        *,
        topic_prefixes: Collection[str] = ("",),
        skipped: Collection[SkippedRecord] = (),
        settings: ReplicatorSettings | None = None,
    ) -> None:
        self.metrics = ReplicationMetrics(count_parked=lambda: len(self.parked))
        self._topic_prefixes = tuple(topic_prefixes)
        self._skipped = tuple(skipped)
        settings = settings or ReplicatorSettings()
        self._shared = _Shared(
            brokers=brokers,
            store=store,
            clock=clock,
            metrics=self.metrics,
            settings=settings,
        )
        self._topics: dict[str, _TopicReplicator] = {}

    @property
    def parked(self) -> tuple[ParkedRecord, ...]:
        """What cannot be replicated, of the partitions that this replicator has or had."""
        return tuple(parked for topic in self._topics.values() for parked in topic.parked)

    async def skip(self, place: TopicPartition, offset: int) -> None:
        """Pass over a record from now on, and replicate what waits behind it.

        Raises:
            NotFoundError: this replicator does not have the partition.
        """
        topic = self._topics.get(place.topic)
        if topic is None or not await topic.skip(place, offset):
            raise NotFoundError(f"{place} is not replicated here", hint="ask the replicator that has parked the record")

    async def run(self) -> None:
        """Replicate until cancelled: what was begun is finished or will be done again by the next one."""
        async with self._shared.brokers() as client, asyncio.TaskGroup() as topics:
            while True:
                for name in await self._found(client):
                    topic = _TopicReplicator(name, self._shared)
                    topic.skip_from_the_start(self._skipped)
                    self._topics[name] = topic
                    topics.create_task(topic.run())
                await asyncio.sleep(self._shared.settings.discovery_ms / 1000)

    async def _found(self, client: Client) -> list[str]:
        """New topics; for now none, where the brokers cannot be asked."""
        try:
            listed = await client.list_topics()
        except ExactlogError as error:
            _log.warning("the topics cannot be listed: %s", error)
            return []
        return [
            topic.name
            for topic in listed
            if not topic.is_internal and topic.name not in self._topics and topic.name.startswith(self._topic_prefixes)
        ]


class _RevokedError(ExactlogError):
    """Partitions are about to go to another replicator, and something read of them is not in the store yet."""

    code = "revoked"


class _TopicReplicator:
    """One topic, as a member of its group."""

    def __init__(self, topic: str, shared: _Shared) -> None:
        self._topic = topic
        self._shared = shared
        self._settings = shared.settings
        self._group = shared.settings.group_prefix + topic
        self._partitions: dict[TopicPartition, PartitionReplicator] = {}
        self._skipped: dict[TopicPartition, list[int]] = {}
        self._turn = asyncio.Lock()
        self._unapplied: list[ConsumedRecord] = []
        self._committed_at = 0.0
        self._log: ActionLog | None = None

    @property
    def parked(self) -> tuple[ParkedRecord, ...]:
        return tuple(record for partition in self._partitions.values() for record in partition.parking.parked)

    def skip_from_the_start(self, skipped: Collection[SkippedRecord]) -> None:
        for record in skipped:
            if record.place.topic == self._topic:
                self._skipped.setdefault(record.place, []).append(record.offset)

    async def skip(self, place: TopicPartition, offset: int) -> bool:
        async with self._turn:
            partition = self._partitions.get(place)
            if partition is None:
                return False
            await partition.skip(offset)
            return True

    async def run(self) -> None:
        """As a member of the group, and again after every failure, a little later each time."""
        backoff_ms = self._settings.backoff_ms
        while True:
            polls = self._shared.metrics.polls.value
            try:
                async with self._shared.brokers() as client:
                    await self._run_as_member(client)
            except ExactlogError as error:
                _log.warning("topic %s: replication begins anew: %s", self._topic, error)
            self._shared.metrics.restarts.inc()
            self._partitions.clear()
            self._unapplied = []
            if self._shared.metrics.polls.value > polls:
                backoff_ms = self._settings.backoff_ms
            await asyncio.sleep(backoff_ms * random.uniform(0.5, 1) / 1000)  # noqa: S311  jitter
            backoff_ms = min(backoff_ms * 2, self._settings.backoff_ms_max)

    async def _find_start(self, place: TopicPartition) -> Offset:
        """Behind what the store has: the group may have committed more, also while another member died."""
        pointer = await self._shared.store.topic(place.topic).partition(place.partition).pointer()
        return Offset(0 if pointer is None else pointer.offset + 1)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _run_as_member(self, client: Client) -> None:
        shared = self._shared
        no_progress_ms = shared.settings.no_progress_ms
        self._log = ActionLog(client, shared.clock, no_progress_ms=no_progress_ms, metrics=JournalMetrics())
        consumer = client.join_group(
            self._group,
            self._topic,
            isolation=IsolationLevel.READ_COMMITTED,
            include_control=True,
            settings=self._settings.member,
            before_commit=self._before_commit,
            find_start=self._find_start,
        )
        async with consumer:
            while True:
                try:
                    await self._read(consumer)
                except _RevokedError:
                    await self._apply()  # and only then let the partitions go
                except asyncio.CancelledError:
                    self._unapplied = []  # the next replicator begins where the store ends
                    raise
                except ExactlogError as error:
                    _log.warning("topic %s: %s", self._topic, error)
                    raise

    async def _read(self, consumer: GroupConsumer) -> None:
        """Gather what is there at once, and apply it while more is asked for."""
        self._committed_at = asyncio.get_running_loop().time()
        records = consumer.records()
        value_bytes = 0
        while True:
            asked = asyncio.ensure_future(_next(records))
            try:
                await asyncio.sleep(0)  # what was fetched before is there after this
                if self._unapplied and not asked.done():
                    await self._apply()
                    value_bytes = 0
                found = await asked
            finally:
                if not asked.done():
                    asked.cancel()
                    await asyncio.wait([asked])
            self._unapplied.append(found)
            value_bytes += len(found.record.value or b"")
            is_full = len(self._unapplied) >= self._settings.poll_records_max
            if is_full or value_bytes >= self._settings.poll_bytes_max:
                await self._apply()
                value_bytes = 0

    def _before_commit(self) -> None:
        """A commit before its time is one before partitions go: what they gave has to be in the store first.

        Others may run ahead of the store by what is being applied. The pointer in the store is what counts.
        """
        now = asyncio.get_running_loop().time()
        interval_s = self._settings.member.commit_interval_ms / 1000
        if self._unapplied and now - self._committed_at < interval_s * _INTERVAL_COMMIT_SHARE:
            raise _RevokedError(f"topic {self._topic}: partitions go to another replicator")
        self._committed_at = now

    # --- applying -----------------------------------------------------------------------------------------------------

    async def _apply(self) -> None:
        if not self._unapplied:
            return
        by_place: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        for found in self._unapplied:
            by_place[found.place].append(found.record)
        async with self._turn:
            outcomes = await asyncio.gather(
                *(self._partition(place).apply(records) for place, records in by_place.items()), return_exceptions=True
            )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        now_ms = self._shared.clock.now_ms()
        for records in by_place.values():
            self._shared.metrics.latency.observe(max(0, now_ms - records[-1].timestamp_ms) / 1000)
        self._shared.metrics.polls.inc()
        self._unapplied = []

    def _partition(self, place: TopicPartition) -> PartitionReplicator:
        partition = self._partitions.get(place)
        if partition is None:
            assert self._log is not None, "a member reads"
            journal = self._shared.store.topic(place.topic).partition(place.partition)
            partition = PartitionReplicator(place, journal, self._log, self._shared.clock, self._shared.metrics)
            for offset in self._skipped.get(place, ()):
                partition.parking.skip(offset)
            self._partitions[place] = partition
        return partition


async def _next(records: AsyncIterator[ConsumedRecord]) -> ConsumedRecord:
    try:
        return await anext(records)
    except StopAsyncIteration:
        raise _EndedError("the group has nothing to read any more") from None


class _EndedError(ExactlogError):
    """The stream of the group has ended, which it does not by itself."""

    code = "ended"
    retryable = True
