"""One connection: frames in, answers out in the order of their frames, and every bound on both.

The handler is called synchronously, frame by frame; it answers at once or later, through the frame's `Reply`. Answers
wait in a queue until every earlier one has left. Those that are ready when a read has been handled leave in one write,
and so do those that become ready later within one turn of the event loop.

Reading pauses while any of a few reasons holds (the bits below). What was received by then waits, not looked at.
"""

import asyncio
import logging
from collections import deque
from typing import Any, Final, NamedTuple, Protocol, cast

from exactlog.network.frames import FrameReceiver, FrameSizeError
from exactlog.network.limits import NetworkLimits
from exactlog.network.network_metrics import NetworkMetrics
from exactlog.network.outgoing import Part, write_parts
from exactlog.network.reply import SIZE, SKIPPED, Reply

_logger = logging.getLogger(__name__)

# Why nothing is read. Plain integers: they are looked at for every frame.
_HELD: Final = 1  # by the handler
_IN_FLIGHT: Final = 2  # too many frames without an answer
_WAITING_BYTES: Final = 4  # too many bytes of answers that wait for an earlier answer
_UNWRITTEN_BYTES: Final = 8  # too many bytes that the peer does not take
_SERVER_WIDE: Final = 16
_DRAINING: Final = 32  # for good: what is in flight is answered, then the connection closes
_CLOSING: Final = 64  # for good
_PARKED_BYTES: Final = 128  # too many bytes of requests that wait in the handler

_WRITE_AT_ONCE_BYTES: Final = 1024 * 1024  # so many bytes are not collected any further
_HANDLER_FAILED: Final = "connection %d from %s closed: its handler failed"


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

    def frame_received(self, connection: "Connection", frame: bytearray, reply: Reply) -> None:
        """A frame has arrived, here without its size.

        It belongs to the handler and nobody else writes to it; until this call returns it cannot change its length.
        """

    def frames_handled(self, connection: "Connection") -> None:
        """All frames of one read have been handed out: what is answered until this returns leaves in one write."""

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


