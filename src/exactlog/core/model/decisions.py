"""What a coordinator decides: records for its log, answers, timers. Nothing of it has happened yet.

A coordinator's `handle` functions look at its state and return a `Decision`; whoever runs the coordinator appends the
records, replays them, sets the timers, and sends the answers once everything that was decided before them is committed.
"""

from collections.abc import Hashable
from typing import Protocol

from msgspec import Struct

from exactlog.core.model.error_code import ErrorCode


class Waiter(Protocol):
    """Who waits for an answer. The rules only hand it on."""

    def answer(self, outcome: Struct) -> None:
        """Is called once with what came of the request."""

    def fail(self, error_code: ErrorCode) -> None:
        """Is called instead of `answer` when the coordinator cannot keep what it decided."""


class CoordinatorRecord(Protocol):
    """One record of a coordinator's log."""

    def encode_key(self) -> bytes:
        """The record's key, in Kafka's schema."""

    def encode_value(self) -> bytes | None:
        """The record's value; None says that the key is no more."""


class Answer(Struct, frozen=True):
    """What somebody is to be told."""

    waiter: Waiter
    outcome: Struct


class SetTimer(Struct, frozen=True):
    """Calls `time_out(key)` once, so long from now, instead of what the key was set to."""

    key: Hashable
    delay_ms: int


class CancelTimer(Struct, frozen=True):
    """Takes a timer back."""

    key: Hashable


class Decision(Struct, frozen=True):
    """What is to be done, all of it or nothing."""

    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()


NOTHING = Decision()
