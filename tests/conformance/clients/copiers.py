"""Processes that copy a topic in transactions: led from one transaction to the next, and killed."""

import base64
import json
import signal
import subprocess
import tempfile
import threading

from tests.peers import PROJECT

PATIENCE_S = 60
"""A group may wait for a session time-out, and a start for a busy machine."""


class Copier:
    """One process; a context manager, at whose end it is killed."""

    def __init__(self, command, how):
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [*command, json.dumps(how._asdict())],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._process.stdin.close()
        self._process.stdout.close()
        self._complaints.close()

    def wait_until_open(self):
        """Waits until a transaction is with the broker as a whole; the values in it."""
        return [base64.b64decode(value) for value in self._told("open")]

    def copy_some(self):
        """Lets one transaction be made and committed; the values in it."""
        values = self.wait_until_open()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._told("committed") == len(values)
        return values

    def kill(self):
        """Ends it without a word to anybody."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _told(self, what):
        out_of_patience = threading.Timer(PATIENCE_S, self._process.kill)
        out_of_patience.start()
        line = self._process.stdout.readline()
        out_of_patience.cancel()
        assert line, self._story()
        return json.loads(line)[what]

    def _story(self):
        self._process.wait()
        self._complaints.seek(0)
        return f"exit code {self._process.returncode}\n" + self._complaints.read()[-4_000:].decode(errors="replace")
