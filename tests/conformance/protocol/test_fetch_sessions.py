"""Fetch sessions (KIP-227): what is remembered, what is left out, and how a session ends."""

import itertools
import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from exactlog.testing import Broker
from tests.support.raw_client import BY_ID, BY_NAME, RawClient, Topic, base_offsets, batch_of
from tests.support.watching import RequestCount

BATCH = batch_of(b"v")
LONG_MS = 60_000
NO_SESSION = 0


class Reader:
    """A client with a session: it counts the epochs, and remembers nothing else."""

    def __init__(self, raw, version=BY_ID):
        self.raw = raw
        self.version = version
        self.session_id = NO_SESSION
        self.epochs = itertools.count()

    def send(self, *asked, forgotten=(), epoch=None, max_wait_ms=0, max_bytes=2**31 - 1):
        """`asked`: (topic, partition, offset) or with the leader epoch behind; `forgotten`: (topic, partition)."""
        topics = tuple(
            FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=(
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=1_000_000,
                        current_leader_epoch=known_epoch[0] if known_epoch else -1,
                    ),
                ),
            )
            for topic, partition, offset, *known_epoch in asked
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=next(self.epochs) if epoch is None else epoch,
            topics=topics,
            forgotten_topics_data=tuple(
                ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(partition,))
                for topic, partition in forgotten
            ),
        )
        self.raw.send(request, self.version)

    def receive(self):
        """(error, {(topic, partition): (error, batches)}) of an answer."""
        response = self.raw.receive()
        if response.session_id:
            self.session_id = response.session_id
        self.is_in_session = response.session_id != NO_SESSION
        self.order = [data.partition_index for of_topic in response.responses for data in of_topic.partitions]
        return ErrorCode(response.error_code), {
            (of_topic.topic or of_topic.topic_id, data.partition_index): (
                ErrorCode(data.error_code),
                base_offsets(data.records),
            )
            for of_topic in response.responses
            for data in of_topic.partitions
        }

    def fetch(self, *asked, **fields):
        self.send(*asked, **fields)
        return self.receive()

    def key(self, topic, partition):
        return (topic.topic_id if self.version >= BY_ID else topic.name, partition)


@pytest.fixture(params=[7, BY_NAME, BY_ID, 18])
def reader(raw, request):
    return Reader(raw, request.param)


@pytest.fixture
def topic(raw):
    return raw.create_topic(partitions=3)


OK = ErrorCode.NONE


# --- opening and going on -----------------------------------------------------------------------------------------


def test_a_full_request_opens_a_session_and_the_next_one_is_told_only_what_is_new(reader, raw, topic):
    raw.produce(topic, BATCH, partition=0)
    at_first = reader.fetch((topic, 0, 0), (topic, 1, 0))
    assert reader.is_in_session

    nothing = reader.fetch((topic, 0, 1))
    raw.produce(topic, BATCH, partition=1)
    news = reader.fetch()

    assert at_first == (OK, {reader.key(topic, 0): (OK, [0]), reader.key(topic, 1): (OK, [])})
    assert nothing == (OK, {})
    assert news == (OK, {reader.key(topic, 1): (OK, [0])})
    assert reader.is_in_session


def test_records_that_the_reader_has_not_gone_past_are_told_again(reader, raw, topic):
    raw.produce(topic, BATCH)
    reader.fetch((topic, 0, 0))

    assert reader.fetch() == (OK, {reader.key(topic, 0): (OK, [0])})


def test_an_incremental_request_waits_for_what_its_session_asks(reader, broker, connect, topic):
    count = RequestCount(broker, "Fetch")
    reader.fetch((topic, 0, 0), (topic, 1, 0))
    reader.send(max_wait_ms=LONG_MS)
    count.wait_for(2)
    assert not reader.raw.has_answer()

    connect().produce(topic, BATCH, partition=1)

    assert reader.receive() == (OK, {reader.key(topic, 1): (OK, [0])})


def test_a_moved_log_start_is_news_though_there_are_no_records(reader, raw, topic):
    raw.produce(topic, BATCH)
    reader.fetch((topic, 0, 1))

    raw.delete_records(topic, 1)

    assert reader.fetch() == (OK, {reader.key(topic, 0): (OK, [])})
    assert reader.fetch() == (OK, {})


def test_a_forgotten_partition_is_not_read_any_more(reader, raw, topic):
    reader.fetch((topic, 0, 0), (topic, 1, 0))
    for partition in range(2):
        raw.produce(topic, BATCH, partition=partition)

    assert reader.fetch(forgotten=[(topic, 0)]) == (OK, {reader.key(topic, 1): (OK, [0])})
    assert reader.fetch((topic, 1, 1), max_wait_ms=20) == (OK, {})


def test_partitions_can_be_added(reader, raw, topic):
    reader.fetch((topic, 0, 0))
    raw.produce(topic, BATCH, partition=2)

    assert reader.fetch((topic, 2, 0)) == (OK, {reader.key(topic, 2): (OK, [0])})


def test_each_partition_gets_its_turn_under_a_limit_of_bytes(reader, raw, topic):
    reader.fetch(*((topic, index, 0) for index in range(3)))
    for partition in range(3):
        for _ in range(2):
            raw.produce(topic, BATCH, partition=partition)
    reader.fetch(max_bytes=1)  # also tells the new ends of all three
    served = []

    for _ in range(5):
        _, answer = reader.fetch(max_bytes=1)
        served += [partition for (_, partition), (_, batches) in answer.items() if batches]

    assert served == [1, 2, 0, 1, 2]


