"""`df.write.format("exactlog")`: one batch, in one transaction, recorded if it has a name.

Spark makes the writer in a Python on the driver's machine, and sends copies of it to the tasks and to whatever Python
commits or aborts: so the transaction begins where the writer is made, and travels with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.read_options import InvalidOptionError
from exactlog.pipeline.sink_transaction import (
    QUERY_PROPERTY,
    BatchId,
    SinkTransaction,
    TaskFailure,
    TaskOutcome,
    abort,
    begin,
    commit,
)
from exactlog.pipeline.task_writer import TaskContextMissingError, check_attempt, run_task
from exactlog.pipeline.write_options import SINK_PREFIX, WriteOptions, check_columns, parse_write_options

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ID: Final = "streaming.sql.batchId"
_SPECULATION: Final = "spark.speculation"


class WroteMessage(WriterCommitMessage):
    """What a task tells the driver: what it wrote, or why it could not.

    A failure that is told so ends the job as it is. One that is raised lets Spark attempt the task again and, in the
    end, tell of the last attempt alone: that it was not the first.
    """

    def __init__(self, outcome: TaskOutcome | TaskFailure) -> None:
        self.outcome = outcome


class RunningTask(Struct, frozen=True):
    """What Spark says of the task that runs here: its number, and of which batch of which streaming query it is."""

    number: int
    query: str | None
    micro_batch: int | None


def checked_options(
    schema: StructType, options: Mapping[str, str], *, overwrite: bool, is_stream: bool
) -> WriteOptions:
    """The options of a write, if rows of that schema can be written with them.

    Raises:
        InvalidOptionError: an option is wrong, or what is there is to be overwritten.
        InvalidColumnsError: the columns are not those of records.
    """
    if overwrite:
        raise InvalidOptionError(
            "a log cannot be overwritten: records are added behind those that are there",
            hint='mode("append"), and of a stream outputMode("append")',
        )
    checked = parse_write_options(options, is_stream=is_stream)
    check_columns(((field.name, field.dataType.simpleString()) for field in schema.fields), checked)
    return checked


def running_task() -> RunningTask:
    """The task that runs here, once it is sure that it may write.

    Raises:
        ConfigError, RetriedTaskError: it may not (`check_attempt`).
        TaskContextMissingError: none runs.
    """
    context = TaskContext.get()
    if context is None:
        raise TaskContextMissingError("rows are written outside of a task of Spark")
    speculation = context.getLocalProperty(_SPECULATION) or "false"
    check_attempt(attempt_number=context.attemptNumber(), is_speculative=speculation.lower() == "true")
    micro_batch = context.getLocalProperty(_BATCH_ID)
    return RunningTask(
        context.partitionId(),
        context.getLocalProperty(QUERY_PROPERTY),
        None if micro_batch is None else int(micro_batch),
    )


def outcomes_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome | TaskFailure]:
    """What the tasks have told; those whose Python has ended have told nothing."""
    return [message.outcome for message in messages if isinstance(message, WroteMessage)]


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch. What it raises is told in `checked_options`, `begin`, `write_rows` and `commit`."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:  # noqa: FBT001
        """Begin the transaction."""
        with hints_kept():
            self._options = checked_options(schema, options, overwrite=overwrite, is_stream=False)
            # Without a name nobody can ask for the batch again: a transactional id of its own is enough.
            transactional_id = self._options.group_id or f"{SINK_PREFIX}{uuid4()}"
            self._transaction: SinkTransaction = begin(self._options, transactional_id)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WroteMessage:
        """Write the rows of one task."""
        with hints_kept():
            task = running_task()
            batch = BatchId(self._options.txn_version, task.query)
            return WroteMessage(run_task(self._options, self._transaction, batch, iterator, spread_from=task.number))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Let all count that the tasks have written."""
        with hints_kept():
            commit(self._options, outcomes_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002  Spark's signature
        """Let nothing count."""
        abort(self._options, self._transaction)
