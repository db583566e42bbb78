"""Commands of exactlog under measurement: when they say what, and how much memory they and all they start take."""

import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self

from bench.workloads import MeasurementError
from demo.served_broker import EXACTLOG

SAMPLE_S: Final = 0.2
WAIT_S_MAX: Final = 1_800.0
STOP_S_MAX: Final = 120.0
LINES_TOLD: Final = 15
JVM: Final = "java"


class Line(NamedTuple):
    """Something that a command has printed, and when."""

    at_s: float
    text: str


class Resident(NamedTuple):
    """Memory of a command and all that it has started, in MB; what several share is counted once.

    Attributes:
        all_mb: of all together.
        jvm_mb: of the JVM among them; 0: there is none.
    """

    all_mb: float
    jvm_mb: float


class Job:
    """One command, running; a context manager that leaves no process behind.

    Attributes:
        began_s: when it was started; this and the times of lines are of `time.monotonic`.
        peak: the most memory that it had at one time.
    """

    def __init__(self, *arguments: str) -> None:
        self.began_s = 0.0
        self.peak = Resident(0.0, 0.0)
        self._arguments = arguments
        self._said: list[Line] = []
        self._printed: list[Line] = []
        self._has_said = threading.Condition()
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        self.began_s = time.monotonic()
        self._running = subprocess.Popen(
            [str(EXACTLOG), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt at the terminal is for us; we stop it in order
        )
        assert self._running.stdout is not None
        assert self._running.stderr is not None
        watchers = (
            (self._note, (self._running.stderr, self._said)),
            (self._note, (self._running.stdout, self._printed)),
        )
        self._threads = [threading.Thread(target=what, args=of, daemon=True) for what, of in watchers]
        self._threads.append(threading.Thread(target=self._sample, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGKILL)  # its JVM, too, which would end a little later
        self._running.wait()
        for thread in self._threads:
            thread.join()

    def wait_until_said(self, words: str) -> float:
        """When it has first said so on standard error.

        Raises:
            MeasurementError: it has ended, or does not say so.
        """
        give_up_at = time.monotonic() + WAIT_S_MAX
        with self._has_said:
            while time.monotonic() < give_up_at:
                told = next((line.at_s for line in self._said if words in line.text), None)
                if told is not None:
                    return told
                if self.has_ended:
                    break
                self._has_said.wait(SAMPLE_S)
        raise MeasurementError(f"{self._named} does not say {words!r}\n{self._story()}")

    @property
    def has_ended(self) -> bool:
        """Whether it does not run any more."""
        return self._running.poll() is not None

    def wait(self) -> tuple[float, str]:
        """When it has printed the last line of its report, and the report: it has ended well.

        Raises:
            MeasurementError: it has not.
        """
        try:
            code = self._running.wait(WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"{self._named} does not end\n{self._story()}") from None
        for thread in self._threads[:2]:
            thread.join()
        if code != 0 or not self._printed:
            raise MeasurementError(f"{self._named} ended with {code}\n{self._story()}")
        return self._printed[-1].at_s, "".join(line.text for line in self._printed)

    def stop(self) -> None:
        """SIGTERM, and until it has ended, however it does."""
        self._running.terminate()
        try:
            self._running.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"{self._named} does not stop\n{self._story()}") from None

    def require_running(self) -> None:
        """Raises MeasurementError where it has ended."""
        if self.has_ended:
            raise MeasurementError(f"{self._named} has ended\n{self._story()}")

    @property
    def _named(self) -> str:
        return f"exactlog {' '.join(self._arguments)}"

    def _story(self) -> str:
        return "".join(line.text for line in self._said[-LINES_TOLD:])

    def _note(self, stream: IO[str], lines: list[Line]) -> None:
        for text in stream:
            with self._has_said:
                lines.append(Line(time.monotonic(), text))
                self._has_said.notify_all()
        stream.close()

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_S) and not self.has_ended:
            self.peak = max(self.peak, resident_of_family(self._running.pid))


def resident_of_family(pid: int) -> Resident:
    """What a process and all its descendants take now; 0 where it has ended."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            before, _, after = (entry / "stat").read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(after.split()[1])
        names[int(entry.name)] = before.partition("(")[2]
    all_mb = jvm_mb = 0.0
    for member in family_of(pid, parents):
        try:
            of_member = proportional_mb(member)
        except OSError:  # likewise
            continue
        all_mb += of_member
        jvm_mb += of_member if names.get(member) == JVM else 0
    return Resident(all_mb, jvm_mb)


def proportional_mb(pid: int) -> float:
    """The memory of a process, in MB; what it shares with others is divided among them.

    Raises:
        OSError: it has ended.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = next((line.split()[1] for line in lines if line.startswith("Pss:")), "0")
    return int(kilobytes) * 1024 / 1e6


def family_of(pid: int, parents: Mapping[int, int]) -> Sequence[int]:
    """A process and all its descendants, where `parents` says of each process which one has started it."""
    children = defaultdict(list)
    for child, parent in parents.items():
        children[parent].append(child)
    members, waiting = [], [pid]
    while waiting:
        member = waiting.pop()
        members.append(member)
        waiting += children[member]
    return members
