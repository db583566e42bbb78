"""exactlog beside Apache Kafka in one run: produce, consume, small requests, start-up, memory.

Every repetition starts all servers anew and takes the systems in another order; the table shows medians. Results go
to bench/results/ as JSON, and with --markdown into docs/performance.md.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bench.report import Measurements, Table, describe_machine, text_table, update_page
from bench.systems import ALL_SYSTEMS, EXACTLOG_COMMIT, KAFKA, System, SystemKind, embedded_start_ms, resident
from bench.workloads import REQUESTS, Case, Load, all_cases, run_rebalance, run_requests
from tests.peers import PROJECT, PeerMissingError
from tests.peers.go_programs import build_go_program

RESULTS = PROJECT / "bench" / "results"
PAGE = PROJECT / "docs" / "performance.md"
SETTLE_SECONDS = 2  # after a start, before memory is read


def main() -> int:
    """Measure, print, keep."""
    arguments = parse_arguments()
    kinds = [kind for kind in ALL_SYSTEMS if kind is not KAFKA or not arguments.no_peer]
    cases = [case for case in all_cases(quick=arguments.quick) if arguments.only in case.name]
    repetitions = arguments.repeat or (1 if arguments.quick else 3)
    measurements, requests = Measurements(), Measurements()
    try:
        load = Load(build_go_program(PROJECT / "bench" / "loadgen"), filled={})
        for repetition in range(repetitions):
            turn = repetition % len(kinds)
            print(f"run {repetition + 1} of {repetitions}", file=sys.stderr)
            measure([*kinds[turn:], *kinds[:turn]], cases, load, measurements, requests=requests, arguments=arguments)
    except PeerMissingError as missing:
        print(f"bench: {missing}; --no-peer measures exactlog alone", file=sys.stderr)
        return 1
    machine = describe_machine()
    for table, measured in ((Table.LOG, measurements), (Table.REQUESTS, requests)):
        if not list(measured) or (table is Table.LOG and not cases):
            continue
        print(text_table(measured, kinds))
        keep(measured, machine)
        if arguments.markdown:
            update_page(PAGE, measured, kinds, table=table, machine=machine, repetitions=repetitions)
    return 0


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, once: to see that it runs")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="cases with this in their name, such as 64K/franz-go"
    )
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions (3; with --quick 1)")
    parser.add_argument("--no-peer", action="store_true", help="without Apache Kafka")
    parser.add_argument("--markdown", action="store_true", help=f"write the table into {PAGE.relative_to(PROJECT)}")
    return parser.parse_args()


def measure(
    kinds: Sequence[SystemKind],
    cases: Sequence[Case],
    load: Load,
    measurements: Measurements,
    *,
    requests: Measurements,
    arguments: argparse.Namespace,
) -> None:
    """One repetition: start every system, then every case on each of them in turn."""
    with ExitStack() as stack:
        systems: dict[SystemKind, System] = {}
        for kind in kinds:
            system = systems[kind] = stack.enter_context(kind.start())
            time.sleep(SETTLE_SECONDS)
            measurements.add("start to first Metadata, ms", kind, system.start_ms)
            measurements.add("resident, idle, MB", kind, resident(system))
        measurements.add("start embedded, ms", EXACTLOG_COMMIT, embedded_start_ms())
        for system in systems.values():
            load.warm_up(system)
        for case in cases:
            for kind in (kind for kind in kinds if case.concerns(kind)):
                os.sync()  # what one has left to write must not slow the next
                result = load.run(case, systems[kind])
                measurements.add(f"{case.name}, records/s", kind, result["records_per_s"])
                print(f"  {case.name:<28} {kind.name:<20} {result['records_per_s']:>12,.0f} records/s", file=sys.stderr)
        measure_requests(systems, requests, only=arguments.only, quick=arguments.quick)
        for kind in kinds:
            measurements.add("resident, after all that, MB", kind, resident(systems[kind]))


def measure_requests(systems: dict[SystemKind, System], measurements: Measurements, *, only: str, quick: bool) -> None:
    """Small requests, and a group that rebalances."""
    for what in REQUESTS:
        for kind, system in systems.items():
            if only in f"requests/{what}":
                number = run_requests(what, system, quick=quick)
                measurements.add(f"requests/{what}, requests/s", kind, number)
                print(f"  requests/{what:<19} {kind.name:<20} {number:>12,.0f} requests/s", file=sys.stderr)
    for kind, system in systems.items():
        if only in "requests/group rebalance":
            measurements.add("group rebalance, 10 members and one more, ms", kind, run_rebalance(system))


def keep(measurements: Measurements, machine: dict[str, str]) -> Path:
    """Every single number, as JSON."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S.%fZ}.json"
    path.write_text(json.dumps({"machine": machine, "measurements": measurements.as_json()}, indent=1) + "\n")
    print(f"\nkept in {path.relative_to(PROJECT)}", file=sys.stderr)
    return path


if __name__ == "__main__":
    sys.exit(main())
