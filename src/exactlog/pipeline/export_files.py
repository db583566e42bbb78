"""The part of an export that tasks do: pieces of the log, or rows that Spark made of them, into Parquet files.

A task gives its files names that no other one has, an earlier attempt of it included, makes them durable, and tells of
them. They count only when the driver has said so; what an attempt wrote that failed, or that was killed, is never
looked at.
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from exactlog.pipeline.arrow_rows import read_rows
from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Slice

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

DATE: Final = "date"
"""The column that files are parted by: the day of the timestamp, in UTC."""

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""How a directory calls a date that is NULL; what Hive, Spark and Delta agree on."""

WRITTEN: Final = "written string"
"""The schema in which tasks tell of their files, as Spark's DDL: one in JSON a row."""

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
OPEN_FILES_MAX: Final = 64
"""Records of so many days at a time; with more, a day gets several files."""

_MEASURED: Final = ("topic", "partition", "offset", "timestamp", "delta_version")


class WrittenFile(Struct, frozen=True):
    """A file that a task wrote.

    Attributes:
        path: relative to where it was told to write.
        date: of all its rows; None: they have none, or files are not parted.
        stats: what is known of its columns, in the words of Delta Lake ("Per-file Statistics").
        row_counts: of each partition of the log, as `topic/number`.
    """

    path: str
    size_bytes: int
    row_count: int
    modified_ms: int
    date: str | None
    stats: dict[str, Any]
    row_counts: dict[str, int]


def write_slices(
    indexes: "Iterable[pa.RecordBatch]", *, read: Callable[..., Any], write: Callable[..., Any]
) -> "Iterator[pa.RecordBatch]":
    """Reads and writes in one go, so that no row leaves the worker. For `mapInArrow`.

    Args:
        indexes: those of the tasks.
        read: `read_slices`, told what to read.
        write: `write_rows`, told where to.
    """
    yield from write(read(indexes))


def read_slices(
    indexes: "Iterable[pa.RecordBatch]", *, tasks: Sequence[Sequence[Slice]], options: ReadOptions, schema: "pa.Schema"
) -> "Iterator[pa.RecordBatch]":
    """The rows of the slices of the tasks with these indexes. For `mapInArrow`."""
    from exactlog.pipeline.open_source import open_source  # noqa: PLC0415  it opens files and connections

    with hints_kept():
        for index in (number.as_py() for batch in indexes for number in batch.column(0)):
            with closing(open_source(options, schema.names)) as source:
                yield from read_rows(source, tasks[index], schema)


