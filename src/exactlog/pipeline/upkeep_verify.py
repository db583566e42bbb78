"""Verifying a whole data directory on Spark: each partition by one task, the catalog and the rest by the driver.

What is looked for is what `exactlog log verify` looks for, by the same code: checksums, offsets, the chain of delta
commits, checkpoints, the bounds of open transactions, indexes. Nothing is changed and no lock is taken: a broker may
run on it. All machines need the directory mounted at the same path.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    parse_partition_directory_name,
    print_partition_directory_name,
)
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.topic_name import reason_name_is_invalid
from exactlog.pipeline.upkeep_tasks import Progress, carry_out
from exactlog.storage.audit_findings import AuditReport, TableReport, summarise
from exactlog.storage.catalog import CATALOG_NAME
from exactlog.storage.data_directory_audit import audit_data_directory, audit_partitions
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import find_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_PER_TASK: Final = 256 * 1024 * 1024
"""Small partitions are verified by one task together, up to so many bytes: a task costs more than they do."""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What was verified.

    Attributes:
        partitions: how many were.
        partitions_left: how many were not, for the run was told to stop.
        bytes, batches, records: of those that were verified.
        damage: how many findings are damage, harmless ones among them: verified well is 0.
        is_stopped: whether it was told to stop before all was done.
        audit: partition for partition, and what is beside them.
    """

    partitions: int
    partitions_left: int
    bytes: int
    batches: int
    records: int
    damage: int
    is_stopped: bool
    audit: AuditReport


class _Part(Struct, frozen=True):
    """What one task verifies: partitions by the names of their directories."""

    names: tuple[str, ...]
    size_bytes: int


def verify_log(
    spark: "SparkSession",
    *,
    path: str | Path,
    topics: Sequence[str] = (),
    deep: bool = False,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> VerifyReport:
    """Verifies a data directory, or one partition.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        path: a data directory, or the directory of one partition; a copy will do.
        topics: whose partitions are verified; all by default.
        deep: whether every record is decoded too.
        progress: told of each round in a line.
        is_stopping: asked between rounds; what was verified so far is told.

    Raises:
        NotFoundError: it is neither, or has no such topic.
        UnavailableError: a broker keeps removing what is being looked at.
        ExactlogError: `explain` gives what Spark raises.
    """
    where = Path(str(path).removeprefix("file://")).resolve()
    run = _Run(spark, where, topics=frozenset(topics), is_deep=deep, progress=progress, is_stopping=is_stopping)
    if _is_partition(where):
        run = _Run(spark, where.parent, topics=frozenset(), is_deep=deep, progress=progress, is_stopping=is_stopping)
        return run.report(summarise(tuple(run.audit_tables([where.name]).values())))
    _refuse_other_paths(where, topics)
    return run.report(audit_data_directory(OsFilesystem(), os.fspath(where), audit_tables=run.audit_tables))


class _Run:
    """One run: lets tasks verify partitions, the largest first, so that the last to end is a small one."""

    def __init__(
        self,
        spark: "SparkSession",
        data_directory: Path,
        *,
        topics: frozenset[str],
        is_deep: bool,
        progress: Progress,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._data_directory = data_directory
        self._topics = topics
        self._is_deep = is_deep
        self._progress = progress
        self._is_stopping = is_stopping
        self._left = 0

    def audit_tables(self, names: Sequence[str]) -> Mapping[str, TableReport]:
        """What tasks find in these partitions; those that they did not come to are left out."""
        parts = self._parts([name for name in names if self._is_wanted(name)])
        count, size = sum(len(part.names) for part in parts), sum(part.size_bytes for part in parts)
        found: dict[str, TableReport] = {}
        work = partial(_audit_part, data_directory=os.fspath(self._data_directory), is_deep=self._is_deep)
        for told_of_round in carry_out(self._spark, parts, work, dict[str, TableReport], is_stopping=self._is_stopping):
            for tables in told_of_round:
                found |= tables
            done = sum(table.bytes for table in found.values())
            damage = sum(finding.is_damage for table in found.values() for finding in table.findings)
            self._progress(
                f"partition {len(found)} of {count}: {done} of {size} bytes, about, findings of damage: {damage}"
            )
        self._left = count - len(found)
        return found

    def report(self, audit: AuditReport) -> VerifyReport:
        """What was found, and how much there was."""
        return VerifyReport(
            partitions=len(audit.tables),
            partitions_left=self._left,
            bytes=sum(table.bytes for table in audit.tables),
            batches=sum(table.batches for table in audit.tables),
            records=sum(table.records for table in audit.tables),
            damage=audit.damage,
            is_stopped=self._left > 0,
            audit=audit,
        )

    def _is_wanted(self, name: str) -> bool:
        return not self._topics or any(_is_of(topic, name) for topic in self._topics)

    def _parts(self, names: Sequence[str]) -> list[_Part]:
        sizes = sorted(((_size_of(self._data_directory / name), name) for name in names), reverse=True)
        cores = self._spark.sparkContext.defaultParallelism
        bytes_max = min(BYTES_PER_TASK, sum(size for size, _ in sizes) // cores)
        parts: list[_Part] = []
        taken: list[str] = []
        taken_bytes = 0
        for size, name in sizes:
            if taken and taken_bytes + size > bytes_max:
                parts.append(_Part(tuple(taken), taken_bytes))
                taken, taken_bytes = [], 0
            taken.append(name)
            taken_bytes += size
        if taken:
            parts.append(_Part(tuple(taken), taken_bytes))
        return parts


def _audit_part(part: _Part, *, data_directory: str, is_deep: bool) -> dict[str, TableReport]:
    """In a task: what it finds, by the names of the directories."""
    found = audit_partitions(OsFilesystem(), data_directory, part.names, is_deep=is_deep)
    return dict(zip(part.names, found, strict=True))


def _size_of(directory: Path) -> int:
    """Of the files of a partition, about: some may go meanwhile."""
    size = 0
    try:
        for entry in os.scandir(directory):
            if entry.is_file():
                size += entry.stat().st_size
    except OSError:
        return size  # the audit says what is wrong
    return size


def _is_of(topic: str, name: str) -> bool:
    """Whether a directory is named as one of this topic; the names of long ones are hashed."""
    parsed = parse_partition_directory_name(name)
    if parsed is None or reason_name_is_invalid(topic) is not None:
        return False
    return print_partition_directory_name(topic, parsed.partition) == name


def _is_partition(path: Path) -> bool:
    return (path / DELTA_LOG_DIRECTORY).is_dir() or parse_partition_directory_name(path.name) is not None


def _refuse_other_paths(path: Path, topics: Sequence[str]) -> None:
    """Raises NotFoundError for what has neither partitions nor a catalog, and for topics that are not there."""
    tables = find_tables(path) if path.is_dir() else []
    if not tables and not (path / CATALOG_NAME).is_file():
        raise NotFoundError(
            f"{path} is no partition and no data directory",
            hint="A partition directory is named topic=NAME-part=N; a data directory holds some of them.",
        )
    missing = sorted(topic for topic in set(topics) if not any(_is_of(topic, table.name) for table in tables))
    if missing:
        raise NotFoundError(f"{path} has no topic {', '.join(missing)}")
