"""The systems under measurement, each as a server on a free loopback port in a folder of its own."""

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from demo.served_broker import ServedBroker
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.probe import resident_mb, wait_for_metadata

KAFKA_HEAP = "1g"  # that of its own start script

# What an embedded broker costs a test: from the first import to the first Metadata answer, in a warm interpreter.
EMBEDDED_START = """
import json, time
began = time.perf_counter()
from exactlog.testing import Broker
from tests.peers.probe import wait_for_metadata
import os
with Broker() as broker:
    wait_for_metadata(broker.port, pid=os.getpid())
    print(json.dumps(round((time.perf_counter() - began) * 1000)))
"""


class System(Protocol):
    """A running server."""

    address: str
    pid: int
    start_ms: int
    """From the birth of its process to its first Metadata answer that names a broker."""

    def kill_and_restart_ms(self) -> int:
        """SIGKILL, then a start on what is left; how long that took, as `start_ms`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True)
class SystemKind:
    """Something to measure: its name in the tables, and how it is started."""

    name: str
    options: tuple[str, ...] | None
    """Of `exactlog serve`; None for Apache Kafka, which answers from the page cache."""

    def start(self) -> System:
        """A server that has not run before."""
        return KafkaServer() if self.options is None else ExactlogServer(self.options)


KAFKA = SystemKind("Apache Kafka 4.4.0", None)
EXACTLOG_NONE = SystemKind("exactlog, none", ("--flush-mode", "none"))
EXACTLOG_COMMIT = SystemKind("exactlog, commit", ("--flush-mode", "commit"))
EXACTLOG_FILES = SystemKind("exactlog, commit on files", ("--flush-mode", "commit", "--set", "commit.engine=files"))
ALL_SYSTEMS = (KAFKA, EXACTLOG_NONE, EXACTLOG_COMMIT, EXACTLOG_FILES)


class KafkaServer:
    """Apache Kafka with its own settings."""

    def __init__(self) -> None:
        self._broker = ApacheKafka(heap=KAFKA_HEAP)

    def __enter__(self) -> Self:
        self._broker.__enter__()
        self.address = self._broker.bootstrap_servers
        self.pid = self._broker.pid
        self.start_ms = self._broker.start_times.metadata_ms
        return self

    def kill_and_restart_ms(self) -> int:
        """As `System` says."""
        self._broker.kill_and_restart()
        self.pid = self._broker.pid
        return self._broker.start_times.metadata_ms

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.__exit__(kind, error, trace)


class ExactlogServer:
    """`exactlog serve`, a cold process."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="exactlog-bench-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            broker = self._broker = stack.enter_context(
                ServedBroker(folder / "data", log=folder / "broker.log", options=self._options)
            )
            self.address = broker.address
            self.pid = int(broker.ready["pid"])
            self.start_ms = wait_for_metadata(broker.port, pid=self.pid).metadata_ms
            self._stack = stack.pop_all()
        return self

    def kill_and_restart_ms(self) -> int:
        """As `System` says."""
        self._broker.kill()
        self._broker.start()
        self.pid = int(self._broker.ready["pid"])
        return wait_for_metadata(self._broker.port, pid=self.pid).metadata_ms

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def embedded_start_ms() -> int:
    """How long `with Broker()` takes in a test process that did not import exactlog before."""
    command = [sys.executable, "-c", EMBEDDED_START]
    return int(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))


def resident(system: System) -> float:
    """The memory a server occupies, in MB."""
    return resident_mb(system.pid)
