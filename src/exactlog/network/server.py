"""The TCP server: it listens, keeps the set of connections, and holds them to their limits together."""

import asyncio
import errno
import itertools
import logging
import socket
from typing import Final

from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ExactlogError, InvariantError
from exactlog.core.model.limits import RECEIVE_BUFFER_BYTES, SHUTDOWN_LINGER_MS
from exactlog.core.model.metrics import Registry
from exactlog.network.connection import Connection, FrameHandler
from exactlog.network.limits import NetworkLimits
from exactlog.network.network_metrics import NetworkMetrics

_logger = logging.getLogger(__name__)

_LISTEN_BACKLOG: Final = 1024  # connections the kernel may queue while one turn of the loop runs
_SWEEP_INTERVAL_MS_MAX: Final = 5_000

_HINTS: Final = {
    errno.EADDRINUSE: "stop what listens there, or choose another port (0 takes a free one)",
    errno.EACCES: "choose a port from 1024 on, or 0 for a free one",
}


class ListenError(ExactlogError):
    """The address cannot be listened on."""

    code = "cannot-listen"


class TcpServer:
    """Serves frames to one handler on one address.

    It belongs to the event loop on which `start` ran and is started once. Nothing but `start` and `stop` waits.
    """

    def __init__(self, handler: FrameHandler, limits: NetworkLimits, metrics: Registry, clock: Clock) -> None:
        self.handler = handler
        self.limits = limits
        self.metrics = NetworkMetrics(
            metrics,
            read_connection_count=lambda: self.connection_count,
            read_pending_bytes=lambda: self.pending_bytes,
        )
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.is_vectored = False
        self.is_reading_paused = False
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: asyncio.AbstractServer | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._ids = itertools.count(1)
        self._connections: set[Connection] = set()
        self._all_answered = asyncio.Event()  # no connection is open but those that are closing
        self._all_closed = asyncio.Event()
        self._turns: list[Connection] = []
        self._paused: set[Connection] = set()
        self._unwritten: set[Connection] = set()
        self._closing: dict[Connection, int] = {}  # since when
        self._is_accepting = False
        self._is_full = False

    # --- for the broker --------------------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    @property
    def pending_bytes(self) -> int:
        """Bytes of answers that peers have not taken, over all connections."""
        total = 0
        for connection in tuple(self._unwritten):
            pending_bytes = connection.pending_bytes
            total += pending_bytes
            if not pending_bytes:
                self._unwritten.discard(connection)
                connection.is_noted_unwritten = False
        return total

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on one address and serve it; port 0 takes a free one. Gives the address listened on.

        A name with several addresses stands for its first IPv4 one; `::` takes IPv4 too where the system allows.

        Raises:
            ListenError: the address is taken, not this machine's, or not allowed.
        """
        if self._loop is not None:
            raise InvariantError("a server is started once")
        self._loop = asyncio.get_running_loop()
        # asyncio's own transports subclass this loop class; uvloop's writelines is vectored.
        self.is_vectored = not isinstance(self._loop, asyncio.BaseEventLoop)
        try:
            listening = await _bind(self._loop, host, port)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint=_HINTS.get(error.errno or 0, "choose an address of this machine, such as 127.0.0.1"),
            ) from error
        address = listening.getsockname()
        self._is_accepting = True
        self._listener = await self._loop.create_server(self._make_connection, sock=listening, backlog=_LISTEN_BACKLOG)
        self._schedule_sweep()
        return address[0], address[1]

    async def stop(self, *, drain_ms: int) -> None:
        """Accept nobody, handle nothing new, answer what is in flight, and end each connection after its last answer.

        A peer that has all its answers gets half a second more to close on its side; then it is dropped, as is, after
        `drain_ms`, what is not answered. After `abort` this waits until every connection is gone.
        """
        self._stop_accepting()
        for connection in tuple(self._connections):
            connection.drain()
        self._note_progress()
        if not await _passes_within(drain_ms, self._all_answered):
            unanswered = sum(not connection.is_closing for connection in self._connections)
            if unanswered:
                _logger.warning("%d connections dropped with requests in flight", unanswered)
        elif await _passes_within(min(drain_ms, SHUTDOWN_LINGER_MS), self._all_closed):
            return
        self._abort_all("shutdown")
        await self._all_closed.wait()

    def abort(self) -> None:
        """Drop every socket at once, without answers: what a killed process does.

        `connection_closed` follows in the next turn of the loop.
        """
        self._stop_accepting()
        self._abort_all("aborted")

    def pause_reading(self) -> None:
        """Read from nobody until `resume_reading`; a connection stops once it has handled what it has just read."""
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        self.is_reading_paused = False
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.resume_server_wide()

    def sweep(self) -> None:
        """Close idle connections, and those that linger. The server does it by itself every few seconds."""
        now_ms = self._clock.monotonic_ms()
        for connection in tuple(self._connections):
            connection.expire(now_ms=now_ms)
        for connection, since_ms in tuple(self._closing.items()):
            if now_ms - since_ms >= self.limits.close_linger_ms:
                connection.abort()

    # --- for connections -------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Whether the connection may stay; one too many is closed here."""
        if not self._is_accepting:
            connection.abort()
            return False
        if len(self._connections) >= self.limits.connections_max:
            if not self._is_full:
                _logger.warning("connections.max=%d reached: further ones are closed", self.limits.connections_max)
            self._is_full = True
            self.metrics.connections_closed("connections-max").inc()
            connection.abort()
            return False
        self._is_full = False
        self._connections.add(connection)
        self.metrics.connections_opened.inc()
        return True

    def forget(self, connection: Connection, reason: str) -> None:
        """The connection is gone."""
        self._closing.pop(connection, None)
        for connections in (self._connections, self._paused, self._unwritten):
            connections.discard(connection)
        self.metrics.connections_closed(reason).inc()
        self._note_progress()

    def schedule(self, connection: Connection) -> None:
        """Give the connection a turn soon: one callback of the loop serves all that ask before it runs."""
        assert self._loop is not None
        if not self._turns:
            self._loop.call_soon(self._take_turns)
        self._turns.append(connection)

    def note_paused(self, connection: Connection) -> None:
        """The connection waits for `resume_reading`."""
        self._paused.add(connection)

    def note_unwritten(self, connection: Connection) -> None:
        """The connection's transport may hold bytes, until `pending_bytes` finds that it holds none."""
        self._unwritten.add(connection)
        connection.is_noted_unwritten = True

    def note_closing(self, connection: Connection) -> None:
        """The connection may linger."""
        self._closing[connection] = self._clock.monotonic_ms()
        self._note_progress()

    # -----------------------------------------------------------------------------------------------------------

    def _make_connection(self) -> Connection:
        return Connection(self, next(self._ids), now_ms=self._clock.monotonic_ms())

    def _take_turns(self) -> None:
        turns, self._turns = self._turns, []
        for connection in turns:
            try:
                connection.take_turn()
            except Exception:
                _logger.exception("connection %d from %s aborted: internal error", connection.id, connection.peer)
                connection.abort("internal-error")

    def _schedule_sweep(self) -> None:
        assert self._loop is not None
        interval_ms = min(_SWEEP_INTERVAL_MS_MAX, self.limits.idle_ms_max / 4)
        self._sweep_timer = self._loop.call_later(interval_ms / 1000, self._sweep_by_timer)

    def _sweep_by_timer(self) -> None:
        self.sweep()
        self._schedule_sweep()

    def _stop_accepting(self) -> None:
        self._is_accepting = False
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _note_progress(self) -> None:
        """Tell `stop` how far it has come; until then there may always be another connection."""
        if not self._is_accepting and len(self._closing) == len(self._connections):
            self._all_answered.set()
            if not self._connections:
                self._all_closed.set()

    def _abort_all(self, reason: str) -> None:
        for connection in tuple(self._connections):
            connection.abort(reason)


async def _passes_within(timeout_ms: int, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(addresses, key=lambda found: found[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)  # noqa: FBT003  the signature is the standard library's
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening
