"""A partition directory as the table it is, read with the `exactlog log` commands while the broker runs."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from demo.flight_table import Flight
from demo.served_broker import EXACTLOG
from demo.story import DemoFailedError


class Version(NamedTuple):
    """One delta commit of a partition."""

    number: int
    timestamp: str
    end_offset: int


def versions_of(directory: Path) -> list[Version]:
    """Every version of a partition, oldest first."""
    newest_first = _json_lines("log", "versions", directory, "--all")
    return [Version(row["version"], row["timestamp"], row["end_offset"]) for row in reversed(newest_first)]


def read_as_of(directory: Path, version: int) -> list[Flight]:
    """The records of a partition as they were at a version."""
    rows = _json_lines("log", "read", directory, "--as-of", version)
    return [Flight(row["key"].encode() if row["key"] is not None else None, row["value"].encode()) for row in rows]


def append_expecting(address: str, topic: str, version: int, value: str) -> subprocess.CompletedProcess[str]:
    """An append that holds only while a version is the newest one."""
    command = [str(EXACTLOG), "-b", address, "produce", topic, "--expect-version", str(version)]
    return subprocess.run(command, input=f"{value}\n", capture_output=True, text=True, check=False)


def audit(data: Path) -> dict[str, Any]:
    """What `exactlog log verify` finds in a data directory, beside the broker."""
    command = [str(EXACTLOG), "log", "verify", str(data), "--json"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DemoFailedError(f"{' '.join(command)} failed: {result.stdout.strip()} {result.stderr.strip()}")
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def _json_lines(*arguments: object) -> list[dict[str, Any]]:
    command = [str(EXACTLOG), "-o", "jsonl", *map(str, arguments)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DemoFailedError(f"{' '.join(command)} failed: {result.stderr.strip()}")
    return [json.loads(line) for line in result.stdout.splitlines()]
