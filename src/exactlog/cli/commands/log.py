"""`exactlog log`: look into a data directory or one partition of it, without a broker and without a lock."""

from collections.abc import Iterator
from pathlib import Path

import click

from exactlog.cli.errors import NotFoundError
from exactlog.cli.output import write_object, write_rows
from exactlog.cli.positions import AsOfTime, AsOfVersion, parse_as_of
from exactlog.cli.records import record_row, write_records
from exactlog.cli.settings import Group, Settings
from exactlog.core.deltalog.commit_format import DeltaCommit
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.storage.table_reader import TableReader, find_tables, open_table

path_argument = click.argument("path", type=click.Path(path_type=Path))


@click.group(cls=Group)
def log() -> None:
    """Look into a data directory, or one partition of it, without a broker."""


@log.command()
@path_argument
@click.pass_obj
def inspect(settings: Settings, /, *, path: Path) -> None:
    """Say what there is: the partitions of a data directory, or the table of one partition."""
    tables = tables_at(path)
    if is_table(path):
        write_object(describe_table(path, tables[0]), output=settings.output_of_list())
        return
    columns = ["topic", "partition", "version", "log_start_offset", "last_stable_offset", "end_offset", "segments", "bytes"]
    write_rows(map(summarise_table, tables), columns=columns, output=settings.output_of_list())


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
    columns = ["topic", "partition", "version", "timestamp", "adds", "removes", "offset_start", "end_offset", "txn_id"]
    write_rows(rows, columns=columns, output=settings.output_of_list())


@log.command()
@path_argument
@click.option("--as-of", metavar="VERSION|TIMESTAMP", help="The records as of a delta version or a time (RFC 3339).")
@click.option("--from", "from_offset", type=click.IntRange(0), default=0, help="The first offset.")
@click.option("--to", "to_offset", type=click.IntRange(0), help="The offset to stop before.")
@click.pass_obj
def read(
    settings: Settings, /, *, path: Path, as_of: str | None, from_offset: int, to_offset: int | None
) -> None:
    """Print the records of a partition, or of every partition of a data directory."""
    moment = None if as_of is None else parse_as_of(as_of)
    rows = (row for table in tables_at(path) for row in _read_table(table, moment, from_offset, to_offset))
    write_records(rows, output=settings.output_of_records())
