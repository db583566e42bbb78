"""A fetch waits for bytes, and for nothing else: what wakes it, and what it finds when it wakes."""

import uuid

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.raw_client import BY_ID, BY_NAME, base_offsets, batch_of, fetch_request, offsets_and_values
from tests.support.watching import RequestCount

LONG_MS = 60_000  # longer than a client waits for an answer: a fetch that is not woken fails its test
BATCH = batch_of(b"v")


@pytest.fixture
def wait_for_fetch(broker):
    """Waits until one more Fetch has been taken up."""
    count = RequestCount(broker, "Fetch")
    return lambda: count.wait_for(1)


def the_partition(response):
    (of_topic,) = response.responses
    (data,) = of_topic.partitions
    return data


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_fetch_at_the_end_is_answered_by_the_next_append(connect, raw, topic, wait_for_fetch, version):
    reader = connect()
    reader.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), version)
    wait_for_fetch()
    assert not reader.has_answer()

    raw.produce(topic, BATCH)

    assert offsets_and_values(the_partition(reader.receive()).records) == [(0, b"v")]


def test_a_fetch_waits_until_there_are_as_many_bytes_as_it_wants(broker, connect, raw, topic, wait_for_fetch):
    reader = connect()
    raw.produce(topic, BATCH)
    reader.send(fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=3 * len(BATCH)), BY_NAME)
    wait_for_fetch()

    raw.produce(topic, BATCH)
    broker.metrics()  # a turn of the loop, in which an answer would have left
    assert not reader.has_answer()
    raw.produce(topic, BATCH)

    assert base_offsets(the_partition(reader.receive()).records) == [0, 1, 2]


def test_bytes_of_all_its_partitions_count(connect, raw, wait_for_fetch):
    topic = raw.create_topic(partitions=2)
    reader = connect()
    parts = tuple(FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(2))
    reader.send(
        FetchRequest(
            max_wait_ms=LONG_MS, min_bytes=2 * len(BATCH), topics=(FetchTopic(topic=topic.name, partitions=parts),)
        ),
        BY_NAME,
    )
    wait_for_fetch()

    raw.produce(topic, BATCH, partition=0)
    raw.produce(topic, BATCH, partition=1)

    (of_topic,) = reader.receive().responses
    assert [base_offsets(data.records) for data in of_topic.partitions] == [[0], [0]]


def test_a_fetch_that_has_waited_long_enough_is_answered_with_what_there_is(raw, topic):
    raw.produce(topic, BATCH)

    assert base_offsets(raw.fetch(topic, 0, max_wait_ms=50, min_bytes=100_000).records) == [0]
    assert base_offsets(raw.fetch(topic, 1, max_wait_ms=50).records) == []


@pytest.mark.parametrize(("min_bytes", "max_wait_ms"), [(0, LONG_MS), (-1, LONG_MS), (1, 0), (1, -1)])
def test_who_does_not_want_to_wait_is_answered_at_once(raw, topic, min_bytes, max_wait_ms):
    assert base_offsets(raw.fetch(topic, 0, min_bytes=min_bytes, max_wait_ms=max_wait_ms).records) == []


@pytest.mark.parametrize("topics", [(), (FetchTopic(topic="no-such-topic", partitions=(FetchPartition(),)),)])
def test_a_fetch_that_could_wait_for_nothing_is_answered_at_once(raw, topics):
    response = raw.ask(FetchRequest(max_wait_ms=LONG_MS * 10, min_bytes=1, topics=topics), BY_NAME)

    assert len(response.responses) == len(topics)


def test_appends_to_other_partitions_wake_nobody(broker, connect, raw, topic, wait_for_fetch):
    other = raw.create_topic()
    reader = connect()
    reader.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), BY_NAME)
    wait_for_fetch()

    raw.produce(other, BATCH)
    broker.metrics()

    assert not reader.has_answer()
    raw.produce(topic, BATCH)
    assert base_offsets(the_partition(reader.receive()).records) == [0]


def test_requests_behind_a_waiting_fetch_are_answered_behind_it(connect, raw, topic, wait_for_fetch):
    reader = connect()
    reader.send_all((fetch_request(topic, 0, max_wait_ms=LONG_MS), BY_NAME), (ApiVersionsRequest(), 0))
    wait_for_fetch()
    assert not reader.has_answer()

    raw.produce(topic, BATCH)

    assert base_offsets(the_partition(reader.receive()).records) == [0]
    assert reader.receive().error_code == 0


def test_many_readers_of_one_partition_are_all_woken(broker, connect, raw, topic):
    count = RequestCount(broker, "Fetch")
    readers = [connect() for _ in range(20)]
    for reader in readers:
        reader.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), BY_NAME)
    count.wait_for(20)

    raw.produce(topic, BATCH)

    assert {tuple(base_offsets(the_partition(reader.receive()).records)) for reader in readers} == {(0,)}


def test_a_reader_that_went_away_while_it_waited_disturbs_nobody(connect, raw, topic, wait_for_fetch):
    gone = connect()
    gone.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), BY_NAME)
    wait_for_fetch()
    gone.close()

    assert raw.produce(topic, BATCH).error_code == 0
    assert base_offsets(raw.fetch(topic, 0).records) == [0]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_topic_that_is_deleted_wakes_its_readers_with_an_error(connect, raw, topic, wait_for_fetch, version):
    reader = connect()
    reader.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), version)
    wait_for_fetch()

    raw.ask(DeleteTopicsRequest(topic_names=(topic.name,)), 5)

    assert ErrorCode(the_partition(reader.receive()).error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_what_is_unknown_does_not_keep_a_fetch_from_waiting_for_the_others(
    connect, raw, topic, wait_for_fetch, version
):
    reader = connect()
    part = FetchPartition(partition=0, partition_max_bytes=1_000)
    unknown = FetchTopic(topic="no-such-topic", topic_id=uuid.uuid4(), partitions=(part,))
    known = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(part,))
    reader.send(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=(unknown, known)), version)
    wait_for_fetch()
    assert not reader.has_answer()

    raw.produce(topic, BATCH)

    answers = [data for of_topic in reader.receive().responses for data in of_topic.partitions]
    assert [len(base_offsets(data.records)) for data in answers] == [1, 0]
    assert answers[0].error_code == ErrorCode.NONE
    assert answers[1].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_error_of_one_partition_is_told_at_once(raw, topic):
    other = raw.create_topic()
    parts = [
        FetchTopic(topic=name, partitions=(FetchPartition(fetch_offset=offset, partition_max_bytes=1_000),))
        for name, offset in ((topic.name, 99), (other.name, 0))
    ]

    response = raw.ask(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=tuple(parts)), BY_NAME)

    errors = [data.error_code for of_topic in response.responses for data in of_topic.partitions]
    assert errors == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]


def test_nobody_waits_for_more_bytes_than_it_takes(raw, topic):
    raw.produce(topic, BATCH)

    data = raw.fetch(topic, 0, max_wait_ms=LONG_MS, min_bytes=1_000_000, max_bytes=len(BATCH))

    assert base_offsets(data.records) == [0]
