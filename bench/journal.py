"""Event-sourced journals on a log, beside what one would otherwise pick: the library `eventsourcing` on SQLite.

One broker after the other, all in one run: appends, recovery by where the events are, replication into SQLite, and what
a consumer costs. Results go, with --markdown, into docs/performance.md.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.journal_cases import QUICK, Sizes, measure_journals
from bench.report import Table, describe_machine, put_table
from bench.run import PAGE
from bench.systems import KAFKA, KAFKA_HEAP
from demo.served_broker import ServedBroker
from tests.peers import PROJECT, PeerMissingError
from tests.peers.apache_kafka import ApacheKafka, kafka_jars

Log = Callable[[Path], AbstractContextManager[str]]
"""Starts a log that may use a folder; its URL."""

Numbers = defaultdict[str, defaultdict[str, list[float]]]


@contextmanager
def exactlog(folder: Path) -> Iterator[str]:
    """exactlog in a process of its own, as it comes: it flushes before it answers."""
    with ServedBroker(folder / "data", log=folder / "broker.log") as broker:
        yield f"kafka://{broker.address}"


@contextmanager
def apache_kafka(_folder: Path, *, flushes: bool = False) -> Iterator[str]:
    """Apache Kafka: with its own settings, which do not flush, or flushing each append before it answers."""
    properties = {"log.flush.interval.messages": "1"} if flushes else {}
    with ApacheKafka(heap=KAFKA_HEAP, properties=properties) as broker:
        yield f"kafka://{broker.bootstrap_servers}"


EXACTLOG: Final = "exactlog, commit"
FLUSHING_KAFKA: Final = f"{KAFKA.name}, flushing"
ON_SQLITE: Final = "eventsourcing, SQLite"
ON_EXACTLOG: Final = "eventsourcing, exactlog"

COLUMNS: Final = (KAFKA.name, FLUSHING_KAFKA, EXACTLOG, ON_EXACTLOG, ON_SQLITE)
LOGS: Final[Mapping[str, Log]] = {
    EXACTLOG: exactlog,
    KAFKA.name: apache_kafka,
    FLUSHING_KAFKA: partial(apache_kafka, flushes=True),
}


def main() -> int:
    """Measure, print, keep."""
    arguments = parse_arguments()
    logs = {EXACTLOG: exactlog} if arguments.no_peer else LOGS
    try:
        if not arguments.no_peer:
            kafka_jars()
    except PeerMissingError as missing:
        print(f"bench: {missing}; --no-peer measures exactlog alone", file=sys.stderr)
        return 1
    numbers: Numbers = defaultdict(lambda: defaultdict(list))
    machine = describe_machine()
    for repetition in range(arguments.repeat):
        turn = repetition % len(logs)
        names = [*list(logs)[turn:], *list(logs)[:turn]]
        measure({name: logs[name] for name in names}, numbers, QUICK if arguments.quick else Sizes())
    table = markdown(numbers)
    print(table)
    if arguments.markdown:
        put_table(PAGE, table, table=Table.JOURNAL, machine=machine, repetitions=arguments.repeat)
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="repetitions (1)")
    parser.add_argument("--quick", action="store_true", help="a few of everything: to see that it runs")
    parser.add_argument("--no-peer", action="store_true", help="without Apache Kafka")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.relative_to(PROJECT)}")
    return parser.parse_args()


def measure(logs: Mapping[str, Log], numbers: Numbers, sizes: Sizes) -> None:
    """One log after the other, each on its own, then the library `eventsourcing`, if it is installed."""
    for name, start in logs.items():
        with tempfile.TemporaryDirectory(prefix="exactlog-bench-") as folder, start(Path(folder)) as url:
            asyncio.run(measure_journals(url, Path(folder), partial(note_number, numbers, name), sizes))
    if find_spec("eventsourcing") is None:
        hint = "pip install 'exactlog[eventsourcing]'"
        print(f"bench: without the library eventsourcing, which is not installed: {hint}", file=sys.stderr)
        return
    from bench.recorders import measure_recorder  # noqa: PLC0415  it needs the library

    with tempfile.TemporaryDirectory(prefix="exactlog-bench-") as folder:
        env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": f"{folder}/events.sqlite"}
        measure_recorder(env, partial(note_number, numbers, ON_SQLITE), sizes)
    with tempfile.TemporaryDirectory(prefix="exactlog-bench-") as folder, exactlog(Path(folder)) as url:
        store = f"sqlite:///{folder}/journals.sqlite"
        env = {"PERSISTENCE_MODULE": "exactlog.journal.eventsourcing", "EXACTLOG_URL": url, "EXACTLOG_STORE_URL": store}
        measure_recorder(env, partial(note_number, numbers, ON_EXACTLOG), sizes)


def note_number(numbers: Numbers, name: str, what: str, number: float) -> None:
    """One more number of a system."""
    numbers[what][name].append(number)
    print(f"  {what:<72} {name:<28} {number:>10,.1f}", file=sys.stderr)


def markdown(numbers: Numbers) -> str:
    """The table: a row for everything measured, a column for each system; beside numbers the ratio to Apache Kafka."""
    names = [name for name in COLUMNS if any(name in of_system for of_system in numbers.values())]
    lines = [f"|  | {' | '.join(names)} |", f"| --- {'| ---: ' * len(names)}|"]
    for what, of_system in numbers.items():
        medians = {name: statistics.median(found) for name, found in of_system.items()}
        peer = medians.get(KAFKA.name)
        cells = [cell(medians.get(name), None if name == KAFKA.name else peer) for name in names]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(number: float | None, peer: float | None) -> str:
    """A number, and how many times that of the peer it is."""
    if number is None:
        return ""
    shown = f"{number:,.0f}" if number >= 100 else f"{number:.1f}"
    return f"{shown} ({number / peer:.2f}x)" if peer else shown


if __name__ == "__main__":
    sys.exit(main())
