"""Half an hour of steady load: memory, descriptors and latency stay where they were after the first minutes.

Every round opens new connections, writes at a steady rate and reads as much again; beside it, producers run
transactions over several partitions with offsets of groups, some of which abort, and a reader of committed records
reads them. The medians of the last third of the rounds are held against those of the middle third; the first third is
warm-up. Ends with `SOAK OK {json}`.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.systems import EXACTLOG_COMMIT, System, resident
from tests.peers import PROJECT, PeerMissingError
from tests.peers.go_programs import build_go_program

ROUND_SECONDS = 30
RECORDS_PER_SECOND = 2_000
VALUE_BYTES = 100
RECORDS_PER_ROUND = ROUND_SECONDS * RECORDS_PER_SECOND

TRANSACTIONS_PER_SECOND = 100
TRANSACTIONS_PER_ROUND = ROUND_SECONDS * TRANSACTIONS_PER_SECOND
TRANSACTIONAL_PRODUCERS = 20
PARTITIONS_PER_TRANSACTION = 3
ABORTED_PERCENT = 20
COMMITTED_RECORDS_READ = TRANSACTIONS_PER_ROUND * PARTITIONS_PER_TRANSACTION // 2
"""Of those that a round commits: the aborted ones between them are stepped over."""

VALUES = ("-size", str(VALUE_BYTES))
RECORDS = ("-topic", "soak", "-n", str(RECORDS_PER_ROUND))
COMMITTED = ("-topic", "soak-transactions", "-n", str(COMMITTED_RECORDS_READ), "-isolation", "committed")

RESIDENT_GROWTH_MAX = 1.10
RESIDENT_GROWTH_MB_ALLOWED = 5  # below this, growth is noise
DESCRIPTORS_MORE_MAX = 2
P99_GROWTH_MAX = 2.0


class Round(NamedTuple):
    """What the server looked like after a round."""

    resident_mb: float
    descriptors: int
    p99_ms: float
    commit_p99_ms: float


def main() -> int:
    """Load, watch, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    minutes = parser.parse_args().minutes
    count = max(3, round(minutes * 60 / ROUND_SECONDS))
    try:
        loadgen = build_go_program(PROJECT / "bench" / "loadgen")
    except PeerMissingError as missing:
        print(f"soak: {missing}", file=sys.stderr)
        return 1
    rounds: list[Round] = []
    with EXACTLOG_COMMIT.start() as system:
        for number in range(1, count + 1):
            rounds.append(one_round(loadgen, system))
            print(f"round {number:>3} of {count}: {describe(rounds[-1])}", flush=True)
    complaints = judge(rounds)
    for complaint in complaints:
        print(f"SOAK FAILED: {complaint}", file=sys.stderr)
    if not complaints:
        print(f"SOAK OK {json.dumps({'minutes': minutes, **rounds[-1]._asdict()})}")
    return 1 if complaints else 0


def one_round(loadgen: Path, system: System) -> Round:
    """Write at a steady rate, in transactions and without; read as much; look."""
    with ThreadPoolExecutor(1) as beside:
        transactions = beside.submit(run_transactions, loadgen, system)
        written = run_load(loadgen, system, "produce", *RECORDS, "-rate", str(RECORDS_PER_SECOND), *VALUES)
        ended = transactions.result()
    run_load(loadgen, system, "consume", *RECORDS)
    run_load(loadgen, system, "consume", *COMMITTED)
    descriptors = len(list(Path(f"/proc/{system.pid}/fd").iterdir()))
    return Round(resident(system), descriptors, float(written["p99_ms"]), float(ended["commit_p99_ms"]))


def run_transactions(loadgen: Path, system: System) -> dict[str, Any]:
    """The transactions of a round: always of the same producers and groups, as a broker remembers them."""
    load = ("-n", str(TRANSACTIONS_PER_ROUND), "-rate", str(TRANSACTIONS_PER_SECOND), *VALUES)
    each = ("-per", str(PARTITIONS_PER_TRANSACTION), "-touch", str(PARTITIONS_PER_TRANSACTION))
    who = ("-conc", str(TRANSACTIONAL_PRODUCERS), "-prefix", "soak", "-group", "soak", "-raw", "-tv2")
    where = ("-topic", "soak-transactions", "-partitions", str(2 * PARTITIONS_PER_TRANSACTION))
    return run_load(loadgen, system, "txn", *where, *who, *load, *each, "-abort", str(ABORTED_PERCENT))


def run_load(loadgen: Path, system: System, verb: str, *options: str) -> dict[str, Any]:
    """One run of the load generator.

    Raises:
        RuntimeError: a record or a transaction was lost or refused.
    """
    command = [str(loadgen), verb, "-broker", system.address, *options]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    outcome: dict[str, Any] = json.loads(result.stdout)
    wanted = int(options[options.index("-n") + 1])
    if outcome["errors"] or outcome["ops" if verb == "txn" else "records"] < wanted:
        raise RuntimeError(f"{verb}: {result.stdout}")
    return outcome


def judge(rounds: Sequence[Round]) -> list[str]:
    """What is no longer flat."""
    third = len(rounds) // 3
    middle, last = (_medians(part) for part in (rounds[third : 2 * third], rounds[-third:]))
    complaints = []
    growth_mb = last.resident_mb - middle.resident_mb
    if growth_mb > RESIDENT_GROWTH_MB_ALLOWED and last.resident_mb > middle.resident_mb * RESIDENT_GROWTH_MAX:
        complaints.append(f"memory grew from {middle.resident_mb:.1f} to {last.resident_mb:.1f} MB")
    if last.descriptors > middle.descriptors + DESCRIPTORS_MORE_MAX:
        complaints.append(f"open descriptors grew from {middle.descriptors} to {last.descriptors}")
    if last.p99_ms > middle.p99_ms * P99_GROWTH_MAX:
        complaints.append(f"the P99 of a write grew from {middle.p99_ms:.1f} to {last.p99_ms:.1f} ms")
    if last.commit_p99_ms > middle.commit_p99_ms * P99_GROWTH_MAX:
        complaints.append(f"the P99 of a commit grew from {middle.commit_p99_ms:.1f} to {last.commit_p99_ms:.1f} ms")
    return complaints


def describe(seen: Round) -> str:
    """For the line of a round."""
    latencies = f"P99 of a write {seen.p99_ms:.1f} ms, of a commit {seen.commit_p99_ms:.1f} ms"
    return f"{seen.resident_mb:.1f} MB resident, {seen.descriptors} descriptors, {latencies}"


def _medians(rounds: Sequence[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*rounds, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
