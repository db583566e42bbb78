"""`df.writeStream.format("exactlog")`: each micro-batch in one transaction, in which it is recorded under its id.

For each micro-batch Spark makes a writer in a Python on the driver's machine, pickles it for the tasks, and makes
another one in another Python that commits or aborts, which knows nothing of the first. So:

- the transaction begins when the writer is pickled: that happens where tasks are about to be sent, and nowhere else;
- tasks learn from their context which batch of which query it is, and tell the driver what they wrote in;
- where no task is left to tell, a file says what is to be aborted: both Pythons of the driver see the directory that
  Spark keeps for the files of one application, and removes with it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import SparkFiles
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from exactlog.pipeline.batch_writer import WroteMessage, checked_options, outcomes_of, running_task
from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.sink_transaction import BatchId, SinkTransaction, abort, begin, commit
from exactlog.pipeline.task_writer import TaskContextMissingError, run_task

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. What it raises is told in `checked_options`, `begin`, `write_rows` and `commit`."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:  # noqa: FBT001
        """Only look at what was asked for: it is made where micro-batches are ended, too."""
        with hints_kept():
            self._options = checked_options(schema, options, overwrite=overwrite, is_stream=True)
        # Two queries of one application differ in their checkpoints at least.
        told_apart = hashlib.sha256(json.dumps(sorted(options.items())).encode()).hexdigest()
        self._note_name = f".exactlog-sink-{told_apart}.json"
        self._transaction: SinkTransaction | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: the writer with its transaction, which begins now."""
        if self._transaction is None:
            with hints_kept():
                assert self._options.group_id is not None, "a stream has a txnAppId"
                self._transaction = begin(self._options, self._options.group_id)
                self._note().write_bytes(msgspec.json.encode(self._transaction))
        return dict(self.__dict__)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WroteMessage:
        """Write the rows of one task."""
        with hints_kept():
            task = running_task()
            if task.micro_batch is None or self._transaction is None:
                raise TaskContextMissingError(
                    "a task of a stream does not know which micro-batch it is of",
                    hint="the sink works for micro-batches: no continuous processing, no real-time mode",
                )
            batch = BatchId(task.micro_batch, task.query)
            return WroteMessage(run_task(self._options, self._transaction, batch, iterator, spread_from=task.number))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Let all count that the tasks of the micro-batch have written."""
        with hints_kept():
            commit(self._options, outcomes_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Let nothing of the micro-batch count."""
        outcomes = outcomes_of(messages)
        transaction = outcomes[0].transaction if outcomes else self._noted()
        if transaction is not None:
            abort(self._options, transaction)

    def _note(self) -> Path:
        return Path(SparkFiles.getRootDirectory()) / self._note_name

    def _noted(self) -> SinkTransaction | None:
        """The transaction of the micro-batch under way; None where none was begun."""
        try:
            return msgspec.json.decode(self._note().read_bytes(), type=SinkTransaction)
        except FileNotFoundError:
            return None
