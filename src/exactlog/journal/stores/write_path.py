"""From a whole store down to one journal, as a replicator writes: the same two tiers for every store."""

from collections.abc import Callable
from typing import Protocol

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.key_plan import Terms
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.rows import SEGMENT_SIZE_MIN, PointerRow
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.store_ports import KeyJournal

SEGMENT_SIZE_MAX = 2**31 - 1
"""What the column `segment_size` of kafka-journal holds."""


class WrittenTables(Protocol):
    """What a store has to do itself, for all of its tiers."""

    async def pointer(self, topic_partition: TopicPartition) -> PointerRow | None:
        """As `PartitionJournal.pointer`."""

    async def raise_pointer(self, topic_partition: TopicPartition, offset: int, *, now_ms: int) -> None:
        """Create the pointer, or move it; a lower offset than it has changes nothing."""

    def key_journal(self, key: JournalKey, terms_at: Callable[[int], Terms]) -> KeyJournal:
        """One journal. `terms_at` gives the terms of batches that are applied at a time, milliseconds since 1970."""


class TopicTier:
    """The journals of one topic (`TopicJournal`)."""

    def __init__(self, tables: WrittenTables, topic: str, *, segment_size: int) -> None:
        self._tables = tables
        self._topic = topic
        self._segment_size = segment_size

    def partition(self, partition: int) -> "PartitionTier":
        """Those of one partition."""
        return PartitionTier(self._tables, TopicPartition(self._topic, partition), segment_size=self._segment_size)


class PartitionTier:
    """The journals of one partition, and its pointer (`PartitionJournal`)."""

    def __init__(self, tables: WrittenTables, topic_partition: TopicPartition, *, segment_size: int) -> None:
        self._tables = tables
        self._topic_partition = topic_partition
        self._segment_size = segment_size

    async def pointer(self) -> PointerRow | None:
        """How far the partition is replicated; None: nothing of it is yet."""
        return await self._tables.pointer(self._topic_partition)

    async def create_pointer(self, offset: int, *, now_ms: int) -> None:
        """The partition is replicated up to this offset, for the first time.

        Where another replicator was first, this is a move: `created` stays.
        """
        await self._tables.raise_pointer(self._topic_partition, offset, now_ms=now_ms)

    async def move_pointer(self, offset: int, *, now_ms: int) -> None:
        """The partition is replicated up to this offset; a lower one than before changes nothing."""
        await self._tables.raise_pointer(self._topic_partition, offset, now_ms=now_ms)

    def key(self, key_id: str) -> KeyJournal:
        """The journal of this id."""
        return self._tables.key_journal(JournalKey(self._topic_partition.topic, key_id), self._terms_at)

    def _terms_at(self, now_ms: int) -> Terms:
        return Terms(topic_partition=self._topic_partition, now_ms=now_ms, segment_size=self._segment_size)


def check_segment_size(segment_size: int) -> int:
    """The size, where journals may have it.

    Raises:
        JournalInputError: it is below 2 or above 2^31-1.
    """
    if not SEGMENT_SIZE_MIN <= segment_size <= SEGMENT_SIZE_MAX:
        raise JournalInputError(
            f"a segment holds from {SEGMENT_SIZE_MIN} to {SEGMENT_SIZE_MAX} numbers, not {segment_size}",
            hint="it is for journals that begin now; each keeps the size it began with",
        )
    return segment_size
