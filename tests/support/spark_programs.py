"""A program that drives Spark, with all that it starts: to be killed in part or as a whole, and started again."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

from tests.peers import PROJECT

WORKER = b"pyspark.daemon"
JVM = b"java"


class SparkProgram:
    """A program of `tests.support`, run as a module with one argument of JSON; a context manager.

    Attributes:
        output: the lines it has printed, over all its lives, are in this file.
    """

    def __init__(self, module, order, *, output):
        self.output = Path(output)
        self._command = [sys.executable, "-m", module, json.dumps(order)]
        self._process = None
        self._groups = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def start(self):
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that all of it can be ended together
            )
        self._groups.append(self._process.pid)

    def wait(self, timeout_s):
        """Its exit code."""
        return self._process.wait(timeout_s)

    def kill(self):
        """SIGKILL to the program itself. Its JVM finds out and ends, in its own time."""
        self._process.kill()
        self._process.wait()

    def kill_jvm(self):
        """SIGKILL to the JVM, where there is one; whether there was."""
        return _kill(
            [pid for pid in _descendants_of(self._process.pid) if _command_of(pid).split(b"\0")[0].endswith(JVM)][:1]
        )

    def kill_workers(self):
        """SIGKILL to the Pythons that tasks run in, and those in which the driver plans and commits, all at once.

        Whether there was one.
        """
        return _kill([pid for pid in workers_of(self._process.pid) if WORKER in _command_of(_parent_of(pid))])

    def told(self):
        """What it has told, by line."""
        lines = self.output.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"event"')]

    def stop(self):
        """End all that it has started, in any of its lives."""
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()


@contextlib.contextmanager
def files_of_workers_bounded(size):
    """The Pythons that tasks of this process's session run in write no file beyond that size, as on a full disk."""
    pids = workers_of(os.getpid())
    bounds = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in bounds.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        for pid, bound in bounds.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, bound)


def workers_of(pid):
    """The Pythons that tasks run in of the session of a process, and those that start them."""
    return [below for below in _descendants_of(pid) if WORKER in _command_of(below)]


def _descendants_of(pid):
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent_of(int(entry.name)), []).append(int(entry.name))
    seen, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        seen += below
        waiting += below
    return seen


def _kill(pids):
    """Whether one of them was there."""
    killed = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed > 0


def _command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def _parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0
