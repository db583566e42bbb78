"""One broker in memory for all cases: each has a topic of its own."""

import pytest

from exactlog.testing import Broker


@pytest.fixture(scope="module")
def broker():
    with Broker(config={"in.memory": True}) as broker:
        yield broker


@pytest.fixture
def log_url(broker):
    return f"kafka://{broker.bootstrap_servers}"
