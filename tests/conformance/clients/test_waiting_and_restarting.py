"""Clients that wait for what is not there yet, and clients whose broker goes away under them."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.net.inet import KafkaNetSocket

from exactlog.core.model.ids import ZERO_UUID
from exactlog.testing import Broker
from tests.conformance.clients.adapters import CLIENTS
from tests.conformance.clients.face import Sent
from tests.peers.gate import skip_without_peer
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


@contextlib.contextmanager
def opened(client_name, bootstrap_servers):
    """A client of its own, closed at the end."""
    with skip_without_peer():
        client = CLIENTS[client_name].open(bootstrap_servers)
    try:
        yield client
    finally:
        getattr(client, "close", lambda: None)()


@pytest.fixture
def refused_sockets_are_closed(monkeypatch):
    """kafka-python leaves a socket open when it is refused; which test is blamed for it would be chance."""
    sock_connect = KafkaNetSocket.sock_connect

    async def connect_or_close(self, net, sock, sockaddr, timeout_at=None):
        try:
            return await sock_connect(self, net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise

    monkeypatch.setattr(KafkaNetSocket, "sock_connect", connect_or_close)


@pytest.mark.usefixtures("refused_sockets_are_closed")
@pytest.mark.only_exactlog
@pytest.mark.needs("idempotence")
def test_an_idempotent_producer_lives_through_a_crash_of_its_broker_and_nothing_is_lost_or_doubled(client_name):
    """B092 (aiokafka #1004, #1017): delivery failed over a restart."""
    records = [Sent(b"%d" % index) for index in range(3_000)]

    with Broker() as broker, opened(client_name, broker.bootstrap_servers) as client:
        client.create_topic("t")

        def crash():
            broker.kill()
            broker.restart()

        offsets = client.produce("t", records, idempotent=True, meanwhile=crash)

        assert offsets == list(range(3_000))
        assert [record.value for record in client.consume("t", 0, 3_000)] == [record.value for record in records]
        assert client.ends("t") == (0, 3_000)
