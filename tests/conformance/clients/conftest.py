"""Each test of this directory runs with each Python client."""

import uuid

import pytest

from tests.conformance.clients.adapters import ADAPTERS


@pytest.fixture(params=ADAPTERS.values(), ids=ADAPTERS.keys())
def client(request, exactlog_broker):
    """One of the clients, told where the broker is."""
    return request.param(exactlog_broker.bootstrap_servers)


@pytest.fixture
def new_name():
    """A topic name that nothing has."""
    return f"client-{uuid.uuid4().hex}"


@pytest.fixture
def topic(client, new_name):
    """A topic of one partition, made by the client under test."""
    client.create_topic(new_name)
    return new_name
