"""A broker, connections and topics for those who misuse them."""

from tests.support.broker_fixtures import broker, connect, raw, topic

__all__ = ["broker", "connect", "raw", "topic"]
