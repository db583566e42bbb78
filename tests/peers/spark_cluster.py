"""A standalone cluster of Apache Spark on loopback: a master and two workers, from the jars of PySpark."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.toolchain import require_tools

START_SECONDS = 60
WORKER_COUNT = 2
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class SparkCluster:
    """The cluster, as a context manager. Each worker has one core, and is a group of processes of its own.

    Args:
        directory: where workers keep what they run, and all write their logs.

    Raises:
        PeerMissingError: there is no Java.
        RuntimeError: it does not start; the message ends with the last of its output.

    Attributes:
        url: of the master.
    """

    def __init__(self, directory: Path) -> None:
        require_tools("java")
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._start("master", [_MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"])
            self.url = self._wait("master", re.compile(r"spark://127\.0\.0\.1:\d+"))
            for number in range(WORKER_COUNT):
                place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
                means = ["--cores", "1", "--memory", "768m", "--work-dir", str(self._directory / f"work-{number}")]
                self._start(f"worker-{number}", [_WORKER, *place, *means, self.url])
            for number in range(WORKER_COUNT):
                self._wait(f"worker-{number}", re.compile("Successfully registered with master"))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def executors_of(self, number: int) -> set[str]:
        """The ids of the executors that a worker has run."""
        return {path.name for path in (self._directory / f"work-{number}").glob("app-*/*")}

    def kill_worker(self, number: int) -> None:
        """Lets a worker, and all that it runs, die at once."""
        self._kill(f"worker-{number}")

    def _start(self, name: str, command: Sequence[str]) -> None:
        home = spark_home()
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [home / "bin" / "spark-class", *command],
                env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait(self, name: str, pattern: re.Pattern[str]) -> str:
        log = self._directory / f"{name}.log"

        def found() -> str | None:
            match = pattern.search(log.read_text(errors="replace"))
            return match[0] if match else None

        process = self._processes[name]
        words = wait_for(lambda: found() or (process.poll() is not None and "ended"))
        if not words or words == "ended":
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"the {name} of Spark does not start:\n{tail}")
        return words

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _stop(self) -> None:
        for name in list(self._processes):
            self._kill(name)


def wait_for(look: Callable[[], object], *, seconds: float = START_SECONDS) -> str | None:
    """What `look` gives as soon as it gives something, as text; None when the time is over."""
    pause = threading.Event()
    for _ in range(int(seconds * 10)):
        found = look()
        if found:
            return str(found)
        pause.wait(0.1)
    return None


def spark_home() -> Path:
    """Where PySpark has its jars and scripts."""
    import pyspark

    return Path(pyspark.__file__).parent


def python_without(package: str, directory: Path) -> Path:
    """A Python with all that this one has installed, but for one package: as on a machine of a cluster.

    Args:
        package: what is left out, by the beginning of its files' names; editable installations are among them.
        directory: where it is put together.
    """
    installed = directory / "site"
    installed.mkdir(parents=True)
    for entry in Path(spark_home()).parent.iterdir():
        if package not in entry.name:
            (installed / entry.name).symlink_to(entry)
    program = directory / "python"
    base = getattr(sys, "_base_executable", sys.executable)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{installed}" exec {base} "$@"\n')
    program.chmod(0o755)
    return program
