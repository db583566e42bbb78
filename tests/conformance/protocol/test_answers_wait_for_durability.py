"""Nothing is told before what it promises is durable, also what was decided long ago and is only asked again."""

import itertools

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.node.node import Node
from exactlog.testing import Broker
from tests.support.faulty_filesystem import FaultyFilesystem
from tests.support.raw_client import (
    BY_NAME,
    ConnectionClosed,
    RawClient,
    base_offsets,
    batch_of,
    fetch_request,
    offsets_and_values,
    produce_request,
    sequenced,
)
from tests.support.watching import RequestCount

_producer_ids = itertools.count(1)


class FaultyBroker:
    """A broker on a faulty file system, with connections to it."""

    def __init__(self):
        self.files = FaultyFilesystem()
        self.broker = Broker(
            config={"in.memory": True}, make_node=lambda config, clock: Node(config, clock=clock, filesystem=self.files)
        )
        self._clients = []

    def connect(self):
        self._clients.append(RawClient(self.broker.port))
        return self._clients[-1]

    def __enter__(self):
        self.broker.start()
        return self

    def __exit__(self, *error):
        for client in self._clients:
            client.close()
        self.broker.stop()


@pytest.fixture(scope="module")
def shared():
    with FaultyBroker() as faulty:
        yield faulty


def produced(client):
    answer = client.receive().responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset


def test_a_batch_is_not_told_and_not_shown_before_it_is_synced(shared):
    writer, reader = shared.connect(), shared.connect()
    topic = writer.create_topic()
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        writer.send(produce_request(topic, batch_of(b"v")), BY_NAME)
        shared.files.wait_for_sync()
        produce_count.wait_for(1)

        fetched = reader.fetch(topic, 0)
        assert (fetched.high_watermark, bytes(fetched.records)) == (0, b"")
        assert reader.list_offset(topic, -1).offset == 0
        assert not writer.has_answer()

    assert produced(writer) == (ErrorCode.NONE, 0)
    assert offsets_and_values(reader.fetch(topic, 0).records) == [(0, b"v")]


def test_a_resend_of_what_is_decided_and_not_yet_durable_is_not_acknowledged_early(shared):
    first, again = shared.connect(), shared.connect()
    topic = first.create_topic()
    request = (produce_request(topic, sequenced(next(_producer_ids), 0, b"v")), BY_NAME)
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        first.send(*request)
        shared.files.wait_for_sync()
        again.send(*request)
        produce_count.wait_for(2)

        assert not first.has_answer()
        assert not again.has_answer()

    assert produced(first) == produced(again) == (ErrorCode.NONE, 0)
    assert base_offsets(first.fetch(topic, 0).records) == [0]


def test_a_refusal_that_rests_on_what_is_not_yet_durable_waits_for_it(shared):
    first, gap = shared.connect(), shared.connect()
    topic = first.create_topic()
    producer_id = next(_producer_ids)
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        first.send(produce_request(topic, sequenced(producer_id, 0, b"v")), BY_NAME)
        shared.files.wait_for_sync()
        gap.send(produce_request(topic, sequenced(producer_id, 2, b"v")), BY_NAME)
        produce_count.wait_for(2)
        assert not gap.has_answer()

    assert produced(first) == (ErrorCode.NONE, 0)
    assert produced(gap) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_five_batches_that_come_while_a_sync_runs_are_answered_in_order_after_their_own(shared):
    client = shared.connect()
    topic = client.create_topic()
    producer_id = next(_producer_ids)
    batches = [(produce_request(topic, sequenced(producer_id, n, b"%d" % n)), BY_NAME) for n in range(5)]
    produce_count = RequestCount(shared.broker, "Produce")

    with shared.files.syncs_held():
        client.send(*batches[0])
        shared.files.wait_for_sync()
        client.send_all(*batches[1:], *batches)
        produce_count.wait_for(10)
        assert not client.has_answer()

    assert [produced(client) for _ in range(10)] == [(ErrorCode.NONE, n) for n in (0, 1, 2, 3, 4) * 2]
    assert offsets_and_values(client.fetch(topic, 0).records) == [(n, b"%d" % n) for n in range(5)]


def test_a_waiting_fetch_is_woken_by_the_sync_not_by_the_append(shared):
    writer, reader = shared.connect(), shared.connect()
    topic = writer.create_topic()
    produce_count, fetch_count = RequestCount(shared.broker, "Produce"), RequestCount(shared.broker, "Fetch")

    with shared.files.syncs_held():
        reader.send(fetch_request(topic, 0, max_wait_ms=60_000), BY_NAME)
        fetch_count.wait_for(1)
        writer.send(produce_request(topic, batch_of(b"v")), BY_NAME)
        shared.files.wait_for_sync()
        produce_count.wait_for(1)
        assert not reader.has_answer()

    (of_topic,) = reader.receive().responses
    assert offsets_and_values(of_topic.partitions[0].records) == [(0, b"v")]
    assert produced(writer) == (ErrorCode.NONE, 0)


def test_a_full_disk_refuses_the_batch_and_the_resend_is_taken_when_there_is_room(shared):
    client = shared.connect()
    topic = client.create_topic()
    producer_id = next(_producer_ids)
    client.produce(topic, sequenced(producer_id, 0, b"before"))

    shared.files.is_full = True
    refused = client.produce(topic, sequenced(producer_id, 1, b"v"))
    fetched = client.fetch(topic, 0)
    shared.files.is_full = False

    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets_and_values(fetched.records) == [(0, b"before")]
    assert client.produce(topic, sequenced(producer_id, 1, b"v")).base_offset == 1
    assert offsets_and_values(client.fetch(topic, 0).records) == [(0, b"before"), (1, b"v")]


def test_after_a_failed_sync_nobody_gets_an_answer_and_the_broker_stops():
    with FaultyBroker() as faulty:
        writer, reader = faulty.connect(), faulty.connect()
        topic = writer.create_topic()
        faulty.files.syncs_fail = True

        with pytest.raises(ConnectionClosed):
            writer.produce(topic, batch_of(b"v"))

        assert reader.is_closed()
        with pytest.raises(ConnectionRefusedError):
            faulty.connect()
