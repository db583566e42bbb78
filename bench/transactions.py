"""Transactions beside Apache Kafka in one run: how many a second, how long a commit takes, memory, recovery.

Every server is started anew for each repetition. Results go to bench/results/ as JSON, and with --markdown into the
second table of docs/performance.md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.report import Measurements, Table, describe_machine, text_table, update_page
from bench.run import PAGE, SETTLE_SECONDS, keep
from bench.systems import ALL_SYSTEMS, KAFKA, System, SystemKind, resident
from bench.workloads import MeasurementError
from tests.peers import PROJECT, PeerMissingError
from tests.peers.go_programs import build_go_program

PRODUCERS = (1, 10, 50, 200)
PARTITIONS = (1, 10, 50)
FLOWS = ("TV2", "TV1")
VALUE_BYTES = 100
CASE_SECONDS = 4
OPEN_TRANSACTIONS = 10_000
OPEN_AT_RECOVERY = 1_000
LOG_AT_RECOVERY_BYTES = 1 << 30
NO_END = 10_000_000  # transactions: a case ends by its time


@dataclass(frozen=True)
class TransactionCase:
    """One row: so many producers, each in a loop of transactions of one record, over so many partitions."""

    client: str
    """`raw` requests, or the producer of `franz-go`."""
    flow: str
    producers: int
    partitions: int

    @property
    def name(self) -> str:
        """As `--only` knows it."""
        return f"txn/{self.client} {self.flow}/{self.producers}x{self.partitions}"

    @property
    def options(self) -> list[str]:
        """What the load generator is told."""
        flow = ["-tv2"] if self.flow == "TV2" else []
        return [
            *(["-raw", *flow] if self.client == "raw" else []),
            *("-conc", str(self.producers), "-conns", str(min(self.producers, 4))),
            *("-partitions", str(self.partitions), "-size", str(VALUE_BYTES)),
        ]


def all_cases() -> Iterator[TransactionCase]:
    """Every row, in the order of the table."""
    yield TransactionCase("franz-go", "TV2", producers=1, partitions=1)
    yield TransactionCase("raw", "TV2", producers=50, partitions=4)
    for flow in FLOWS:
        for producers in PRODUCERS:
            for partitions in PARTITIONS:
                yield TransactionCase("raw", flow, producers=producers, partitions=partitions)


def main() -> int:
    """Measure, print, keep."""
    arguments = parse_arguments()
    kinds = [kind for kind in ALL_SYSTEMS if kind is not KAFKA or not arguments.no_peer]
    measurements = Measurements()
    try:
        loadgen = build_go_program(PROJECT / "bench" / "loadgen")
        for repetition in range(arguments.repeat):
            turn = repetition % len(kinds)
            print(f"run {repetition + 1} of {arguments.repeat}", file=sys.stderr)
            measure([*kinds[turn:], *kinds[:turn]], loadgen, measurements, arguments)
    except PeerMissingError as missing:
        print(f"bench: {missing}; --no-peer measures exactlog alone", file=sys.stderr)
        return 1
    machine = describe_machine()
    print(text_table(measurements, kinds))
    keep(measurements, machine)
    if arguments.markdown:
        update_page(PAGE, measurements, kinds, table=Table.TRANSACTIONS, machine=machine, repetitions=arguments.repeat)
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with this in their name, such as 50x4")
    parser.add_argument("--seconds", type=float, default=CASE_SECONDS, help=f"of each case ({CASE_SECONDS})")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="repetitions (1)")
    parser.add_argument("--no-peer", action="store_true", help="without Apache Kafka")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.relative_to(PROJECT)}")
    return parser.parse_args()


def measure(
    kinds: Sequence[SystemKind], loadgen: Path, measurements: Measurements, arguments: argparse.Namespace
) -> None:
    """One repetition: start every system, then every case on each of them in turn."""
    with ExitStack() as stack:
        systems: dict[SystemKind, System] = {}
        for kind in kinds:
            systems[kind] = stack.enter_context(kind.start())
            time.sleep(SETTLE_SECONDS)
        for case in all_cases():
            if arguments.only not in case.name:
                continue
            for kind in kinds:
                os.sync()  # what one has left to write must not slow the next
                result = run_transactions(loadgen, case, systems[kind], seconds=arguments.seconds)
                _note(measurements, case, kind, result)
        measure_initialisations(loadgen, systems, measurements, arguments)
    if arguments.only in "open transactions":
        for kind in kinds:
            measure_open(loadgen, kind, measurements)
    if arguments.only in "recovery":
        for kind in kinds:
            measure_recovery(loadgen, kind, measurements)


def _note(measurements: Measurements, case: TransactionCase, kind: SystemKind, result: dict[str, Any]) -> None:
    measurements.add(f"{case.name}, txn/s", kind, result["ops_per_s"])
    measurements.add(f"{case.name}, commit P50, ms", kind, result["commit_p50_ms"])
    measurements.add(f"{case.name}, commit P99, ms", kind, result["commit_p99_ms"])
    told = f"{result['ops_per_s']:>10,.0f} txn/s, commit P99 {result['commit_p99_ms']:,.1f} ms"
    print(f"  {case.name:<28} {kind.name:<20} {told}", file=sys.stderr)


def run_transactions(loadgen: Path, case: TransactionCase, system: System, *, seconds: float) -> dict[str, Any]:
    """Runs one case for so long.

    Raises:
        MeasurementError: a transaction failed.
    """
    command = [*_command(loadgen, "txn", system), "-topic", f"txn-{uuid4().hex}", *case.options]
    return _run([*command, "-n", str(NO_END), "-max", f"{seconds}s"], case.name)


def measure_initialisations(
    loadgen: Path, systems: dict[SystemKind, System], measurements: Measurements, arguments: argparse.Namespace
) -> None:
    """How many new transactional ids a second are initialised."""
    name = "InitProducerId, new ids, requests/s"
    if arguments.only not in name:
        return
    for kind, system in systems.items():
        options = ("-n", str(NO_END), "-conc", "32", "-max", f"{arguments.seconds}s")
        result = _run([*_command(loadgen, "init", system), *options], name)
        measurements.add(name, kind, result["ops_per_s"])


def measure_open(loadgen: Path, kind: SystemKind, measurements: Measurements) -> None:
    """What a server occupies with many transactions open."""
    with kind.start() as system:
        _open(loadgen, system, count=OPEN_TRANSACTIONS)
        measurements.add(f"resident, {OPEN_TRANSACTIONS:,} transactions open, MB", kind, resident(system))


def measure_recovery(loadgen: Path, kind: SystemKind, measurements: Measurements) -> None:
    """From a kill to the first answer, with transactions open and a large log."""
    with kind.start() as system:
        records = LOG_AT_RECOVERY_BYTES // 1_024
        fill = [*_command(loadgen, "produce", system), "-topic", "large", "-size", "1024", "-n", str(records)]
        _run([*fill, "-max", "300s"], "recovery: fill")
        _open(loadgen, system, count=OPEN_AT_RECOVERY)
        start_ms = system.kill_and_restart_ms()
        measurements.add(f"kill -9 to first Metadata, 1 GiB and {OPEN_AT_RECOVERY:,} open, ms", kind, start_ms)
        began = time.monotonic()
        case = TransactionCase("raw", "TV2", producers=1, partitions=1)
        command = [*_command(loadgen, "txn", system), "-topic", "open", *case.options, "-n", "1"]
        _run(command, "recovery: one transaction")
        measurements.add(
            "the same to a transaction committed there, ms", kind, start_ms + (time.monotonic() - began) * 1_000
        )


def _open(loadgen: Path, system: System, *, count: int) -> None:
    options = ("-raw", "-tv2", "-n", str(count), "-conc", "32", "-partitions", "10", "-size", str(VALUE_BYTES))
    command = [*_command(loadgen, "opentxns", system), "-topic", "open", *options, "-hold", "0s", "-end", "none"]
    result = _run([*command, "-max", "300s"], "open transactions")
    if result["ops"] != count:
        raise MeasurementError(f"{result['ops']} of {count} transactions could be opened")


def _command(loadgen: Path, verb: str, system: System) -> list[str]:
    return [str(loadgen), verb, "-broker", system.address, "-pid", str(system.pid)]


def _run(command: list[str], name: str) -> dict[str, Any]:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True)
    if result.returncode != 0:
        raise MeasurementError(f"{name}: {result.stderr.strip()}")
    outcome: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    if outcome["errors"]:
        raise MeasurementError(f"{name}: {outcome}")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
