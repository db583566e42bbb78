"""What a coordinator decides: records for its log, answers, timers. Nothing of it has happened yet.

A coordinator's `handle` functions look at its state and return a `Decision`; whoever runs the coordinator appends the
records, replays them, sets the timers, and sends the answers once everything that was decided before them is committed.
"""

from collections.abc import Hashable
from typing import Protocol

from msgspec import Struct

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId


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


class UnknownRecord(Struct, frozen=True):
    """A record of a kind that is not ours: kept for whoever knows it, and not looked into."""

    key: bytes
    value: bytes | None

    def encode_key(self) -> bytes:
        """The record's key."""
        return self.key

    def encode_value(self) -> bytes | None:
        """The record's value; None is a tombstone."""
        return self.value


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


class ProducerIdentity(Struct, frozen=True, gc=False):
    """A producer, as it stands in the batches of its transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Decision(Struct, frozen=True):
    """What is to be done, all of it or nothing.

    Attributes:
        records: for the log, in order.
        answers: what to tell once all that is decided by now is committed.
        timers: to be set and taken back.
        producer: the records are part of this producer's transaction; None: they count at once.
        told_at_once: what to tell as soon as this is carried out; who is told waits itself until that is committed.
        effects: what is to be done elsewhere once all that is decided by now is committed; never, if that fails.
    """

    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    producer: ProducerIdentity | None = None
    told_at_once: tuple[Answer, ...] = ()
    effects: tuple[Struct, ...] = ()


NOTHING = Decision()
