"""What stands on either side of a connection: the handler of its frames, and the server that owns it."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from exactlog.network.limits import NetworkLimits
from exactlog.network.network_metrics import NetworkMetrics
from exactlog.network.reply import Reply

if TYPE_CHECKING:
    from exactlog.network.connection import Connection


class Peer(NamedTuple):
    """The other end."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class FrameHandler(Protocol):
    """What a server does with its frames. All calls come from the event loop's thread.

    An exception that leaves a method closes that connection alone; it is logged and counted.
    """

    def connection_opened(self, connection: "Connection") -> None:
        """A peer has connected."""

    def frame_received(self, connection: "Connection", frame: bytearray, reply: "Reply") -> None:
        """A frame has arrived, here without its size.

        It belongs to the handler and nobody else writes to it; until this call returns it cannot change its length.
        """

    def connection_closed(self, connection: "Connection") -> None:
        """The connection is gone, for whatever reason; replies still to come are ignored. Called once."""


class ConnectionOwner(Protocol):
    """What a connection needs from its server."""

    @property
    def handler(self) -> FrameHandler: ...
    @property
    def limits(self) -> NetworkLimits: ...
    @property
    def metrics(self) -> NetworkMetrics: ...
    @property
    def receive_buffer(self) -> memoryview: ...
    @property
    def is_vectored(self) -> bool: ...
    @property
    def is_reading_paused(self) -> bool: ...

    def admit(self, connection: "Connection") -> bool:
        """Whether the connection may stay."""

    def forget(self, connection: "Connection", reason: str) -> None:
        """The connection is gone."""

    def schedule(self, connection: "Connection") -> None:
        """Call `take_turn` in the next turn of the loop."""

    def note_paused(self, connection: "Connection") -> None:
        """The connection waits for `resume_reading` of the server."""

    def note_unwritten(self, connection: "Connection") -> None:
        """The transport holds bytes that the peer has not taken."""

    def note_closing(self, connection: "Connection") -> None:
        """The connection has sent its last answer and waits for the peer to take it."""
