"""The part of an export that the driver does, whatever the rows are written to: plan, let tasks write, commit, report.

Nothing of a log comes to the driver but the names and sizes of files.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from exactlog.core.deltalog.log_path import parse_partition_directory_name
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.errors import explain
from exactlog.pipeline.export_columns import ExportColumns, export_columns, parse_json_values
from exactlog.pipeline.export_files import WRITTEN, WrittenFile, decode_written, read_slices, write_rows, write_slices
from exactlog.pipeline.export_plan import (
    BYTES_PER_ROUND_DEFAULT,
    ExportedUpTo,
    LogPart,
    Round,
    cut_into_rounds,
    pack_into_tasks,
    remaining_part,
)
from exactlog.pipeline.official_connector import KAFKA, Connector, require_broker, rows_between
from exactlog.pipeline.open_source import open_source
from exactlog.pipeline.read_options import InvalidOptionError, ReadOptions, parse_read_options
from exactlog.pipeline.source import Extent, Slice
from exactlog.storage.catalog import CATALOG_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from exactlog.pipeline.broker_source import BrokerSource
    from exactlog.pipeline.path_source import PathSource

Progress = Callable[[str], None]
"""Told what has been done, a line at a time."""


class TargetError(ExactlogError):
    """A directory that an export cannot write to: it is part of a log, or has other things in it."""

    code = "invalid-target"


class SchemaDiffersError(ExactlogError):
    """What earlier runs exported to the same place has other columns."""

    code = "schema-differs"


class ExportConflictError(ExactlogError):
    """Another export wrote to the same place at the same time, and was first; nothing was written twice."""

    code = "export-conflict"
    retryable = True


def conflict_at(path: Path) -> ExportConflictError:
    """Another run was quicker."""
    return ExportConflictError(
        f"another export has written to {path} in the meantime; nothing of this step was added",
        hint="Run it again: it goes on where the other one ended.",
    )


class ExportSettings(Struct, frozen=True, kw_only=True):
    """What to export, and in which form.

    Attributes:
        options: what to read.
        connector: which source reads it.
        schema: the type of the values, which are JSON, as DDL of Spark; None: values stay the bytes they are.
        is_by_date: whether files are parted by the day of the timestamp.
        bytes_per_round_max: how much of the log becomes rows in one step.
        fail_on_data_loss: whether records that went before they were exported are an error.
    """

    options: ReadOptions
    connector: Connector = "exactlog"
    schema: str | None = None
    is_by_date: bool = True
    bytes_per_round_max: int = BYTES_PER_ROUND_DEFAULT
    fail_on_data_loss: bool = True

    @property
    def is_newest(self) -> bool:
        """Whether the log is read as it is now."""
        return self.options.version_as_of is None and self.options.timestamp_as_of_ms is None


class ExportedPartition(Struct, frozen=True):
    """What a run exported of a partition.

    Attributes:
        from_offset: the first offset that it went over.
        to_offset: the one behind the last.
        version: the delta version as of which it was read; None where a broker was read.
        rows: how many there are.
        lag: how many offsets have come behind in the meantime, decided ones.
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    version: int | None
    rows: int
    lag: int


class ExportReport(Struct, frozen=True):
    """What a run exported.

    Attributes:
        rows: how many there are.
        batches: in how many steps they became part of the target.
        files: how many hold them.
        bytes: the size of these files.
        lag: how many offsets have come behind in the meantime, in all partitions.
        target_version: of the Delta table, or the number of the last batch of files; None: there is none yet.
        is_stopped: whether it was told to stop before all was done.
        partitions: those of which there was something to export.
    """

    rows: int
    batches: int
    files: int
    bytes: int
    lag: int
    target_version: int | None
    is_stopped: bool
    partitions: tuple[ExportedPartition, ...]