def write_rows(rows: "Iterable[pa.RecordBatch]", *, root: str, is_by_date: bool) -> "Iterator[pa.RecordBatch]":
    """Writes rows into files below `root`; tells of the files. For `mapInArrow`."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    files = _DatedFiles(Path(root), is_by_date=is_by_date)
    try:
        for batch in rows:
            files.write(_in_utc(batch))
        written = files.close()
    except BaseException:
        files.discard()
        raise
    if written:
        yield pa.RecordBatch.from_pydict({"written": [msgspec.json.encode(file).decode() for file in written]})


def sync_path(path: str | Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _DatedFiles:
    """The files that one attempt of a task writes: one for each date, or more if there are many dates."""

    def __init__(self, root: Path, *, is_by_date: bool) -> None:
        self._root = root
        self._is_by_date = is_by_date
        self._attempt = uuid.uuid4().hex
        self._open: dict[str | None, _OpenFile] = {}  # the one written to last at the end
        self._started: list[Path] = []
        self._written: list[WrittenFile] = []

    def write(self, rows: "pa.RecordBatch") -> None:
        for date, part in _by_date(rows) if self._is_by_date else [(None, rows)]:
            file = self._open.pop(date, None) or self._start(date)
            self._open[date] = file
            file.write(part)

    def close(self) -> list[WrittenFile]:
        """Ends all files, makes them durable, and tells of them."""
        while self._open:
            self._end_first()
        for directory in {path.parent for path in self._started}:
            sync_path(directory)
        if self._started:
            sync_path(self._root)
        return self._written

    def discard(self) -> None:
        """Removes what was written: nobody will ask for it."""
        for path in self._started:
            path.unlink(missing_ok=True)

    def _start(self, date: str | None) -> "_OpenFile":
        if len(self._open) >= OPEN_FILES_MAX:
            self._end_first()
        folder = self._root / f"{DATE}={date or NO_DATE}" if self._is_by_date else self._root
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{len(self._started):05d}-{self._attempt}.parquet"
        self._started.append(path)
        return _OpenFile(path, date)

    def _end_first(self) -> None:
        date = next(iter(self._open))
        self._written.append(self._open.pop(date).close(self._root))


class _OpenFile:
    """A file that rows are gathered for, a row group at a time."""

    def __init__(self, path: Path, date: str | None) -> None:
        self._path = path
        self._date = date
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._bounds = _ColumnBounds()
        self._row_counts: Counter[str] = Counter()

    def write(self, rows: "pa.RecordBatch") -> None:
        self._gathered.append(rows)
        self._gathered_bytes += rows.nbytes
        if self._gathered_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self, root: Path) -> WrittenFile:
        self._flush()
        assert self._writer is not None, "a file is started for its first rows"
        self._writer.close()
        sync_path(self._path)
        found = self._path.stat()
        return WrittenFile(
            path=self._path.relative_to(root).as_posix(),
            size_bytes=found.st_size,
            row_count=self._bounds.row_count,
            modified_ms=found.st_mtime_ns // 1_000_000,
            date=self._date,
            stats=self._bounds.as_delta_stats(),
            row_counts=dict(self._row_counts),
        )

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415  an extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        if not self._gathered:
            return
        rows = pa.Table.from_batches(self._gathered)
        self._gathered, self._gathered_bytes = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, rows.schema, compression="snappy")
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._bounds.add(rows)
        counts = rows.group_by(["topic", "partition"]).aggregate([([], "count_all")]).to_pylist()
        self._row_counts.update({f"{row['topic']}/{row['partition']}": row["count_all"] for row in counts})


class _ColumnBounds:
    """The least and the largest value of the columns that queries skip files by."""

    def __init__(self) -> None:
        self.row_count = 0
        self._least: dict[str, Any] = {}
        self._largest: dict[str, Any] = {}
        self._nulls: Counter[str] = Counter()

    def add(self, rows: "pa.Table") -> None:
        import pyarrow.compute as pc  # noqa: PLC0415  an extra

        self.row_count += rows.num_rows
        for name in _MEASURED:
            if name not in rows.column_names:
                continue
            column = rows.column(name)
            self._nulls[name] += column.null_count
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None:
                self._least[name] = min(bounds["min"], self._least.get(name, bounds["min"]))
                self._largest[name] = max(bounds["max"], self._largest.get(name, bounds["max"]))

    def as_delta_stats(self) -> dict[str, Any]:
        return {
            "numRecords": self.row_count,
            "minValues": {name: _as_stat(value) for name, value in self._least.items()},
            "maxValues": {name: _as_stat(value) for name, value in self._largest.items()},
            "nullCount": dict(self._nulls),
        }


def _in_utc(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    """The rows with their times said in UTC: Spark hands them over in the zone of the session."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    index = rows.schema.get_field_index("timestamp")
    utc = pa.timestamp("us", "UTC")
    if rows.schema.field(index).type == utc:
        return rows
    return rows.set_column(index, pa.field("timestamp", utc), rows.column(index).cast(utc))


def _by_date(rows: "pa.RecordBatch") -> "Iterator[tuple[str | None, pa.RecordBatch]]":
    """The rows of each date, without the column."""
    import pyarrow as pa  # noqa: PLC0415  an extra
    import pyarrow.compute as pc  # noqa: PLC0415

    dates = rows.column("timestamp").cast(pa.date32())
    for date in pc.unique(dates).to_pylist():
        mask = pc.is_null(dates) if date is None else pc.fill_null(pc.equal(dates, date), fill_value=False)
        yield (None if date is None else date.isoformat(), rows.filter(mask))


def _as_stat(value: int | str | datetime) -> int | str:
    """A value as statistics of Delta have it: times to the millisecond, which is all that a record's has."""
    return value if isinstance(value, int | str) else f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def decode_written(text: str) -> WrittenFile:
    """What a task told of a file."""
    return msgspec.json.decode(text, type=WrittenFile)
