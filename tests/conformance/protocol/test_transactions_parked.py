"""Writes that wait for the coordinator of their transaction: how much of them a connection may have the broker keep."""

from threading import Thread

import pytest
from msgspec.structs import replace

from exactlog.core.model.error_code import ErrorCode
from exactlog.node import node
from exactlog.testing import Broker
from tests.support.isolated_reader import read_on, values
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import COMMIT, WITHOUT_IMPLICIT_ADD, TransactionalProducer, produced
from tests.support.transaction_steps import ENDED, state_of
from tests.support.watching import wait_until

NONE = ErrorCode.NONE
BYTES_MAX = 100_000
IN_FLIGHT_MAX = 64
PRODUCED = 'exactlog_requests_total{api="Produce"}'
LARGE, SMALL = 10_000, 1


class Parked:
    """A broker whose coordinator answers no write until it is let go; and a producer."""

    def __init__(self, broker):
        self.broker = broker
        self.coordinator = broker._running_node().services.transactions
        self.add_for_write = self.coordinator.add_for_write
        self.kept = []
        self.raw = RawClient(broker.port)
        self.topic = self.raw.create_topic("topic")
        self.producer = TransactionalProducer(self.raw, "mine")
        assert self.producer.init() is NONE
        self.coordinator.add_for_write = lambda *asked: self.kept.append(asked)

    def send(self, count, *, size, acks):
        """Sends so many writes of so many bytes, as fast as the broker takes them."""
        requests = [
            (self.producer.request((self.topic, 0, b"%04d" % number + bytes(size)), acks=acks), 12)
            for number in range(count)
        ]
        self.pauses_before = self.pauses
        sending = Thread(target=lambda: self.raw.send_all(*requests, is_answered=acks != 0))
        sending.start()
        return sending

    @property
    def pauses(self):
        return self.broker.metrics()["kafka_server_socket_server_metrics_reading_paused_total"]

    @property
    def handled(self):
        return self.broker.metrics().get(PRODUCED, 0)

    def settle(self):
        """Waits until the connection is read no further."""
        wait_until(lambda: self.pauses > self.pauses_before)
        with RawClient(self.broker.port) as other:  # others are served, and it has had its turn
            other.create_topic("other")

    def let_go(self, error=NONE):
        """What waits is let in, or refused; and so is what comes."""

        async def answer():
            kept, self.kept = self.kept, []
            self.coordinator.add_for_write = self.add_for_write
            for writer, partitions, then in kept:
                if error is NONE:
                    self.add_for_write(writer, partitions, then)
                else:
                    then(error)

        self.broker._thread.call(answer)

    def written(self):
        """What is in the topic once the transaction is committed."""
        assert self.producer.end(COMMIT) is NONE
        wait_until(lambda: state_of(self.raw, "mine") in ENDED)
        return [int(value[:4]) for value in values(read_on(self.raw, self.topic))]


@pytest.fixture
def parked(monkeypatch):
    limits_of = node._network_limits
    monkeypatch.setattr(node, "_network_limits", lambda config: replace(limits_of(config), pending_bytes_max=BYTES_MAX))
    with Broker() as broker:
        parked = Parked(broker)
        yield parked
        parked.raw.close()


@pytest.mark.parametrize("acks", [0, -1])
@pytest.mark.parametrize(
    ("size", "handled_max"), [(LARGE, BYTES_MAX // LARGE + 1), (SMALL, IN_FLIGHT_MAX)], ids=["bytes", "frames"]
)
def test_a_connection_is_read_no_further_than_the_bound_and_on_once_its_writes_have_gone(
    parked, acks, size, handled_max
):
    count = 2 * handled_max + 3
    sending = parked.send(count, size=size, acks=acks)
    parked.settle()

    assert parked.handled <= handled_max
    assert len(parked.kept) == 1, "the others queue behind it"

    parked.let_go()
    sending.join()
    if acks:
        assert [produced(parked.raw.receive()) for _ in range(count)] == [[NONE]] * count
    assert parked.written() == list(range(count))


def test_what_is_answered_behind_writes_that_need_no_answer_comes_once_they_have_gone(parked):
    parked.send(3, size=SMALL, acks=0).join()
    parked.raw.send(parked.producer.request((parked.topic, 0, b"0003")), 12)
    assert not parked.raw.has_answer()

    parked.let_go()

    assert produced(parked.raw.receive()) == [NONE]
    assert parked.written() == [0, 1, 2, 3]


@pytest.mark.parametrize("acks", [0, -1])
def test_writes_that_are_refused_are_kept_no_longer(parked, acks):
    parked.send(1, size=2 * BYTES_MAX, acks=acks).join()
    parked.settle()

    parked.let_go(ErrorCode.CONCURRENT_TRANSACTIONS)

    if acks:
        assert produced(parked.raw.receive()) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        parked.producer.skip_to(parked.topic, 0, sequence=0)
        assert parked.producer.produce((parked.topic, 0, b"0007")) == [NONE]
        assert parked.written() == [7]
    else:
        assert parked.raw.is_closed()


def begin_where_nothing_is_known_of_it(parked, monkeypatch):
    """The producer has named its partition, which has records of others."""
    with monkeypatch.context() as usual:
        usual.setattr(parked.coordinator, "add_for_write", parked.add_for_write)
        other = TransactionalProducer(parked.raw, "other")
        assert other.init() is NONE
        assert other.produce((parked.topic, 0, b"other")) == [NONE]
        assert other.end(COMMIT) is NONE
    assert parked.producer.add((parked.topic, 0)) == [NONE]


def send_verified(parked, sequence):
    parked.producer.skip_to(parked.topic, 0, sequence=sequence)
    parked.raw.send(parked.producer.request((parked.topic, 0, b"%04d" % sequence)), WITHOUT_IMPLICIT_ADD)


def test_a_batch_that_overtook_the_first_one_while_they_are_verified_is_out_of_order(parked, monkeypatch):
    begin_where_nothing_is_known_of_it(parked, monkeypatch)
    for sequence in (1, 0):
        send_verified(parked, sequence)
    wait_until(lambda: parked.kept)

    parked.let_go()
    assert produced(parked.raw.receive()) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert produced(parked.raw.receive()) == [NONE]
    send_verified(parked, 1)
    assert produced(parked.raw.receive()) == [NONE]


def test_a_first_batch_that_is_refused_for_now_is_not_overtaken_by_the_next(parked, monkeypatch):
    begin_where_nothing_is_known_of_it(parked, monkeypatch)
    send_verified(parked, 0)
    wait_until(lambda: parked.kept)
    parked.let_go(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert produced(parked.raw.receive()) == [ErrorCode.NOT_ENOUGH_REPLICAS]

    told = []
    for sequence in (1, 0, 1):
        send_verified(parked, sequence)
        told += produced(parked.raw.receive())
    assert told == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NONE, NONE]


def test_a_write_that_breaks_ends_its_connection(parked, monkeypatch):
    def break_down(*args, **fields):
        raise ZeroDivisionError

    parked.send(1, size=SMALL, acks=-1).join()
    wait_until(lambda: parked.kept)
    partition = parked.broker._running_node().services.topics.partition("topic", 0)
    with monkeypatch.context() as broken:
        broken.setattr(partition, "append", break_down)
        parked.let_go()

    assert parked.raw.is_closed()
