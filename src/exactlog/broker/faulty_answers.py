"""The places of answers that go wrong on purpose: each stands in front of the real one and passes on something else."""

from collections.abc import Callable, Sequence
from typing import Final

from exactlog.broker.request_context import AnswerSlot
from exactlog.broker.services import BrokerServices
from exactlog.core.codec.wire_types import Buffer
from exactlog.network import Connection

CLOSED_BY_FAULT: Final = "ordered-fault"
"""Why a connection is closed that a fault closes."""


class NoAnswer:
    """The connection ends when the answer is given."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, parts: Sequence[Buffer]) -> None:  # noqa: ARG002  they do not leave
        """Closes the connection."""
        self.skip()

    def skip(self) -> None:
        """Closes the connection."""
        self._connection.close(CLOSED_BY_FAULT)


class OtherAnswer(NoAnswer):
    """Another answer leaves than the one given. Where none was to leave (acks=0) the connection ends, as in Kafka."""

    def __init__(self, connection: Connection, send_other: Callable[[], None]) -> None:
        super().__init__(connection)
        self._send_other = send_other

    def send(self, parts: Sequence[Buffer]) -> None:  # noqa: ARG002  others leave
        """Sends the other answer."""
        self._send_other()


class LateAnswer:
    """The answer leaves at some time by the broker's clock, however soon it was given, or when it is let go."""

    def __init__(
        self,
        slot: AnswerSlot,
        broker: BrokerServices,
        *,
        delay_ms: int,
        when_gone: Callable[["LateAnswer"], object],
    ) -> None:
        self._slot = slot
        self._broker = broker
        self._due_ms = broker.clock.monotonic_ms() + delay_ms
        self._when_gone = when_gone
        self._leave: Callable[[], None] | None = None

    def send(self, parts: Sequence[Buffer]) -> None:
        """Sends the answer when it is due."""
        self._leave_when_due(lambda: self._slot.send(parts))

    def skip(self) -> None:
        """Says when it is due that there is no answer."""
        self._leave_when_due(self._slot.skip)

    def let_go(self) -> None:
        """Waits no longer."""
        self._due_ms = 0
        if self._leave is not None:
            self._leave_when_due(self._leave)

    def _leave_when_due(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        left_ms = self._due_ms - self._broker.clock.monotonic_ms()
        if left_ms > 0:
            self._broker.timers.set(self, left_ms, self._go)
        else:
            self._broker.timers.cancel(self)
            self._go()

    def _go(self) -> None:
        self._when_gone(self)
        if self._leave is not None:
            self._leave()
