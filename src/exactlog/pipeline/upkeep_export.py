"""The events of journals as a table of the lake, as a store has them: each once, run after run.

A run goes by the store's pointers: it adds the events that stand behind the offset at which the run before ended, up to
the pointer at which the store is when it begins. Both become part of the target in the commit that makes the rows seen,
by the targets of the log's own export, so that no event comes twice, however often a run is killed or repeated. The
table only grows: events that are deleted later stay in it; those that were deleted before a run never come into it.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from exactlog.client.blocking_loop import BlockingLoop
from exactlog.core.journal.event_journal_format import encode_row_metadata
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.errors import DecodeError, InvariantError
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.event_journal_store_format import payload_columns
from exactlog.pipeline.delta_export import delta_target
from exactlog.pipeline.export_columns import ExportColumns
from exactlog.pipeline.export_files import DATE, WrittenFile, decode_written, write_rows
from exactlog.pipeline.export_plan import ExportedUpTo, LogReplacedError
from exactlog.pipeline.export_run import ExportTarget
from exactlog.pipeline.parquet_export import parquet_target
from exactlog.pipeline.schema import arrow_schema
from exactlog.pipeline.upkeep_stores import (
    EVERY_EVENT,
    Share,
    open_share,
    reachable_url,
    replicated_topics,
    shares_for,
)
from exactlog.pipeline.upkeep_tasks import Progress, carry_out, wait_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TargetKind: TypeAlias = Literal["delta", "parquet"]

COLUMNS: Final = (
    ("topic", "string"),
    ("id", "string"),
    ("seq_nr", "bigint"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("record_id", "string"),
    ("event_id", "string"),
    ("tags", "array<string>"),
    ("payload_type", "string"),
    ("payload_txt", "string"),
    ("payload_bin", "binary"),
    ("metadata", "string"),
    ("headers", "map<string,string>"),
    ("origin", "string"),
    ("version", "string"),
)
"""Name and type in Spark's words: the columns of a store's `journal`, with the life of the journal as `record_id`."""

_ROWS_PER_BATCH: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExportedJournals(Struct, frozen=True):
    """What a run exported of a partition.

    Attributes:
        from_offset: the first offset of which events were taken.
        to_offset: the one behind the last.
        rows: how many events there are.
    """

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    rows: int


class JournalExportReport(Struct, frozen=True, kw_only=True):
    """What a run exported.

    Attributes:
        rows: how many events there are.
        files: how many hold them.
        bytes: the size of these files.
        target_version: of the Delta table, or the number of the last batch of files; None: there is none yet.
        topics_left: how many have something to export yet, for the run was told to stop.
        is_stopped: whether it was told to stop before all was done.
        partitions: those of which there was something to export.
    """

    rows: int
    files: int
    bytes: int
    target_version: int | None
    topics_left: int
    is_stopped: bool
    partitions: tuple[ExportedJournals, ...]


class _Part(Struct, frozen=True):
    """What is to be exported of a topic: of each partition the offsets from the first on, below the second."""

    topic: str
    offsets: dict[int, tuple[int, int]]
    before: dict[int, int | None]

    @property
    def target_id(self) -> str:
        """By which the target knows the topic; a log of the same name is another thing."""
        return f"journals-of-{self.topic}"


def export_journals(
    spark: "SparkSession",
    *,
    store: str,
    target: str | Path,
    kind: TargetKind = "delta",
    topics: Sequence[str] = (),
    partition_by_date: bool = True,
    share_count: int | None = None,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> JournalExportReport:
    """Adds the events of a store that are not there yet to a Delta table, or to a directory of Parquet files.

    Each topic becomes seen in one commit.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        store: the url of the store: `sqlite:///FILE`, which all tasks must be able to open, or `cassandra://...`.
        target: the directory of the table, on a file system that all machines have mounted.
        kind: `delta` or `parquet`.
        topics: whose journals are exported; all that are replicated by default.
        partition_by_date: part the files by `date`, the day of the timestamp in UTC.
        share_count: in how many parts the store is read; four for each core by default.
        progress: told of each round in a line.
        is_stopping: asked between rounds; topics that were committed stay, of the one under way nothing is seen.

    Raises:
        StoreUrlError, NotFoundError: there is no such store, or no such topic in it.
        ConfigError: it is a file, and tasks run on other machines.
        NewerSchemaError: a newer version made the store.
        Retriable: the store cannot be read for now.
        DecodeError: an event cannot be read; names the journal.
        TargetError, SchemaDiffersError: the target is no table for it.
        LogReplacedError: the store has come less far than what was exported: it is another one.
        ExportConflictError: another run was there first; nothing of this one's last topic was added.
        ExactlogError: `explain` gives what Spark raises.
    """
    url = reachable_url(store, master=spark.sparkContext.master)
    there = delta_target(target) if kind == "delta" else parquet_target(target)
    shares = shares_for(spark, share_count)
    pointers = wait_for(_pointers(url, topics))
    columns = _columns(is_by_date=partition_by_date)
    with closing(there):
        there.open(columns)
        parts = [part for topic, found in pointers.items() if (part := _part(there, topic, found)).offsets]
        run = _Run(spark, there, columns, store=url, shares=shares, progress=progress, is_stopping=is_stopping)
        for number, part in enumerate(parts, start=1):
            if not run.export(part, f"topic {part.topic}, {number} of {len(parts)}"):
                break
        return run.report(parts)


class _Run:
    """One run, topic after topic."""

    def __init__(
        self,
        spark: "SparkSession",
        target: ExportTarget,
        columns: ExportColumns,
        *,
        store: str,
        shares: Sequence[Share],
        progress: Progress,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._target = target
        self._columns = columns
        self._store = store
        self._shares = shares
        self._progress = progress
        self._is_stopping = is_stopping
        self._files: list[WrittenFile] = []
        self._done: list[_Part] = []

    def export(self, part: _Part, name: str) -> bool:
        """Exports a topic; whether it did: it does not where the run is to stop."""
        work = partial(
            _write_share,
            store=self._store,
            part=part,
            schema=self._columns.read_schema,
            root=str(self._target.root()),
            is_by_date=bool(self._columns.partition_by),
        )
        files: list[WrittenFile] = []
        done = 0
        for told_of_round in carry_out(
            self._spark, self._shares, work, list[WrittenFile], is_stopping=self._is_stopping
        ):
            for written in told_of_round:
                files += written
            done += len(told_of_round)
            rows = sum(file.row_count for file in files)
            self._progress(f"{name}: share {done} of {len(self._shares)}: {rows} events in {len(files)} files so far")
        if done < len(self._shares):
            self._discard(files)
            return False
        self._target.commit(
            files,
            {(part.target_id, partition): ExportedUpTo(end) for partition, (_, end) in part.offsets.items()},
            before={(part.target_id, partition): part.before[partition] for partition in part.offsets},
        )
        self._files += files
        self._done.append(part)
        return True

    def report(self, parts: Sequence[_Part]) -> JournalExportReport:
        """What was exported of what was to be."""
        counts: Counter[str] = Counter()
        for file in self._files:
            counts.update(file.row_counts)
        return JournalExportReport(
            rows=counts.total(),
            files=len(self._files),
            bytes=sum(file.size_bytes for file in self._files),
            target_version=self._target.version(),
            topics_left=len(parts) - len(self._done),
            is_stopped=len(self._done) < len(parts),
            partitions=tuple(
                ExportedJournals(part.topic, partition, start, end, counts[f"{part.topic}/{partition}"])
                for part in self._done
                for partition, (start, end) in sorted(part.offsets.items())
            ),
        )

    def _discard(self, files: Sequence[WrittenFile]) -> None:
        for file in files:
            (self._target.root() / file.path).unlink(missing_ok=True)


# --- before tasks -----------------------------------------------------------------------------------------------------


async def _pointers(url: str, topics: Sequence[str]) -> dict[str, dict[int, int]]:
    """How far each topic is replicated: by partition, the offset behind the pointer."""
    async with open_share(url) as store:
        found = {topic: await store.pointers(topic) for topic in await replicated_topics(store, topics)}
    return {topic: {number: each.offset + 1 for number, each in rows.items()} for topic, rows in found.items()}


def _part(target: ExportTarget, topic: str, ends: Mapping[int, int]) -> _Part:
    """What of a topic is not exported yet.

    Raises:
        LogReplacedError: more was exported than there is.
    """
    part = _Part(topic, {}, {})
    for partition, end in sorted(ends.items()):
        done = target.exported(part.target_id, partition)
        start = 0 if done is None else done.offset
        if start > end:
            raise LogReplacedError(
                f"topic {topic}, partition {partition}: the store has come to offset {end - 1}, and was exported up to "
                f"offset {start - 1}; it is another store, or an older copy",
                hint="Export it into another directory, or bring the store back that was exported.",
            )
        if start < end:
            part.offsets[partition] = (start, end)
            part.before[partition] = None if done is None else done.offset
    return part


def _columns(*, is_by_date: bool) -> ExportColumns:
    from pyspark.sql.types import DateType, StructField, StructType  # noqa: PLC0415  an extra

    read_type = StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in COLUMNS))
    assert isinstance(read_type, StructType), "several columns"
    dated = [StructField(DATE, DateType())] if is_by_date else []
    return ExportColumns(arrow_schema(read_type), read_type, StructType([*read_type.fields, *dated]), None)


# --- in a task --------------------------------------------------------------------------------------------------------


def _write_share(
    share: Share, *, store: str, part: _Part, schema: "pa.Schema", root: str, is_by_date: bool
) -> list[WrittenFile]:
    written = write_rows(_batches(share, store, part, schema), root=root, is_by_date=is_by_date)
    return [decode_written(told) for batch in written for told in batch.column(0).to_pylist()]


def _batches(share: Share, store: str, part: _Part, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa  # noqa: PLC0415  an extra

    with (
        closing(BlockingLoop("exactlog-journal-export", closed=_closed)) as loop,
        loop.within(open_share(store, share)) as opened,
    ):
        gathered: list[dict[str, Any]] = []
        for row in loop.iterate(_rows(opened, part), items_at_a_time=_ROWS_PER_BATCH):
            gathered.append(row)
            if len(gathered) == _ROWS_PER_BATCH:
                yield pa.RecordBatch.from_pylist(gathered, schema=schema)
                gathered = []
        if gathered:
            yield pa.RecordBatch.from_pylist(gathered, schema=schema)


async def _rows(store: JournalStore, part: _Part) -> AsyncIterator[dict[str, Any]]:
    """The events of a share that are to be exported, journal after journal.

    Raises:
        DecodeError: one cannot be read; names the journal.
    """
    async for key_id in store.ids(part.topic):
        key = JournalKey(part.topic, key_id)
        head = await store.head(key)
        if head is None or head.offset < part.offsets.get(head.place.partition, (0, 0))[0]:
            continue  # purged meanwhile, or nothing of it is new
        try:
            async for row in store.rows(key, head, EVERY_EVENT):
                start, end = part.offsets.get(row.place.partition, (0, 0))
                if start <= row.place.offset < end:
                    yield _columns_of(key, row)
        except DecodeError as error:
            raise DecodeError(
                f"journal {key} cannot be read: {error}", hint="`exactlog pipeline verify --store` says what is wrong"
            ) from error


def _columns_of(key: JournalKey, row: EventRow) -> dict[str, Any]:
    payload = payload_columns(row.event.payload)
    return {
        "topic": key.topic,
        "id": key.id,
        "seq_nr": row.seq_nr,
        "partition": row.place.partition,
        "offset": row.place.offset,
        "timestamp": _EPOCH + timedelta(milliseconds=row.timestamp_ms),
        "record_id": None if row.record_id is None else str(row.record_id),
        "event_id": row.event_id,
        "tags": sorted(row.event.tags),
        "payload_type": payload.kind,
        "payload_txt": payload.text,
        "payload_bin": payload.content,
        "metadata": encode_row_metadata(row.metadata),
        "headers": list(row.headers.items()),
        "origin": row.origin,
        "version": row.version,
    }


def _closed() -> InvariantError:
    return InvariantError("the thread of a store is used outside of its context")