def test_a_session_goes_on_over_another_connection(reader, raw, connect, topic):
    reader.fetch((topic, 0, 0))
    raw.produce(topic, BATCH)

    reader.raw = connect()

    assert reader.fetch() == (OK, {reader.key(topic, 0): (OK, [0])})


# --- refusals -----------------------------------------------------------------------------------------------------


def test_an_epoch_is_taken_once(reader, topic):
    reader.fetch((topic, 0, 0))

    assert reader.fetch(epoch=2) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
    assert reader.fetch(epoch=1) == (OK, {})
    assert reader.fetch(epoch=1) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
    assert reader.fetch(epoch=2) == (OK, {})


@pytest.mark.parametrize("epoch", [1, 5, -2])
def test_an_unknown_session_is_refused(reader, topic, epoch):
    for session_id in (0, 77, -1):
        reader.session_id = session_id
        assert reader.fetch((topic, 0, 0), epoch=epoch) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


@pytest.mark.parametrize(("first", "then"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_names_and_ids_do_not_mix_in_a_session(raw, topic, first, then):
    reader = Reader(raw, first)
    reader.fetch((topic, 0, 0))

    reader.version = then
    assert reader.fetch(epoch=1) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, {})
    reader.version = first
    assert reader.fetch(epoch=1) == (OK, {})


def test_a_request_that_waits_is_refused_once_its_session_has_gone_on_without_it(reader, broker, connect, raw, topic):
    count = RequestCount(broker, "Fetch")
    reader.fetch((topic, 0, 0))
    reader.send(max_wait_ms=LONG_MS)
    count.wait_for(2)
    hasty = Reader(connect(), reader.version)
    hasty.session_id = reader.session_id

    assert hasty.fetch(epoch=2) == (OK, {})
    raw_writer = connect()
    raw_writer.produce(topic, BATCH)

    assert reader.receive() == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})


# --- ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_request_ends_the_session_it_names(reader, topic, epoch):
    reader.fetch((topic, 0, 0))
    old = reader.session_id

    error, told = reader.fetch((topic, 1, 0), epoch=epoch)
    assert (error, list(told)) == (OK, [reader.key(topic, 1)])
    assert reader.is_in_session == (epoch == 0)

    reader.session_id = old
    assert reader.fetch(epoch=1) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


def test_a_session_ends_with_its_last_partition(reader, topic):
    reader.fetch((topic, 0, 0))

    assert reader.fetch(forgotten=[(topic, 0)]) == (OK, {})
    assert not reader.is_in_session
    assert reader.fetch() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


@pytest.mark.parametrize("version", [4, 6])
def test_before_version_7_there_are_no_sessions(raw, topic, version):
    raw.produce(topic, BATCH)
    part = FetchPartition(partition=0, partition_max_bytes=1_000)
    request = FetchRequest(min_bytes=1, topics=(FetchTopic(topic=topic.name, partitions=(part,)),))

    answers = [raw.ask(request, version) for _ in range(2)]

    assert [base_offsets(answer.responses[0].partitions[0].records) for answer in answers] == [[0], [0]]


def test_who_finds_no_room_is_answered_in_full_without_a_session():
    with Broker(config={"in.memory": True, "fetch.session.slots.max": 1}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic()
        first, second = Reader(raw), Reader(raw)
        first.fetch((topic, 0, 0))
        error, told = second.fetch((topic, 0, 0))
        assert (error, list(told), second.is_in_session) == (OK, [second.key(topic, 0)], False)
        assert broker.metrics()["exactlog_fetch_sessions"] == 1

        broker.clock.advance_ms(120_001)
        second.fetch((topic, 0, 0), epoch=0)

        assert second.is_in_session
        assert first.fetch() == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})
        assert broker.metrics()["exactlog_fetch_session_evictions"] == 1


# --- errors of partitions -----------------------------------------------------------------------------------------


def test_an_error_is_told_each_time_and_at_once(raw, topic):
    reader = Reader(raw)
    unknown = Topic("", uuid.uuid4())
    reader.fetch((topic, 0, 0), (topic, 1, 99))

    out_of_range = reader.fetch(max_wait_ms=LONG_MS)
    reader.fetch((unknown, 0, 0), forgotten=[(topic, 1)])

    assert out_of_range == (OK, {reader.key(topic, 1): (ErrorCode.OFFSET_OUT_OF_RANGE, [])})
    assert reader.fetch(max_wait_ms=20) == (OK, {reader.key(unknown, 0): (ErrorCode.UNKNOWN_TOPIC_ID, [])})


def delete(raw, topic):
    (deleted,) = raw.ask(DeleteTopicsRequest(topic_names=(topic.name,)), 5).responses
    assert deleted.error_code == 0


def test_a_topic_that_is_deleted_inside_a_session_is_unknown(reader, raw, topic):
    reader.fetch((topic, 0, 0))

    delete(raw, topic)

    gone = (OK, {reader.key(topic, 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])})
    assert [reader.fetch() for _ in range(2)] == [gone, gone]


def test_a_session_of_names_finds_the_topic_that_was_created_anew(raw, topic):
    reader = Reader(raw, BY_NAME)
    raw.produce(topic, BATCH)
    reader.fetch((topic, 0, 1))
    delete(raw, topic)

    raw.create_topic(topic.name)
    raw.produce(topic, BATCH)

    assert reader.fetch((topic, 0, 0)) == (OK, {reader.key(topic, 0): (OK, [0])})
