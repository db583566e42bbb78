"""The broker of a workload behind a socket: plain requests, nothing retried, nothing hidden.

With transactions of version 2 it speaks the versions of Kafka 4.x, in which a transaction takes in by itself what is
written in it; with version 1 those of Kafka 3.x, which older clients use on any broker.
"""

import itertools
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from exactlog.core.codec.message_codec import decode, encode_bytes
from exactlog.core.codec.message_schema import Message
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.testing.workload_calls import (
    Answer,
    Call,
)
from exactlog.testing.workload_requests import Reply, coordinators_of, request_of

_TIMEOUT_S: Final = 30
_SIZE: Final = struct.Struct(">i")


class WireSystem:
    """A broker on this machine, as a `System`."""

    def __init__(
        self, address: Callable[[], tuple[str, int]], *, crash: Callable[[], None], transaction_version: int = 2
    ) -> None:
        """`address` is asked before each connection; `crash` lets the broker die and start again."""
        self.transaction_version = transaction_version
        self._address = address
        self._crash = crash
        self._sessions: list[WireSession] = []

    def create_topic(self, name: str, partition_count: int) -> None:
        """See `System`.

        Raises:
            KafkaError: as CreateTopics answers.
        """
        topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=_TIMEOUT_S * 1000)
        session = self.connect()
        body = session.ask(request, 7)
        session.drop()
        (created,) = decode(CreateTopicsResponse, 7, body).topics
        if created.error_code:
            raise KafkaError(ErrorCode(created.error_code), f"create topic {name}: {created.error_message}")

    def connect(self) -> "WireSession":
        """See `System`."""
        session = WireSession(self._address, transaction_version=self.transaction_version)
        self._sessions.append(session)
        return session

    def crash(self) -> None:
        """See `System`."""
        self._crash()

    def close(self) -> None:
        """See `System`."""
        for session in self._sessions:
            session.drop()


class WireSession:
    """A connection that is made when it is needed."""

    def __init__(self, address: Callable[[], tuple[str, int]], *, transaction_version: int) -> None:
        self._address = address
        self._version = transaction_version
        self._socket: socket.socket | None = None
        self._correlation_ids = itertools.count(1)
        self._reply: Reply | None = None
        self._asked = (0, 0)
        self._coordinators: set[tuple[int, str]] = set()

    def start(self, call: Call) -> None:
        """See `Session`."""
        with suppress(OSError):
            self._find_coordinator(call)
            request, version, reply = request_of(call, self._version)
            self._reply = reply
            self._send(request, version)

    def finish(self) -> Answer | None:
        """See `Session`."""
        reply, self._reply = self._reply, None
        if reply is None or self._socket is None:
            return None
        try:
            answer = reply(self._receive())
        except (OSError, EOFError):
            self.drop()
            return None
        if answer.error_code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self._coordinators.clear()
        return answer

    def drop(self) -> None:
        """See `Session`."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._reply = None, None

    def ask(self, request: Message, version: int) -> bytes:
        """The body of the response to a request.

        Raises:
            OSError: the connection broke.
            EOFError: the broker closed it.
        """
        self._send(request, version)
        return self._receive()

    def _find_coordinator(self, call: Call) -> None:
        """Asks for the coordinator of who is meant, which lets the broker make its topics; there is one broker."""
        for key in coordinators_of(call) - self._coordinators:
            with suppress(EOFError):
                self.ask(FindCoordinatorRequest(key_type=key[0], coordinator_keys=(key[1],)), 4)
                self._coordinators.add(key)

    def _send(self, request: Message, version: int) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address(), timeout=_TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        header = RequestHeader(
            api_key=request.api_key,
            api_version=version,
            correlation_id=next(self._correlation_ids),
            client_id="exactlog-workload",
        )
        frame = encode_request_header(header) + encode_bytes(request, version)
        self._asked = (request.api_key, version)
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        frame = self._exactly(size)
        _, body = decode_response_header(frame, header_version=response_header_version(*self._asked))
        return frame[body:]

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise EOFError
            received += part
        return bytes(received)
