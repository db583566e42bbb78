"""The pytest plug-in: a real broker for the whole run, a topic of its own for every test.

pytest loads this module into every run of everybody who has the package installed, so it imports nothing heavy: the
broker is imported when a fixture first asks for it.
"""

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exactlog.testing.broker import Broker

TOPIC_NAME_TEST_PART_LENGTH_MAX = 60


@pytest.fixture(scope="session")
def exactlog_broker() -> "Iterator[Broker]":
    """A broker on a free port, started once per run (per worker under xdist) and stopped at its end."""
    from exactlog.testing.broker import Broker  # noqa: PLC0415  heavy: only for runs that use the fixture

    with Broker() as broker:
        yield broker


@pytest.fixture
def exactlog_topic(exactlog_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, used by no other test."""
    test_part = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:TOPIC_NAME_TEST_PART_LENGTH_MAX]
    name = f"{test_part}-{uuid4().hex[:8]}"
    exactlog_broker.create_topic(name)
    return name
