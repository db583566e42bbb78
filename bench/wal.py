"""The write-ahead log on each of its backends, beside what one would otherwise pick: SQLite with a flush each commit.

One writer waits for each batch before it sends the next one; then sixteen do. Everything is in one run, each backend on
a directory of its own. Results go, with --markdown, into docs/performance.md.
"""

import argparse
import asyncio
import logging
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from bench.report import Table, describe_machine, put_table
from bench.run import PAGE
from demo.served_broker import ServedBroker
from exactlog.wal import Wal, WalBackend
from exactlog.wal.backends import open_backend
from tests.peers import PROJECT
from tests.peers.apache_kafka import ApacheKafka, kafka_jars

ENTRY_BYTES: Final = (100, 1024)
BATCH_ENTRIES: Final = (1, 100, 1000)
WRITERS: Final = 16
SECONDS: Final = 3.0
OPENED: Final = (1_000, 100_000)
FILLED_AT_ONCE: Final = 1_000
TABLES: Final = 8

Numbers = defaultdict[str, defaultdict[str, list[float]]]
Note = Callable[[str, float], None]


class Log(Protocol):
    """What is measured of a backend."""

    async def write(self, table: int, entries: Sequence[bytes]) -> None:
        """Write entries; durable when this returns."""

    async def replay(self) -> int:
        """Read everything back; how many entries there are."""

    async def reopen(self) -> None:
        """Close it without a word, and open it again."""


class RegionLog:
    """A region of the write-ahead log."""

    def __init__(self, backend: WalBackend, stack: AsyncExitStack) -> None:
        self._backend = backend
        self._stack = stack

    async def write(self, table: int, entries: Sequence[bytes]) -> None:
        """See `Log`."""
        await self._region.write(table, entries)

    async def replay(self) -> int:
        """See `Log`."""
        count = 0
        async for batch in self._region.scan_batches():
            count += len(batch)
        return count

    async def reopen(self) -> None:
        """As an owner who finds the log of another one that has died: there is no snapshot of its end."""
        wal = await self._stack.enter_async_context(Wal.open(self._backend, clean_interval_s=None))
        self._region = await wal.open_region(1, create=True)


