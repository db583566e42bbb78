"""Fixtures for tests that speak raw protocol to a broker; a `conftest.py` imports those that its directory uses."""

import pytest

from exactlog.testing import Broker
from tests.support.raw_client import RawClient

NO_RETENTION = {"retention.check.interval.ms": 2**31 - 1}
"""For cases that send records of long ago: once enough time has passed, or a case has moved the clock, retention would
take them away in the middle of another case."""


@pytest.fixture(scope="session")
def broker():
    """A broker that keeps everything in memory: the cases ask what it answers, and there are many of them."""
    with Broker(config={"in.memory": True, **NO_RETENTION}) as running:
        yield running


@pytest.fixture
def connect(broker):
    """Opens connections to the broker; they end with the test."""
    clients = []

    def open_connection():
        clients.append(RawClient(broker.port))
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


@pytest.fixture(scope="session")
def exactlog_broker():
    """The plug-in's broker, for cases that move its clock."""
    with Broker(config=NO_RETENTION) as running:
        yield running
