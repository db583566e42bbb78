"""Jobs of journals on Spark beside the same jobs in one process: replication, lag, memory, verifying, purging.

One store after the other, SQLite and Apache Cassandra, each with a broker of its own; each job is the command of
exactlog, a process of its own. Results go, with --markdown, into docs/performance.md.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.journal import Numbers, cell, note_number
from bench.journal_spark_cases import QUICK, Engine, Measuring, Sizes
from bench.report import Table, describe_machine, put_table
from bench.run import PAGE
from demo.served_broker import ServedBroker
from tests.peers import PROJECT, PeerMissingError
from tests.peers.apache_cassandra import CASSANDRA_VERSION, ApacheCassandra, cassandra_jars
from tests.peers.toolchain import require_tools

CASSANDRA_HEAP: Final = "1g"
SQLITE: Final = "SQLite"
CASSANDRA: Final = f"Apache Cassandra {CASSANDRA_VERSION}"

Stores = Callable[[str], str]
"""The URL of a store, by its name."""


@contextmanager
def sqlite(folder: Path) -> Iterator[Stores]:
    """Files of a folder."""
    yield lambda name: f"sqlite:///{folder}/{name}.db"


@contextmanager
def cassandra(_folder: Path) -> Iterator[Stores]:
    """Keyspaces of one node, which is small: it shares the machine with all that is measured."""
    with ApacheCassandra(heap=CASSANDRA_HEAP) as node:
        yield lambda name: f"cassandra://127.0.0.1:{node.port}/{name}"


KINDS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Stores]]]] = {SQLITE: sqlite, CASSANDRA: cassandra}


def main() -> int:
    """Measure, print, keep."""
    arguments = parse_arguments()
    kinds = [kind for kind in KINDS if kind == SQLITE or not arguments.no_peer]
    try:
        require_tools("java")
        if CASSANDRA in kinds:
            cassandra_jars()
    except PeerMissingError as missing:
        print(f"bench: {missing}; --no-peer measures without Apache Cassandra", file=sys.stderr)
        return 1
    numbers: Numbers = defaultdict(lambda: defaultdict(list))
    machine = describe_machine()
    for repetition in range(arguments.repeat):
        engines = list(Engine) if repetition % 2 == 0 else list(reversed(Engine))
        for kind in kinds:
            measure(kind, engines, numbers, sizes_of(arguments))
    table = markdown(numbers)
    print(table)
    if arguments.markdown:
        put_table(PAGE, table, table=Table.JOURNAL_SPARK, machine=machine, repetitions=arguments.repeat)
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="repetitions (1)")
    parser.add_argument("--events", type=int, metavar="N", help=f"that are replicated ({Sizes.events:,})")
    parser.add_argument("--journals", type=int, metavar="N", help=f"that they are of ({Sizes.journals:,})")
    parser.add_argument("--rate", type=int, metavar="N", help=f"of the steady load, appends/s ({Sizes.rate:,})")
    parser.add_argument("--seconds", type=int, metavar="N", help=f"how long that is measured ({Sizes.seconds})")
    parser.add_argument("--quick", action="store_true", help="a few of everything: to see that it runs")
    parser.add_argument("--no-peer", action="store_true", help="without Apache Cassandra")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.relative_to(PROJECT)}")
    return parser.parse_args()


def sizes_of(arguments: argparse.Namespace) -> Sizes:
    """How much is measured."""
    usual = QUICK if arguments.quick else Sizes()
    return Sizes(
        events=arguments.events or usual.events,
        journals=arguments.journals or usual.journals,
        rate=arguments.rate or usual.rate,
        seconds=arguments.seconds or usual.seconds,
        warm_seconds=usual.warm_seconds,
    )


def measure(kind: str, engines: Sequence[Engine], numbers: Numbers, sizes: Sizes) -> None:
    """Everything, with one kind of store."""
    with (
        tempfile.TemporaryDirectory(prefix="exactlog-bench-") as name,
        KINDS[kind](Path(name)) as stores,
        ServedBroker(Path(name) / "data", log=Path(name) / "broker.log") as broker,
    ):
        notes = {engine: partial(note_number, numbers, column(engine, kind)) for engine in Engine}
        asyncio.run(Measuring(broker.address, Path(name), stores, notes, sizes).run(engines))


def column(engine: Engine, kind: str) -> str:
    """What a column of the table is called."""
    return f"{engine}, {kind}"


def markdown(numbers: Numbers) -> str:
    """The table: beside numbers of Spark their ratio to those of the one process, with the same store."""
    columns = [(engine, kind) for kind in KINDS for engine in Engine]
    shown = [each for each in columns if any(column(*each) in of_column for of_column in numbers.values())]
    lines = [f"|  | {' | '.join(column(*each) for each in shown)} |", f"| --- {'| ---: ' * len(shown)}|"]
    for what, of_column in numbers.items():
        medians = {name: statistics.median(found) for name, found in of_column.items()}
        cells = []
        for engine, kind in shown:
            peer = None if engine is Engine.EMBEDDED else medians.get(column(Engine.EMBEDDED, kind))
            cells.append(cell(medians.get(column(engine, kind)), peer))
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
