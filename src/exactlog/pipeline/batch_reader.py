"""`spark.read.format("exactlog")`: what is read, by which tasks, and the rows of each.

The planning runs once, in a Python of the driver; `read` runs in the workers, on what was planned. Each piece is read
as of the version that was the newest when it was planned, so that one query sees one state of each partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from exactlog.core.model.errors import VersionExpiredError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.arrow_rows import read_rows
from exactlog.pipeline.broker_source import BrokerSource
from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.open_source import open_source
from exactlog.pipeline.path_source import PathSource
from exactlog.pipeline.planning import narrow, plan_tasks
from exactlog.pipeline.predicates import Interval, Narrowing, push_predicates
from exactlog.pipeline.read_options import parse_read_options
from exactlog.pipeline.schema import arrow_schema, check_schema
from exactlog.pipeline.source import Slice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROW_COLUMN: Final = "row_seq"


def open_batch_reader(schema: "StructType", options: Mapping[str, str]) -> "BatchReader":
    """The reader that the options ask for; errors as `BatchReader`."""
    reader = BatchReader(schema, options)
    return NarrowedBatchReader(schema, options) if reader.options.push_down else reader


class TaskPieces(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Slice]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)


class BatchReader(DataSourceReader):
    """Reads a log once, from its directories or from a broker.

    Args:
        schema: the columns that are wanted.
        options: as `read_options` documents them, by names in any case.

    Attributes:
        options: checked and typed.

    Raises:
        InvalidOptionError, InvalidSchemaError: what is wrong with them.
    """

    def __init__(self, schema: "StructType", options: Mapping[str, str]) -> None:
        with hints_kept():
            self._columns = check_schema(schema)
            parsed = parse_read_options(options)
        if parsed.path is not None:  # workers may run elsewhere in the file system
            parsed = replace(parsed, path=str(Path(parsed.path).absolute()))
        self._schema = schema
        self.options = parsed
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """See `DataSourceReader`: one task or more for each partition that has rows.

        Raises:
            ExactlogError: what was asked for cannot be read; names topic, partition, offset and version.
        """
        with hints_kept():
            source = open_source(self.options, self._columns)
            try:
                tasks = plan_tasks(
                    source,
                    list(self._pieces(source)),
                    bytes_max=self.options.bytes_per_partition_max if self._can_skip_rows else None,
                )
            finally:
                source.close()
        return [TaskPieces(pieces) for pieces in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """See `DataSourceReader`: the rows of a task, as record batches of Arrow.

        Raises:
            ExactlogError: something cannot be read; names topic, partition, offset and version.
        """
        if not isinstance(partition, TaskPieces):  # Spark's own, where there is no task
            return
        with hints_kept():
            source = open_source(self.options, self._columns)
            try:
                yield from read_rows(source, partition.pieces, arrow_schema(self._schema))
            finally:
                source.close()

    # -----------------------------------------------------------------------------------------------------------

    @property
    def _counts_rows(self) -> bool:
        return ROW_COLUMN in self._columns

    @property
    def _can_skip_rows(self) -> bool:
        """Whether a task may begin behind the first row: from a broker rows are counted only by fetching them all."""
        return self.options.path is not None or not self._counts_rows

    def _pieces(self, source: BrokerSource | PathSource) -> Iterator[Slice]:
        """What is to be read of each partition."""
        for place, extent in source.extents().items():
            if not self._narrowing.admits(place):
                continue
            whole = Slice(
                place.topic,
                place.partition,
                extent.start_offset,
                extent.end_offset,
                version=extent.version,
                size_bytes=extent.size_bytes,
            )
            piece = self._narrowed(source, whole)
            if piece.start_offset == piece.end_offset:
                continue
            if self._counts_rows:
                before = replace(whole, end_offset=piece.start_offset)
                is_first = before.start_offset == before.end_offset
                piece = replace(piece, first_row=0 if is_first else source.count_rows(before))
            yield piece

    def _narrowed(self, source: BrokerSource | PathSource, piece: Slice) -> Slice:
        narrowing = self._narrowing
        piece = narrow(piece, start_offset=narrowing.offsets.low, end_offset=narrowing.offsets.high + 1)
        if not isinstance(source, PathSource):
            return piece
        added = _added_by(source, piece, narrowing.versions)
        piece = narrow(piece, start_offset=added.low, end_offset=added.high + 1)
        if narrowing.not_before_ms is not None and piece.start_offset < piece.end_offset:
            start = source.skip_older(piece, narrowing.not_before_ms)
            piece = narrow(piece, start_offset=start, end_offset=piece.end_offset)
        return piece


class NarrowedBatchReader(BatchReader):
    """A reader that predicates narrow (`pushDown`).

    Spark 4.2 stores what is planned for the predicates of one scan with the table of the DataFrame, where every other
    scan of it takes it from, in a later query or in the same one: those would lack the rows that this one does not
    want. Later versions keep it with the scan. So this is for who asks for it, and uses the DataFrame once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """See `DataSourceReader`: takes what narrows the read, and gives back what Spark is to apply."""
        pushed = push_predicates(filters)
        self._narrowing, left = pushed.narrowing, pushed.left
        if not self._can_skip_rows:
            self._narrowing = replace(self._narrowing, offsets=Interval(high=self._narrowing.offsets.high))
            left = tuple(each for each in filters if each in left or getattr(each, "attribute", None) == ("offset",))
        return left


def _added_by(source: PathSource, piece: Slice, versions: Interval) -> Interval:
    """The offsets that some versions added to a partition, as far as that is known; all where it is not."""
    place, newest = TopicPartition(piece.topic, piece.partition), piece.version or 0
    if versions.low > newest or versions.high < 0:
        return Interval(low=piece.end_offset)
    low, high = piece.start_offset, piece.end_offset - 1
    with suppress(VersionExpiredError):
        if versions.low > 0:
            low = source.first_added(place, versions.low)
    with suppress(VersionExpiredError):
        if versions.high < newest:
            high = source.first_added(place, versions.high + 1) - 1
    return Interval(low, high)