class ExportTarget(Protocol):
    """Where rows become part of something that others read."""

    def open(self, columns: ExportColumns) -> None:
        """Makes ready what is not there yet, and puts right what a run left that was killed."""

    def exported(self, topic_id: str, partition: int) -> ExportedUpTo | None:
        """How far a partition has been exported; None: not at all."""

    def root(self) -> Path:
        """Where tasks write the files of the next round."""

    def commit(
        self,
        files: Sequence[WrittenFile],
        reached: Mapping[tuple[str, int], ExportedUpTo],
        *,
        before: Mapping[tuple[str, int], int | None],
    ) -> None:
        """Makes files part of the target and notes how far each (topic id, partition) is exported, in one step.

        Args:
            files: what tasks wrote.
            reached: how far each is exported with them.
            before: at which offset each of them was when the files were planned; None: nothing was exported.

        Raises:
            ExportConflictError: another run was there first; nothing has changed.
        """

    def version(self) -> int | None:
        """The version or number of what others read now."""

    def close(self) -> None:
        """Lets go of it."""


def read_options_of(
    topics: Sequence[str],
    *,
    path: str | Path | None,
    bootstrap: str | None,
    task_bytes: int | None,
    version: str | int | None = None,
    time: str | int | None = None,
) -> ReadOptions:
    """What an export reads, checked as the options of `spark.read` are.

    Raises:
        InvalidOptionError: it does not go together.
    """
    where = None if path is None else Path(str(path).removeprefix("file://")).absolute()  # workers may run elsewhere
    named = {"path": where, "bootstrap": bootstrap, "topics": ",".join(topics) or None, "versionAsOf": version}
    named |= {"timestampAsOf": time, "maxBytesPerPartition": task_bytes}
    return parse_read_options({name: str(value) for name, value in named.items() if value is not None})


def local_target(target: str | Path) -> Path:
    """The directory that is meant, as a path from the root.

    Raises:
        InvalidOptionError: it is not one that this machine can open.
        TargetError: it is part of a log.
    """
    text = str(target).removeprefix("file://")
    if "://" in text or not text:
        raise InvalidOptionError(
            f"target {text!r} is not a directory that this machine can open",
            hint="Give a local path, or one on a file system that all machines have mounted.",
        )
    path = Path(text).absolute()
    for each in (path, *path.parents):
        if (each / CATALOG_NAME).is_file() or parse_partition_directory_name(each.name) is not None:
            raise TargetError(
                f"target {path} is part of the log in {each}", hint="Export into a directory of its own, outside."
            )
    return path


