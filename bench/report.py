"""Numbers into tables."""

import os
import platform
import re
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.systems import KAFKA, SystemKind

END = "<!-- end of measurements -->"


class Table(StrEnum):
    """The tables of the page, by the command that writes each."""

    LOG = "make bench ARGS=--markdown"
    REQUESTS = "make bench ARGS='--only requests --markdown'"
    TRANSACTIONS = "make bench-transactions ARGS=--markdown"
    PIPELINE = "make bench-pipeline ARGS=--markdown"
    WAL = "make bench-wal ARGS=--markdown"
    JOURNAL = "make bench-journal ARGS=--markdown"
    JOURNAL_SPARK = "make bench-journal-spark ARGS=--markdown"

    @property
    def begin(self) -> str:
        """The mark before the table."""
        return f"<!-- measurements: `{self}` writes them -->"


class Measurements:
    """Every number that was measured, by what and of which system."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, defaultdict[SystemKind, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, what: str, kind: SystemKind, number: float) -> None:
        """One more."""
        self._numbers[what][kind].append(number)

    def median(self, what: str, kind: SystemKind) -> float | None:
        """The middle one, where there is any."""
        numbers = self._numbers[what].get(kind)
        return statistics.median(numbers) if numbers else None

    def __iter__(self) -> Iterator[str]:
        """What was measured, in the order of its first number."""
        return iter(self._numbers)

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            what: {kind.name: list(numbers) for kind, numbers in rows.items()} for what, rows in self._numbers.items()
        }


def rows(measurements: Measurements, kinds: Sequence[SystemKind]) -> Iterator[list[str]]:
    """A heading, then a row for everything measured; beside each number of ours its ratio to Apache Kafka's."""
    shown = sorted(kinds, key=lambda kind: (kind is not KAFKA, kind.name))
    yield ["", *(kind.name for kind in shown)]
    for what in measurements:
        peer = measurements.median(what, KAFKA)
        yield [what, *(_cell(measurements.median(what, kind), peer if kind is not KAFKA else None) for kind in shown)]


def _cell(number: float | None, peer: float | None) -> str:
    if number is None:
        return ""
    ratio = f" ({number / peer:.2f}x)" if peer else ""
    return f"{number:,.0f}{ratio}"


def text_table(measurements: Measurements, kinds: Sequence[SystemKind]) -> str:
    """For the terminal."""
    table = list(rows(measurements, kinds))
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ("  ".join([row[0].ljust(widths[0]), *_right(row[1:], widths[1:])]).rstrip() for row in table)
    return "\n".join(lines)


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]


def markdown_table(measurements: Measurements, kinds: Sequence[SystemKind]) -> str:
    """For the page."""
    heading, *table = rows(measurements, kinds)
    rule = ["---", *("---:" for _ in heading[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heading, rule, *table])


def update_page(
    page: Path,
    measurements: Measurements,
    kinds: Sequence[SystemKind],
    *,
    table: Table,
    machine: dict[str, str],
    repetitions: int,
) -> None:
    """Put a table and where it comes from between its marks of a page; raises as `put_table`."""
    put_table(page, markdown_table(measurements, kinds), table=table, machine=machine, repetitions=repetitions)


def put_table(page: Path, shown: str, *, table: Table, machine: dict[str, str], repetitions: int) -> None:
    """Put a table in Markdown between its marks of a page, under a line about how it was measured.

    Raises:
        ValueError: the page has no such marks.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(table.begin)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no {table.begin} ... {END}")
    facts = "; ".join(f"{name} {fact}" for name, fact in machine.items())
    about = f"Measured on {datetime.now(UTC):%Y-%m-%d}, medians of {repetitions}. {facts}."
    page.write_text(f"{before}{begin}\n\n{about}\n\n{shown}\n\n{end}{after}", encoding="utf-8")


def describe_machine() -> dict[str, str]:
    """What a reader must know to compare: the machine, the versions, what else was going on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return {
        "processor": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _first_match(["java", "-version"], r'version "([^"]+)"'),
        "exactlog": version("exactlog"),
        "uvloop": version("uvloop"),
        "librdkafka": _librdkafka(),
        "load average": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu_model() -> str:
    match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def _librdkafka() -> str:
    from confluent_kafka import libversion  # noqa: PLC0415  only to tell its version

    return str(libversion()[0])


def _first_match(command: Sequence[str], pattern: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        return "none"
    match = re.search(pattern, result.stdout + result.stderr)
    return match[1] if match else "unknown"
