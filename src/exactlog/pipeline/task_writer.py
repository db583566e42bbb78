"""What one task of a write does: rows into batches, batches to the partitions that it owns, all in one transaction.

Batches are built where Spark hands rows over, and sent beside it: several at a time, those of a partition one after
the other. What has been built and not acknowledged is bounded.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from exactlog.client.transactions import TOO_LARGE, SharedTransaction
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError, ExactlogError, KafkaError, UnavailableError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.sequences import add_to_sequence
from exactlog.pipeline.client_thread import ClientThread
from exactlog.pipeline.partition_rows import PartitionedRows
from exactlog.pipeline.record_rows import InvalidRowError, RecordRows, build_batch_of_rows, concatenate
from exactlog.pipeline.sink_transaction import (
    SINK_SETTINGS,
    BatchId,
    SharedPartitionError,
    SinkTransaction,
    TaskFailure,
    TaskOutcome,
    WrittenPartition,
    abort,
    explained,
    is_recorded,
    is_written_to,
)
from exactlog.pipeline.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES_MAX: Final = 900_000
"""Of the records of one batch, uncompressed: a broker takes 1 MiB unless `max.message.bytes` says otherwise."""

BATCH_ROWS_MAX: Final = 50_000
PENDING_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of the rows that wait for more of their partition, in all partitions of a task."""

