"""The log as a directory of Parquet files, exactly once, without a table format.

    TARGET/
      batch=0/date=2026-11-27/part-*.parquet    the rows of one step of one run, all of them or none
      batch=1/...
      _exactlog/0.json                          its manifest: how far the log is exported, and where its files were
      _exactlog/staging-*/                      where tasks write
      _exactlog/ready-*/                        the files of a step, before they have their name
      _exactlog/lock                            one export at a time

Tasks write aside, and make durable what they wrote. The files that they tell of are moved into a directory that no task
knows: an attempt that was given up may still be writing. The manifest is written aside, made durable and given its
name, which is free or the step fails; with that the step is decided. Then the directory of the files is given its own
name, in one rename. A run that finds a manifest whose files have no name yet gives it to them, and removes what no
manifest names. Readers leave out what begins with `_`, so they see whole steps alone.
"""

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from exactlog.core.model.errors import DamageError
from exactlog.pipeline.export_columns import ExportColumns
from exactlog.pipeline.export_files import WrittenFile, sync_path
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
from exactlog.storage.directory_lock import DirectoryLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE: Final = "_exactlog"
BATCH: Final = "batch"
_STAGING: Final = "staging-"
_READY: Final = "ready-"
_LAYOUT: Final = 1


class _Reached(Struct, frozen=True):
    """How far a partition is exported."""

    topic_id: str
    partition: int
    offset: int
    version: int | None


class _Manifest(Struct, frozen=True):
    """What decides a batch. Each one has the state of all partitions: the newest is enough to go on."""

    layout: int
    batch: int
    ready: str
    rows: int
    schema: str
    is_by_date: bool
    reached: tuple[_Reached, ...]


