"""DeleteRecords: where a log begins is moved for good, told once it is durable, as Apache Kafka does it (KIP-107)."""

import errno

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.testing import Broker
from tests.support.faulty_broker import FaultyBroker
from tests.support.raw_client import BY_NAME, RawClient, Topic, batch_of, offsets_and_values, produce_request
from tests.support.watching import RequestCount

EARLIEST = -2
HIGH_WATERMARK = -1


def told(answer):
    return ErrorCode(answer.error_code), answer.low_watermark


def deletion(*offsets):
    """A request of `(topic, partition, offset)`, one topic entry for each."""
    topics = tuple(
        DeleteRecordsTopic(name=name, partitions=(DeleteRecordsPartition(partition_index=index, offset=offset),))
        for name, index, offset in offsets
    )
    return DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def all_told(response):
    return [
        (of_topic.name, of_partition.partition_index, *told(of_partition))
        for of_topic in response.topics
        for of_partition in of_topic.partitions
    ]


def filled(raw, *, count=3, **config):
    """A topic with so many records, a batch each."""
    topic = raw.create_topic(**config)
    for index in range(count):
        while raw.produce(topic, build_batch([NewRecord(b"%d" % index, b"k", timestamp_ms=1)])).error_code:
            pass  # Apache Kafka tells of a topic before it leads it
    return topic


@pytest.mark.parametrize("version", range(3))
def test_a_log_begins_where_it_is_told_to(raw, version):
    topic = filled(raw)

    answer = raw.delete_records(topic, 2, version=version)

    assert told(answer) == (ErrorCode.NONE, 2)
    assert raw.list_offset(topic, EARLIEST).offset == 2
    fetched = raw.fetch(topic, 2)
    assert (fetched.log_start_offset, fetched.high_watermark) == (2, 3)
    assert offsets_and_values(fetched.records) == [(2, b"2")]
    assert raw.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert raw.produce(topic, batch_of(b"more")).log_start_offset == 2


def test_the_start_may_lie_inside_a_batch(raw, topic):
    raw.produce(topic, batch_of(b"a", b"b", b"c", compression=Compression.GZIP))

    assert told(raw.delete_records(topic, 1)) == (ErrorCode.NONE, 1)

    assert raw.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert raw.fetch(topic, 1).error_code == ErrorCode.NONE


def test_all_records_go_below_the_high_watermark_and_the_next_one_follows(raw):
    topic = filled(raw)

    assert told(raw.delete_records(topic, HIGH_WATERMARK)) == (ErrorCode.NONE, 3)

    assert bytes(raw.fetch(topic, 3).records) == b""
    assert raw.produce(topic, batch_of(b"next")).base_offset == 3
    assert offsets_and_values(raw.fetch(topic, 3).records) == [(3, b"next")]


