"""A broker that runs beside the tests of the persistence module."""

import pytest

from exactlog.testing import Broker


@pytest.fixture
def running_broker(tmp_path):
    with Broker(tmp_path / "broker") as broker:
        yield broker
