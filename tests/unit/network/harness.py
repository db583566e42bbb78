"""A served toy handler and peers of it on real sockets."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable

from exactlog.core.model.metrics import Registry
from exactlog.network import Connection, NetworkLimits, Reply, TcpServer


class ManualClock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.time_ms = 1_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


def echo(connection: Connection, frame: bytearray, reply: Reply) -> None:
    reply.send([frame])


class ToyHandler:
    """Remembers what it was told and leaves the answering to a function."""

    def __init__(self, on_frame: Callable[[Connection, bytearray, Reply], None] = echo) -> None:
        self.on_frame = on_frame
        self.opened: list[Connection] = []
        self.closed: list[Connection] = []
        self.frames: list[bytes] = []
        self.replies: list[Reply] = []
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future]] = []

    def connection_opened(self, connection: Connection) -> None:
        self.opened.append(connection)
        self._look()

    def frames_handled(self, connection: Connection) -> None:
        """Nothing waits for the end of a read here."""

    def frame_received(self, connection: Connection, frame: bytearray, reply: Reply) -> None:
        self.frames.append(bytes(frame))
        self.replies.append(reply)
        self.on_frame(connection, frame, reply)
        self._look()

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)
        self._look()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that follows from an opened or closed connection or a received frame."""
        if not condition():
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.append((condition, watcher))
            await watcher

    def _look(self) -> None:
        for condition, watcher in self._watchers:
            if not watcher.done() and condition():
                watcher.set_result(None)


def answer_later(connection: Connection, frame: bytearray, reply: Reply) -> None:
    """The test answers, through `ToyHandler.replies`."""


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


class ToyPeer:
    """A client that sends bytes and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(framed(*frames))

    def send_raw(self, raw: bytes) -> None:
        """Send, unless the server has hung up already."""
        if not self.writer.transport.is_closing():
            self.writer.write(raw)

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return await self.receive()

    async def until_closed(self) -> bytes:
        """Whatever still comes before the server closes, politely or not."""
        try:
            return await self.reader.read()
        except OSError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def half_close(self) -> None:
        """Say that nothing more comes, unless the server has hung up already."""
        if not self.writer.transport.is_closing():
            with contextlib.suppress(OSError):
                self.writer.write_eof()

    def reset(self) -> None:
        """Vanish without a goodbye."""
        self.writer.transport.abort()


class Served:
    """A running server with its handler, clock, metrics and peers."""

    def __init__(self, handler: ToyHandler, limits: NetworkLimits) -> None:
        self.handler = handler
        self.clock = ManualClock()
        self.registry = Registry()
        self.server = TcpServer(handler, limits, self.registry, self.clock)
        self.address = ("", 0)
        self._peers: list[ToyPeer] = []

    async def connect(self, *, receive_buffer_bytes: int | None = None) -> ToyPeer:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.address)
        except OSError:
            sock.close()
            raise
        peer = ToyPeer(*await asyncio.open_connection(sock=sock))
        self._peers.append(peer)
        return peer

    async def settle(self, peer: ToyPeer) -> None:
        """Let the server handle what other peers have sent: a few round trips of `peer`, whose frames are echoed."""
        for _ in range(3):
            assert await peer.ask(b"settle") == b"settle"

    def another_server(self) -> TcpServer:
        """A second server, not started, with the same handler."""
        return TcpServer(self.handler, NetworkLimits(), Registry(), self.clock)

    def metric(self, name: str) -> float:
        return self.registry.snapshot().get(f"kafka_server_socket_server_metrics_{name}", 0)

    async def close(self) -> None:
        await self.server.stop(drain_ms=0)
        assert self.server.connection_count == 0
        for peer in self._peers:
            await peer.close()


@contextlib.asynccontextmanager
async def serving(
    on_frame: Callable[[Connection, bytearray, Reply], None] = echo, **limits: int
) -> AsyncIterator[Served]:
    """A server on a free port; at the end everything is closed."""
    served = Served(ToyHandler(on_frame), NetworkLimits(**limits))
    served.address = await served.server.start("127.0.0.1", 0)
    try:
        yield served
    finally:
        await served.close()
