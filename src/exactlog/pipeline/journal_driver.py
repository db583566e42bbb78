"""The part of the journal replicator that the driver does: it knows where each partition stands, and orders the rest.

Before a query starts, the store is brought up to where the checkpoint is: a store is ahead of it or behind it, as when
the job has died, when records were parked, or when it is another store. Then each micro-batch is an order to tasks,
and what they tell of it is what the next order begins with.
"""

import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from exactlog.client.adapters import connect
from exactlog.client.ports import ClientSettings
from exactlog.core.journal.rows import SEGMENT_SIZE_DEFAULT
from exactlog.core.model.clock import Clock
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.action_log import ActionLog
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.parking import ParkedRecord, SkippedRecord
from exactlog.journal.partition_replicator import PartitionLog, PartitionReplicator
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.settings import JournalSettings
from exactlog.node.clock import SystemClock
from exactlog.pipeline.errors import explain, hints_kept
from exactlog.pipeline.journal_checkpoint import JournalCheckpoint
from exactlog.pipeline.journal_tasks import (
    COLUMNS,
    OUTCOMES,
    BatchOrder,
    PartitionOrder,
    PartitionOutcome,
    PartitionTask,
    decode_outcome,
    replicate_rows,
)
from exactlog.pipeline.journal_topics import DirectoryLog, JournalTopics, LookedAt, check_places
from exactlog.pipeline.journal_worker import OpenedStore
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Extent
from exactlog.pipeline.stream_offsets import OtherLogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

Notify = Callable[[TopicPartition, int], None]
"""Told of a partition and an offset: everything up to there is in the store. After a restart it may be told again."""

BYTES_PER_BATCH_DEFAULT: Final = 64 * 1024 * 1024
"""Of the log, for one micro-batch: 64 MiB."""
LOOKS: Final = 4
LOOK_AGAIN_S: Final = 0.5
"""A directory may lag behind its broker, from which a store was replicated, for a moment."""


def _tell_nobody(_place: TopicPartition, _offset: int) -> None:
    """See `Notify`."""


class ReplicationSettings(Struct, frozen=True, kw_only=True):
    """How the job behaves.

    Attributes:
        bytes_per_batch: how much of the log one micro-batch takes, about; Spark's own source for Kafka does not know
            bytes, and takes a million offsets.
        segment_size: of journals that begin now.
        clock: for the times in the store; those of a micro-batch are all the same.
        metrics: what is counted, for whoever shows it.
        notify: told of a partition and an offset up to which everything is in the store.
    """

    bytes_per_batch: int = BYTES_PER_BATCH_DEFAULT
    segment_size: int = SEGMENT_SIZE_DEFAULT
    clock: Clock = field(default_factory=SystemClock)
    metrics: ReplicationMetrics = field(default_factory=ReplicationMetrics)
    notify: Notify = _tell_nobody


class NotBegun(Exception):  # noqa: N818  no error: nothing of the batch has begun
    """Told to stop before a micro-batch began."""


