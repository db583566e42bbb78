"""What a task of the journal replicator does: rows of a partition, in their order, into the store.

The rules are those of the replicator that runs in one process (`journal.partition_replicator`). What such a one keeps
in mind between two polls, the driver keeps between two micro-batches, and gives along as an order: where the partition
stands, and what is parked in it.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from exactlog.core.model.errors import ExactlogError, InvariantError
from exactlog.core.model.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from exactlog.core.record.record_format import Record
from exactlog.journal.parking import ParkedRecord
from exactlog.journal.partition_replicator import ActionApplier
from exactlog.journal.replication_metrics import ReplicationMetrics
from exactlog.journal.store_ports import JournalStore
from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.journal_worker import StoreAddress, store_of_worker

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What a task wants of a row."""
OUTCOMES: Final = "outcome string"
"""What it gives back, as Spark's DDL: a `PartitionOutcome` in JSON for each partition that it has had rows of."""
_MICROS_PER_MS: Final = 1_000


class OtherReplicatorError(ExactlogError):
    """Somebody else replicates into the same store, or has put it back to what it was."""

    code = "other-replicator"


class PartitionOrder(Struct, frozen=True, kw_only=True):
    """What there is to do in one partition.

    Attributes:
        start: rows before this offset have been seen to.
        end: behind the last offset of the micro-batch; what has no row there is no action.
        pointer: how far the store was when the driver last looked.
        parked: what is parked before `start`.
        skipped: offsets that an operator has decided to pass over.
    """

    start: int
    end: int
    pointer: int | None
    parked: tuple[ParkedRecord, ...] = ()
    skipped: tuple[int, ...] = ()


class BatchOrder(Struct, frozen=True, kw_only=True):
    """What there is to do in one micro-batch.

    Attributes:
        store: where rows go.
        now_ms: the time of the batch, for the times in the store.
        partitions: those that have something new.
    """

    store: StoreAddress
    now_ms: int
    partitions: Mapping[TopicPartition, PartitionOrder]


class PartitionOutcome(Struct, frozen=True, kw_only=True):
    """What has become of an order.

    Attributes:
        pointer: how far the store is now.
        parked: what is parked in the partition.
        records: rows that were seen to now; those that had been before do not count.
        actions: that were carried out, or had been before.
        refused: actions whose expectation failed.
        forks: appends with numbers that were given already.
    """

    place: TopicPartition
    pointer: int | None
    parked: tuple[ParkedRecord, ...]
    records: int
    actions: int
    refused: int
    forks: int


