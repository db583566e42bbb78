"""The numbers of a TCP server, under the names that the usual exporters give Kafka's `socket-server-metrics`."""

from collections.abc import Callable

from exactlog.core.model.metrics import Counter, Registry

_PREFIX = "kafka_server_socket_server_metrics"


class NetworkMetrics:
    """Every instrument of one server. Names stay the same from release to release."""

    def __init__(
        self,
        registry: Registry,
        *,
        read_connection_count: Callable[[], float],
        read_pending_bytes: Callable[[], float],
    ) -> None:
        self._registry = registry
        self.connections_opened = registry.counter(f"{_PREFIX}_connection_creation_total", "Connections accepted.")
        self.frames_received = registry.counter(f"{_PREFIX}_request_total", "Frames handed to the handler.")
        self.bytes_received = registry.counter(f"{_PREFIX}_incoming_byte_total", "Bytes read from sockets.")
        self.answers_sent = registry.counter(f"{_PREFIX}_response_total", "Answers written to sockets.")
        self.bytes_sent = registry.counter(f"{_PREFIX}_outgoing_byte_total", "Bytes written to sockets.")
        self.handler_errors = registry.counter(f"{_PREFIX}_handler_error_total", "Exceptions that a handler raised.")
        self.reading_paused = registry.counter(
            f"{_PREFIX}_reading_paused_total", "Times a connection's reading paused."
        )
        registry.gauge(f"{_PREFIX}_connection_count", "Connections open now.", read=read_connection_count)
        registry.gauge(f"{_PREFIX}_pending_bytes", "Answer bytes that peers have not taken.", read=read_pending_bytes)

    def connections_closed(self, reason: str) -> Counter:
        """How many connections ended for that reason."""
        name, description = f"{_PREFIX}_connection_close_total", "Connections closed, by reason."
        return self._registry.counter(name, description, {"reason": reason})
