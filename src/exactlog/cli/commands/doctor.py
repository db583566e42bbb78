"""`exactlog doctor`: whether this machine and a broker are as they should be."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from exactlog.cli.broker_checks import check_address, check_cluster
from exactlog.cli.exit_codes import ExitCode
from exactlog.cli.findings import Finding, Verdict, fail
from exactlog.cli.machine_checks import (
    check_clock,
    check_disk,
    check_open_files,
    check_packages,
    check_python,
)
from exactlog.cli.output import RowPrinter, cell
from exactlog.cli.settings import Command, Settings
from exactlog.client.adapters import bootstrap_addresses, connect
from exactlog.client.ports import ClientSettings
from exactlog.core.model.errors import ExactlogError

_HEADING: Final = f"{'STATE':<6}{'CHECK':<18}FINDING"
_PATIENCE: Final = ClientSettings(connect_timeout_ms=2_000, request_timeout_ms=2_000, deadline_ms=3_000)


@click.command(cls=Command)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default="exactlog-data",
    show_default=True,
    help="Where a broker keeps its records, or shall.",
)
@click.pass_obj
def doctor(settings: Settings, /, *, data_dir: Path) -> int:
    """Check what a broker needs on this machine, and the broker that runs at -b, if one does.

    Each line is ok, warn or fail, and says what was found; then why it matters and what to do. If something failed the
    exit code is 7. A small file is written next to the records and removed again, to see how quick the disk is.
    """
    settings.start_logging()
    verdicts: list[Verdict] = []
    with RowPrinter(settings.output_of_list(), heading=_HEADING, line_of=_line) as printer:
        for finding in _findings(settings, data_dir):
            verdicts.append(finding.verdict)
            printer.write(_row(finding))
    return ExitCode.DAMAGE if Verdict.FAIL in verdicts else ExitCode.OK


def _findings(settings: Settings, data_dir: Path) -> Iterator[Finding]:
    yield check_python()
    yield from check_packages()
    yield from check_disk(data_dir)
    yield check_clock(data_dir, now_s=time.time())
    yield check_open_files()
    yield from asyncio.run(_broker_findings(settings))


async def _broker_findings(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    url = f"kafka://{settings.bootstrap}"
    addresses = bootstrap_addresses(url)
    for address in addresses:
        found += [finding async for finding in check_address(address, _PATIENCE)]
    if any(finding.check == "protocol" for finding in found):
        try:
            async with connect(url, _PATIENCE) as client:
                found += [finding async for finding in check_cluster(client, addresses)]
        except ExactlogError as error:
            why = "clients ask the same before anything else"
            found.append(fail("cluster", str(error), why=why, hint=error.hint or "Look into the broker's log."))
    return found


def _row(finding: Finding) -> dict[str, object]:
    return {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "message": finding.message,
        "why": finding.why or None,
        "hint": finding.hint or None,
    }


def _line(row: object) -> str:
    assert isinstance(row, dict)
    lines = [f"{row['verdict']:<4}  {row['check']:<16}  {cell(row['message'])}"]
    lines += [f"{'':<24}{cell(row[name])}" for name in ("why", "hint") if row[name]]
    return "\n".join(lines)