IN_FLIGHT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of the rows whose batches were built and are not acknowledged."""

_LOST_PLACE: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})


class RetriedTaskError(ExactlogError):
    """A task is attempted again, in a transaction in which its first attempt may have written."""

    code = "retried-task"
    retryable = True


class TaskContextMissingError(ExactlogError):
    """A write runs outside of a task of Spark, or in a stream that does not say which batch this is."""

    code = "task-context-missing"


def check_attempt(*, attempt_number: int, is_speculative: bool) -> None:
    """Raises unless this is the one attempt of a task that may write.

    Raises:
        ConfigError: with `spark.speculation` two attempts could write side by side.
        RetriedTaskError: another attempt came before.
    """
    if is_speculative:
        raise ConfigError(
            "spark.speculation is true: two attempts of a task would write side by side",
            hint="start the session with spark.speculation=false",
        )
    if attempt_number:
        raise RetriedTaskError(
            f"a task of the write was attempted again (attempt {attempt_number + 1}), and what its first attempt has "
            "written cannot be told from what this one would; the batch is aborted as a whole",
            hint="run it again; why the first attempt failed is in the log of Spark",
        )


def run_task(
    options: WriteOptions,
    transaction: SinkTransaction,
    batch: BatchId,
    rows: Iterable["pa.RecordBatch"],
    *,
    spread_from: int,
) -> TaskOutcome | TaskFailure:
    """What became of a task (`write_rows`). Where it fails the transaction is aborted, so that no other goes on."""
    try:
        return write_rows(options, transaction, batch, rows, spread_from=spread_from)
    except ExactlogError as error:
        if not isinstance(error, UnavailableError):
            abort(options, transaction)
        return TaskFailure.of(error, transaction)


def write_rows(
    options: WriteOptions,
    transaction: SinkTransaction,
    batch: BatchId,
    rows: Iterable["pa.RecordBatch"],
    *,
    spread_from: int,
) -> TaskOutcome:
    """Write all rows of a task in the transaction of its batch, unless the batch has been recorded before.

    Args:
        options: where to, and how.
        transaction: what to write in.
        batch: which batch this is.
        rows: of the columns that `check_columns` lets through.
        spread_from: from which partition on rows without a key are spread.

    Raises:
        InvalidRowError: a row that cannot be a record, or that its topic does not take.
        SharedPartitionError: another task writes to one of the partitions.
        TakenOverError, TransactionTimedOutError, TransactionEndedError: the transaction is over.
        TwoQueriesError: a batch of that number was written by another query.
        UnavailableError: a broker was away for too long.
    """
    if is_recorded(options, batch, transaction.recorded):
        return TaskOutcome(transaction, batch, ())
    with ClientThread(options.bootstrap, SINK_SETTINGS) as thread:
        partitioned = PartitionedRows(
            options.topic,
            lambda topic: thread.run(lambda client: client.partition_count(topic)),
            spread_from=spread_from,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )
        writer = _TransactionWriter(thread, options, transaction)
        for arrow_batch in rows:
            for place, of_place in partitioned.cut(arrow_batch):
                writer.add(place, of_place)
        return TaskOutcome(transaction, batch, writer.finish())


class _Lane:
    """One partition: the rows that wait, and where its batches are."""

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.pending: list[RecordRows] = []
        self.pending_bytes = 0
        self.count = 0
        self.turn = asyncio.Lock()
        self.is_owned = False
        self.has_offset = False
        self.first_offset: int | None = None

    def report(self) -> WrittenPartition:
        return WrittenPartition(self.place, self.count, self.first_offset)


class _TransactionWriter:
    """Sends the rows of a task. Its methods are called from one thread; batches go out from that of the client."""

    def __init__(self, thread: ClientThread, options: WriteOptions, transaction: SinkTransaction) -> None:
        self._thread = thread
        self._options = options
        self._transaction = transaction
        self._shared: SharedTransaction = transaction.shared
        self._part = thread.client.join_transaction(self._shared)
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._pending_bytes = 0
        self._in_flight_bytes = 0
        self._moved = threading.Condition()
        self._failure: BaseException | None = None
        # Two attempts of one task that go unseen of each other, and order their rows differently, must not cut them
        # alike: a batch whose sequences are those of another one is taken for the same, sent again.
        self._rows_max = BATCH_ROWS_MAX - random.randrange(BATCH_ROWS_MAX // 8)  # noqa: S311  hides nothing
        self._bytes_max = BATCH_BYTES_MAX - random.randrange(BATCH_BYTES_MAX // 8)  # noqa: S311

    def add(self, place: TopicPartition, rows: RecordRows) -> None:
        """Rows for a partition; they are sent when there are enough of them. Raises what sending has failed with."""
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(place)
        size = int(rows.sizes().sum())
        lane.pending.append(rows)
        lane.pending_bytes += size
        self._pending_bytes += size
        if lane.pending_bytes >= self._bytes_max:
            self._cut(lane, is_last=False)
        if self._pending_bytes >= PENDING_BYTES_MAX:
            self._cut_all()

    def finish(self) -> tuple[WrittenPartition, ...]:
        """Send what is left and wait until all is acknowledged. Raises what sending has failed with."""
        self._cut_all()
        with self._moved:
            self._moved.wait_for(lambda: not self._in_flight_bytes or self._failure is not None)
        self._raise_failure()
        return tuple(lane.report() for lane in self._lanes.values())

    def _cut_all(self) -> None:
        for lane in self._lanes.values():
            if lane.pending:
                self._cut(lane, is_last=True)

    def _cut(self, lane: _Lane, *, is_last: bool) -> None:
        """Make batches of the rows that wait; unless they are the last, those that fill none go on waiting."""
        rows = concatenate(lane.pending)
        ends = rows.sizes().cumsum()
        start, sent_bytes = 0, 0
        while start < len(rows):
            fitting = int(ends.searchsorted(sent_bytes + self._bytes_max, side="right"))
            end = min(max(fitting, start + 1), start + self._rows_max)
            if end >= len(rows) and not is_last:
                break
            end = min(end, len(rows))
            self._send(lane, rows.slice(start, end), size=int(ends[end - 1]) - sent_bytes)
            start, sent_bytes = end, int(ends[end - 1])
        self._pending_bytes -= sent_bytes
        lane.pending_bytes -= sent_bytes
        lane.pending = [rows.slice(start, len(rows)).copied()] if start < len(rows) else []

    def _send(self, lane: _Lane, rows: RecordRows, *, size: int) -> None:
        """Hand one batch over, when there is room for it."""
        sequence = add_to_sequence(0, lane.count)
        batch = self._build(rows, sequence)
        with self._moved:
            self._moved.wait_for(
                lambda: self._in_flight_bytes < IN_FLIGHT_BYTES_MAX or self._failure is not None,
            )
            self._raise_failure()
            self._in_flight_bytes += size
        lane.count += len(rows)
        sending = self._thread.submit(self._deliver(lane, rows, sequence, batch))
        sending.add_done_callback(lambda done: self._settle(done, size))

    def _settle(self, done: "Future[None]", size: int) -> None:
        with self._moved:
            self._in_flight_bytes -= size
            if self._failure is None and not done.cancelled():
                self._failure = done.exception()
            self._moved.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _build(self, rows: RecordRows, sequence: int) -> bytearray:
        return build_batch_of_rows(
            rows,
            compression=self._options.compression,
            producer_id=self._shared.producer_id,
            producer_epoch=self._shared.producer_epoch,
            base_sequence=sequence,
        )

    # --- in the thread of the client -------------------------------------------------------------------------

    async def _deliver(self, lane: _Lane, rows: RecordRows, sequence: int, batch: bytearray) -> None:
        async with lane.turn:
            try:
                if not lane.is_owned:
                    await self._own(lane)
                await self._append(lane, rows, sequence, batch)
            except KafkaError as error:
                if error.kafka_error in _LOST_PLACE:
                    raise SharedPartitionError(lane.place) from error
                raise await explained(self._thread.client, self._options, self._transaction, error) from error

    async def _own(self, lane: _Lane) -> None:
        """Raises if another task has written to the partition, one that is gone or one that goes on."""
        if await is_written_to(self._thread.client, lane.place, self._shared):
            raise SharedPartitionError(lane.place)
        lane.is_owned = True

    async def _append(self, lane: _Lane, rows: RecordRows, sequence: int, batch: bytearray) -> None:
        """Send a batch; where it is too large for the broker, in two halves."""
        try:
            offset = await self._part.send_batch(lane.place, batch)
        except KafkaError as error:
            if error.kafka_error not in TOO_LARGE:
                raise
            if len(rows) == 1:
                raise InvalidRowError(
                    f"a row is too large for topic {lane.place.topic}: its record takes {len(batch)} bytes",
                    hint="raise max.message.bytes of the topic, or write smaller rows",
                ) from error
            middle = len(rows) // 2
            for half, at in ((rows.slice(0, middle), 0), (rows.slice(middle, len(rows)), middle)):
                half_sequence = add_to_sequence(sequence, at)
                await self._append(lane, half, half_sequence, self._build(half, half_sequence))
            return
        if not lane.has_offset:
            lane.has_offset, lane.first_offset = True, offset
