"""One request on its way through the broker: what its header said, and the way its answer takes."""

from exactlog.broker.services import BrokerServices
from exactlog.core.codec.message_codec import encode
from exactlog.core.codec.message_schema import Message
from exactlog.core.protocol.headers import RequestHeader, encode_response_header, response_header_version
from exactlog.network import Connection, Reply


class RequestContext:
    """What a handler knows of a request besides its body.

    A handler returns its response, or returns None and calls `answer` or `skip` later, exactly once.
    """

    __slots__ = ("_connection", "_correlation_id", "_reply", "api_key", "api_version", "broker", "client_id")

    def __init__(self, broker: BrokerServices, connection: Connection, header: RequestHeader, reply: Reply) -> None:
        self.broker = broker
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.client_id = header.client_id
        self._correlation_id = header.correlation_id
        self._connection = connection
        self._reply = reply

    def answer(self, response: Message) -> None:
        """Sends the response, once all earlier requests of the connection have theirs."""
        header_version = response_header_version(self.api_key, self.api_version)
        head = encode_response_header(self._correlation_id, header_version=header_version)
        self._reply.send([head, *encode(response, self.api_version)])

    def skip(self) -> None:
        """The request gets no response (Produce with acks=0)."""
        self._reply.skip()

    def close(self, reason: str) -> None:
        """Closes the connection, for the cases in which Kafka does; the reason is a constant in kebab case."""
        self._connection.close(reason)

    def is_abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._connection.is_closing
