"""How the demo tells what it does: numbered steps, a line a second while one runs, a bar on a terminal."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

BAR_CELLS = 30
SECONDS_BETWEEN_LINES = 1.0
SECONDS_BETWEEN_FRAMES = 0.1
EXIT_FAILED = 1


class DemoFailedError(Exception):
    """The demo cannot go on, or did not show what it promises."""


class Story:
    """Prints the steps to one stream."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._began = time.monotonic()
        self._step = 0

    @property
    def seconds(self) -> float:
        """How long it has been told for."""
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        """What this is, before the first step."""
        self._print(text)

    def step(self, text: str) -> None:
        """A new step begins."""
        self._step += 1
        self._print(f"\n{self._step}. {text}")

    def tell(self, text: str) -> None:
        """Something worth knowing within a step."""
        self._print(f"   {text}")

    def end(self, line: str) -> None:
        """The last line."""
        self._print(f"\n{line}")

    def progress(self, doing: str, *, total: int) -> "Progress":
        """Something that counts up to `total`."""
        return Progress(doing, total=total, out=self._out)

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def tell_to_its_end(run: Callable[[Story], dict[str, Any]]) -> int:
    """Tell a story, and how it ended, in one last line; the exit code.

    Args:
        run: tells it, and returns what it showed, in numbers.
    """
    story = Story()
    try:
        summary = run(story)
    except DemoFailedError as failure:
        print(f"\nDEMO FAILED: {failure}", file=sys.stderr)
        return EXIT_FAILED
    story.end(f"DEMO OK {json.dumps({**summary, 'seconds': round(story.seconds, 1)})}")
    return 0


class Progress:
    """How far something has come: a bar that moves on a terminal, elsewhere a line a second."""

    def __init__(self, doing: str, *, total: int, out: TextIO) -> None:
        self._doing = doing
        self._total = total
        self._out = out
        self._is_terminal = out.isatty()
        self._interval = SECONDS_BETWEEN_FRAMES if self._is_terminal else SECONDS_BETWEEN_LINES
        self._next_at = time.monotonic() + self._interval

    def reached(self, count: int) -> None:
        """Say how far it is, when it is time to."""
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self._interval
            self._show(count)

    def done(self, count: int) -> None:
        """Say where it ended."""
        self._show(count)
        if self._is_terminal:
            print(file=self._out, flush=True)

    def _show(self, count: int) -> None:
        share = count / self._total if self._total else 1.0
        text = f"{self._doing} {count:,} of {self._total:,} ({share:.0%})"
        if self._is_terminal:
            filled = round(share * BAR_CELLS)
            print(f"\r   [{'#' * filled:<{BAR_CELLS}}] {text}", end="\x1b[K", file=self._out, flush=True)
        else:
            print(f"   {text}", file=self._out, flush=True)
