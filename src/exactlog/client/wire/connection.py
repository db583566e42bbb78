"""One connection to one broker: requests are pipelined, and answers matched to them by correlation id."""

import asyncio
import contextlib
import os
import socket
import struct
from typing import Final, Self, TypeVar

from exactlog import __version__
from exactlog.client.ports import ClientSettings
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.broker_versions import BrokerVersions, served_versions
from exactlog.client.wire.refusals import check
from exactlog.core.codec.message_codec import decode
from exactlog.core.codec.message_schema import Message
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, InvariantError, UnavailableError
from exactlog.core.model.limits import FRAME_BYTES_MAX
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.framing import FRAME_SIZE, frame_request
from exactlog.core.protocol.headers import RequestHeader, decode_response_header, response_header_version
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

Response = TypeVar("Response", bound=Message)

_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_CORRELATION_ID_MAX: Final = 2**31 - 1
_API_VERSIONS_VERSION: Final = 4  # the first that shows features whose lowest level is 0 (KAFKA-17011)


class WireConnection:
    """A socket to a broker. A request that is given up closes it: what is still to come would answer nobody.

    Attributes:
        address: of the broker.
        versions: what the broker serves.
    """

    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.address = address
        self.versions = BrokerVersions(str(address), {})
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlation_id = 0
        self._lost: str | None = None  # why
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def open(cls, address: Address, settings: ClientSettings) -> Self:
        """Connect and learn which versions the broker serves.

        Raises:
            UnavailableError: nobody listens, or nobody answers in time.
        """
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError as error:
            raise UnavailableError(f"{address}: no connection within {settings.connect_timeout_ms} ms") from error
        except OSError as error:
            raise UnavailableError(
                f"{address}: {_reason(error)}",
                hint="is a broker running there? `exactlog serve` starts one; --bootstrap names another",
            ) from error
        connection = cls(address, settings, reader, writer)
        try:
            await connection._negotiate()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_closed(self) -> bool:
        """Whether the connection is of no more use."""
        return self._lost is not None

    async def request(
        self, request: Message, response: type[Response], *, version: int, timeout_ms: int | None = None
    ) -> Response:
        """Send a request and wait for its answer.

        Args:
            request: what to send.
            response: what its answer is.
            version: of both.
            timeout_ms: for the answer; None is that of the settings.

        Raises:
            UnavailableError: the connection was lost, or the answer did not come in time. The broker may have carried
                the request out.
            DecodeError: the answer is malformed.
        """
        frame = await self._exchange(request, version=version, timeout_ms=timeout_ms)
        return self._decode(response, frame, version=version)

    async def send_unanswered(self, request: Message, *, version: int) -> None:
        """Send a request that gets no answer (Produce with acks=0).

        Raises:
            UnavailableError: the connection was lost.
        """
        self._write(request, version=version)
        await self._drain()

    def give_up(self) -> None:
        """Close the socket without waiting for it; whoever waits for an answer gets an `UnavailableError`."""
        self._fail("closed by the client")
        self._receiving.cancel()

    async def close(self) -> None:
        """Close the socket; whoever waits for an answer gets an `UnavailableError`."""
        self.give_up()
        with contextlib.suppress(asyncio.CancelledError):
            await self._receiving
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # -----------------------------------------------------------------------------------------------------------

    async def _negotiate(self) -> None:
        """Ask for the versions. A broker that does not know ours answers in version 0 what it knows (KIP-511)."""
        version = _API_VERSIONS_VERSION
        frame = await self._exchange(_api_versions_request(), version=version)
        if _begins_with_unsupported_version(frame):
            refused = self._decode(ApiVersionsResponse, frame, version=0)
            known = served_versions(str(self.address), refused).served.get(ApiKey.API_VERSIONS)
            version = min(version, known.highest) if known else 0
            frame = await self._exchange(_api_versions_request(), version=version)
        answer = self._decode(ApiVersionsResponse, frame, version=version)
        check(answer.error_code, f"{self.address}: ask for API versions")
        self.versions = served_versions(str(self.address), answer)

    async def _exchange(self, request: Message, *, version: int, timeout_ms: int | None = None) -> bytes:
        correlation_id = self._write(request, version=version)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_look_at)
        self._waiting[correlation_id] = answer
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._drain()
                return await answer
        except TimeoutError as error:
            name = APIS[request.api_key].name
            self._fail(f"no answer to {name} within {timeout_ms} ms")
            raise UnavailableError(f"{self.address}: no answer to {name} within {timeout_ms} ms") from error
        except asyncio.CancelledError:
            self._fail("a request was given up")
            raise

    def _write(self, request: Message, *, version: int) -> int:
        if self._lost is not None:
            raise self._lost_error()
        self._correlation_id = self._correlation_id + 1 if self._correlation_id < _CORRELATION_ID_MAX else 1
        if self._correlation_id in self._waiting:
            raise InvariantError(f"{self.address}: correlation id {self._correlation_id} is still waited for")
        header = RequestHeader(
            api_key=request.api_key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._settings.client_id,
        )
        self._writer.writelines(frame_request(header, request))
        return self._correlation_id

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            self._fail(_reason(error))
            raise self._lost_error() from error

    def _decode(self, response: type[Response], frame: bytes, *, version: int) -> Response:
        header_version = response_header_version(response.api_key, version)
        try:
            _, position = decode_response_header(frame, header_version=header_version)
            return decode(response, version, frame, position)
        except DecodeError as error:
            name = APIS[response.api_key].name
            raise DecodeError(f"{self.address}: malformed answer to {name} version {version}: {error}") from error

    async def _receive(self) -> None:
        try:
            while True:
                (size,) = FRAME_SIZE.unpack(await self._reader.readexactly(FRAME_SIZE.size))
                if not _CORRELATION_ID.size <= size <= FRAME_BYTES_MAX:
                    self._fail(f"it sent a frame of {size} bytes; is it a Kafka broker?")
                    return
                frame = await self._reader.readexactly(size)
                (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
                answer = self._waiting.pop(correlation_id, None)
                if answer is None:
                    self._fail(f"it answered request {correlation_id}, which was not asked; is it a Kafka broker?")
                    return
                if not answer.done():
                    answer.set_result(frame)
        except asyncio.IncompleteReadError:
            self._fail("the broker closed the connection")
        except OSError as error:
            self._fail(_reason(error))
        finally:
            self._fail("nobody receives any more")

    def _fail(self, reason: str) -> None:
        """The connection is of no more use: tell everybody who waits."""
        if self._lost is not None:
            return
        self._lost = reason
        self._writer.close()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(self._lost_error())

    def _lost_error(self) -> UnavailableError:
        return UnavailableError(f"{self.address}: connection lost: {self._lost}")


def _api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="exactlog", client_software_version=__version__)


def _begins_with_unsupported_version(frame: bytes) -> bool:
    (error_code,) = _ERROR_CODE.unpack_from(frame, _CORRELATION_ID.size) if len(frame) >= 6 else (0,)
    return bool(error_code == ErrorCode.UNSUPPORTED_VERSION)


def _reason(error: OSError) -> str:
    """What went wrong, in the system's words; asyncio puts its own in their place."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _look_at(answer: asyncio.Future[bytes]) -> None:
    """Whoever waited may have failed on the way; the event loop need not complain that nobody looked."""
    if not answer.cancelled():
        answer.exception()
