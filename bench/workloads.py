"""What is measured: one case is one client doing one thing to every system in turn."""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from bench.systems import EXACTLOG_COMMIT, KAFKA, System, SystemKind

Client = Literal["franz-go", "librdkafka"]
Verb = Literal["produce", "consume"]

CLIENTS: tuple[Client, ...] = ("franz-go", "librdkafka")
VALUE_BYTES = (1024, 100)
BATCH_BYTES = (16 * 1024, 64 * 1024)
FILL_BATCH_BYTES = 64 * 1024

RECORDS = {
    ("produce", 1024): 400_000,
    ("produce", 100): 1_500_000,
    ("consume", 1024): 400_000,
    ("consume", 100): 2_000_000,
}
WARM_UP_RECORDS = 100_000
QUICK_SHARE = 10  # with --quick: a tenth of the records

REQUESTS = ("metadata", "produce", "fetch", "offset-commit", "heartbeat")
"""What the small load generator sends, in the order of the table."""

REQUEST_CONNECTIONS = 32
REQUEST_SECONDS = 5
REBALANCE_MEMBERS = 10

LIBRDKAFKA_LOAD = (sys.executable, str(Path(__file__).with_name("librdkafka_load.py")))


class MeasurementError(Exception):
    """A load generator met errors: its number means nothing."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    verb: Verb
    value_bytes: int
    batch_bytes: int
    client: Client
    records: int

    @property
    def name(self) -> str:
        """As `--only` knows it."""
        batch = f"/{self.batch_bytes // 1024}K" if self.verb == "produce" else ""
        return f"{self.verb}/{self.value_bytes}B{batch}/{self.client}"

    def concerns(self, kind: SystemKind) -> bool:
        """Reading does not depend on how writes are flushed: it is measured once."""
        return self.verb == "produce" or kind in {KAFKA, EXACTLOG_COMMIT}


def all_cases(*, quick: bool) -> Iterator[Case]:
    """Every row, in the order of the table."""
    share = QUICK_SHARE if quick else 1
    for value_bytes, batch_bytes, client in itertools.product(VALUE_BYTES, BATCH_BYTES, CLIENTS):
        yield Case("produce", value_bytes, batch_bytes, client, RECORDS["produce", value_bytes] // share)
    for value_bytes, client in itertools.product(VALUE_BYTES, CLIENTS):
        yield Case("consume", value_bytes, FILL_BATCH_BYTES, client, RECORDS["consume", value_bytes] // share)


@dataclass(frozen=True)
class Load:
    """The load generators, and what has been written to read."""

    loadgen: Path
    filled: dict[tuple[int, int], str]
    """Topics to consume from, by process id of the server and size of the values."""

    def run(self, case: Case, system: System) -> dict[str, Any]:
        """Do the work of one case to one system; returns what the load generator tells of it.

        Raises:
            MeasurementError: not every record went through.
        """
        if case.verb == "produce":
            return self._produce(case, system, topic=f"bench-{uuid4().hex}")
        return self._consume(case, system, topic=self._filled_topic(case, system))

    def warm_up(self, system: System) -> None:
        """Let a server compile, cache and grow what it does on its first records; nothing is measured."""
        case = Case("produce", 1024, FILL_BATCH_BYTES, "franz-go", WARM_UP_RECORDS)
        self._produce(case, system, topic="warm-up")
        self._consume(case, system, topic="warm-up")

    def _filled_topic(self, case: Case, system: System) -> str:
        key = (system.pid, case.value_bytes)
        if key not in self.filled:
            fill = Case("produce", case.value_bytes, FILL_BATCH_BYTES, "franz-go", case.records)
            topic = f"filled-{case.value_bytes}"
            self._produce(fill, system, topic=topic)
            self.filled[key] = topic
        return self.filled[key]

    def _produce(self, case: Case, system: System, *, topic: str) -> dict[str, Any]:
        records, value_bytes, batch_bytes = map(str, (case.records, case.value_bytes, case.batch_bytes))
        if case.client == "librdkafka":
            command = [*LIBRDKAFKA_LOAD, "produce", system.address, topic, records, value_bytes, batch_bytes]
        else:
            sizes = ["-n", records, "-size", value_bytes, "-batch", batch_bytes]
            command = [*self._loadgen("produce", system, topic), *sizes]
        return _run(command, case)

    def _consume(self, case: Case, system: System, *, topic: str) -> dict[str, Any]:
        records, value_bytes = map(str, (case.records, case.value_bytes))
        if case.client == "librdkafka":
            command = [*LIBRDKAFKA_LOAD, "consume", system.address, topic, records, value_bytes, "read_uncommitted"]
        else:
            command = [*self._loadgen("consume", system, topic), "-n", records]
        return _run(command, case)

    def _loadgen(self, verb: Verb, system: System, topic: str) -> list[str]:
        return [str(self.loadgen), verb, "-broker", system.address, "-topic", topic, "-pid", str(system.pid)]


def run_requests(what: str, system: System, *, quick: bool) -> float:
    """Requests a second of one kind, from `REQUEST_CONNECTIONS` connections that each wait for their answer.

    Raises:
        MeasurementError: the broker did not answer as it should.
    """
    seconds = REQUEST_SECONDS / QUICK_SHARE if quick else REQUEST_SECONDS
    options = ("--connections", str(REQUEST_CONNECTIONS), "--seconds", str(seconds))
    return _run_request_load(system, what, *options)["requests_per_s"]


def run_rebalance(system: System) -> float:
    """How long a group of `REBALANCE_MEMBERS` takes to be stable again when one more comes, in ms.

    Raises:
        MeasurementError: the group does not come together.
    """
    return _run_request_load(system, "rebalance", "--members", str(REBALANCE_MEMBERS))["rebalance_ms"]


def _run_request_load(system: System, what: str, *options: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.request_load", system.address, what, *options]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True)
    if result.returncode != 0:
        raise MeasurementError(f"{what}: {result.stderr.strip()}")
    outcome: dict[str, float] = json.loads(result.stdout)
    return outcome


def _run(command: list[str], case: Case) -> dict[str, Any]:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True)
    if result.returncode != 0:
        raise MeasurementError(f"{case.name}: {result.stderr.strip()}")
    outcome: dict[str, Any] = json.loads(result.stdout)
    if outcome["errors"] or outcome["records"] < case.records:
        raise MeasurementError(f"{case.name}: {outcome}")
    return outcome
