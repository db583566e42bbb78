"""`exactlog wal`: the regions of a write-ahead log: what is in them, what keeps it, and what may go."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeVar

import click

from exactlog.cli.client import DEADLINE_MS
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.output import Row, RowPrinter, cell, write_line, write_object, write_rows
from exactlog.cli.records import encode_bytes
from exactlog.cli.settings import Group, Settings
from exactlog.client.ports import ClientSettings
from exactlog.core.wal.cleaning import Cleaning
from exactlog.core.wal.region_meta import Pin
from exactlog.core.wal.region_topics import REGION_MAX, RegionTopics
from exactlog.wal.entries import RegionStats, ScanProgress, TableStats, WalEntry
from exactlog.wal.region import Region
from exactlog.wal.wal import NAMESPACE_DEFAULT, Wal

Result = TypeVar("Result")

_REGION_COLUMNS: Final = ("region", "data_topic", "meta_topic")
_TABLE_COLUMNS: Final = (
    "table",
    "last_sequence",
    "marked_up_to",
    "kept_entries",
    "first_offset",
    "pins_log",
    "dropped",
)
_PROGRESS_ENTRIES: Final = 100_000  # a second or so

_namespace = click.option(
    "-n",
    "--namespace",
    default=NAMESPACE_DEFAULT,
    show_default=True,
    metavar="NAME",
    help="What the topics' names begin with.",
)
_region = click.argument("region", type=click.IntRange(0, REGION_MAX))
_table = click.argument("table", type=click.IntRange(0, 2**64 - 1))
_skip = click.option(
    "--skip",
    "skip_offsets",
    multiple=True,
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Pass over the record there, which is no entry.",
)
_accept_loss = click.option("--accept-loss", is_flag=True, help="Go on though entries or snapshots are gone.")
_yes = click.option("--yes", is_flag=True, help="Yes, take the region from its owner, if it has one.")


@click.group(cls=Group)
def wal() -> None:
    """Look at and clean the regions of a write-ahead log."""


@wal.command()
@_namespace
@click.pass_obj
def regions(settings: Settings, /, *, namespace: str) -> None:
    """List the regions of a namespace."""
    found = _run(settings, namespace, lambda log: log.regions())
    topics = (RegionTopics(namespace, region) for region in found)
    rows = ({"region": each.region, "data_topic": each.data, "meta_topic": each.meta} for each in topics)
    write_rows(rows, columns=_REGION_COLUMNS, output=settings.output_of_list())


@wal.command()
@_region
@_namespace
@_skip
@_accept_loss
@click.pass_obj
def describe(
    settings: Settings, /, *, region: int, namespace: str, skip_offsets: tuple[int, ...], accept_loss: bool
) -> None:
    """Describe REGION: its tables, and which of them keeps the log from being deleted. Its owner keeps it."""

    async def look(log: Wal[bytes]) -> tuple[RegionStats, Cleaning]:
        found = await log.open_region(region, read_only=True, skip_offsets=skip_offsets, accept_loss=accept_loss)
        return await found.stats(), await found.plan_clean()

    stats, cleaning = _run(settings, namespace, look)
    tables = [_table_row(table, stats.pin) for table in stats.tables]
    row: Row = {
        "region": stats.region,
        "log_start": stats.log_start,
        "end": stats.end,
        **_pin_row(stats.pin),
        "pinned_offsets": stats.pinned_offsets,
        "deletable_offsets": cleaning.deleted_count,
        "entries_since_snapshot": stats.replay_count,
        "findings": list(stats.findings),
    }
    output = settings.output_of_list()
    if output != "table":
        write_object({**row, "tables": tables}, output=output)
        return
    write_object(row, output=output)
    if tables:
        write_line("")
        write_rows(tables, columns=_TABLE_COLUMNS, output=output)


@wal.command()
@_region
@_namespace
@click.option("-t", "--table", "tables", multiple=True, type=click.IntRange(0), help="Only entries of this table.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many entries.")
@_skip
@_accept_loss
@click.pass_obj
def scan(
    settings: Settings,
    /,
    *,
    region: int,
    namespace: str,
    tables: tuple[int, ...],
    count: int | None,
    skip_offsets: tuple[int, ...],
    accept_loss: bool,
) -> None:
    """Print the entries of REGION that are not marked, in the order they were written. Its owner keeps it."""

    def tell(progress: ScanProgress) -> None:
        if progress.entry_count >= _PROGRESS_ENTRIES:
            settings.say(f"{progress.entry_count} entries, offset {progress.offset} of {progress.end}")

    async def look(log: Wal[bytes]) -> None:
        found = await log.open_region(region, read_only=True, skip_offsets=skip_offsets, accept_loss=accept_loss)
        scanned = found.scan(tables or None, batch_size=_PROGRESS_ENTRIES, on_progress=tell)
        printed = 0
        async with aclosing(scanned) as entries:
            async for entry in entries:
                printer.write(_entry_row(region, entry))
                printed += 1
                if printed == count:
                    return

    with RowPrinter(settings.output_of_records(), heading="TABLE  SEQUENCE  OFFSET  PAYLOAD", line_of=_line) as printer:
        _run(settings, namespace, look)


@wal.command("mark-deleted")
@_region
@_table
@click.option("--up-to", required=True, type=click.IntRange(0), metavar="SEQUENCE", help="The last of them.")
@_namespace
@_yes
@click.pass_obj
def mark_deleted(settings: Settings, /, *, region: int, table: int, up_to: int, namespace: str, yes: bool) -> None:
    """Let entries of TABLE in REGION be deleted: they are flushed elsewhere, and are not replayed any more."""
    _check_meant(yes=yes, region=region)

    async def mark(log: Wal[bytes]) -> None:
        found = await log.open_region(region)
        await found.mark_deleted(table, up_to, durable=True)

    _run(settings, namespace, mark)
    write_object({"region": region, "table": table, "marked_up_to": up_to}, output=settings.output_of_list())


@wal.command()
@_region
@_namespace
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted; the owner keeps the region.")
@_skip
@_accept_loss
@_yes
@click.pass_obj
def clean(
    settings: Settings,
    /,
    *,
    region: int,
    namespace: str,
    dry_run: bool,
    skip_offsets: tuple[int, ...],
    accept_loss: bool,
    yes: bool,
) -> None:
    """Delete what no table of REGION needs any more, and say what is kept and why."""
    if not dry_run:
        _check_meant(yes=yes, region=region)

    async def work(log: Wal[bytes]) -> Row:
        found = await log.open_region(region, read_only=dry_run, skip_offsets=skip_offsets, accept_loss=accept_loss)
        return await _clean(found, dry_run=dry_run)

    write_object(_run(settings, namespace, work), output=settings.output_of_list())


async def _clean(region: Region[bytes], *, dry_run: bool) -> Row:
    plan = await region.plan_clean()
    if not dry_run:
        await region.clean()
    return {
        "region": region.region,
        "deleted_before": plan.delete_before,
        "deleted_offsets": plan.deleted_count,
        "log_start": plan.keep_from,
        "kept_by": plan.kept_by.value,
        **_pin_row(plan.pin),
        "dry_run": dry_run,
    }


# --- rows --------------------------------------------------------------------------------------------------------


def _pin_row(pin: Pin | None) -> Row:
    return {
        "pinned_by_table": None if pin is None else pin.table,
        "pinned_sequence": None if pin is None else pin.sequence,
        "pinned_offset": None if pin is None else pin.offset,
    }


def _table_row(table: TableStats, pin: Pin | None) -> Row:
    return {
        "table": table.table,
        "last_sequence": table.last_sequence,
        "marked_up_to": table.marked_up_to,
        "kept_entries": table.kept_count,
        "first_offset": table.first_offset,
        "pins_log": pin is not None and pin.table == table.table,
        "dropped": table.is_dropped,
    }


def _entry_row(region: int, entry: WalEntry[bytes]) -> Row:
    return {
        "region": region,
        "table": entry.table,
        "sequence": entry.sequence,
        "offset": entry.offset,
        "payload": encode_bytes(entry.payload),
    }


def _line(row: Row) -> str:
    return "  ".join(cell(row[name]) for name in ("table", "sequence", "offset", "payload"))


# --- running -----------------------------------------------------------------------------------------------------


def _check_meant(*, yes: bool, region: int) -> None:
    if not yes:
        raise InvalidUsageError(
            f"this takes region {region} from whoever has it open, who cannot write to it any more",
            hint="Add --yes if that is meant.",
        )


def _run(settings: Settings, namespace: str, work: Callable[[Wal[bytes]], Awaitable[Result]]) -> Result:
    """What `work` returns, given the write-ahead log of the broker that the settings name."""

    async def run() -> Result:
        client = ClientSettings(deadline_ms=DEADLINE_MS)
        url = f"kafka://{settings.bootstrap}"
        async with Wal.open(url, namespace=namespace, settings=client, clean_interval_s=None) as log:
            return await work(log)

    settings.start_logging()
    return asyncio.run(run())
