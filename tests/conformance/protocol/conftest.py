"""A broker, connections and topics for cases in raw protocol."""

from tests.support.broker_fixtures import broker, connect, raw, topic

__all__ = ["broker", "connect", "raw", "topic"]
