"""Jobs of `exactlog pipeline` that look after logs and stores of journals."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from exactlog.cli.commands.journal import store_option
from exactlog.cli.commands.log_audit import write_audit
from exactlog.cli.commands.pipeline import Job, job_options, running, write_report
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.exit_codes import ExitCode
from exactlog.cli.output import write_object
from exactlog.cli.settings import Command, Settings

if TYPE_CHECKING:
    from exactlog.pipeline.upkeep_export import TargetKind

_PURGE_COLUMNS = ("topic", "due", "purges")
_COMPACT_COLUMNS = ("topic", "journals", "of_no_journal", "deleted", "of_other_lives")
_LOG_COLUMNS = ("topic", "partition", "version", "segments", "bytes_before", "bytes", "records_removed", "error")
_REGION_COLUMNS = ("region", "log_start", "deleted_offsets", "kept_by", "pinned_by_table", "error")
_EXPORT_COLUMNS = ("topic", "partition", "from_offset", "to_offset", "rows")
_STORE_COLUMNS = ("topic", "partition", "pointer", "journals", "events", "equal", "moved_on", "unjudged", "damage")

share_option = click.option(
    "--shares", "share_count", type=click.IntRange(1), metavar="N", help="Look through the store in so many parts."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.command("purge-expired", cls=Command)
@store_option
@share_option
@dry_run_option
@click.pass_obj
@partial(job_options, reads_path=False)
def purge_expired(settings: Settings, /, *, job: Job, store: str, share_count: int | None, dry_run: bool) -> None:
    """Ask for the purge of the journals whose time is over (UTC). An append that comes first wins.

    The replicator carries the purges out. Run it again whenever it was stopped: what is due is found again. The first
    SIGTERM or Ctrl-C lets it end after the parts that it is in, the second at once.
    """
    from exactlog.pipeline import purge_expired as purge  # noqa: PLC0415  nothing of Spark before it is needed

    assert job.bootstrap is not None, "there is no path"
    with running(settings, job) as (spark, stop):
        report = purge(
            spark,
            store=store,
            bootstrap=job.bootstrap,
            topics=job.topics,
            dry_run=dry_run,
            share_count=share_count,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_report(settings, report, rows_of="topics", columns=_PURGE_COLUMNS)


@click.command("verify", cls=Command)
@click.option("-s", "--store", metavar="URL", help="Compare a store of journals with the log of the broker at -b.")
@click.option("--deep", is_flag=True, help="Decode every record of the log, too.")
@click.pass_obj
@job_options
def verify(settings: Settings, /, *, job: Job, store: str | None, deep: bool) -> int:
    """Check that a data directory is as it was written (--path), or a store what the log makes of it (--store).

    Changes nothing; a broker and a replicator may run. Exits with 7 where something is not as it should be.
    """
    if (job.path is None) == (store is None):
        raise InvalidUsageError(
            "verify what?", hint="--path DIR is a log, --store URL a store of journals: one at a time."
        )
    damage = _verify_log(settings, job, deep=deep) if store is None else _verify_store(settings, job, store)
    return ExitCode.DAMAGE if damage else ExitCode.OK


def _verify_log(settings: Settings, job: Job, *, deep: bool) -> int:
    """How much damage there is; what was found is printed."""
    from exactlog.pipeline import verify_log  # noqa: PLC0415  as above

    path = Path(job.path or "")
    with running(settings, job) as (spark, stop):
        report = verify_log(
            spark, path=path, topics=job.topics, deep=deep, progress=settings.say, is_stopping=stop.is_asked
        )
    if settings.output_of_list() == "table":
        write_audit(report.audit, path)
    else:
        write_object(msgspec.to_builtins(report), output=settings.output_of_list())
    return report.damage


def _verify_store(settings: Settings, job: Job, store: str) -> int:
    """How much damage there is; what was found is printed."""
    from exactlog.pipeline import verify_store  # noqa: PLC0415  as above

    with running(settings, job) as (spark, stop):
        report = verify_store(
            spark,
            store=store,
            bootstrap=settings.bootstrap,
            topics=job.topics,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_report(settings, report, rows_of="partitions", columns=_STORE_COLUMNS)
    return report.damage


@click.command("compact", cls=Command)
@click.option("-s", "--store", metavar="URL", help="Remove the rows of a store of journals that no reader is given.")
@click.option("--wal", "namespace", metavar="NAMESPACE", help="Clean the regions of a write-ahead log, at -b.")
@click.option("--region", "regions", multiple=True, type=click.IntRange(0), help="Only this one of the namespace.")
@click.option("--yes", is_flag=True, help="Yes, take regions from their owners where something can be deleted.")
@share_option
@dry_run_option
@click.pass_obj
@job_options
def compact(
    settings: Settings,
    /,
    *,
    job: Job,
    store: str | None,
    namespace: str | None,
    regions: tuple[int, ...],
    yes: bool,
    share_count: int | None,
    dry_run: bool,
) -> int:
    """Delete what nobody needs any more, of topics (--path), a store (--store), or a write-ahead log (--wal).

    Of the compacted topics of a data directory that no broker runs on, all but the newest record of each key goes; of a
    store, rows that no reader is given; of a write-ahead log, entries that no table needs.

    Run it again whenever it was stopped. Exits with 8 where some partitions or regions were left as they were.
    """
    if sum(each is not None for each in (job.path, namespace, store)) != 1:
        raise InvalidUsageError(
            "compact what?",
            hint="--path DIR has topics, --store URL is a store of journals, --wal NAMESPACE a log: one at a time.",
        )
    if job.path is not None:
        return _compact_log(settings, job, job.path, dry_run=dry_run)
    if namespace is not None:
        if not (yes or dry_run):
            raise InvalidUsageError(
                "this takes regions from whoever has them open, who cannot write to them any more",
                hint="Add --yes if that is meant; --dry-run only looks.",
            )
        return _clean_regions(settings, job, namespace, regions, dry_run=dry_run)
    assert store is not None, "one of the three is there"
    return _compact_store(settings, job, store, share_count=share_count, dry_run=dry_run)


def _compact_log(settings: Settings, job: Job, path: str, *, dry_run: bool) -> int:
    from exactlog.pipeline import compact_log  # noqa: PLC0415  as above

    with running(settings, job) as (spark, stop):
        report = compact_log(
            spark, path=path, topics=job.topics, dry_run=dry_run, progress=settings.say, is_stopping=stop.is_asked
        )
    write_report(settings, report, rows_of="outcomes", columns=_LOG_COLUMNS)
    return ExitCode.PARTLY_DONE if report.failed else ExitCode.OK


def _clean_regions(settings: Settings, job: Job, namespace: str, regions: Sequence[int], *, dry_run: bool) -> int:
    from exactlog.pipeline import clean_regions  # noqa: PLC0415  as above

    with running(settings, job) as (spark, stop):
        report = clean_regions(
            spark,
            bootstrap=settings.bootstrap,
            namespace=namespace,
            regions=regions,
            dry_run=dry_run,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_report(settings, report, rows_of="outcomes", columns=_REGION_COLUMNS)
    return ExitCode.PARTLY_DONE if report.failed else ExitCode.OK


def _compact_store(settings: Settings, job: Job, store: str, *, share_count: int | None, dry_run: bool) -> int:
    from exactlog.pipeline import compact_store  # noqa: PLC0415  as above

    with running(settings, job) as (spark, stop):
        report = compact_store(
            spark,
            store=store,
            topics=job.topics,
            dry_run=dry_run,
            share_count=share_count,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_report(settings, report, rows_of="topics", columns=_COMPACT_COLUMNS)
    return ExitCode.OK


@click.command("export-journals", cls=Command)
@store_option
@share_option
@click.option("--target", metavar="DIR", required=True, help="The table or directory that events are added to.")
@click.option("--format", "kind", type=click.Choice(["delta", "parquet"]), default="delta", show_default=True)
@click.option("--no-date", is_flag=True, help="Do not part the files by the day of the timestamp.")
@click.pass_obj
@partial(job_options, reads_path=False)
def export_journals(
    settings: Settings,
    /,
    *,
    job: Job,
    store: str,
    share_count: int | None,
    target: str,
    kind: "TargetKind",
    no_date: bool,
) -> None:
    """Add the events of a store that are not there yet to a Delta table or a directory of Parquet files.

    Every event comes once, however often the job is killed or repeated; it stays there when its journal is purged.
    """
    from exactlog.pipeline import export_journals as export  # noqa: PLC0415  as above

    with running(settings, job) as (spark, stop):
        report = export(
            spark,
            store=store,
            target=target,
            kind=kind,
            topics=job.topics,
            partition_by_date=not no_date,
            share_count=share_count,
            progress=settings.say,
            is_stopping=stop.is_asked,
        )
    write_report(settings, report, rows_of="partitions", columns=_EXPORT_COLUMNS)
