"""A whole node in memory, on the test's own event loop, so that a test can reach into it."""

import pytest_asyncio

from exactlog.node.config import load_config
from exactlog.node.node import Node


@pytest_asyncio.fixture
async def node():
    node = Node(load_config(overrides=[("in.memory", "true"), ("port", "0")]))
    await node.start()
    yield node
    await node.stop()


@pytest_asyncio.fixture
async def registry(node):
    """Its topics."""
    return node._parts.topics
