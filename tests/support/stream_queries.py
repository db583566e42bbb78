"""A streaming query as Spark runs it, without Spark: what it asks of a reader, in its order, and what it keeps."""

import json

from pyspark import cloudpickle

from exactlog.pipeline.stream_reader import StreamReader
from tests.support.spark_schemas import schema_of

COLUMNS = ("topic", "partition", "offset", "value", "row_seq")


class StreamQuery:
    """A query with its checkpoint: `planned` and `committed` offsets are JSON; `rows` are those of committed batches.

    A new reader is made by `restart`, as when a driver has died: the checkpoint is all that is left.
    """

    def __init__(self, columns=COLUMNS, **options):
        self.columns = columns
        self.options = {name: str(value) for name, value in options.items()}
        self.planned = []
        self.committed = []
        self.batches = []  # the rows of each
        self.reader = None

    @property
    def rows(self):
        return [row for batch in self.batches for row in batch]

    def restart(self, **options):
        if self.reader is not None:
            self.reader.stop()
        self.options |= {name: str(value) for name, value in options.items()}
        self.reader = StreamReader(schema_of(*self.columns), self.options)
        return self

    def run_batch(self, *, dies=None):
        """One micro-batch, if there is news; whether there was.

        Args:
            dies: "planned" or "read": the driver dies when the batch has come so far.
        """
        if self.reader is None:
            self.restart()
        start = json.loads(self.committed[-1]) if self.committed else through_json(self.reader.initialOffset())
        if len(self.planned) == len(self.committed):
            end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
            if self.committed and end == self.committed[-1]:
                return False
            self.planned.append(end)
        end = json.loads(self.planned[-1])
        if dies == "planned":
            self.restart()
            return True
        rows = self.read(start, end)
        if dies == "read":
            self.restart()
            return True
        self.committed.append(self.planned[-1])
        self.batches.append(rows)
        self.reader.commit(end)
        return True

    def read(self, start, end):
        """The rows of a batch: each task in a copy of the reader, as a worker gets it."""
        rows = []
        for task in self.reader.partitions(start, end):
            reader, piece = cloudpickle.loads(
                cloudpickle.dumps((StreamReader(schema_of(*self.columns), self.options), task))
            )
            for batch in reader.read(piece):
                rows += [tuple(row.values()) for row in batch.to_pylist()]
        return rows

    def run_available(self):
        """All that there is now, as with `trigger(availableNow=True)`; how many batches it took."""
        if self.reader is None:
            self.restart()
        self.reader.prepareForTriggerAvailableNow()
        count = 0
        while self.run_batch():
            count += 1
        self.restart()
        return count


def through_json(offset):
    return json.loads(json.dumps(offset))