class JournalDriver:
    """One run of the job.

    Args:
        checkpoint: of the query, open.
        topics: of the log.
        options: of the log.
        store: to write to, as the driver has it open.
        skipped: records that an operator has decided to pass over.
        settings: how it behaves.

    Attributes:
        rows: how many were seen to.
        batches: how many micro-batches had any.
        is_held: set, no further micro-batch begins.
    """

    def __init__(
        self,
        *,
        checkpoint: JournalCheckpoint,
        topics: JournalTopics,
        options: ReadOptions,
        store: OpenedStore,
        skipped: Collection[SkippedRecord],
        settings: ReplicationSettings,
    ) -> None:
        self.rows = 0
        self.batches = 0
        self.is_held = False
        self._checkpoint = checkpoint
        self._topics = topics
        self._options = options
        self._opened = store
        self._address = replace(store.address, run_id=str(uuid.uuid4()))
        self._skipped: dict[TopicPartition, tuple[int, ...]] = {}
        for record in skipped:
            self._skipped[record.place] = (*self._skipped.get(record.place, ()), record.offset)
        self._clock = settings.clock
        self._metrics = settings.metrics
        self._notify = settings.notify
        self._names: tuple[str, ...] = ()
        self._positions: dict[TopicPartition, int] = {}
        self._pointers: dict[TopicPartition, int | None] = {}
        self._parked: dict[TopicPartition, tuple[ParkedRecord, ...]] = {}
        self._extents: Mapping[TopicPartition, Extent] = {}

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def pointers(self) -> dict[TopicPartition, int]:
        """How far each partition is replicated."""
        return {place: pointer for place, pointer in sorted(self._pointers.items()) if pointer is not None}

    @property
    def parked(self) -> tuple[ParkedRecord, ...]:
        """What cannot be replicated."""
        return tuple(record for _, records in sorted(self._parked.items()) for record in records)

    def lag(self) -> int:
        """How many offsets are left to replicate, as of now."""
        self._extents = self._topics.look().extents
        return self.lag_then()

    def lag_then(self) -> int:
        """How many offsets are left of what there was when the last micro-batch began."""
        return sum(max(0, extent.end_offset - self._position(place)) for place, extent in self._extents.items())

    def _position(self, place: TopicPartition) -> int:
        """The next offset that is to be seen to."""
        pointer = self._pointers.get(place)
        return max(self._positions.get(place, 0), 0 if pointer is None else pointer + 1)

    # --- before a query -----------------------------------------------------------------------------------------------

    def begin(self, names: Sequence[str]) -> None:
        """Bring the store up to where the checkpoint is.

        Raises:
            HeadLost: retention took what is not replicated.
            OtherLogError, Repartitioned, OtherQueryError: as `JournalCheckpoint.check` and `check_places`.
            Retriable: the store or the log cannot be asked.
        """
        self._names = tuple(names)
        self._topics.narrow(names)
        self._positions = {
            place: position for place, position in self._checkpoint.committed().items() if place.topic in self._names
        }
        self._parked = {}
        self._pointers = self._opened.loop.wait(self._read_pointers())
        looked = self._look_until_there()
        for place in looked.extents:
            self._pointers.setdefault(place, None)
        behind = [place for place, position in self._positions.items() if self._is_behind(place, position)]
        if behind:
            self._opened.loop.wait(self._catch_up(sorted(behind)))

    async def _read_pointers(self) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for name in self._names:
            for partition, pointer in (await self._opened.store.pointers(name)).items():
                found[TopicPartition(name, partition)] = pointer.offset
        return found

    def _look_until_there(self) -> LookedAt:
        looks_left = LOOKS if self._options.path is not None else 1
        while True:
            looks_left -= 1
            looked = self._topics.look()
            try:
                self._check(looked)
            except OtherLogError:
                if not looks_left:
                    raise
                time.sleep(LOOK_AGAIN_S)
            else:
                return looked

    def _check(self, looked: LookedAt) -> None:
        """Where something is parked the pointer waits, and what this run has in mind of it need not be in the log."""
        self._checkpoint.check(looked.topics)
        seen_to = {place: self._positions[place] - 1 for place, parked in self._parked.items() if parked}
        pointers = {**self._pointers, **seen_to}
        check_places(looked.extents, positions=self._positions, pointers=pointers, names=self._names)

    def _is_behind(self, place: TopicPartition, position: int) -> bool:
        pointer = self._pointers.get(place)
        return (0 if pointer is None else pointer + 1) < position

    async def _catch_up(self, places: Sequence[TopicPartition]) -> None:
        """What lies between the store and the checkpoint is read from the log, and finds again what is parked."""
        async with self._log_of_gaps() as log:
            for place in places:
                journal = self._opened.store.topic(place.topic).partition(place.partition)
                replicator = PartitionReplicator(place, journal, log, self._clock, self._metrics)
                for offset in self._skipped.get(place, ()):
                    replicator.parking.skip(offset)
                await replicator.catch_up(self._positions[place])
                self._take_place(place, replicator.pointer, replicator.parking.parked)

    @asynccontextmanager
    async def _log_of_gaps(self) -> AsyncIterator[PartitionLog]:
        if self._options.path is not None:
            with closing(DirectoryLog(self._options)) as directory:
                yield directory
            return
        url = f"kafka://{(self._options.bootstrap or '').removeprefix('kafka://')}"
        async with connect(url, ClientSettings(client_id="exactlog-spark")) as client:
            no_progress_ms = JournalSettings().no_progress_ms
            yield ActionLog(client, self._clock, no_progress_ms=no_progress_ms, metrics=JournalMetrics())

    # --- a micro-batch ------------------------------------------------------------------------------------------------

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        """The function of `foreachBatch`. What of it an earlier attempt has written is passed over.

        Raises:
            NotBegun: the job is to stop; nothing was begun.
            ExactlogError: as `begin`, and as the tasks raise.
        """
        if self.is_held:
            raise NotBegun
        with hints_kept():
            looked = self._topics.look()
            self._extents = looked.extents
            self._check(looked)
            ends = self._checkpoint.ends_of(batch_id)
            partitions = {
                place: self._order(place, end)
                for place, end in ends.items()
                if place.topic in self._names and end > self._positions.get(place, 0)
            }
            self._checkpoint.note({place.topic: looked.topics[place.topic] for place in partitions})
            order = BatchOrder(store=self._address, now_ms=self._clock.now_ms(), partitions=partitions)
            outcomes = _of_tasks(batch, order)
            outcomes += self._without_rows(order, {outcome.place for outcome in outcomes})
            for outcome in outcomes:
                self._positions[outcome.place] = ends[outcome.place]
                self._take_in(outcome)
            self.batches += bool(outcomes)

    def _order(self, place: TopicPartition, end: int) -> PartitionOrder:
        return PartitionOrder(
            start=self._positions.get(place, 0),
            end=end,
            pointer=self._pointers.get(place),
            parked=self._parked.get(place, ()),
            skipped=self._skipped.get(place, ()),
        )

    def _without_rows(self, order: BatchOrder, seen: Collection[TopicPartition]) -> list[PartitionOutcome]:
        """Partitions that had nothing but what no reader sees: their pointers pass it."""

        async def passed_over(place: TopicPartition) -> PartitionOutcome:
            task = PartitionTask(
                place, order.partitions[place], self._opened.store, now_ms=order.now_ms, is_retried=False
            )
            await task.begin()
            return await task.end()

        return [self._opened.loop.wait(passed_over(place)) for place in order.partitions if place not in seen]

    def _take_in(self, outcome: PartitionOutcome) -> None:
        metrics = self._metrics
        for counter, count in (
            (metrics.records, outcome.records),
            (metrics.actions, outcome.actions),
            (metrics.refused, outcome.refused),
            (metrics.forks, outcome.forks),
        ):
            counter.inc(count)
        self.rows += outcome.records
        self._take_place(outcome.place, outcome.pointer, outcome.parked)

    def _take_place(self, place: TopicPartition, pointer: int | None, parked: Sequence[ParkedRecord]) -> None:
        known = {record.offset for record in self._parked.get(place, ())}
        for record in parked:
            if record.offset not in known:
                _log.error("%s offset %d, journal %s: parked: %s", place, record.offset, record.key_id, record.reason)
        before = self._pointers.get(place)
        self._pointers[place] = pointer
        self._parked[place] = tuple(parked)
        if pointer is not None and pointer != before:
            self._notify(place, pointer)

    # --- when a query has failed --------------------------------------------------------------------------------------

    def check_again(self) -> None:
        """Raise what is wrong with the log, where that is why a query has failed."""
        self._check(self._topics.look())


def _of_tasks(batch: "DataFrame", order: BatchOrder) -> list[PartitionOutcome]:
    try:
        rows = batch.select(*COLUMNS).mapInArrow(partial(replicate_rows, order=order), OUTCOMES).collect()
    except Exception as error:
        raise explain(error) from error
    return [decode_outcome(row["outcome"]) for row in rows]
