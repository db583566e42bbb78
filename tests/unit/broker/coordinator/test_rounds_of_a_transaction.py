"""How many rounds a transaction takes in a loop of them: what must be committed before what, and nothing besides."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.storage import round_committer
from exactlog.testing import Broker
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import COMMIT, TransactionalProducer

NONE = ErrorCode.NONE
TRANSACTIONS = 10


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What nobody waits for goes along with the next round, however late that is."""
    monkeypatch.setattr(round_committer, "PATIENCE_MS", 3_600_000)


@pytest.mark.parametrize(
    ("config", "rounds"),
    [
        ({"flush.mode": "none"}, 2),  # the data; the outcome and its markers
        ({"flush.mode": "interval"}, 2),
        ({"commit.engine": "journal"}, 2),
        ({"commit.engine": "files"}, 3),  # where a crash leaves any part of a round
    ],
)
def test_a_transaction_in_a_loop_takes_as_many_rounds_as_it_must(tmp_path, config, rounds):
    with Broker(tmp_path / "data", config=config) as broker:
        raw = RawClient(broker.port)
        topic = raw.create_topic("topic", partitions=2)
        producer = TransactionalProducer(raw, "mine")
        assert producer.init() is NONE
        counts = []
        for number in range(1 + TRANSACTIONS):
            assert producer.produce((topic, 0, b"%d" % number), (topic, 1, b"%d" % number)) == [NONE, NONE]
            counts.append(broker.metrics()["exactlog_rounds_total"])  # nothing is on its way
            assert producer.end(COMMIT) is NONE
        raw.close()

    assert counts[-1] - counts[0] == rounds * TRANSACTIONS