class TimeOfBatch:
    """A clock that stands still: all that a micro-batch writes has its time."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = TimestampMs(now_ms)

    def now_ms(self) -> TimestampMs:
        """See `Clock`."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """See `Clock`: no time goes by."""
        return 0


class PartitionTask:
    """One partition of a micro-batch.

    Args:
        place: the partition.
        order: what to do.
        store: to write to.
        now_ms: the time of the batch.
        is_retried: whether an earlier attempt may have written some of it.
    """

    def __init__(
        self, place: TopicPartition, order: PartitionOrder, store: JournalStore, *, now_ms: int, is_retried: bool
    ) -> None:
        self._place = place
        self._order = order
        self._is_retried = is_retried
        self._metrics = ReplicationMetrics()
        journal = store.topic(place.topic).partition(place.partition)
        self._applier = ActionApplier(place, journal, TimeOfBatch(now_ms), self._metrics)
        for offset in order.skipped:
            self._applier.parking.skip(offset)

    async def begin(self) -> None:
        """Stand where the store does.

        Raises:
            OtherReplicatorError: that is not where this job has left it.
            Retriable: the store cannot be asked.
        """
        order, pointer = self._order, await self._applier.read_pointer()
        if pointer != order.pointer and not (self._is_retried and self._is_between(pointer)):
            raise OtherReplicatorError(
                f"{self._place} was replicated up to {_told(order.pointer)} when this job last looked, and is now up "
                f"to {_told(pointer)}: another replicator writes to the same store, or the store was put back",
                hint="let one replicator write to a store, and start this one again: it goes on where the store is",
            )
        self._applier.stand_at(max(order.start, 0 if pointer is None else pointer + 1), order.parked)

    async def apply(self, records: list[Record]) -> None:
        """Carry out what rows say that follow each other. Raises `Retriable`."""
        if records and records[-1].offset >= self._applier.position:
            await self._applier.apply(records)
            await self._applier.move_to(records[-1].offset + 1)

    async def end(self) -> PartitionOutcome:
        """All rows were there. Raises `Retriable`."""
        await self._applier.move_to(self._order.end)
        counted = self._metrics
        return PartitionOutcome(
            place=self._place,
            pointer=self._applier.pointer,
            parked=self._applier.parking.parked,
            records=int(counted.records.value),
            actions=int(counted.actions.value),
            refused=int(counted.refused.value),
            forks=int(counted.forks.value),
        )

    def _is_between(self, pointer: int | None) -> bool:
        """Whether an earlier attempt of this order can have left the pointer there."""
        before = -1 if self._order.pointer is None else self._order.pointer
        return pointer is not None and before < pointer < self._order.end


def replicate_rows(batches: "Iterable[pa.RecordBatch]", *, order: BatchOrder) -> "Iterator[pa.RecordBatch]":
    """The function of `mapInArrow`: rows with `COLUMNS` in, `OUTCOMES` out. All rows of a partition come to one task.

    Raises:
        OtherReplicatorError: somebody else writes to the store.
        Retriable: the store cannot be written to; the same rows may come again.
    """
    import pyarrow as pa  # noqa: PLC0415  an extra
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    is_retried = context is not None and context.attemptNumber() > 0
    with hints_kept(), store_of_worker(order.store) as (loop, store):
        outcomes = loop.wait(_replicate(batches, order, store, is_retried=is_retried))
    told = [msgspec.json.encode(outcome).decode() for outcome in outcomes]
    yield pa.RecordBatch.from_pydict({"outcome": pa.array(told, pa.string())})


def decode_outcome(text: str) -> PartitionOutcome:
    """The outcome of a row of `OUTCOMES`."""
    return msgspec.json.decode(text, type=PartitionOutcome)


async def _replicate(
    batches: "Iterable[pa.RecordBatch]", order: BatchOrder, store: JournalStore, *, is_retried: bool
) -> list[PartitionOutcome]:
    tasks: dict[TopicPartition, PartitionTask] = {}
    async for place, records in _by_partition(batches):
        if place not in tasks:
            if place not in order.partitions:
                raise InvariantError(f"rows of {place} come in a micro-batch that has none of them")
            tasks[place] = PartitionTask(
                place, order.partitions[place], store, now_ms=order.now_ms, is_retried=is_retried
            )
            await tasks[place].begin()
        await tasks[place].apply(records)
    return [await task.end() for task in tasks.values()]


async def _by_partition(batches: "Iterable[pa.RecordBatch]") -> AsyncIterator[tuple[TopicPartition, list[Record]]]:
    """The rows as records, those together that stand together."""
    for batch in batches:
        columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in ("topic", "partition")}
        places = list(zip(columns["topic"], columns["partition"], strict=True))
        records = records_of(batch)
        start = 0
        for at in range(1, len(places) + 1):
            if at == len(places) or places[at] != places[start]:
                yield TopicPartition(*places[start]), records[start:at]
                start = at


def records_of(batch: "pa.RecordBatch") -> list[Record]:
    """The rows as records; a time that Spark does not hold is none."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    named = (batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers"))
    return [
        Record(
            Offset(offset),
            NO_TIMESTAMP if time_us is None else TimestampMs(time_us // _MICROS_PER_MS),
            key,
            value,
            tuple((header["name"], header["value"]) for header in headers or ()),
        )
        for time_us, offset, key, value, headers in zip(micros, *named, strict=True)
    ]


def _told(pointer: int | None) -> str:
    return "nothing" if pointer is None else f"offset {pointer}"
