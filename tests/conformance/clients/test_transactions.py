"""Real clients commit, abort, are fenced and time out; a reader of committed records sees it right."""

import uuid

import pytest

from exactlog.testing import Broker
from tests.support.transactional_clients import CLIENTS, committed_offset, consume

pytestmark = pytest.mark.only_exactlog


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker):
    name = f"topic-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture(params=CLIENTS)
def open_producer(request, broker):
    """Opens producers of one client; they end with the test."""
    opened = []

    def open_one(transactional_id, **config):
        opened.append(CLIENTS[request.param](broker.bootstrap_servers, transactional_id, **config))
        return opened[-1]

    yield open_one
    for producer in opened:
        try:
            producer.close()
        except Exception:  # noqa: BLE001  some do not like to end in the middle of something
            continue


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(broker, topic, open_producer):
    producer = open_producer(topic)
    for number in range(6):
        producer.begin()
        producer.send(topic, 0, b"a%d" % number)
        producer.send(topic, 1, b"b%d" % number)
        if number % 2:
            producer.abort()
        else:
            producer.commit()

    address = broker.bootstrap_servers
    assert consume(address, topic, partitions=2) == [[b"a0", b"a2", b"a4"], [b"b0", b"b2", b"b4"]]
    everything = consume(address, topic, partitions=2, isolation_level="read_uncommitted")
    assert everything == [[b"%b%d" % (letter, number) for number in range(6)] for letter in (b"a", b"b")]


def test_nothing_behind_an_open_transaction_is_seen_before_it_ends(broker, topic, open_producer):
    first, second = open_producer(f"{topic}-1"), open_producer(f"{topic}-2")
    first.begin()
    first.send(topic, 0, b"first")
    second.begin()
    second.send(topic, 0, b"second")
    second.commit()
    assert consume(broker.bootstrap_servers, topic) == [[]]

    first.commit()

    assert consume(broker.bootstrap_servers, topic) == [[b"first", b"second"]]


def test_a_second_instance_fences_the_first(broker, topic, open_producer):
    first = open_producer(topic)
    first.begin()
    first.send(topic, 0, b"first")

    second = open_producer(topic)
    second.begin()
    second.send(topic, 0, b"second")
    second.commit()

    with pytest.raises(Exception, match=r"(?i)fenced|epoch|abort"):
        first.commit()
    assert consume(broker.bootstrap_servers, topic) == [[b"second"]]


def test_offsets_are_committed_with_the_transaction_and_dropped_with_it(broker, topic, open_producer):
    address, group = broker.bootstrap_servers, f"group-of-{topic}"
    producer = open_producer(topic)

    producer.begin()
    producer.send(topic, 1, b"out")
    producer.send_offset(topic, 0, 7, group)
    producer.abort()
    assert committed_offset(address, topic, 0, group) is None

    producer.begin()
    producer.send(topic, 1, b"out")
    producer.send_offset(topic, 0, 8, group)
    producer.commit()
    assert committed_offset(address, topic, 0, group) == 8
    assert consume(address, topic, partitions=2) == [[], [b"out"]]


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_learns_of_it(broker, topic, open_producer):
    producer = open_producer(topic, timeout_ms=5_000)
    producer.begin()
    producer.send(topic, 0, b"slow")
    timed_out = broker.metrics()["exactlog_transactions_timed_out_total"]

    broker.clock.advance_ms(20_000)
    while broker.metrics()["exactlog_transactions_open"]:
        pass

    assert broker.metrics()["exactlog_transactions_timed_out_total"] == timed_out + 1
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|abort|state"):
        producer.commit()
    assert consume(broker.bootstrap_servers, topic) == [[]]


def test_transactions_go_on_when_the_broker_comes_back(topic, broker, open_producer):
    producer = open_producer(topic)
    producer.begin()
    producer.send(topic, 0, b"before")
    broker.kill()
    broker.restart()

    producer.send(topic, 0, b"behind")
    producer.commit()

    assert consume(broker.bootstrap_servers, topic) == [[b"before", b"behind"]]