def export_parquet(
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
    bytes_per_batch: int = BYTES_PER_ROUND_DEFAULT,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> ExportReport:
    """Adds the committed records that are not in a directory of Parquet files yet to it.

    As `export_delta`, whose arguments it has. Each step becomes a directory `batch=N`, which readers see whole or not
    at all; `batch` is a column to them, as `date` is.

    Raises:
        DirectoryLockedError: another export is writing there.
        SchemaDiffersError: the runs before had another schema.
        DamageError: a manifest cannot be read, or its files are gone. Others as `export_delta`.
    """
    moment = {"version": version_as_of, "time": timestamp_as_of}
    settings = ExportSettings(
        options=read_options_of(topics, path=path, bootstrap=bootstrap, task_bytes=bytes_per_task, **moment),
        connector=connector,
        schema=schema,
        is_by_date=partition_by_date,
        bytes_per_round_max=bytes_per_batch,
        fail_on_data_loss=fail_on_data_loss,
    )
    return run_export(spark, parquet_target(target), settings, progress=progress, is_stopping=is_stopping)


def parquet_target(target: str | Path) -> ExportTarget:
    """A directory of Parquet files as the target of an export. Nothing of it is touched before it is opened.

    Raises:
        InvalidOptionError, TargetError: it is no directory for it.
    """
    return _Directory(local_target(target))


class _Directory:
    """A directory of Parquet files as the target of an export."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = path / STATE
        self._lock: DirectoryLock | None = None
        self._last: _Manifest | None = None
        self._reached: dict[tuple[str, int], ExportedUpTo] = {}
        self._staging = ""
        self._schema = ""
        self._is_by_date = False

    def open(self, columns: ExportColumns) -> None:
        if not self._state.is_dir() and self._path.exists() and any(self._path.iterdir()):
            raise TargetError(
                f"target {self._path} has files in it that no export wrote",
                hint="Export into an empty directory, or one that is not there yet.",
            )
        make_directory(self._state)
        self._lock = DirectoryLock(str(self._state))
        self._schema = columns.written_type.json()
        self._is_by_date = bool(columns.partition_by)
        self._recover()
        if self._last is not None and self._last.schema != self._schema:
            raise SchemaDiffersError(
                f"what is exported to {self._path} has other columns than the runs before gave it",
                hint="Export with the schema and the parting of the runs before, or into another directory.",
            )
        self._begin()

    def exported(self, topic_id: str, partition: int) -> ExportedUpTo | None:
        return self._reached.get((topic_id, partition))

    def root(self) -> Path:
        return self._state / self._staging

    def commit(
        self,
        files: Sequence[WrittenFile],
        reached: Mapping[tuple[str, int], ExportedUpTo],
        *,
        before: Mapping[tuple[str, int], int | None],
    ) -> None:
        known = {key: self._reached[key].offset if key in self._reached else None for key in before}
        if known != dict(before):
            raise conflict_at(self._path)
        state = self._reached | {
            key: ExportedUpTo(upto.offset, upto.version if upto.version is not None else _version(self._reached, key))
            for key, upto in reached.items()
        }
        manifest = _Manifest(
            layout=_LAYOUT,
            batch=0 if self._last is None else self._last.batch + 1,
            ready=f"{_READY}{uuid.uuid4().hex}",
            rows=sum(file.row_count for file in files),
            schema=self._schema,
            is_by_date=self._is_by_date,
            reached=tuple(
                _Reached(topic_id, partition, upto.offset, upto.version)
                for (topic_id, partition), upto in sorted(state.items())
            ),
        )
        self._gather(files, self._state / manifest.ready)
        self._publish(manifest)
        self._finish(manifest)
        self._last, self._reached = manifest, state
        self._begin()

    def version(self) -> int | None:
        return None if self._last is None else self._last.batch

    def close(self) -> None:
        if self._lock is not None:
            if self._staging:
                shutil.rmtree(self.root(), ignore_errors=True)
            self._lock.release()

    def _begin(self) -> None:
        """A place for the files of the next batch, of which no task knows that is still at work on another one."""
        if self._staging:
            shutil.rmtree(self.root(), ignore_errors=True)
        self._staging = f"{_STAGING}{uuid.uuid4().hex}"
        self.root().mkdir()

    def _gather(self, files: Sequence[WrittenFile], ready: Path) -> None:
        """Moves the files that tasks told of into a directory of their own."""
        ready.mkdir()
        for file in files:
            final = ready / file.path
            final.parent.mkdir(exist_ok=True)
            (self.root() / file.path).rename(final)
        for directory in {ready, *((ready / file.path).parent for file in files)}:
            sync_path(directory)
        sync_path(self._state)

    def _publish(self, manifest: _Manifest) -> None:
        """Gives the manifest its name; with that the batch is decided."""
        aside = self.root() / "manifest.json"
        aside.write_bytes(msgspec.json.encode(manifest) + b"\n")
        sync_path(aside)
        try:
            _manifest_path(self._state, manifest.batch).hardlink_to(aside)
        except FileExistsError:
            shutil.rmtree(self._state / manifest.ready)
            raise conflict_at(self._path) from None
        sync_path(self._state)

    def _finish(self, manifest: _Manifest) -> None:
        """Gives the files of a decided batch their name; doing it again changes nothing."""
        ready = self._state / manifest.ready
        final = self._path / f"{BATCH}={manifest.batch}"
        if ready.is_dir():
            if manifest.rows:
                ready.rename(final)
            else:
                ready.rmdir()
            sync_path(self._path)
            sync_path(self._state)
        elif manifest.rows and not final.is_dir():
            raise DamageError(
                f"the files of batch {manifest.batch} in {self._path} are gone: there is no {final.name}",
                hint="Bring the directory back from a copy, or export into another one.",
            )

    def _recover(self) -> None:
        """Takes the state from the newest manifest, completes its batch, and removes what none names."""
        numbers = sorted(
            int(name.stem) for name in self._state.iterdir() if name.suffix == ".json" and name.stem.isdecimal()
        )
        if numbers:
            self._last = self._read(numbers[-1])
            self._finish(self._last)
            self._reached = {
                (each.topic_id, each.partition): ExportedUpTo(each.offset, each.version) for each in self._last.reached
            }
        for left in (*self._state.glob(f"{_STAGING}*"), *self._state.glob(f"{_READY}*")):
            shutil.rmtree(left)

    def _read(self, number: int) -> _Manifest:
        path = _manifest_path(self._state, number)
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
        except msgspec.MsgspecError as error:
            raise DamageError(
                f"{path} is no manifest of an export: {error}", hint="Export into another directory."
            ) from error
        if manifest.layout != _LAYOUT or manifest.batch != number:
            raise DamageError(f"{path} is a manifest of another layout or batch", hint="Export into another directory.")
        return manifest


def _manifest_path(state: Path, batch: int) -> Path:
    return state / f"{batch}.json"


def _version(reached: Mapping[tuple[str, int], ExportedUpTo], key: tuple[str, int]) -> int | None:
    return reached[key].version if key in reached else None
