"""What a broker does without being asked: records leave by retention, files of what was removed go in the end."""

import asyncio

from exactlog.broker.topic_registry import NotOpenYet, Topic, TopicRegistry
from exactlog.core.model.clock import Clock
from exactlog.storage.partition_log import PartitionLog
from exactlog.storage.removal import Retention

DELETE = "delete"
"""The value of `cleanup.policy` by which old segments are dropped."""


class Upkeep:
    """The regular work on the topics of one broker; whoever makes it calls it now and then."""

    def __init__(self, topics: TopicRegistry, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._retaining: asyncio.Task[None] | None = None

    def start_retention(self) -> None:
        """Begins to look at every partition, one after the other, unless that is still going on since the last time."""
        if self._retaining is None or self._retaining.done():
            self._retaining = asyncio.ensure_future(self._retain_all())

    def sweep(self) -> None:
        """Lets the files go whose time has come: those of removed segments, and of deleted topics."""
        now_ms = self._clock.now_ms()
        for partition in self._topics.open_partitions():
            partition.sweep_removed(now_ms=now_ms)
        self._topics.sweep_deleted()

    def stop(self) -> None:
        """Ends what has begun."""
        if self._retaining is not None:
            self._retaining.cancel()

    async def _retain_all(self) -> None:
        for topic in self._topics.topics():
            retention = retention_of(topic)
            if retention is None:
                continue
            for index in range(topic.partition_count):
                # Also a partition that nobody has touched since the start gets older: it is opened for this.
                if isinstance(self._topics.partition(topic.name, index), NotOpenYet):
                    await self._topics.open(topic.name, index)
                partition = self._topics.partition(topic.name, index)
                if isinstance(partition, PartitionLog):
                    partition.apply_retention(retention, now_ms=self._clock.now_ms())
                await asyncio.sleep(0)


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
