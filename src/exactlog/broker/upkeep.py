"""What a broker does without being asked: records leave by retention, files of what was removed go in the end."""

import asyncio
from collections.abc import Sequence

from exactlog.broker.topic_registry import NotOpenYet, Topic, TopicRegistry
from exactlog.core.model.clock import Clock
from exactlog.core.model.limits import UPKEEP_PARTITIONS_AT_ONCE_MAX
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.removal import Retention
from exactlog.storage.waiting import until_settled

DELETE = "delete"
"""The value of `cleanup.policy` by which old segments are dropped."""


class Upkeep:
    """The regular work on the topics of one broker; whoever makes it calls it now and then."""

    def __init__(self, topics: TopicRegistry, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._retaining: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def start_retention(self) -> None:
        """Begins to look at every partition, one after the other, unless that is still going on since the last time."""
        if self._retaining is None or self._retaining.done():
            self._retaining = asyncio.ensure_future(self._retain_all())

    def sweep(self) -> None:
        """Lets the files go whose time has come: those of deleted topics, and of removed segments.

        The latter one partition after the other, unless that is still going on since the last time.
        """
        self._topics.sweep_deleted()
        if self._sweeping is None or self._sweeping.done():
            found = [partition for partition in self._topics.open_partitions() if partition.committed.has_removed_files]
            if found:
                self._sweeping = asyncio.ensure_future(self._sweep_all(found, now_ms=self._clock.now_ms()))

    def stop(self) -> None:
        """Ends what has begun."""
        for task in (self._retaining, self._sweeping):
            if task is not None:
                task.cancel()

    async def _sweep_all(self, partitions: Sequence[PartitionLog], *, now_ms: int) -> None:
        changed = _Changed()
        for partition in partitions:
            if partition.sweep_removed(now_ms=now_ms):
                await changed.add(partition)
            await asyncio.sleep(0)
        await changed.wait()

    async def _retain_all(self) -> None:
        changed = _Changed()
        for topic in self._topics.topics():
            retention = retention_of(topic)
            if retention is None:
                continue
            for index in range(topic.partition_count):
                # Also a partition that nobody has touched since the start gets older: it is opened for this.
                if isinstance(self._topics.partition(topic.name, index), NotOpenYet):
                    await self._topics.open(topic.name, index)
                partition = self._topics.partition(topic.name, index)
                if isinstance(partition, PartitionLog) and partition.apply_retention(
                    retention, now_ms=self._clock.now_ms()
                ):
                    await changed.add(partition)
                await asyncio.sleep(0)
        await changed.wait()


class _Changed:
    """Partitions that publish a version for the upkeep: so few at once that no round of them holds up the loop."""

    def __init__(self) -> None:
        self._waiting: list[PartitionLog] = []

    async def add(self, partition: PartitionLog) -> None:
        """One more; where that is enough for now, waits for all."""
        self._waiting.append(partition)
        if len(self._waiting) >= UPKEEP_PARTITIONS_AT_ONCE_MAX:
            await self.wait()

    async def wait(self) -> None:
        """Waits until the versions of all are there, or refused."""
        await asyncio.gather(*(until_settled(each.when_published) for each in self._waiting))
        self._waiting.clear()


def retention_of(topic: Topic) -> Retention | None:
    """How much of a topic's partitions is kept; None for all of it: of an internal topic its coordinator decides."""
    config = topic.config
    if (
        topic.is_internal
        or DELETE not in config.cleanup_policy
        or (config.retention_ms < 0 and config.retention_bytes < 0)
    ):
        return None
    return Retention(
        ms=config.retention_ms if config.retention_ms >= 0 else None,
        bytes_max=config.retention_bytes if config.retention_bytes >= 0 else None,
    )
