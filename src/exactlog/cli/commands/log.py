"""`exactlog log`: look into a data directory or one partition of it, without a broker; let old versions expire."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
from msgspec import UNSET, Struct

from exactlog.cli.commands.log_audit import repair, verify
from exactlog.cli.commands.log_compact import compact
from exactlog.cli.errors import PartlyDoneError
from exactlog.cli.isolation import ISOLATION_LEVELS, control_option, isolation_option
from exactlog.cli.output import write_object, write_rows
from exactlog.cli.positions import AsOfTime, AsOfVersion, parse_as_of
from exactlog.cli.records import record_printer, record_row
from exactlog.cli.settings import Group, Settings
from exactlog.core.deltalog.commit_format import DeltaCommit
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, parse_partition_directory_name
from exactlog.core.model.errors import ExactlogError, NotFoundError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.journal_redo import redo_journal
from exactlog.storage.table_reader import TableReader, find_tables, open_table
from exactlog.storage.vacuum import vacuum as vacuum_table

_TABLE_COLUMNS = (
    "topic",
    "partition",
    "version",
    "log_start_offset",
    "last_stable_offset",
    "end_offset",
    "segments",
    "bytes",
)
_VERSION_COLUMNS = ("topic", "partition", "version", "timestamp", "adds", "removes", "end_offset", "txn_id")
_VACUUM_COLUMNS = (
    "topic",
    "partition",
    "versions_expired",
    "files_removed",
    "bytes_freed",
    "oldest_version",
    "version",
    "reason",
)

path_argument = click.argument("path", type=click.Path(path_type=Path))


class Extent(Struct, frozen=True):
    """What is to be read of a table.

    Attributes:
        moment: as of when; None: as it is now.
        from_offset: the first one.
        to_offset: where to stop before; None: at the end.
        isolation: what is seen of transactions.
        has_control: whether their markers are read too.
    """

    moment: AsOfVersion | AsOfTime | None
    from_offset: int
    to_offset: int | None
    isolation: IsolationLevel
    has_control: bool


@click.group(cls=Group)
def log() -> None:
    """Look into a data directory, or one partition of it, without a broker."""


log.add_command(verify)
log.add_command(repair)
log.add_command(compact)


@log.command()
@path_argument
@click.pass_obj
def inspect(settings: Settings, /, *, path: Path) -> None:
    """Say what there is: the partitions of a data directory, or the table of one partition."""
    tables = tables_at(path)
    if is_table(path):
        write_object(describe_table(tables[0]), output=settings.output_of_list())
    else:
        write_rows(map(summarise_table, tables), columns=_TABLE_COLUMNS, output=settings.output_of_list())


@log.command()
@path_argument
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many of the newest.")
@click.option("--all", "is_all", is_flag=True, help="All there are.")
@click.pass_obj
def versions(settings: Settings, /, *, path: Path, limit: int, is_all: bool) -> None:
    """List the delta versions of a partition, or of every partition, the newest first."""
    rows = (
        version_row(table, commit)
        for table in tables_at(path)
        for commit in table.versions(limit=None if is_all else limit, newest_first=True)
    )
    write_rows(rows, columns=_VERSION_COLUMNS, output=settings.output_of_list())


@log.command()
@path_argument
@click.option("--as-of", metavar="VERSION|TIMESTAMP", help="The records as of a delta version, or a time (RFC 3339).")
@click.option("--from", "from_offset", type=click.IntRange(0), default=0, help="The first offset.")
@click.option("--to", "to_offset", type=click.IntRange(0), help="The offset to stop before.")
@isolation_option
@control_option
@click.pass_obj
def read(
    settings: Settings,
    /,
    *,
    path: Path,
    as_of: str | None,
    from_offset: int,
    to_offset: int | None,
    isolation: str,
    control: bool,
) -> None:
    """Print the records of a partition, or of every partition of a data directory.

    Records of aborted transactions are left out, and so is all from the first one on that is open; of one that was open
    as of a version nothing is ever shown for that version.
    """
    extent = Extent(
        moment=None if as_of is None else parse_as_of(as_of),
        from_offset=from_offset,
        to_offset=to_offset,
        isolation=ISOLATION_LEVELS[isolation],
        has_control=control,
    )
    tables = tables_at(path)
    with record_printer(settings.output_of_records()) as printer:
        for table in tables:
            for row in read_table(table, extent):
                printer.write(row)


@log.command()
@path_argument
@click.option("--keep-versions", type=click.IntRange(1), required=True, help="How many of the newest stay, at least.")
@click.option("--dry-run", is_flag=True, help="Only say what would go; takes no lock.")
@click.pass_obj
def vacuum(settings: Settings, /, *, path: Path, keep_versions: int, dry_run: bool) -> None:
    """Let old versions of a partition, or of every partition, expire. No broker may be running on them."""
    paths = table_paths(path)
    rows, failures = [], []
    data_dir = str(data_dir_of(path))
    with nullcontext() if dry_run else DirectoryLock(data_dir):
        if not dry_run:
            redo_journal(OsFilesystem(), data_dir)
        for each in paths:
            try:
                rows.append(vacuum_row(each, versions_keep=keep_versions, dry_run=dry_run))
            except ExactlogError as error:
                failures.append(error)
    if failures and not rows:
        raise failures[0]
    write_rows(rows, columns=_VACUUM_COLUMNS, output=settings.output_of_list())
    if failures:
        raise PartlyDoneError(
            f"{len(failures)} of {len(paths)} partitions are as they were: {failures[0]}", failures[0]
        )


def is_table(path: Path) -> bool:
    """Whether the directory is one partition; else it is taken for a data directory."""
    return (path / DELTA_LOG_DIRECTORY).is_dir()


def data_dir_of(path: Path) -> Path:
    """The data directory that is meant: the path itself, or the one that the partition lies in."""
    if not is_table(path):
        return path
    is_named = parse_partition_directory_name(path.name) is not None  # else it is `.` or the like
    return path.parent if is_named else path.resolve().parent


def tables_at(path: Path) -> list[TableReader]:
    """The table of a partition directory, or those of a data directory.

    Raises:
        NotFoundError: there is none.
    """
    return [open_table(each) for each in table_paths(path)]


def table_paths(path: Path) -> list[Path]:
    """The partition directory itself, or those of a data directory.

    Raises:
        NotFoundError: there is none.
    """
    paths = [path] if is_table(path) else find_tables(path) if path.is_dir() else []
    if not paths:
        raise NotFoundError(
            f"{path} is no partition and no data directory",
            hint="A partition directory is named topic=NAME-part=N; a data directory holds some of them.",
        )
    return paths


def describe_table(table: TableReader) -> dict[str, object]:
    """All about one table."""
    snapshot, metadata = table.snapshot(), table.metadata
    return summarise_table(table) | {
        "timestamp": snapshot.timestamp,
        "leader_epoch": snapshot.leader_epoch,
        "topic_id": str(metadata.topic_id),
        "created": metadata.created,
        "format_version": metadata.format_version,
        "config": metadata.config,
        "origins": len(snapshot.origins),
        "segment_files": [segment.name for segment in snapshot.segments],
    }


def summarise_table(table: TableReader) -> dict[str, object]:
    """The size and the cursors of one table."""
    snapshot = table.snapshot()
    return {
        "topic": table.metadata.topic,
        "partition": table.metadata.partition,
        "version": snapshot.version,
        "log_start_offset": snapshot.log_start_offset,
        "last_stable_offset": snapshot.last_stable_offset,
        "end_offset": snapshot.next_offset,
        "segments": len(snapshot.segments),
        "bytes": sum(segment.size for segment in snapshot.segments),
    }


def version_row(table: TableReader, commit: DeltaCommit) -> dict[str, object]:
    """One version: when, by whom, what it changed."""
    return {
        "topic": table.metadata.topic,
        "partition": table.metadata.partition,
        "version": commit.version,
        "timestamp": commit.timestamp,
        "txn_id": commit.txn_id,
        "adds": sum(operation.type == "add" for operation in commit.operations),
        "removes": sum(operation.type == "remove" for operation in commit.operations),
        "end_offset": commit.end_offset,
        "last_stable_offset": commit.last_stable_offset,
        "log_start_offset": commit.log_start_offset,
        "leader_epoch": commit.leader_epoch,
        "changes_metadata": commit.metadata is not UNSET,
    }


def vacuum_row(path: Path, *, versions_keep: int, dry_run: bool) -> dict[str, object]:
    """Vacuums one table, and says what that did. One that cannot be opened is left as it is."""
    metadata = open_table(path).metadata
    report = vacuum_table(OsFilesystem(), str(path), versions_keep=versions_keep, dry_run=dry_run)
    return {
        "topic": metadata.topic,
        "partition": metadata.partition,
        "versions_expired": report.versions_expired,
        "files_removed": report.files_removed,
        "bytes_freed": report.bytes_freed,
        "oldest_version": report.oldest_version,
        "version": report.newest_version,
        "reason": report.reason,
        "dry_run": dry_run,
    }


def read_table(table: TableReader, extent: Extent) -> Iterator[dict[str, object]]:
    """The records of one table as rows."""
    place = TopicPartition(table.metadata.topic, table.metadata.partition)
    moment = extent.moment
    stored = table.read_stored(
        extent.from_offset,
        extent.to_offset,
        as_of_version=moment.version if isinstance(moment, AsOfVersion) else None,
        as_of_timestamp=moment.timestamp_ms if isinstance(moment, AsOfTime) else None,
        isolation=extent.isolation,
        include_control=extent.has_control,
    )
    for found in stored:
        yield record_row(place, found.record, batch=found.batch, delta_version=found.delta_version)
