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


def _json_lines(*arguments: object) -> list[dict[str, Any]]:
    command = [str(EXACTLOG), "-o", "jsonl", *map(str, arguments)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DemoFailedError(f"{' '.join(command)} failed: {result.stderr.strip()}")
    return [json.loads(line) for line in result.stdout.splitlines()]
