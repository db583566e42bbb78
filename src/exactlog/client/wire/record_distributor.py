"""Records to partitions, partitions to batches: what every producer does before it sends anything."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from exactlog.client.ports import ClientSettings
from exactlog.client.produced import ProducedRecord
from exactlog.client.wire.cluster import Cluster, TopicMetadata
from exactlog.client.wire.partitioner import StickyPartitioner, partition_of_key
from exactlog.client.wire.retries import retry
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError
from exactlog.core.model.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from exactlog.core.record.batch_builder import NewRecord

ProduceBatch = Callable[[TopicPartition, Sequence[NewRecord]], Awaitable[Offset | None]]
"""Sends one batch; the offset of its first record, None where that is not told."""

_RECORD_OVERHEAD_BYTES: Final = 32  # lengths and deltas; the most there can be
_HEADER_OVERHEAD_BYTES: Final = 10
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


async def _nothing_to_prepare(places: Collection[TopicPartition]) -> None:
    """Most producers need nothing before they write to a partition."""


class RecordDistributor:
    """Chooses partitions, cuts batches and has them sent. One batch of a partition is under way at a time."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        choose_start: Callable[[], int] = lambda: random.randrange(1 << 16),  # noqa: S311  spreads load, hides nothing
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._now_ms = now_ms
        self._choose_start = choose_start
        self._sticky: dict[str, StickyPartitioner] = {}
        self._turns: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        produce_batch: ProduceBatch,
        *,
        partition: int | None,
        prepare: Callable[[Collection[TopicPartition]], Awaitable[None]] = _nothing_to_prepare,
    ) -> tuple[ProducedRecord, ...]:
        """Have the records sent and say where each went, in the order given.

        Args:
            topic: where to; the broker may create it.
            records: what; those without a timestamp get the time of now.
            produce_batch: sends one batch. One that is too large for the broker is tried again in two halves.
            partition: None: the key decides, or chance.
            prepare: called once, before anything is sent, with all partitions that will be written to.

        Raises:
            ExactlogError: the first that a partition ended with, once all have ended.
        """
        if not records:
            return ()
        what = f"produce to topic {topic}"
        metadata = await retry(what, lambda: self._cluster.topic(topic, may_create=True), self._settings)
        now_ms = self._now_ms()
        stamped = [stamp(record, now_ms=now_ms) for record in records]
        by_place: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        for index, record in enumerate(stamped):
            chosen = self._choose(metadata, record) if partition is None else partition
            by_place[TopicPartition(topic, chosen)].append(index)
        await prepare(by_place)
        produced: dict[int, ProducedRecord] = {}

        async def produce_to(place: TopicPartition, indexes: list[int]) -> None:
            async with self._turns[place]:
                for batch in _in_batches(indexes, stamped, bytes_max=self._settings.batch_bytes_max):
                    batch_records = [stamped[index] for index in batch]
                    offsets = await _produce_or_halve(place, batch_records, produce_batch)
                    for index, offset in zip(batch, offsets, strict=True):
                        produced[index] = ProducedRecord(place.partition, offset)

        endings = await asyncio.gather(
            *(produce_to(place, indexes) for place, indexes in by_place.items()), return_exceptions=True
        )
        _raise_first(endings, produced_count=len(produced), record_count=len(records))
        return tuple(produced[index] for index in range(len(records)))

    def _choose(self, topic: TopicMetadata, record: NewRecord) -> int:
        if record.key is not None:
            return topic.partitions[partition_of_key(record.key, partition_count=len(topic.partitions))].partition
        led = [partition.partition for partition in topic.partitions if partition.leader_id is not None]
        sticky = self._sticky.get(topic.name)
        if sticky is None:
            sticky = self._sticky[topic.name] = StickyPartitioner(self._choose_start())
        every = [partition.partition for partition in topic.partitions]
        return sticky.choose(led or every, record_bytes=_size_of(record))


def stamp(record: NewRecord, *, now_ms: int) -> NewRecord:
    """The record with the time of now, if it has none."""
    if record.timestamp_ms != NO_TIMESTAMP:
        return record
    return msgspec.structs.replace(record, timestamp_ms=TimestampMs(now_ms))


async def _produce_or_halve(
    place: TopicPartition, records: Sequence[NewRecord], produce_batch: ProduceBatch
) -> list[Offset | None]:
    """The offsets of the records. What is too large for the broker in one batch is tried in two halves."""
    try:
        base_offset = await produce_batch(place, records)
    except KafkaError as error:
        if error.kafka_error not in _TOO_LARGE or len(records) == 1:
            raise
        middle = len(records) // 2
        first_half = await _produce_or_halve(place, records[:middle], produce_batch)
        return first_half + await _produce_or_halve(place, records[middle:], produce_batch)
    if base_offset is None:
        return [None] * len(records)
    return [Offset(base_offset + delta) for delta in range(len(records))]


def _size_of(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _in_batches(indexes: Iterable[int], records: Sequence[NewRecord], *, bytes_max: int) -> Iterator[list[int]]:
    """The indexes in groups of records that have at most so many bytes together; a larger one stays alone."""
    batch: list[int] = []
    batch_bytes = 0
    for index in indexes:
        record_bytes = _size_of(records[index])
        if batch and batch_bytes + record_bytes > bytes_max:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(index)
        batch_bytes += record_bytes
    if batch:
        yield batch


def _raise_first(endings: Iterable[BaseException | None], *, produced_count: int, record_count: int) -> None:
    for ending in endings:
        if ending is None:
            continue
        if isinstance(ending, ExactlogError) and record_count > 1:
            told = f"{produced_count} of {record_count} records were appended for certain"
            ending.hint = f"{ending.hint}; {told}" if ending.hint else told
        raise ending
