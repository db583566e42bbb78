"""Connections and topics for cases in raw protocol."""

import pytest

from tests.support.raw_client import RawClient


@pytest.fixture
def connect(exactlog_broker):
    """Opens connections to the broker; they end with the test."""
    clients = []

    def open_connection():
        clients.append(RawClient(exactlog_broker.port))
        return clients[-1]

    yield open_connection
    for client in clients:
        client.close()


@pytest.fixture
def raw(connect):
    """A connection."""
    return connect()


@pytest.fixture
def topic(raw):
    """A topic of one partition that no other test uses."""
    return raw.create_topic()
