"""One broker in memory for all cases: each has a topic of its own."""

from itertools import count

import pytest

from exactlog.testing import Broker
from tests.conformance.event_journal.scripts import Log
from tests.conformance.event_journal.worlds import FOR_EVER

_numbers = count()


@pytest.fixture(scope="module")
def broker():
    with Broker(config={"in.memory": True}) as broker:
        yield broker


@pytest.fixture
def log_url(broker):
    return f"kafka://{broker.bootstrap_servers}"


@pytest.fixture
def log(broker, log_url):
    name = f"parity-{next(_numbers)}"
    broker.create_topic(name, partitions=1, config=FOR_EVER)
    return Log(name, log_url)
