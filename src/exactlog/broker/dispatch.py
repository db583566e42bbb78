"""From a frame to a handler and back: header, version, body, answer.

What cannot be understood closes its connection, as in Kafka: an unknown API, an unknown version, a malformed header or
body. The one exception is ApiVersions, whose unknown versions are answered so that any client finds out what to use.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine

from msgspec import Struct

from exactlog.broker.answer_faults import AnswerFaults, Call
from exactlog.broker.api_table import ADVERTISED_VERSIONS, API_TABLE, Answer, Handler
from exactlog.broker.apis.api_versions import refuse_version
from exactlog.broker.request_context import AnswerForm, AnswerSlot, RequestContext, abandon_requests
from exactlog.broker.services import BrokerServices
from exactlog.core.codec.message_codec import decoder, encode, encoder
from exactlog.core.codec.message_schema import Message, holds_records
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.limits import REQUEST_WITHOUT_RECORDS_BYTES_MAX
from exactlog.core.model.metrics import Counter
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.headers import (
    RESPONSE_HEADERS,
    RequestHeader,
    decode_request_header,
    encode_response_header,
    response_header_version,
)
from exactlog.network import Connection, Reply

_logger = logging.getLogger(__name__)

STOP_WAIT_S = 10.0
"""How long a broker that stops waits for requests whose connections have ended already."""


class _Route(Struct, frozen=True):
    """What is needed to carry out requests of one API in one version."""

    decode: Callable[[Buffer, int], tuple[Message, int]]
    handler: Handler
    answer_form: AnswerForm
    requests: Counter
    bytes_max: int


class Dispatcher:
    """Handles the frames of all connections of one broker; with `faults`, some of them wrongly, as ordered."""

    def __init__(self, broker: BrokerServices, faults: AnswerFaults | None = None) -> None:
        self._broker = broker
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()
        self._routes: dict[tuple[int, int], _Route] = {}  # filled when first used: decoders are compiled then

    def connection_opened(self, connection: Connection) -> None:
        """A client has connected; nothing is kept of it until it asks something."""

    def connection_closed(self, connection: Connection) -> None:
        """A client is gone, and so is whatever waits for something on its behalf."""
        abandon_requests(connection)

    def frames_handled(self, connection: Connection) -> None:
        """A read is over: what it brought can be made good together."""
        self._broker.rounds.release(connection.id)

    def frame_received(self, connection: Connection, frame: bytearray, reply: Reply) -> None:
        """Carries out one request."""
        self._broker.rounds.hold()
        try:
            header, body = decode_request_header(frame)
            route = self._routes.get((header.api_key, header.api_version)) or self._find_route(header)
            if route is None:
                head = encode_response_header(header.correlation_id, header_version=0)
                reply.send([head, *encode(refuse_version(ADVERTISED_VERSIONS), 0)])
                return
            if len(frame) > route.bytes_max:
                raise DecodeError(f"{len(frame)} bytes are too many for a request without records")
            request, _ = route.decode(frame, body)
        except DecodeError as error:
            _logger.info("%s: the connection is closed: %s", connection.peer, error)
            connection.close("malformed-request")
            return
        route.requests.value += 1
        slot: AnswerSlot = reply
        if self._faults is not None and self._faults.orders:
            form = route.answer_form
            met = self._faults.meet(Call(header, request, reply, form, connection, self._broker))
            if met is None:
                return
            slot = met
        context = RequestContext(self._broker, connection, header, slot, route.answer_form)
        answer = route.handler(request, context)
        if isinstance(answer, Message):
            context.answer(answer)
        elif answer is not None:
            connection.hold()
            task = asyncio.get_running_loop().create_task(self._finish(answer, context, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _find_route(self, header: RequestHeader) -> _Route | None:
        """The way of a request; None for a version of ApiVersions that is not known.

        Raises:
            DecodeError: the API, or this version of it, is not served.
        """
        api = API_TABLE.get(header.api_key)
        if api is None or header.api_version not in APIS[header.api_key].versions:
            if header.api_key == ApiKey.API_VERSIONS:
                return None
            raise DecodeError(f"API {header.api_key} version {header.api_version} is not served")
        request = APIS[header.api_key].request
        route = _Route(
            decoder(request, header.api_version),
            api.handler,
            AnswerForm(
                encoder(APIS[header.api_key].response, header.api_version),
                RESPONSE_HEADERS[response_header_version(header.api_key, header.api_version)],
            ),
            self._broker.metrics.counter("exactlog_requests_total", "Requests by API.", labels={"api": api.name}),
            sys.maxsize if holds_records(request) else REQUEST_WITHOUT_RECORDS_BYTES_MAX,
        )
        self._routes[header.api_key, header.api_version] = route
        return route

    async def _finish(
        self, handling: Coroutine[None, None, Answer], context: RequestContext, connection: Connection
    ) -> None:
        """Carries a request out that has to wait for something; later ones of its connection wait for it."""
        try:
            answer = await handling
            if answer is not None:
                context.answer(answer)
        except Exception:  # the loop would swallow it; nobody else is hurt
            _logger.exception("%s: API %d failed; the connection is closed", connection.peer, context.api_key)
            connection.close("handler-error")
        finally:
            connection.release()

    async def stop(self) -> None:
        """Waits for the requests that are being carried out, and gives up those that do not end: nobody is there."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_WAIT_S)
        for task in tuple(self._tasks):
            _logger.error("a request is given up, it waits at %s", _place_of(task))
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _place_of(task: asyncio.Task[None]) -> str:
    """Where a request waits: which function awaits which."""
    awaited: object = task.get_coro()
    places = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        awaited = getattr(awaited, "cr_await", None)
    return " > ".join(places)
