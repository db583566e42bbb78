"""A program of the demo that tells on its standard output how it gets on, and that may be killed at any moment."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from demo.exchange import CLIENT_SECONDS_MAX


class TalkingProgram:
    """One of them: it tells JSON objects, a line each."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def on_told(self, told: dict[str, Any]) -> None:
        """Is called with each object, on a thread of its own."""
        raise NotImplementedError

    @property
    def has_ended(self) -> bool:
        """Whether it does not run."""
        return self._process.poll() is not None

    def say(self, line: str) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: it leaves no group, ends no transaction, and commits nothing more."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        self._process.terminate()
        try:
            self._process.wait(CLIENT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._listening.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.on_told(json.loads(line))