class SqliteLog:
    """A table of SQLite in WAL mode that flushes each commit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connect()
        self._database.execute("CREATE TABLE log (tbl INTEGER, seq INTEGER, payload BLOB, PRIMARY KEY (tbl, seq))")
        self._last: defaultdict[int, int] = defaultdict(int)

    def _connect(self) -> None:
        self._database = sqlite3.connect(self._path)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")

    async def write(self, table: int, entries: Sequence[bytes]) -> None:
        """See `Log`."""
        begin = self._last[table] + 1
        rows = [(table, begin + number, entry) for number, entry in enumerate(entries)]
        with self._database:
            self._database.executemany("INSERT INTO log VALUES (?, ?, ?)", rows)
        self._last[table] += len(entries)

    async def replay(self) -> int:
        """See `Log`."""
        return sum(1 for _ in self._database.execute("SELECT tbl, seq, payload FROM log ORDER BY rowid"))

    async def reopen(self) -> None:
        """See `Log`."""
        self._connect()
        self._database.execute("SELECT tbl, max(seq) FROM log GROUP BY tbl").fetchall()


@asynccontextmanager
async def at_url(url: str) -> AsyncIterator[Log]:
    """A region at a URL, its clean-up off."""
    async with AsyncExitStack() as stack:
        log = RegionLog(await stack.enter_async_context(await open_backend(url)), stack)
        await log.reopen()
        yield log


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Log]:
    """A broker in this process."""
    async with at_url(f"embedded:{folder / 'data'}") as log:
        yield log


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Log]:
    """A broker in a process of its own."""
    with ServedBroker(folder / "data", log=folder / "broker.log") as broker:
        async with at_url(f"kafka://{broker.address}") as log:
            yield log


@asynccontextmanager
async def apache_kafka(_folder: Path) -> AsyncIterator[Log]:
    """Apache Kafka with its own settings: it does not flush."""
    with ApacheKafka(heap="1g") as broker:
        async with at_url(f"kafka://{broker.bootstrap_servers}") as log:
            yield log


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Log]:
    """SQLite."""
    yield SqliteLog(folder / "log.sqlite")


BACKENDS = {
    "embedded": embedded,
    "exactlog, over the wire": served,
    "Apache Kafka 4.4.0": apache_kafka,
    "SQLite, WAL, FULL": sqlite,
}


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=2, metavar="N", help="repetitions (2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"for each case ({SECONDS:.0f})")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.relative_to(PROJECT)}")
    arguments = parser.parse_args()
    kafka_jars()
    logging.getLogger("exactlog.wal").setLevel(logging.ERROR)  # each owner is fenced by the next one here
    numbers: Numbers = defaultdict(lambda: defaultdict(list))
    machine = describe_machine()
    for _ in range(arguments.repeat):
        for name, backend in BACKENDS.items():
            with tempfile.TemporaryDirectory(prefix="exactlog-bench-") as folder:
                asyncio.run(
                    measure(backend(Path(folder)), partial(note_number, numbers, name), seconds=arguments.seconds)
                )
    table = markdown(numbers)
    print(table)
    if arguments.markdown:
        put_table(PAGE, table, table=Table.WAL, machine=machine, repetitions=arguments.repeat)
    return 0


def note_number(numbers: Numbers, name: str, what: str, number: float) -> None:
    """One more number of a backend."""
    numbers[what][name].append(number)


async def measure(opened: AbstractAsyncContextManager[Log], note: Note, *, seconds: float) -> None:
    """All cases on one backend: opening, replaying, writing."""
    async with opened as log:
        count = 0
        for size in OPENED:
            for number in range(count, size, FILLED_AT_ONCE):
                await log.write(number // FILLED_AT_ONCE % TABLES, [bytes(100)] * FILLED_AT_ONCE)
            count = size
            note(f"open, {size:,} entries since the last snapshot, ms", 1000 * await time_reopening(log))
        began = time.monotonic()
        if await log.replay() != count:
            raise RuntimeError("not every entry was replayed")
        note("replay, entries/s", count / (time.monotonic() - began))
        for size in ENTRY_BYTES:
            for batch in BATCH_ENTRIES:
                times = await write_for(log, [bytes(size)] * batch, seconds=seconds)
                case = f"write {size} B, batches of {batch:,}"
                note(f"{case}, entries/s", batch * len(times) / sum(times))
                note(f"{case}, P99, ms", 1000 * statistics.quantiles(times, n=100)[-1])
        began = time.monotonic()
        written = await asyncio.gather(
            *(write_for(log, [bytes(100)], table=table, seconds=seconds) for table in range(WRITERS))
        )
        note(
            f"write 100 B one by one, {WRITERS} writers, entries/s", sum(map(len, written)) / (time.monotonic() - began)
        )


async def time_reopening(log: Log) -> float:
    """In seconds."""
    began = time.monotonic()
    await log.reopen()
    return time.monotonic() - began


async def write_for(log: Log, entries: Sequence[bytes], *, seconds: float, table: int = 0) -> list[float]:
    """Write the same entries again and again; how long each time took, in seconds."""
    times = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        await log.write(table, entries)
        times.append(time.monotonic() - began)
    return times


def markdown(numbers: Numbers) -> str:
    """The table: a row for everything measured, a column for each backend."""
    names = list(BACKENDS)
    lines = [f"|  | {' | '.join(names)} |", f"| --- {'| ---: ' * len(names)}|"]
    for what, of_backend in numbers.items():
        cells = [f"{statistics.median(of_backend[name]):,.1f}" if name in of_backend else "" for name in names]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
