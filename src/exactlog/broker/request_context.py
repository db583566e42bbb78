"""One request on its way through the broker: what its header said, and the way its answer takes."""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from exactlog.broker.services import BrokerServices
from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.authorization import Operation, Requester, ResourceType
from exactlog.core.protocol.headers import RequestHeader
from exactlog.network import Connection

_logger = logging.getLogger(__name__)

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that has not said who it is."""


class AnswerForm(Struct, frozen=True):
    """How the answers of one API in one version are written."""

    encode: Callable[[Message], list[Buffer]]
    header: struct.Struct
    """Packs the correlation id that stands before them."""


class AnswerSlot(Protocol):
    """Where an answer goes: the place of a frame's answer (`network.Reply`), or what stands in front of it."""

    def send(self, parts: Sequence[Buffer]) -> None:
        """Answers with these bytes."""

    def skip(self) -> None:
        """Gives no answer."""


class RequestContext:
    """What a handler knows of a request besides its body.

    A handler returns its response, or returns None and calls `answer` or `skip` later, exactly once.
    """

    __slots__ = ("_connection", "_correlation_id", "_form", "_reply", "api_key", "api_version", "broker", "client_id")

    def __init__(
        self, broker: BrokerServices, connection: Connection, header: RequestHeader, reply: AnswerSlot, form: AnswerForm
    ) -> None:
        self.broker = broker
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.client_id = header.client_id
        self._correlation_id = header.correlation_id
        self._connection = connection
        self._reply = reply
        self._form = form

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether who asks may do this; the authorizer decides."""
        if self.broker.allows_everything:
            return True
        requester = Requester(ANONYMOUS, self.client_host, self.client_id)
        return self.broker.authorizer.is_allowed(requester, operation, resource_type, name)

    @property
    def client_host(self) -> str:
        """The address the request comes from, without its port."""
        return self._connection.peer.host

    def answer(self, response: Message) -> None:
        """Sends the response, once all earlier requests of the connection have theirs."""
        form = self._form
        self._reply.send([form.header.pack(self._correlation_id), *form.encode(response)])

    def skip(self) -> None:
        """The request gets no response (Produce with acks=0)."""
        self._reply.skip()

    def park(self, byte_count: int) -> None:
        """So many bytes of the request wait for a coordinator; with too many the connection is read no further."""
        self._connection.park(byte_count)

    def unpark(self, byte_count: int) -> None:
        """They wait no longer."""
        self._connection.unpark(byte_count)

    def close(self, reason: str) -> None:
        """Closes the connection, for the cases in which Kafka does; the reason is a constant in kebab case."""
        self._connection.close(reason)

    def finish(self, work: Callable[[], None]) -> None:
        """Does what is left of a request that has waited, unless nobody waits for it any more.

        It runs in the middle of what ended the wait, often another client's request: should it fail, this connection
        alone is closed.
        """
        if self._connection.is_closing:
            return
        try:
            work()
        except Exception:  # what ended the wait must go on
            _logger.exception("%s: API %d failed; the connection is closed", self._connection.peer, self.api_key)
            self._connection.close("handler-error")

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        """Calls back if the connection ends before `forget_abandoned`, so that nothing waits for nobody.

        At once where it has ended already, while the request waited for a partition to open.
        """
        if self._connection.is_closing:
            callback()
            return
        if self._connection.session is None:
            self._connection.session = {}
        self._connection.session[callback] = None

    def forget_abandoned(self, callback: Callable[[], None]) -> None:
        """Undoes `when_abandoned`; one that was not there is fine."""
        (self._connection.session or {}).pop(callback, None)


def abandon_requests(connection: Connection) -> None:
    """Calls back those who wait for something on behalf of a connection that has ended."""
    for callback in list(connection.session or ()):
        callback()
