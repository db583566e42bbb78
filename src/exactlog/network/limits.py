"""The bounds of a TCP server."""

import msgspec

from exactlog.core.model.limits import (
    CLOSE_LINGER_MS,
    CONNECTION_IDLE_MS_MAX,
    CONNECTIONS_MAX,
    FRAME_BYTES_MAX,
    PENDING_BYTES_PER_CONNECTION_MAX,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
)


class NetworkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a `TcpServer` holds its connections to.

    Attributes:
        frame_bytes_max: a frame that claims more closes its connection (`socket.request.max.bytes`).
        connections_max: one more is closed as soon as it is accepted (`connections.max`).
        idle_ms_max: a connection so long without a word or a debt is closed (`connections.max.idle.ms`).
        requests_in_flight_max: per connection, frames whose answers have not left; at it reading pauses, until half.
        pending_bytes_max: per connection, answer bytes not taken by the peer; above it reading pauses, until half. So
            too for bytes of requests that wait in the handler, counted by themselves.
        close_linger_ms: how long a closing connection may take to send its last answers.
    """

    frame_bytes_max: int = FRAME_BYTES_MAX
    connections_max: int = CONNECTIONS_MAX
    idle_ms_max: int = CONNECTION_IDLE_MS_MAX
    requests_in_flight_max: int = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
    pending_bytes_max: int = PENDING_BYTES_PER_CONNECTION_MAX
    close_linger_ms: int = CLOSE_LINGER_MS
