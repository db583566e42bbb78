"""The log as a Delta Lake table, exactly once: rows and how far they reach become part of it in one commit.

Tasks write the files, delta-rs the commit; no jar is needed. A commit holds, beside the files, two transaction
identifiers of Delta ("Transaction Identifiers") for each partition of the log that it goes over:

    exactlog-export/<topic id>/<partition>          the delta version of the log as of which it is complete
    exactlog-export-offset/<topic id>/<partition>   the offset at which the next run goes on

A run reads them from the snapshot that it commits on top of. When another run has committed the same identifiers in
the meantime, Delta refuses the commit, and nothing of it is seen.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from exactlog.core.model.errors import ExactlogError
from exactlog.pipeline.export_columns import ExportColumns, ValueSchemaError
from exactlog.pipeline.export_files import DATE, WrittenFile, sync_path
from exactlog.pipeline.export_plan import BYTES_PER_ROUND_DEFAULT, ExportedUpTo
from exactlog.pipeline.export_run import (
    ExportReport,
    ExportSettings,
    ExportTarget,
    Progress,
    SchemaDiffersError,
    TargetError,
    conflict_at,
    local_target,
    make_directory,
    read_options_of,
    run_export,
)
from exactlog.pipeline.official_connector import Connector
from exactlog.pipeline.spark_requirements import require_lakehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction, Transaction
    from pyspark.sql import SparkSession

VERSION_ID: Final = "exactlog-export"
OFFSET_ID: Final = "exactlog-export-offset"

_LOG: Final = "_delta_log"
_CONFLICTS: Final = "Concurrent transaction"


class DeltaError(ExactlogError):
    """The Delta library refuses something. The message has its words."""

    code = "delta-failed"


def export_delta(
    spark: "SparkSession",
    *,
    target: str | Path,
    path: str | Path | None = None,
    bootstrap: str | None = None,
    topics: Sequence[str] = (),
    connector: Connector = "exactlog",
    schema: str | None = None,
    partition_by_date: bool = True,
    version_as_of: int | None = None,
    timestamp_as_of: str | int | None = None,
    fail_on_data_loss: bool = True,
    bytes_per_task: int | None = None,
    bytes_per_commit: int = BYTES_PER_ROUND_DEFAULT,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> ExportReport:
    """Adds the committed records that are not in a Delta table yet to it; makes the table, if there is none.

    Every record comes once, however often a run is killed, repeated, or run beside another one. Several topics may go
    into one table. A run that is killed leaves files that the table does not know; Delta's vacuum removes them.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        target: the directory of the table, on a file system that all machines have mounted.
        path: a data directory of the log, or the directory of one partition; or else:
        bootstrap: `host:port` of a broker, of any make.
        topics: what to export; all but internal ones by default.
        connector: `kafka`: Spark's own source reads the broker, with its jars.
        schema: the type of the values, which are JSON, as DDL: `value` becomes a struct, and `_corrupt_record` holds
            the bytes of those that do not parse. None: values stay bytes.
        partition_by_date: part the table by `date`, the day of the timestamp in UTC.
        version_as_of: up to that version of each partition; the newest by default. Only with `path`.
        timestamp_as_of: up to the version of that time, in ISO 8601 or milliseconds. Only with `path`.
        fail_on_data_loss: whether records that went before they were exported are an error; else they are left out.
        bytes_per_task: how much of the log a task reads; 64 MiB by default.
        bytes_per_commit: how much of the log becomes rows in one commit; 4 GiB by default.
        progress: told of each commit in a line.
        is_stopping: asked between commits; what has been committed stays.

    Raises:
        SparkMissingError: the Delta library is not installed.
        InvalidOptionError, ValueSchemaError: what was asked for does not go together.
        TargetError, SchemaDiffersError: the target is no table for it.
        LogReplacedError, RecordsLostError: the log is not the one that was exported, or lacks records of it.
        ExportConflictError: another run was there first; nothing of this one's last commit was written.
        ExactlogError: the log cannot be read; `explain` gives what Spark raises.
    """
    require_lakehouse()
    moment = {"version": version_as_of, "time": timestamp_as_of}
    settings = ExportSettings(
        options=read_options_of(topics, path=path, bootstrap=bootstrap, task_bytes=bytes_per_task, **moment),
        connector=connector,
        schema=schema,
        is_by_date=partition_by_date,
        bytes_per_round_max=bytes_per_commit,
        fail_on_data_loss=fail_on_data_loss,
    )
    return run_export(spark, delta_target(target), settings, progress=progress, is_stopping=is_stopping)


def delta_target(target: str | Path) -> ExportTarget:
    """A Delta table as the target of an export. Nothing of it is touched before it is opened.

    Raises:
        SparkMissingError: the Delta library is not installed.
        InvalidOptionError, TargetError: it is no directory for it.
    """
    require_lakehouse()
    return _Table(local_target(target))


class _Table:
    """A Delta table as the target of an export."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: DeltaTable | None = None
        self._schema: Schema | None = None
        self._partition_by: list[str] = []

    def open(self, columns: ExportColumns) -> None:
        self._schema = _delta_schema(columns)
        self._partition_by = columns.partition_by
        if not (self._path / _LOG).is_dir():
            if self._path.exists() and any(not each.name.startswith((".", "_")) for each in self._path.iterdir()):
                raise TargetError(
                    f"target {self._path} has files in it and is no Delta table",
                    hint="Export into an empty directory, or one that is not there yet.",
                )
            self._create()
        self._load()
        self._require_same_columns()

    def exported(self, topic_id: str, partition: int) -> ExportedUpTo | None:
        offset = self._opened.transaction_version(f"{OFFSET_ID}/{topic_id}/{partition}")
        if offset is None:
            return None
        return ExportedUpTo(offset, self._opened.transaction_version(f"{VERSION_ID}/{topic_id}/{partition}"))

    def root(self) -> Path:
        return self._path

    def commit(
        self,
        files: Sequence[WrittenFile],
        reached: Mapping[tuple[str, int], ExportedUpTo],
        *,
        before: Mapping[tuple[str, int], int | None],
    ) -> None:
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415  an extra
        from deltalake.transaction import CommitProperties  # noqa: PLC0415

        if any(_offset(self.exported(*key)) != offset for key, offset in before.items()):
            self._discard(files)
            raise conflict_at(self._path)
        assert self._schema is not None, "it was opened"
        version = self._opened.version()
        try:
            self._opened.create_write_transaction(
                self._adds(files),
                "append",
                self._schema,
                partition_by=self._partition_by,
                commit_properties=CommitProperties(app_transactions=_transactions(reached)),
            )
        except CommitFailedError as error:
            if _CONFLICTS in str(error):
                self._discard(files)
                raise conflict_at(self._path) from error
            raise DeltaError(f"the commit to {self._path} failed: {_first_line(error)}") from error
        self._load()
        self._make_durable(version + 1, self._opened.version())

    def version(self) -> int | None:
        return self._opened.version()

    def close(self) -> None:
        self._table = None

    @property
    def _opened(self) -> "DeltaTable":
        assert self._table is not None, "open comes first"
        return self._table

    def _load(self) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415  an extra
        from deltalake.exceptions import DeltaError as LibraryError  # noqa: PLC0415

        try:
            self._table = DeltaTable(self._path)
        except LibraryError as error:
            raise TargetError(f"target {self._path} is no Delta table: {_first_line(error)}") from error

    def _create(self) -> None:
        """Makes version 0, in a directory aside, and gives it its name unless another run has been quicker."""
        from deltalake.transaction import create_table_with_add_actions  # noqa: PLC0415  an extra

        assert self._schema is not None, "it comes first"
        log = self._path / _LOG
        make_directory(log)
        with tempfile.TemporaryDirectory(prefix=".creating-", dir=self._path) as aside:
            create_table_with_add_actions(aside, self._schema, [], partition_by=self._partition_by)
            made = Path(aside) / _LOG / _commit_name(0)
            sync_path(made)
            try:
                (log / made.name).hardlink_to(made)
            except FileExistsError:
                return
        for directory in (log, self._path, self._path.parent):
            sync_path(directory)

    def _make_durable(self, first: int, last: int) -> None:
        """delta-rs does not flush what it writes: a commit that is told of must outlast a power cut."""
        for version in range(first, last + 1):
            commit = self._path / _LOG / _commit_name(version)
            if commit.exists():  # else a checkpoint has taken its place
                sync_path(commit)
        sync_path(self._path / _LOG)

    def _adds(self, files: Sequence[WrittenFile]) -> "list[AddAction | RemoveAction]":
        from deltalake.transaction import AddAction  # noqa: PLC0415  an extra

        return [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values={DATE: file.date} if self._partition_by else {},
                modification_time=file.modified_ms,
                data_change=True,
                stats=msgspec.json.encode(file.stats).decode(),
            )
            for file in files
        ]

    def _discard(self, files: Sequence[WrittenFile]) -> None:
        """Removes files that no commit will name."""
        for file in files:
            (self._path / file.path).unlink(missing_ok=True)

    def _require_same_columns(self) -> None:
        assert self._schema is not None, "it was opened"
        there = {field.name: str(field.type) for field in self._opened.schema().fields}
        wanted = {field.name: str(field.type) for field in self._schema.fields}
        parted_by = self._opened.metadata().partition_columns
        if there != wanted or parted_by != self._partition_by:
            differing = sorted(name for name in there | wanted if there.get(name) != wanted.get(name))
            what = f"in {', '.join(differing)}" if differing else f"in what it is parted by ({parted_by or 'nothing'})"
            raise SchemaDiffersError(
                f"the table {self._path} differs from what is exported {what}",
                hint="Export with the schema and the parting of the runs before, or into another directory.",
            )


def _transactions(reached: Mapping[tuple[str, int], ExportedUpTo]) -> "list[Transaction]":
    """What is noted of each partition."""
    from deltalake.transaction import Transaction  # noqa: PLC0415  an extra

    noted = []
    for (topic_id, partition), upto in reached.items():
        noted.append(Transaction(f"{OFFSET_ID}/{topic_id}/{partition}", upto.offset))
        if upto.version is not None:
            noted.append(Transaction(f"{VERSION_ID}/{topic_id}/{partition}", upto.version))
    return noted


def _offset(done: ExportedUpTo | None) -> int | None:
    return None if done is None else done.offset


def _delta_schema(columns: ExportColumns) -> "Schema":
    from deltalake import Schema  # noqa: PLC0415  an extra

    try:
        return Schema.from_json(columns.written_type.json())
    except Exception as error:
        raise ValueSchemaError(f"Delta has no type for a column of the export: {_first_line(error)}") from error


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
