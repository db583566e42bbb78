"""`exactlog log compact`: keeps of each key the newest record, in the compacted topics of a stopped data directory."""

from pathlib import Path

import click
import msgspec

from exactlog.cli.errors import PartlyDoneError
from exactlog.cli.output import write_rows
from exactlog.cli.settings import Command, Settings
from exactlog.core.model.errors import ExactlogError

_COLUMNS = (
    "topic",
    "partition",
    "version",
    "segments_before",
    "segments",
    "bytes_before",
    "bytes",
    "records_removed",
    "passes",
)


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this one; it must be a compacted topic.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.pass_obj
def compact(settings: Settings, /, *, path: Path, topics: tuple[str, ...], dry_run: bool) -> None:
    """Compact the topics by key whose cleanup.policy has `compact`, in a data directory or one partition of it.

    No broker may be running on it. Of each key the newest record stays; tombstones and transaction markers stay for
    delete.retention.ms. Offsets do not change. A partition that cannot be compacted stays as it was: exit with 8.
    """
    from exactlog.log.compaction import CompactionRun, compact_partition, partitions_at  # noqa: PLC0415  not for every command

    if settings.verbose:
        settings.start_logging()
    root, names = partitions_at(path)
    rows, failures = [], []
    with CompactionRun(root, names, topics=topics, is_dry_run=dry_run) as run:
        for place in run.places:
            try:
                rows.append(msgspec.to_builtins(compact_partition(place)))
            except ExactlogError as error:
                failures.append(error)
    if failures and not rows:
        raise failures[0]
    write_rows(rows, columns=_COLUMNS, output=settings.output_of_list())
    if failures:
        count = len(rows) + len(failures)
        raise PartlyDoneError(f"{len(failures)} of {count} partitions are as they were: {failures[0]}", failures[0])
