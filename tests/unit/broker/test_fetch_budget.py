"""What readers do not take cannot pile up; and every reader moves on."""

import pytest

from exactlog.broker.fetch_budget import FetchBudget
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, base_offsets, batch_of


@pytest.mark.parametrize(
    ("wanted", "in_flight", "allowed"), [(50, 0, 50), (500, 0, 100), (50, 80, 20), (50, 100, 0), (50, 1_000, 0)]
)
def test_no_more_is_read_than_the_budget_leaves(wanted, in_flight, allowed):
    assert FetchBudget(100, bytes_in_flight=lambda: in_flight).clip(wanted) == allowed


def test_a_spent_budget_still_lets_every_reader_have_a_batch_at_a_time():
    with Broker(config={"in.memory": True, "fetch.bytes.in.flight.max": 1}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        for _ in range(3):
            raw.produce(topic, batch_of(b"v"))

        assert [base_offsets(raw.fetch(topic, offset).records) for offset in range(3)] == [[0], [1], [2]]
