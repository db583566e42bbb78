"""`spark.readStream.format("exactlog")`: micro-batch after micro-batch of a log, each row once.

The offsets are planned in a Python of the driver, which lives as long as the query and keeps its tables open: it takes
in what is new of their delta logs and nothing else. `read` runs in the workers, on what was planned.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from exactlog.core.model.errors import NotFoundError, UnsupportedError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.admission import admit
from exactlog.pipeline.arrow_rows import read_rows
from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.planning import plan_tasks
from exactlog.pipeline.read_options import parse_read_options
from exactlog.pipeline.schema import arrow_schema, check_schema
from exactlog.pipeline.source import Extent, Slice
from exactlog.pipeline.stream_offsets import (
    START_AGAIN,
    OtherLogError,
    Position,
    StreamOffset,
    StreamOffsetError,
    StreamRecordsRemovedError,
    check_same_log,
    parse_offset,
    told,
)
from exactlog.pipeline.stream_source import StreamSource, open_stream_source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROW_COLUMN = "row_seq"


class StreamTask(InputPartition):
    """What one task reads, and the id that its topic had when that was planned."""

    def __init__(self, pieces: Sequence[Slice], topic_id: str | None) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)
        self.topic_id = topic_id


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a log on and on, from its directories or from a broker; where it stands is told by `stream_offsets`.

    With READ_COMMITTED a batch never goes beyond the last stable offset: what is below it is decided for ever, so that
    a batch that is planned again has the same rows.

    Every method raises `ExactlogError`s that name topic, partition, offset and version.

    Args:
        schema: the columns that are wanted.
        options: as `read_options` documents them, by names in any case.

    Raises:
        InvalidOptionError, InvalidSchemaError: what is wrong with them.
    """

    def __init__(self, schema: "StructType", options: Mapping[str, str]) -> None:
        with hints_kept():
            self._columns = check_schema(schema)
            parsed = parse_read_options(options, is_stream=True)
        if parsed.path is not None:  # workers may run elsewhere in the file system
            parsed = replace(parsed, path=str(Path(parsed.path).absolute()))
        self._schema = schema
        self._options = parsed
        self._source: StreamSource | None = None
        self._extents: Mapping[TopicPartition, Extent] | None = None  # as last looked at
        self._is_frozen = False
        self._turn = 0

    # --- offsets ------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """See `DataSourceStreamReader`: where the options say that the stream begins."""
        with hints_kept():
            extents, source = self._look(), self._opened()
            start = self._options.starting_version if self._options.path else self._options.starting_offsets
            positions = {place: self._counted(source.begin(place, extent, start)) for place, extent in extents.items()}
            return self._offset(positions, is_initial=True).document()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """See `DataSourceStreamReader`: the end of the next batch; `start` itself where there is nothing new."""
        with hints_kept():
            offset = parse_offset(start)
            extents, source = self._look(), self._opened()
            self._check(offset, extents)
            joined = {
                place: self._counted(source.begin(place, extent, None))
                for place, extent in extents.items()
                if place not in offset.positions and extent.start_offset < extent.end_offset
            }
            positions = {**offset.positions, **joined}
            pieces = [_piece(place, positions[place], extents[place]) for place in extents if place in positions]
            rows_max, bytes_max = self._limits(limit)
            ends = admit(pieces, source, rows_max=rows_max, bytes_max=bytes_max, turn=self._turn)
            self._turn += 1
            for piece, end in zip(pieces, ends, strict=True):
                if piece.start_offset < end:
                    place = TopicPartition(piece.topic, piece.partition)
                    positions[place] = self._behind(replace(piece, end_offset=end), positions[place], extents[place])
            if positions == offset.positions:
                return start
            began = {**offset.positions, **joined} if offset.is_initial else joined
            begun = {place: position.offset for place, position in began.items()}
            return self._offset(positions, begun=begun, before=offset).document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """See `DataSourceStreamReader`. Where both limits are set, `latestOffset` keeps the one in bytes too."""
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """See `SupportsTriggerAvailableNow`: from now on there is what there is now."""
        with hints_kept():
            self._is_frozen = False
            self._look()
            self._is_frozen = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """See `DataSourceStreamReader`: where the log ended when it was last looked at; for reports of progress."""
        if self._extents is None:
            return None
        ends = {place: Position(extent.end_offset, extent.version) for place, extent in self._extents.items()}
        return self._offset(ends).document()

    def stop(self) -> None:
        """See `DataSourceStreamReader`."""
        if self._source is not None:
            self._source.close()
            self._source = None

    # --- rows ---------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """See `DataSourceStreamReader`: what a partition has goes to one task; several, if it is much."""
        with hints_kept():
            last = parse_offset(end)
            ranges = last.ranges_from(parse_offset(start))
            if not ranges:
                return []
            extents = self._look() if self._extents is None else self._extents
            source = self._opened()
            check_same_log(last, cluster_id=source.cluster_id, topic_ids=source.topic_ids, is_path=self._is_path)
            pieces = []
            for place, found in ranges.items():
                extent = _extent_of(place, last.positions[place], extents)
                begun = Position(found.start, found.start_version)
                _refuse_removed(place, begun, extent)
                if found.end > extent.end_offset:
                    raise _shrunk(place, last.positions[place], extent.end_offset)
                piece = _piece(place, begun, replace(extent, end_offset=found.end))
                pieces.append(replace(piece, first_row=found.first_row if self._counts_rows else None))
            # From a broker rows are counted by fetching them all: once is enough.
            is_whole = self._counts_rows and not self._is_path
            bytes_max = None if is_whole else self._options.bytes_per_partition_max
            tasks = plan_tasks(source, pieces, bytes_max=bytes_max)
            return [StreamTask(task, source.topic_ids.get(task[0].topic)) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """See `DataSourceStreamReader`: the rows of a task, as record batches of Arrow."""
        if not isinstance(partition, StreamTask):  # Spark's own, where there is no task
            return
        with hints_kept():
            source = open_stream_source(self._options, self._columns)
            try:
                now_id, piece = source.topic_id(partition.pieces[0]), partition.pieces[0]
                if partition.topic_id is not None and now_id not in {None, partition.topic_id}:
                    raise OtherLogError(
                        f"topic {piece.topic} was deleted and made again before offset {piece.start_offset} of "
                        f"partition {piece.partition} was read",
                        hint=START_AGAIN,
                    )
                yield from read_rows(source, partition.pieces, arrow_schema(self._schema))
            finally:
                source.close()

    # ------------------------------------------------------------------------------------------------------------

    @property
    def _is_path(self) -> bool:
        return self._options.path is not None

    @property
    def _counts_rows(self) -> bool:
        return ROW_COLUMN in self._columns

    def _opened(self) -> StreamSource:
        if self._source is None:
            self._source = open_stream_source(self._options, self._columns)
        return self._source

    def _look(self) -> Mapping[TopicPartition, Extent]:
        """What there is now; of what was there when all was to be frozen, only that."""
        if self._extents is None or not self._is_frozen:
            self._extents = self._opened().extents()
        return self._extents

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """What Spark lets a batch have at most: rows, and bytes."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows_max, bytes_max = self._options.rows_per_trigger_max, self._options.bytes_per_trigger_max
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, bytes_max
        if isinstance(limit, ReadMaxBytes):
            return rows_max, limit.max_bytes
        raise UnsupportedError(f"a stream of exactlog knows no limit {type(limit).__name__}")

    def _counted(self, position: Position) -> Position:
        """A position where the stream begins in a partition."""
        return replace(position, rows=0) if self._counts_rows else position

    def _behind(self, piece: Slice, position: Position, extent: Extent) -> Position:
        """Where the stream stands once it has read a piece, which begins at a position."""
        source, place, rows = self._opened(), TopicPartition(piece.topic, piece.partition), None
        if self._counts_rows:
            if position.rows is None:
                raise StreamOffsetError(
                    f"the rows of {_named(place)} have not been counted up to {told(position)}: until then the stream "
                    f"was read without {ROW_COLUMN}",
                    hint=f"leave {ROW_COLUMN} out of the schema, or {START_AGAIN}",
                )
            rows = position.rows + source.count_rows(piece)
        return source.stand(place, extent, piece.end_offset, rows)

    def _offset(
        self,
        positions: Mapping[TopicPartition, Position],
        *,
        begun: Mapping[TopicPartition, int] | None = None,
        before: StreamOffset | None = None,
        is_initial: bool = False,
    ) -> StreamOffset:
        source = self._opened()
        return StreamOffset(
            positions=positions,
            begun=begun or {},
            topic_ids={**(before.topic_ids if before else {}), **source.topic_ids},
            cluster_id=source.cluster_id or (before.cluster_id if before else None),
            is_initial=is_initial,
        )

    def _check(self, offset: StreamOffset, extents: Mapping[TopicPartition, Extent]) -> None:
        """Raises where a stream cannot go on from an offset without losing something, or reading something twice."""
        source, topics = self._opened(), self._options.topics
        check_same_log(offset, cluster_id=source.cluster_id, topic_ids=source.topic_ids, is_path=self._is_path)
        for place, position in offset.positions.items():
            if topics and place.topic not in topics:
                continue  # kept for the day when it is asked for again
            extent = _extent_of(place, position, extents)
            _refuse_removed(place, position, extent)
            if position.offset < extent.end_offset:
                source.check_versions(place, position)
            elif position.offset > extent.end_offset and position.offset > source.log_end(place):
                raise _shrunk(place, position, extent.end_offset)


def _piece(place: TopicPartition, position: Position, extent: Extent) -> Slice:
    """What of a partition is still to be read; its size by its share of the whole."""
    end_offset = max(position.offset, extent.end_offset)
    share = (end_offset - position.offset) / max(1, extent.end_offset - extent.start_offset)
    return Slice(
        place.topic,
        place.partition,
        position.offset,
        end_offset,
        version=extent.version,
        size_bytes=round(extent.size_bytes * min(1, share)),
    )


def _extent_of(place: TopicPartition, position: Position, extents: Mapping[TopicPartition, Extent]) -> Extent:
    extent = extents.get(place)
    if extent is None:
        raise NotFoundError(
            f"{_named(place)}, in which the stream stands at {told(position)}, is not there any more",
            hint=f"name the topics that are to be read in the option topics, or {START_AGAIN}",
        )
    return extent


def _refuse_removed(place: TopicPartition, position: Position, extent: Extent) -> None:
    if position.offset < extent.start_offset:
        version = "" if extent.version is None else f", in version {extent.version}"
        raise StreamRecordsRemovedError(
            f"the stream stands at {told(position)} in {_named(place)}, and the records before offset "
            f"{extent.start_offset} have been removed{version}",
            hint=f"{START_AGAIN}; keep records for longer than a stream may be behind (retention.ms, retention.bytes)",
        )


def _shrunk(place: TopicPartition, position: Position, end_offset: int) -> OtherLogError:
    return OtherLogError(
        f"the stream stands at {told(position)} in {_named(place)}, and for it that ends at offset {end_offset}: "
        "it is another log, or has lost what had been read, or was read with another isolation",
        hint=f"read what the checkpoint is of, or {START_AGAIN}",
    )


def _named(place: TopicPartition) -> str:
    return f"topic {place.topic}, partition {place.partition}"
