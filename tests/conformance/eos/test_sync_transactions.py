"""`transaction_sync` with confluent-kafka."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from exactlog.core.model.error_code import ErrorCode
from exactlog.eos import AbortableError, FencedError, transaction_sync
from tests.conformance.eos.faces import ALL, PATIENCE_S, QUIET, ConfluentFace, Shop


@pytest.fixture(params=[ConfluentFace.name])
def face(bootstrap):
    """The one library that has blocking calls."""
    return ConfluentFace(bootstrap)


@pytest.fixture
def producer(shop, bootstrap):
    """As it comes from its constructor."""
    return Producer({"bootstrap.servers": bootstrap, **QUIET, "transactional.id": shop.name})


@pytest.fixture
def consumer(shop, face, bootstrap):
    settings = {"group.id": shop.name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({"bootstrap.servers": bootstrap, **QUIET, **settings}) as consumer:
        consumer.subscribe([shop.orders])
        yield consumer


def invoice(shop, txn, messages):
    for message in messages:
        txn.send(shop.invoices, message.value(), key=b"k", headers=[("a", b"b")], partition=0)


def join(consumer):
    """What is read by it stands at its place again."""
    (first,) = read(consumer, 1)
    consumer.seek(TopicPartition(first.topic(), first.partition(), first.offset()))


def read(consumer, count=6):
    messages = []
    while len(messages) < count:
        messages += consumer.consume(count - len(messages), 0.1)
    return messages


def test_what_was_read_before_the_block_is_committed_with_what_is_sent(shop: Shop, producer, consumer):
    for count in (4, 2):
        messages = read(consumer, count)
        with transaction_sync(producer, consumer) as txn:
            invoice(shop, txn, messages)

    assert shop.sent() == ALL
    assert shop.committed() == [3, 3]


def test_an_error_in_the_block_takes_everything_back(shop, producer, consumer):
    first = read(consumer)

    def fail():
        with transaction_sync(producer, consumer) as txn:
            invoice(shop, txn, first)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    second = read(consumer)
    with transaction_sync(producer, consumer) as txn:
        invoice(shop, txn, second)

    assert sorted(m.value() for m in second) == ALL
    assert shop.sent() == ALL


def test_work_is_done_again_if_that_may_help(shop, producer, consumer):
    attempts = []

    def work(txn):
        attempts.append(read(consumer))
        invoice(shop, txn, attempts[-1])
        if len(attempts) == 1:
            raise AbortableError("once more", kafka_error=ErrorCode.TRANSACTION_ABORTABLE)
        return "done"

    join(consumer)
    result = transaction_sync(producer, consumer, retries=1).run(work)

    assert result == "done"
    assert len(attempts) == 2
    assert shop.sent() == ALL


def test_a_zombie_is_told_that_it_is_one(shop, producer, bootstrap):
    def be_taken_over():
        with transaction_sync(producer) as txn:
            txn.send(shop.invoices, b"of the zombie")
            Producer({"bootstrap.servers": bootstrap, **QUIET, "transactional.id": shop.name}).init_transactions(
                PATIENCE_S
            )

    with pytest.raises(FencedError):
        be_taken_over()

    assert shop.sent() == []


def test_a_zombie_that_goes_on_sending_is_told_why_it_cannot(shop, producer, bootstrap):
    def go_on():
        with transaction_sync(producer) as txn:
            txn.send(shop.invoices, b"of the zombie")
            producer.flush()
            Producer({"bootstrap.servers": bootstrap, **QUIET, "transactional.id": shop.name}).init_transactions(
                PATIENCE_S
            )
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                txn.send(shop.invoices, b"more of it")
                time.sleep(0.01)

    with pytest.raises(FencedError, match="cannot send"):
        go_on()

    assert shop.sent() == []


def test_a_full_queue_is_waited_for(shop, bootstrap):
    settings = {"transactional.id": shop.name, "queue.buffering.max.messages": 10}
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET, **settings})

    with transaction_sync(producer) as txn:
        for _ in range(100):
            txn.send(shop.invoices, b"many")

    assert shop.sent() == [b"many"] * 100
