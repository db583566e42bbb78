"""Clients that wait for what is not there yet, and clients whose broker goes away under them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from exactlog.core.model.ids import ZERO_UUID
from exactlog.testing import Broker
from tests.conformance.clients.face import Sent
from tests.support.raw_client import RawClient, Topic, batch_of
from tests.support.watching import RequestCount


@pytest.mark.only_exactlog
@pytest.mark.needs("consume")
def test_a_consumer_at_the_end_gets_what_comes_next(exactlog_broker, client, topic):
    fetches = RequestCount(exactlog_broker, "Fetch")
    with ThreadPoolExecutor(1) as thread, RawClient(exactlog_broker.port) as raw:
        consuming = thread.submit(client.consume, topic, 0, 2)
        fetches.wait_for(1)

        raw.produce(Topic(topic, ZERO_UUID), batch_of(b"first"))
        raw.produce(Topic(topic, ZERO_UUID), batch_of(b"second"))

        assert [record.value for record in consuming.result()] == [b"first", b"second"]


@pytest.mark.usefixtures("refused_sockets_are_closed")
@pytest.mark.only_exactlog
@pytest.mark.needs("idempotence")
def test_an_idempotent_producer_lives_through_a_crash_of_its_broker_and_nothing_is_lost_or_doubled(client_of_its_own):
    """B092 (aiokafka #1004, #1017): delivery failed over a restart."""
    records = [Sent(b"%d" % index) for index in range(3_000)]

    with Broker() as broker, client_of_its_own(broker.bootstrap_servers) as client:
        client.create_topic("t")

        def crash():
            broker.kill()
            broker.restart()

        offsets = client.produce("t", records, idempotent=True, meanwhile=crash)

        assert offsets == list(range(3_000))
        assert [record.value for record in client.consume("t", 0, 3_000)] == [record.value for record in records]
        assert client.ends("t") == (0, 3_000)