def test_each_partition_of_a_request_gets_what_it_is_due(raw):
    topic, other = raw.create_topic(partitions=3), filled(raw)
    for partition in range(3):
        raw.produce(topic, batch_of(b"a", b"b"), partition=partition)

    response = raw.ask(
        deletion(
            (topic.name, 2, 1),
            ("no-such-topic", 0, 0),
            (topic.name, 1, 3),
            (other.name, 0, HIGH_WATERMARK),
            (topic.name, 3, 0),
            (topic.name, 0, 2),
        ),
        2,
    )

    assert all_told(response) == [
        (topic.name, 2, ErrorCode.NONE, 1),
        (topic.name, 1, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (topic.name, 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (topic.name, 0, ErrorCode.NONE, 2),
        ("no-such-topic", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (other.name, 0, ErrorCode.NONE, 3),
    ]
    assert [raw.list_offset(topic, EARLIEST, partition=index).offset for index in range(3)] == [2, 0, 1]


def test_a_request_about_nothing_is_answered(raw):
    assert raw.ask(DeleteRecordsRequest(), 2).topics == ()


def story(raw):
    """What a broker tells of every kind of offset and topic, in the order asked."""
    topic = filled(raw)
    answers = [
        (*told(raw.delete_records(topic, offset)), raw.list_offset(topic, EARLIEST).offset)
        for offset in (1, 0, 1, 4, -2, 2, HIGH_WATERMARK, 3, 2, 4)
    ]
    answers.append(told(raw.delete_records(topic, 0, partition=1)))
    answers += [told(raw.delete_records(Topic(name, None), 0)) for name in ("no-such-topic", "", "in valid")]
    twice = filled(raw)
    for offsets in ((1, 2, 9), (9, 2)):
        named = raw.ask(deletion(*((twice.name, 0, offset) for offset in offsets)), 2)
        answers.append([told(of_partition) for of_topic in named.topics for of_partition in of_topic.partitions])
    for policy in ("compact", "compact,delete", "delete"):
        kept = filled(raw, cleanup_policy=policy)
        answers += [told(raw.delete_records(kept, offset)) for offset in (1, 99, HIGH_WATERMARK)]
    return answers


@pytest.mark.peer
def test_apache_kafka_tells_the_same(raw, apache_kafka):
    with RawClient(apache_kafka.port) as apache:
        assert story(raw) == story(apache)


def test_a_topic_that_is_only_compacted_keeps_its_records(raw):
    topic = filled(raw, cleanup_policy="compact")

    assert told(raw.delete_records(topic, 1)) == (ErrorCode.POLICY_VIOLATION, -1)
    assert raw.list_offset(topic, EARLIEST).offset == 0


@pytest.mark.parametrize("mode", ["commit", "interval", "none"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_start_that_was_told_outlives_the_broker_and_is_moved_on_before_anything_is_open(mode, ending):
    with Broker(config={"flush.mode": mode}) as broker:
        with RawClient(broker.port) as raw:
            topic = filled(raw, count=5)
            assert told(raw.delete_records(topic, 2)) == (ErrorCode.NONE, 2)
        if ending == "kill":
            broker.kill()
        broker.restart()

        with RawClient(broker.port) as raw:
            assert told(raw.delete_records(topic, 1)) == (ErrorCode.NONE, 2)
            assert told(raw.delete_records(topic, 4)) == (ErrorCode.NONE, 4)
            assert offsets_and_values(raw.fetch(topic, 4).records) == [(4, b"4")]


@pytest.fixture
def faulty():
    with FaultyBroker() as faulty:
        yield faulty


def test_nothing_is_told_before_it_is_durable(faulty):
    client, reader = faulty.connect(), faulty.connect()
    topic = filled(client)
    count = RequestCount(faulty.broker, "DeleteRecords")

    with faulty.files.syncs_held():
        client.send(deletion((topic.name, 0, 2)), 2)
        faulty.files.wait_for_sync()
        count.wait_for(1)
        assert not client.has_answer()
        assert reader.fetch(topic, 0).error_code == ErrorCode.NONE

    assert all_told(client.receive()) == [(topic.name, 0, ErrorCode.NONE, 2)]
    assert reader.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_that_is_appended_and_not_yet_durable_is_out_of_range(faulty):
    client, writer = faulty.connect(), faulty.connect()
    topic = filled(client)
    count = RequestCount(faulty.broker, "DeleteRecords")

    with faulty.files.syncs_held():
        writer.send(produce_request(topic, batch_of(b"v")), BY_NAME)
        faulty.files.wait_for_sync()
        client.send(deletion((topic.name, 0, 4)), 2)
        count.wait_for(1)
        assert not client.has_answer()

    assert all_told(client.receive()) == [(topic.name, 0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]


def test_a_full_disk_refuses_and_the_log_begins_where_it_did(faulty):
    client = faulty.connect()
    topic = filled(client)

    faulty.files.capacity_bytes = faulty.files.used_bytes
    refused = client.delete_records(topic, 2)
    faulty.files.capacity_bytes = None

    assert told(refused) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert client.fetch(topic, 0).error_code == ErrorCode.NONE
    assert told(client.delete_records(topic, 1)) == (ErrorCode.NONE, 1)


def test_a_partition_that_cannot_be_opened_is_refused_and_the_others_are_served(faulty, monkeypatch):
    client = faulty.connect()
    topic = client.create_topic(partitions=2)
    store = faulty.broker._node._parts.topics._store
    open_on_disk = store.open

    def open_or_fail(key, *rest):
        if key.partition == 0:
            raise OSError(errno.EIO, "Input/output error")
        return open_on_disk(key, *rest)

    monkeypatch.setattr(store, "open", open_or_fail)

    answers = client.ask(deletion((topic.name, 0, 0), (topic.name, 1, 0)), 2)

    assert all_told(answers) == [
        (topic.name, 0, ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (topic.name, 1, ErrorCode.NONE, 0),
    ]


def test_a_topic_that_is_deleted_meanwhile_is_deleted_after_its_records(faulty):
    client, other = faulty.connect(), faulty.connect()
    topic = filled(client)
    count = RequestCount(faulty.broker, "DeleteTopics")

    with faulty.files.syncs_held():
        client.send(deletion((topic.name, 0, 2)), 2)
        faulty.files.wait_for_sync()
        other.send(DeleteTopicsRequest(topic_names=(topic.name,)), 4)
        count.wait_for(1)

    assert other.receive().responses[0].error_code == ErrorCode.NONE
    assert all_told(client.receive()) == [(topic.name, 0, ErrorCode.NONE, 2)]
    assert told(client.delete_records(topic, 3)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
