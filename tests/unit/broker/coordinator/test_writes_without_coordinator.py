"""A write of a transaction whose coordinator cannot be had: it is answered, and so is what queues behind it."""

from exactlog.core.model.error_code import ErrorCode
from exactlog.testing import Broker
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import COMMIT, TransactionalProducer

NONE = ErrorCode.NONE


def test_a_write_is_answered_where_the_load_of_the_coordinator_breaks(monkeypatch, caplog):
    async def break_down(key):
        raise ZeroDivisionError

    with Broker() as broker:
        raw = RawClient(broker.port)
        topic = raw.create_topic("topic")
        producer = TransactionalProducer(raw, "mine")
        assert producer.init() is NONE
        coordinator = broker._running_node().services.transactions
        with monkeypatch.context() as broken:
            broken.setattr(coordinator, "find", lambda key: None)
            broken.setattr(coordinator, "load", break_down)
            assert producer.produce((topic, 0, b"refused")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        producer.skip_to(topic, 0, sequence=0)
        assert producer.produce((topic, 0, b"taken")) == [NONE]
        assert producer.end(COMMIT) is NONE
        raw.close()

    assert "cannot be loaded" in caplog.text
