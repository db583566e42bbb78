"""DescribeLogDirs and DescribeProducers: how large the logs are, and who writes to them."""

import shutil

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of, sequenced

BATCH = batch_of(b"value")


def log_dirs(raw, asked, version=4):
    topics = (
        None
        if asked is None
        else tuple(DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in asked)
    )
    answer = raw.ask(DescribeLogDirsRequest(topics=topics), version)
    assert answer.error_code == 0
    (directory,) = answer.results
    sizes = {
        (topic.name, part.partition_index): (part.partition_size, part.offset_lag, part.is_future_key)
        for topic in directory.topics
        for part in topic.partitions
    }
    return directory, sizes


@pytest.mark.parametrize("version", range(6))
def test_a_partition_is_as_large_as_what_was_committed_of_it(raw, version):
    topic = raw.create_topic(partitions=3, segment_bytes=2 * len(BATCH))
    for count in range(3):
        raw.produce(topic, BATCH, partition=0)
        raw.produce(topic, BATCH, partition=min(count, 1))

    directory, sizes = log_dirs(raw, [(topic.name, (0, 1, 2))], version)

    assert sizes == {(topic.name, index): (count * len(BATCH), 0, False) for index, count in enumerate((4, 2, 0))}
    assert (directory.error_code, directory.log_dir, directory.is_cordoned) == (0, "memory", False)


def test_null_is_all_partitions_and_an_empty_list_none(raw, topic):
    _, of_all = log_dirs(raw, None)
    _, of_none = log_dirs(raw, [])

    assert (topic.name, 0) in of_all
    assert of_none == {}


def test_what_is_unknown_is_left_out(raw, topic):
    _, sizes = log_dirs(raw, [(topic.name, (-1, 0, 1, 0)), ("no-such-topic", (0,))])

    assert list(sizes) == [(topic.name, 0)]


def test_a_directory_on_a_disk_is_told_with_the_bytes_of_the_disk_and_what_is_not_open_is_opened(tmp_path):
    with Broker(data_dir=tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic(partitions=2)
            raw.produce(topic, BATCH, partition=1)
        broker.restart()
        with RawClient(broker.port) as raw:
            directory, sizes = log_dirs(raw, None)
            before, _ = log_dirs(raw, None, version=3)

    assert directory.log_dir == str(tmp_path)
    assert directory.total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < directory.usable_bytes <= directory.total_bytes
    assert (before.total_bytes, before.usable_bytes) == (-1, -1)
    assert sizes == {(topic.name, 0): (0, 0, False), (topic.name, 1): (len(BATCH), 0, False)}


# --- producers ----------------------------------------------------------------------------------------------------


def producers(raw, name, *partitions):
    asked = DescribeProducersTopic(name=name, partition_indexes=partitions)
    (of_topic,) = raw.ask(DescribeProducersRequest(topics=(asked,)), 0).topics
    assert of_topic.name == name
    return {part.partition_index: part for part in of_topic.partitions}


def new_producer(raw):
    return raw.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4).producer_id


def test_producers_are_shown_with_their_epoch_and_their_last_sequence(raw):
    topic = raw.create_topic(partitions=2)
    one, two = new_producer(raw), new_producer(raw)
    raw.produce(topic, sequenced(two, 0, b"a", b"b", epoch=3, timestamp_ms=1_700_000_000_000))
    raw.produce(topic, sequenced(one, 0, b"c", timestamp_ms=1_700_000_000_007))
    raw.produce(topic, sequenced(two, 2, b"d", epoch=3, timestamp_ms=1_700_000_000_009))
    raw.produce(topic, batch_of(b"of nobody"))

    found = producers(raw, topic.name, 0, 1)

    assert [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
        for each in found[0].active_producers
    ] == [(one, 0, 0, 1_700_000_000_007), (two, 3, 2, 1_700_000_000_009)]
    assert {(each.coordinator_epoch, each.current_txn_start_offset) for each in found[0].active_producers} == {(-1, -1)}
    assert found[1].active_producers == ()
    assert {part.error_code for part in found.values()} == {0}


def test_what_is_unknown_has_no_producers(raw, topic):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    errors = [
        producers(raw, name, index)[index].error_code
        for name, index in ((topic.name, 1), (topic.name, -1), ("no-such-topic", 0), ("in/valid", 0))
    ]

    assert errors == [unknown, unknown, unknown, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_producers_are_remembered_over_a_restart():
    with Broker() as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            producer_id = new_producer(raw)
            raw.produce(topic, sequenced(producer_id, 0, b"a", b"b"))
        broker.restart()
        with RawClient(broker.port) as raw:
            (found,) = producers(raw, topic.name, 0)[0].active_producers

    assert (found.producer_id, found.last_sequence) == (producer_id, 1)
