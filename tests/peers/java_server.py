"""What the servers of Java have in common that tests start: a temporary folder, a start that may need another try."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.peers.probe import NoAnswerError

START_ATTEMPTS_MAX = 3  # another process may take a free port between our look and the server's bind
LINES_TOLD = 20


class JavaServer:
    """One running server; a context manager. It is stopped by its process id.

    Attributes:
        pid: the Java process.
    """

    name: ClassVar[str]
    port_taken: ClassVar[str]
    """What it says where another process has its port."""
    logs: ClassVar[tuple[str, ...]]
    """In its folder; the first is of its standard output."""
    stop_seconds: ClassVar[int]

    pid: int

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def jars(self) -> Path:
        """The folder with its jars; raises as `tests.peers.jars.jars_of_pom`."""
        raise NotImplementedError

    def start(self, jars: Path, folder: Path) -> None:
        """Start it in an empty folder, with `run`, and wait until it answers.

        Raises:
            NoAnswerError: it does not come up.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        jars = self.jars()
        for attempts_left in reversed(range(START_ATTEMPTS_MAX)):
            self._folder = Path(tempfile.mkdtemp(prefix=f"{self.name.lower().replace(' ', '-')}-"))
            try:
                self.start(jars, self._folder)
            except NoAnswerError as error:
                story = self._log_tail()
                self._remove()
                if attempts_left == 0 or self.port_taken not in story:
                    raise RuntimeError(f"{self.name} did not start: {error}\n{story}") from error
            except BaseException:
                self._remove()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def run(self, command: Sequence[str]) -> None:
        """Start the process; what it prints goes to the first of its logs."""
        assert self._folder is not None
        with (self._folder / self.logs[0]).open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt at the terminal reaches us alone; we stop it in order
            )
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process does not run."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL; its folder stays."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _log_tail(self) -> str:
        lines: list[str] = []
        for name in self.logs:
            path = (self._folder or Path()) / name
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-LINES_TOLD:]
        return "\n".join(lines)

    def _remove(self) -> None:
        """Stop the process and delete its folder."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=self.stop_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at, at this moment."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
