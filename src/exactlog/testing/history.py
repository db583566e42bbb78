"""Writing a history while it happens, and reading it: requests and their outcomes put together.

    with Recorder(path) as recorder:
        op = recorder.request(Send(op=recorder.next_op(), worker="w", topic="t", partition=0, values=("1",)))
        ...
        recorder.outcome(Sent(op=op, base_offset=0))

What a history is, line by line: `exactlog.testing.history_format`. What can be found in it: `exactlog.testing.check`.
"""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec

from exactlog.testing.history_format import (
    FORMAT,
    OUTCOMES,
    Begin,
    Event,
    Failed,
    Header,
    HistoryError,
    Note,
    Outcome,
    Request,
    Unknown,
    decode_event,
    encode_event,
)

__all__ = ["NEVER", "HistoryError", "Operation", "Recorder", "load"]

NEVER: Final = 2**62
"""The line of what did not happen within the history: behind all of them."""


class Recorder:
    """Writes a history. Any thread may; a line is in the file when the call returns."""

    def __init__(self, path: str | Path) -> None:
        """Begins a new history at `path`, whatever is there."""
        self._file = Path(path).open("wb", buffering=0)  # noqa: SIM115  closed by close
        self._writing = threading.Lock()
        self._ops = itertools.count(1)
        self._write(Header(format=FORMAT))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; requests without an outcome have an unknown one."""
        self._file.close()

    def next_op(self) -> int:
        """A number for a request."""
        return next(self._ops)

    def request(self, request: Request) -> int:
        """Record a request that is about to be sent; returns its number."""
        self._write(request)
        return request.op

    def outcome(self, outcome: Outcome) -> None:
        """Record what became of a request."""
        self._write(outcome)

    def begin(self, begin: Begin) -> None:
        """Record that a transaction begins."""
        self._write(begin)

    def note(self, text: str) -> None:
        """Record something that happened around it."""
        self._write(Note(text=text))

    def _write(self, event: Header | Event) -> None:
        line = encode_event(event)
        with self._writing:
            self._file.write(line)


class Operation(msgspec.Struct, frozen=True):
    """A request and what became of it.

    Attributes:
        request: as it was made.
        outcome: `Unknown` where the history has none.
        began: the line of the request, counted from 1.
        ended: the line of the outcome; `NEVER` where it is unknown, for it may still come to pass.
    """

    request: Request
    outcome: Outcome
    began: int
    ended: int

    @property
    def has_failed(self) -> bool:
        """Whether it certainly did nothing."""
        return isinstance(self.outcome, Failed)

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows if it did anything."""
        return isinstance(self.outcome, Unknown)

    @property
    def has_succeeded(self) -> bool:
        """Whether it certainly did what it should."""
        return not self.has_failed and not self.is_unknown


class Begun(msgspec.Struct, frozen=True):
    """A transaction begins at that line."""

    begin: Begin
    line: int


class History(msgspec.Struct, frozen=True):
    """All that happened, requests and beginnings in the order of their lines."""

    operations: tuple[Operation, ...]
    begun: tuple[Begun, ...]


def load(path: str | Path) -> History:
    """Read a history. A last line without its newline, as a crash of the writer leaves it, is passed over.

    Raises:
        HistoryError: the file is not a history, or contradicts itself.
        OSError: it cannot be read.
    """
    return join(_events(Path(path).read_bytes()))


def join(events: Iterator[tuple[int, Event]]) -> History:
    """Put requests and outcomes together; events come with their lines.

    Raises:
        HistoryError: an outcome without a request, a second one, or one of another kind; an op that is used twice.
    """
    requests: dict[int, tuple[int, Request]] = {}
    outcomes: dict[int, tuple[int, Outcome]] = {}
    begun: list[Begun] = []
    for line, event in events:
        if isinstance(event, Begin):
            begun.append(Begun(event, line))
        elif isinstance(event, Request):
            if requests.setdefault(event.op, (line, event)) != (line, event):
                raise HistoryError(f"line {line}: op {event.op} has been used in line {requests[event.op][0]}")
        elif isinstance(event, Outcome):
            _check_outcome(line, event, requests)
            if outcomes.setdefault(event.op, (line, event)) != (line, event):
                raise HistoryError(f"line {line}: op {event.op} has ended in line {outcomes[event.op][0]} already")
    operations = [
        _operation(request, began, *outcomes.get(op, (NEVER, Unknown(op=op))))
        for op, (began, request) in requests.items()
    ]
    return History(tuple(operations), tuple(begun))


def _operation(request: Request, began: int, ended: int, outcome: Outcome) -> Operation:
    return Operation(request, outcome, began, NEVER if isinstance(outcome, Unknown) else ended)


def _check_outcome(line: int, outcome: Outcome, requests: dict[int, tuple[int, Request]]) -> None:
    if outcome.op not in requests:
        raise HistoryError(f"line {line}: op {outcome.op} ends, but has not begun")
    request = requests[outcome.op][1]
    if not isinstance(outcome, (Failed, Unknown, OUTCOMES[type(request)])):
        raise HistoryError(f"line {line}: {type(request).__name__} cannot end as {type(outcome).__name__}")


def _events(content: bytes) -> Iterator[tuple[int, Event]]:
    lines = content.split(b"\n")[:-1]
    if not lines:
        raise HistoryError("the file is empty, or its first line is not whole")
    for number, line in enumerate(lines, start=1):
        event = decode_event(line, number=number)
        if (number == 1) != isinstance(event, Header):
            raise HistoryError(f"line {number}: a history has its header in line 1, and only there")
        if isinstance(event, Header):
            if event.format != FORMAT:
                raise HistoryError(f"line 1: format {event.format} is not known, {FORMAT} is")
        else:
            yield number, event