class Connection(asyncio.BufferedProtocol):
    """A connection as the handler sees it; the rest is for the event loop and for the server.

    Attributes:
        id: a number of its own within the server.
        peer: the other end.
        session: for the handler, to keep what belongs to this connection.
    """

    # BufferedProtocol alone as a base: with Protocol beside it uvloop would call data_received.
    __slots__ = (
        "_has_read",
        "_has_turn",
        "_is_admitted",
        "_is_parsing",
        "_is_reading",
        "_outgoing",
        "_outgoing_bytes",
        "_owner",
        "_parked_bytes",
        "_pauses",
        "_quiet_since_ms",
        "_reason",
        "_receiver",
        "_replies",
        "_transport",
        "_unsent_bytes",
        "_unsent_bytes_max",
        "_unwritten_bytes",
        "id",
        "is_noted_unwritten",
        "peer",
        "session",
    )

    def __init__(self, owner: ConnectionOwner, connection_id: int, *, now_ms: int) -> None:
        self.id = connection_id
        self.peer = Peer("", 0)
        self.session: Any = None
        self.is_noted_unwritten = False  # the server's mark
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._receiver = FrameReceiver(owner.receive_buffer, frame_bytes_max=owner.limits.frame_bytes_max)
        self._replies: deque[Reply] = deque()  # one for each frame whose answer has not been collected, oldest first
        self._outgoing: list[Part] = []  # collected answers, to be written together
        self._outgoing_bytes = 0
        self._unsent_bytes = 0  # of answers given, not yet with the transport
        self._unsent_bytes_max = min(_WRITE_AT_ONCE_BYTES, owner.limits.pending_bytes_max)  # then something is done
        self._unwritten_bytes = 0  # with the transport, at the last look
        self._parked_bytes = 0
        self._pauses = 0
        self._reason = ""  # why it closes
        self._is_admitted = False
        self._is_reading = True
        self._is_parsing = False
        self._has_turn = False
        self._has_read = False  # since the last look
        self._quiet_since_ms = now_ms

    # --- for the handler -------------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """Whether the end has begun: nothing more is read and answers are ignored."""
        return bool(self._pauses & _CLOSING)

    @property
    def pending_bytes(self) -> int:
        """Bytes of answers that the peer has not taken."""
        return self._unsent_bytes + (self._transport.get_write_buffer_size() if self._transport else 0)

    def hold(self) -> None:
        """Hand out no further frame until `release`. Holding twice counts as once."""
        self._pause(_HELD)

    def release(self) -> None:
        """Undo `hold`: frames that waited are handed out in the next turn of the event loop."""
        self._unpause(_HELD)

    def park(self, byte_count: int) -> None:
        """A request of so many bytes waits in the handler, until `unpark`: with too many nothing more is read."""
        self._parked_bytes += byte_count
        if self._parked_bytes > self._owner.limits.pending_bytes_max:
            self._pause(_PARKED_BYTES)

    def unpark(self, byte_count: int) -> None:
        """Undo `park`, with as many bytes."""
        self._parked_bytes -= byte_count
        if self._parked_bytes <= self._owner.limits.pending_bytes_max // 2:
            self._unpause(_PARKED_BYTES)

    def close(self, reason: str) -> None:
        """Send the answers that are ready and whose turn it is, then close. Every other frame stays unanswered.

        Args:
            reason: few, constant, in kebab case: it becomes a label of a metric.
        """
        if self._transport is None or self.is_closing:
            return
        self._collect()
        self._write()
        self._end(reason)
        self._owner.note_closing(self)
        self._transport.close()

    def abort(self, reason: str = "aborted") -> None:
        """Close at once; what has not left does not leave."""
        if self._transport is None:
            return
        if not self.is_closing:
            self._end(reason)
        self._transport.abort()

    # --- for Reply -------------------------------------------------------------------------------------------

    def answered(self, size: int) -> None:
        """A frame of this connection has its answer, of so many bytes."""
        self._unsent_bytes += size + SIZE.size
        if not (self._has_turn or self._is_parsing) and self._replies and self._replies[0].parts is not None:
            self._schedule()
        if self._unsent_bytes >= self._unsent_bytes_max:
            self._relieve()

    # --- for the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        transport = cast("asyncio.Transport", transport)  # uvloop's has the methods, not the base class
        self._transport = transport
        self.peer = Peer(*(transport.get_extra_info("peername") or ("unknown", 0))[:2])
        if not self._owner.admit(self):
            return
        self._is_admitted = True
        bytes_max = self._owner.limits.pending_bytes_max
        transport.set_write_buffer_limits(high=bytes_max, low=bytes_max // 2)
        try:
            self._owner.handler.connection_opened(self)
        except Exception:
            _logger.exception(_HANDLER_FAILED, self.id, self.peer)
            self._fail()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  the loop's own wish is no better than ours
        """Where to receive to."""
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._pauses & _CLOSING:
            return
        self._has_read = True
        self._owner.metrics.bytes_received.value += nbytes
        self._receiver.advance(nbytes)
        self._handle_frames()

    def eof_received(self) -> None:
        """The peer will send no more: no client half-closes, so it is gone."""
        self.close("closed-by-peer")

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if not self.is_closing:
            self._end("closed-by-peer" if exc is None else "lost")
        self._transport = None
        if not self._is_admitted:
            return
        _logger.debug("connection %d from %s closed: %s", self.id, self.peer, self._reason)
        self._owner.forget(self, self._reason)
        try:
            self._owner.handler.connection_closed(self)
        except Exception:
            _logger.exception(_HANDLER_FAILED, self.id, self.peer)
            self._fail()

    def pause_writing(self) -> None:
        """The peer does not take what we send."""
        self._pause(_UNWRITTEN_BYTES)

    def resume_writing(self) -> None:
        """The peer has taken half of it."""
        self._unpause(_UNWRITTEN_BYTES)

    # --- for the server --------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Write what has become ready, then take up reading again if nothing stands against it."""
        self._has_turn = False
        self._flush()
        if self._owner.is_reading_paused:
            self._pause_server_wide()
        if not self._pauses and not self._is_reading and self._handle_frames() and not self._pauses:
            self._resume_reading()

    def resume_server_wide(self) -> None:
        """The server reads again."""
        self._unpause(_SERVER_WIDE)

    def drain(self) -> None:
        """Handle nothing more; close as soon as every frame handed out has its answer."""
        self._pause(_DRAINING)
        self._flush()

    def expire(self, *, now_ms: int) -> None:
        """Close the connection if its peer has sent and taken nothing for too long while nothing is owed to it."""
        if self._transport is None or self.is_closing:
            return
        unwritten_bytes = self._transport.get_write_buffer_size()
        is_owed = bool(self._replies) or bool(self._pauses & (_HELD | _SERVER_WIDE))
        if self._has_read or is_owed or unwritten_bytes < self._unwritten_bytes:
            self._quiet_since_ms = now_ms
        self._has_read = False
        self._unwritten_bytes = unwritten_bytes
        if now_ms - self._quiet_since_ms < self._owner.limits.idle_ms_max:
            return
        if unwritten_bytes:
            self.abort("idle")
        else:
            self.close("idle")

    # -----------------------------------------------------------------------------------------------------------

    def _handle_frames(self) -> bool:
        """Hand out whole frames, then write what is ready. Gives whether every whole frame was handed out."""
        owner, replies, next_frame = self._owner, self._replies, self._receiver.next_frame
        frames_max = owner.limits.requests_in_flight_max
        has_stopped = True
        self._is_parsing = True
        try:
            while not self._pauses:
                frame = next_frame()
                if frame is None:
                    has_stopped = False
                    break
                owner.metrics.frames_received.value += 1
                reply = Reply(self)
                replies.append(reply)
                owner.handler.frame_received(self, frame, reply)
                if len(replies) >= frames_max:
                    self._check_in_flight()
        except FrameSizeError as error:
            self._refuse(error)
        except Exception:
            _logger.exception(_HANDLER_FAILED, self.id, self.peer)
            self._fail()
        self._end_read()
        self._is_parsing = False
        self._flush()
        if has_stopped:
            self._receiver.put_aside()
            self._stop_reading()
        if owner.is_reading_paused:
            self._pause_server_wide()
        return not has_stopped

    def _end_read(self) -> None:
        try:
            self._owner.handler.frames_handled(self)
        except Exception:
            _logger.exception(_HANDLER_FAILED, self.id, self.peer)
            self._fail()

    def _check_in_flight(self) -> None:
        self._collect()
        if len(self._replies) >= self._owner.limits.requests_in_flight_max:
            self._pauses |= _IN_FLIGHT

    def _relieve(self) -> None:
        """Much waits to be written: write what may leave, and read on only if that was enough."""
        if not self._pauses & _CLOSING:
            self._collect()
            self._write()
            if self._unsent_bytes > self._owner.limits.pending_bytes_max:
                self._pause(_WAITING_BYTES)

    def _refuse(self, error: FrameSizeError) -> None:
        level = logging.DEBUG if error.foreign_protocol else logging.WARNING
        _logger.log(level, "connection %d from %s closed: %s", self.id, self.peer, error)
        self.close("frame-size")

    def _fail(self) -> None:
        self._owner.metrics.handler_errors.inc()
        self.close("handler-error")

    def _collect(self) -> None:
        """Take the answers whose turn it is out of the queue."""
        replies, outgoing = self._replies, self._outgoing
        while replies:
            reply = replies[0]
            parts = reply.parts
            if parts is None:
                break
            replies.popleft()
            size = reply.size
            if size != SKIPPED:
                outgoing.append(SIZE.pack(size))
                outgoing += parts
                self._outgoing_bytes += size + SIZE.size
                self._owner.metrics.answers_sent.value += 1

    def _write(self) -> None:
        transport, parts, byte_count = self._transport, self._outgoing, self._outgoing_bytes
        if not parts or transport is None:
            return
        self._outgoing = []
        self._outgoing_bytes = 0
        self._unsent_bytes -= byte_count
        if transport.is_closing():
            return
        write_parts(transport, parts, byte_count=byte_count, is_vectored=self._owner.is_vectored)
        self._owner.metrics.bytes_sent.value += byte_count
        if not self.is_noted_unwritten:
            self._owner.note_unwritten(self)

    def _flush(self) -> None:
        """Write what is ready; then see which reasons to pause have gone."""
        self._collect()
        self._write()
        pauses = self._pauses
        if not pauses or pauses & _CLOSING:
            return
        if pauses & _DRAINING:
            if not self._replies:
                self._say_goodbye()
            return
        limits = self._owner.limits
        if pauses & _IN_FLIGHT and len(self._replies) <= limits.requests_in_flight_max // 2:
            self._unpause(_IN_FLIGHT)
        if pauses & _WAITING_BYTES and self._unsent_bytes <= limits.pending_bytes_max // 2:
            self._unpause(_WAITING_BYTES)

    def _pause(self, reason: int) -> None:
        self._pauses |= reason
        if not self._is_parsing:
            self._stop_reading()

    def _pause_server_wide(self) -> None:
        if not self._pauses & (_SERVER_WIDE | _CLOSING):
            self._owner.note_paused(self)
            self._pause(_SERVER_WIDE)

    def _unpause(self, reason: int) -> None:
        if self._pauses & reason:
            self._pauses &= ~reason
            if not self._pauses:
                self._schedule()

    def _stop_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._owner.metrics.reading_paused.inc()
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _schedule(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._owner.schedule(self)

    def _say_goodbye(self) -> None:
        """End our half and take what still comes until the peer ends its own.

        To close with bytes unread would reset the connection, and a reset destroys answers the peer has not read.
        """
        self._end("shutdown")
        self._owner.note_closing(self)
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError:  # the peer has reset it, and the loop has not told us yet
            self._transport.abort()
        else:
            self._resume_reading()

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._pauses |= _CLOSING
        self._replies.clear()
        self._receiver.clear()