def make_directory(path: Path) -> None:
    """Makes a directory of a target, and its parents.

    Raises:
        TargetError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"target {path} cannot be made: {error.strerror}", hint="Export into a directory that can be written to."
        ) from error


def run_export(
    spark: "SparkSession",
    target: ExportTarget,
    settings: ExportSettings,
    *,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> ExportReport:
    """Exports what is new, round after round.

    Args:
        spark: a session.
        target: where to.
        settings: what, and how.
        progress: told of each round.
        is_stopping: asked between rounds; what has been committed stays.

    Raises:
        ExactlogError: as sources and targets do; what Spark raises comes as `explain` gives it. What earlier rounds
            wrote stays; of the round that failed nothing is seen.
    """
    require_broker(settings.options, settings.connector)
    try:
        columns = export_columns(spark, settings.schema, is_by_date=settings.is_by_date)
        with closing(open_source(settings.options, columns.read_schema.names)) as source, closing(target):
            source.extents()  # nothing is made where there is nothing to read
            target.open(columns)
            return _Export(spark, source, target, settings, columns).run(progress, is_stopping)
    except ExactlogError:
        raise
    except Exception as error:
        raise explain(error) from error


class _Export:
    def __init__(
        self,
        spark: "SparkSession",
        source: "BrokerSource | PathSource",
        target: ExportTarget,
        settings: ExportSettings,
        columns: ExportColumns,
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._settings = settings
        self._columns = columns
        self._exported: dict[tuple[str, int], int | None] = {}  # where each partition is, as far as this run knows
        self._rows: Counter[TopicPartition] = Counter()
        self._reached: dict[TopicPartition, int] = {}
        self._rounds = self._files = self._bytes = 0

    def run(self, progress: Progress, is_stopping: Callable[[], bool]) -> ExportReport:
        parts = self._plan()
        slices = {
            part.place: self._source.split(part.as_slice(), bytes_max=self._settings.options.bytes_per_partition_max)
            for part in parts
        }
        rounds = list(cut_into_rounds(parts, slices, bytes_max=self._settings.bytes_per_round_max))
        topic_ids = {part.place: part.topic_id for part in parts}
        size = sum(part.size_bytes for part in parts)
        progress(f"to export: {_shown_size(size)} of the log, about, in {len(parts)} partition(s)")
        is_stopped = False
        for number, work in enumerate(rounds, start=1):
            is_stopped = is_stopping()
            if is_stopped:
                progress(f"stopped before round {number} of {len(rounds)}; the next run goes on from there")
                break
            self._carry_out(work, topic_ids)
            progress(
                f"round {number} of {len(rounds)}: {self._rows.total()} rows in {self._files} files so far, "
                f"target at version {self._target.version()}"
            )
        return self._report(parts, is_stopped=is_stopped)

    def _plan(self) -> list[LogPart]:
        extents = self._source.extents()
        parts = []
        for place, extent in extents.items():
            topic_id = self._source.topic_ids.get(place.topic) or place.topic
            done = self._target.exported(topic_id, place.partition)
            self._exported[topic_id, place.partition] = None if done is None else done.offset
            part = remaining_part(
                place,
                topic_id,
                extent,
                done,
                is_newest=self._settings.is_newest,
                fail_on_data_loss=self._settings.fail_on_data_loss,
            )
            if part is not None:
                parts.append(part)
        return parts

    def _carry_out(self, work: Round, topic_ids: Mapping[TopicPartition, str]) -> None:
        files = self._write(work.slices)
        reached = {(topic_ids[place], place.partition): upto for place, upto in work.reached.items()}
        self._target.commit(files, reached, before={key: self._exported[key] for key in reached})
        self._exported |= {key: upto.offset for key, upto in reached.items()}
        self._rounds += 1
        self._files += len(files)
        self._bytes += sum(file.size_bytes for file in files)
        for place, upto in work.reached.items():
            self._reached[place] = upto.offset
        for file in files:
            for name, count in file.row_counts.items():
                topic, _, number = name.rpartition("/")
                self._rows[TopicPartition(topic, int(number))] += count

    def _write(self, slices: Sequence[Slice]) -> list[WrittenFile]:
        """Lets tasks write the rows of the slices, one task for each few; only what they tell of comes back."""
        settings, columns = self._settings, self._columns
        cores = self._spark.sparkContext.defaultParallelism
        tasks = pack_into_tasks(slices, bytes_max=settings.options.bytes_per_partition_max, tasks_min=cores)
        read = partial(read_slices, tasks=tasks, options=settings.options, schema=columns.read_schema)
        write = partial(write_rows, root=str(self._target.root()), is_by_date=settings.is_by_date)
        indexes = self._spark.range(0, len(tasks), 1, len(tasks))
        if columns.value_type is None and settings.connector == "exactlog":
            told = indexes.mapInArrow(partial(write_slices, read=read, write=write), WRITTEN)
        else:
            if settings.connector == KAFKA:
                rows = rows_between(self._spark, settings.options, slices).select(*columns.read_type.fieldNames())
            else:
                rows = indexes.mapInArrow(read, columns.read_type)
            parsed = rows if columns.value_type is None else parse_json_values(rows, columns)
            told = parsed.mapInArrow(write, WRITTEN)
        return [decode_written(row["written"]) for row in told.collect()]

    def _report(self, parts: Sequence[LogPart], *, is_stopped: bool) -> ExportReport:
        now = self._source.extents() if self._settings.is_newest else {}
        exported = tuple(self._report_part(part, now.get(part.place)) for part in parts)
        return ExportReport(
            rows=self._rows.total(),
            batches=self._rounds,
            files=self._files,
            bytes=self._bytes,
            lag=sum(part.lag for part in exported),
            target_version=self._target.version(),
            is_stopped=is_stopped,
            partitions=exported,
        )

    def _report_part(self, part: LogPart, now: Extent | None) -> ExportedPartition:
        reached = self._reached.get(part.place, part.start_offset)
        end = part.end_offset if now is None else max(part.end_offset, now.end_offset)
        return ExportedPartition(
            topic=part.topic,
            partition=part.partition,
            from_offset=part.start_offset,
            to_offset=reached,
            version=part.version,
            rows=self._rows[part.place],
            lag=end - reached,
        )


def _shown_size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
