"""What Spark says itself of the micro-batches of a stream, in the event log that a session can be told to write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

PROGRESS: Final = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


class MicroBatch(Struct, frozen=True):
    """One micro-batch that had rows.

    Attributes:
        rows: how many.
        seconds: how long it took, with all that Spark does before and after.
    """

    rows: int
    seconds: float


class _OfSource(Struct, frozen=True, rename="camel"):
    num_input_rows: int


class _Progress(Struct, frozen=True, rename="camel"):
    duration_ms: dict[str, int]
    sources: tuple[_OfSource, ...]


class _Event(Struct, frozen=True):
    progress: _Progress


def settings_of_progress(folder: Path) -> list[str]:
    """What a job is told on its command line so that `micro_batches` finds something in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"enabled": "true", "dir": folder.as_uri(), "compress": "false"}
    return [word for name, value in settings.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]


def micro_batches(folder: Path) -> list[MicroBatch]:
    """Those that had rows, in their order, of a session that was told of the folder and has ended."""
    found = (batch for path in sorted(folder.rglob("events_*")) for batch in _of_file(path))
    return [batch for batch in found if batch.rows]


def _of_file(path: Path) -> Iterator[MicroBatch]:
    marked = f'"{PROGRESS}"'.encode()
    for line in path.read_bytes().splitlines():
        if marked in line:
            told = msgspec.json.decode(line, type=_Event).progress
            rows = sum(source.num_input_rows for source in told.sources)
            yield MicroBatch(rows, told.duration_ms["triggerExecution"] / 1000)
