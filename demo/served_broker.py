"""`exactlog serve` as a process of its own: started, killed without mercy, started again at the same port."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from demo.story import DemoFailedError

EXACTLOG = Path(sys.executable).with_name("exactlog")
READY_SECONDS_MAX = 30
STOP_SECONDS_MAX = 10


class ServedBroker:
    """One broker over one data directory; a context manager that leaves no process behind.

    Args:
        port: 0: any free one.

    Attributes:
        port: where it listens, the same after a restart.
        ready: its ready line: version, pid, flush_mode and more.
        start_seconds: how long the last start took, from the command to the ready line.
    """

    def __init__(self, data_directory: Path, *, log: Path, options: Sequence[str] = (), port: int = 0) -> None:
        self.port = port
        self.ready: dict[str, Any] = {}
        self.start_seconds = 0.0
        self._data_directory = data_directory
        self._log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a client calls `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def has_ended(self) -> bool:
        """Whether it does not run, whoever ended it."""
        return self._process is None or self._process.poll() is not None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, kill_at: str | None = None) -> None:
        """Start it, at the port it had before if there was one.

        Args:
            kill_at: the fault point where it is to die by SIGKILL (`EXACTLOG_KILL_AT`).

        Raises:
            DemoFailedError: it did not become ready.
        """
        began = time.monotonic()
        where = ("--data-dir", str(self._data_directory), "--port", str(self.port))
        environment = os.environ if kill_at is None else os.environ | {"EXACTLOG_KILL_AT": kill_at}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(EXACTLOG), "serve", *where, "--print-ready", "json", *self._options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # an interrupt at the terminal is for us; we stop it in order
            )
        assert self._process.stdout is not None
        self.ready = self._wait_ready(self._process.stdout)
        self.port = int(self.ready["port"])
        self.start_seconds = time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def wait_killed(self) -> None:
        """Wait for the SIGKILL that somebody else sends.

        Raises:
            DemoFailedError: it runs on, or ended some other way.
        """
        assert self._process is not None
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        if code != -signal.SIGKILL:
            story = self._log.read_text(errors="replace").strip()
            raise DemoFailedError(f"the broker was not killed, its exit code is {code}; it said:\n{story}")

    def _wait_ready(self, output: IO[bytes]) -> dict[str, Any]:
        """The ready line. A broker that says nothing is killed after a while, which ends the wait."""
        assert self._process is not None
        impatience = threading.Timer(READY_SECONDS_MAX, self._process.kill)
        impatience.start()
        line = output.readline()
        impatience.cancel()
        try:
            ready = json.loads(line)
        except ValueError:
            ready = {}
        if ready.get("event") != "ready":
            self.kill()
            story = self._log.read_text(errors="replace").strip()
            raise DemoFailedError(f"the broker did not start; it said:\n{line.decode(errors='replace')}{story}")
        return dict(ready)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
