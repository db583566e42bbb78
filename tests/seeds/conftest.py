"""A broker, connections and topics for the specifications of transactions."""

from tests.support.broker_fixtures import broker, connect, raw, topic

__all__ = ["broker", "connect", "raw", "topic"]
