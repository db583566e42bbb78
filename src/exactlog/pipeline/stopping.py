"""Stopping a job when the program is told to end: what has begun is brought to its end, and nothing new begins."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Self

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopOnSignal:
    """Notes SIGTERM and Ctrl-C while it is a context; the second one ends the program as Ctrl-C does.

    Enter it when the session has started: Spark takes Ctrl-C for itself then. Only the main thread of a program can.

    Args:
        on_asked: called at the first signal.
    """

    def __init__(self, on_asked: Callable[[], None] = lambda: None) -> None:
        self._on_asked = on_asked
        self._asked = threading.Event()
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def is_asked(self) -> bool:
        """Whether the job is to stop."""
        return self._asked.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for so long, or until the job is to stop; returns whether it is."""
        return self._asked.wait(timeout_s)

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the signature of a handler
        if self._asked.is_set():
            raise KeyboardInterrupt
        self._asked.set()
        self._on_asked()
