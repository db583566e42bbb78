"""`exactlog log verify` and `repair`: whether a directory is as it was written, and what can be put right."""

import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from exactlog.cli.exit_codes import ExitCode
from exactlog.cli.output import cell, encode_json, table_lines, write_line
from exactlog.cli.settings import Command, Settings
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, parse_partition_directory_name
from exactlog.core.model.errors import NotFoundError
from exactlog.storage.audit_findings import AuditReport, Finding, TableReport
from exactlog.storage.catalog import CATALOG_NAME
from exactlog.storage.data_directory_audit import audit_data_directory, audit_partition
from exactlog.storage.directory_lock import DirectoryLock
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.journal_redo import redo_journal
from exactlog.storage.table_repair import RepairReport, TableRepair
from exactlog.storage.table_repair import repair as repair_found

_TABLE_COLUMNS = (
    "topic",
    "partition",
    "version",
    "oldest_version",
    "log_start_offset",
    "end_offset",
    "bytes",
    "batches",
    "records",
    "damage",
    "notes",
)
_STEP_COLUMNS = ("topic", "partition", "step", "file", "reason")


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--deep", "is_deep", is_flag=True, help="Decode every record, too.")
@click.pass_obj
def verify(settings: Settings, /, *, path: Path, is_deep: bool) -> int:
    """Check that a partition, or a data directory, is as it was written; exit with 7 if not.

    Changes nothing and takes no lock: a broker may run on it. PATH may be a copy, too.
    """
    if settings.verbose:
        settings.start_logging()
    report = audit(path, is_deep=is_deep)
    if settings.output_of_list() == "table":
        write_audit(report, path)
    else:
        write_line(encode_json(msgspec.to_builtins(report)))
    return ExitCode.DAMAGE if report.damage else ExitCode.OK


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be done; takes no lock.")
@click.pass_obj
def repair(settings: Settings, /, *, path: Path, dry_run: bool) -> int:
    """Put right what can be without losing a record; exit with 7 if damage remains.

    No broker may be running on the directory. What cannot be repaired is listed with what to do about it. What a broker
    has left in a commit journal is put in its place first.
    """
    if settings.verbose:
        settings.start_logging()
    refuse_other_paths(path)
    data_dir = os.fspath(path.resolve().parent if is_partition(path) else path)
    with nullcontext() if dry_run else DirectoryLock(data_dir):
        if not dry_run:
            redo_journal(OsFilesystem(), data_dir)
        report = repair_found(OsFilesystem(), audit(path, is_deep=False), dry_run=dry_run)
    if settings.output_of_list() == "table":
        write_repair(report, path)
    else:
        write_line(encode_json(msgspec.to_builtins(report)))
    return ExitCode.DAMAGE if report.damage else ExitCode.OK


def audit(path: Path, *, is_deep: bool) -> AuditReport:
    """Verifies a partition directory, or a data directory.

    Raises:
        NotFoundError: it is neither.
    """
    refuse_other_paths(path)
    if is_partition(path):
        place = path.resolve()
        report = audit_partition(OsFilesystem(), os.fspath(place.parent), place.name, is_deep=is_deep)
        return replace(report, tables=tuple(replace(table, path=os.fspath(path)) for table in report.tables))
    return audit_data_directory(OsFilesystem(), os.fspath(path), is_deep=is_deep)


def is_partition(path: Path) -> bool:
    """Whether a directory is one partition, as its content or its name says."""
    return (path / DELTA_LOG_DIRECTORY).is_dir() or parse_partition_directory_name(path.resolve().name) is not None


def refuse_other_paths(path: Path) -> None:
    """Raises NotFoundError for what is neither a partition's directory nor has partitions or a catalog of topics."""
    if path.is_dir():
        names = [entry.name for entry in path.iterdir()]
        has_partitions = any(parse_partition_directory_name(name) is not None for name in names)
        if is_partition(path) or has_partitions or CATALOG_NAME in names:
            return
    raise NotFoundError(
        f"{path} is no partition and no data directory",
        hint="A partition directory is named topic=NAME-part=N; a data directory holds some of them.",
    )


def write_audit(report: AuditReport, path: Path) -> None:
    """Prints a report for people: a line for each partition, then what was found."""
    for line in table_lines(map(_table_row, report.tables), columns=_TABLE_COLUMNS):
        write_line(line)
    for table in report.tables:
        _write_findings(table.findings, Path(table.path))
    _write_findings(report.findings, path)
    harmless = f" ({report.harmless} harmless)" if report.harmless else ""
    write_line(f"\n{_count(len(report.tables), 'partition')}, damage: {report.damage}{harmless}, notes: {report.notes}")


def write_repair(report: RepairReport, path: Path) -> None:
    """Prints what was repaired, or would be, and what remains."""
    rows = [row for table in report.tables for row in _step_rows(table)]
    if rows:
        for line in table_lines(rows, columns=_STEP_COLUMNS):
            write_line(line)
    for table in report.tables:
        _write_findings(table.remaining, Path(table.path))
    _write_findings(report.remaining, path)
    if rows or report.damage:
        write_line("")
    done = "to do" if report.dry_run else "done"
    write_line(f"{_count(report.steps, 'step')} {done}, damage that remains: {report.damage}")


def _table_row(table: TableReport) -> dict[str, object]:
    damage = sum(finding.is_damage for finding in table.findings)
    row: dict[str, object] = {name: getattr(table, name) for name in _TABLE_COLUMNS if hasattr(table, name)}
    return row | {"damage": damage, "notes": len(table.findings) - damage}


def _step_rows(table: TableRepair) -> Iterable[dict[str, object]]:
    for step in table.steps:
        yield {
            "topic": table.topic,
            "partition": table.partition,
            "step": step.kind,
            "file": step.file,
            "reason": step.reason,
        }


def _write_findings(findings: Iterable[Finding], directory: Path) -> None:
    for finding in findings:
        place = str(directory / finding.file)
        if finding.position is not None:
            place += f", byte {finding.position}"
        if finding.version is not None:
            place += f", version {finding.version}"
        write_line(f"\n{finding.severity}: {finding.kind}: {cell(place)}")
        write_line(f"  {cell(finding.message)}")
        write_line(f"  next: {cell(finding.next_step)}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
