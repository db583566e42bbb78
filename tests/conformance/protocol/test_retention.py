"""What leaves a broker by itself: old segments by retention, and the files of what was removed or deleted."""

from pathlib import Path

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.storage.table_reader import open_table
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of, offsets_and_values, sequenced
from tests.support.watching import wait_until

EARLIEST = -2
HOUR_MS = 3_600_000
CONFIG = {
    "retention.check.interval.ms": 20,
    "file.delete.delay.ms": 10_000,
    "connections.max.idle.ms": 24 * HOUR_MS,  # the clock is moved by an hour
}


@pytest.fixture
def broker(tmp_path):
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        yield broker


@pytest.fixture
def client(broker):
    with RawClient(broker.port) as client:
        yield client


def partition_directory(broker, topic):
    return Path(broker.data_dir) / f"topic={topic.name}-part=0"


def fill(client, topic, *, count=6, timestamp_ms):
    for number in range(count):
        assert client.produce(topic, batch_of(b"%06d" % number, timestamp_ms=timestamp_ms)).error_code == 0


def start_of(client, topic):
    return client.list_offset(topic, EARLIEST).offset


def logs_of(directory):
    return sorted(path.name for path in directory.glob("*.log"))


def test_segments_that_are_too_much_leave_from_the_front_and_readers_are_told_where_the_log_begins(broker, client):
    topic = client.create_topic(**{"segment.bytes": "100", "retention.bytes": "170"})
    fill(client, topic, timestamp_ms=broker.clock.now_ms())
    wait_until(lambda: start_of(client, topic) == 3)

    assert client.fetch(topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fetched = client.fetch(topic, 3)
    assert offsets_and_values(fetched.records) == [(3, b"000003")]
    assert fetched.log_start_offset == 3


def test_segments_that_are_too_old_leave_also_the_last_one(broker, client):
    topic = client.create_topic(**{"retention.ms": str(HOUR_MS)})
    fill(client, topic, timestamp_ms=broker.clock.now_ms())
    broker.clock.advance_ms(HOUR_MS + 1)
    wait_until(lambda: start_of(client, topic) == 6)

    assert client.produce(topic, batch_of(b"new", timestamp_ms=broker.clock.now_ms())).base_offset == 6
    assert offsets_and_values(client.fetch(topic, 6).records) == [(6, b"new")]


def test_a_topic_that_nobody_has_touched_since_the_start_gets_older_too(broker, client):
    topic = client.create_topic(**{"retention.ms": str(HOUR_MS)})
    fill(client, topic, timestamp_ms=broker.clock.now_ms())
    client.close()
    broker.restart()
    broker.clock.advance_ms(HOUR_MS + 1)

    directory = partition_directory(broker, topic)
    wait_until(lambda: broker.metrics() and open_table(directory).snapshot().log_start_offset == 6)


def test_a_compacted_topic_and_one_without_bounds_keep_everything(broker, client):
    kept = [
        client.create_topic(**{"cleanup.policy": "compact", "retention.ms": "1"}),
        client.create_topic(**{"retention.ms": "-1"}),
    ]
    leaving = client.create_topic(**{"retention.ms": "1"})
    for topic in (*kept, leaving):
        assert client.produce(topic, keyed(timestamp_ms=1)).error_code == 0
    wait_until(lambda: start_of(client, leaving) == 1)
    wait_until(lambda: start_of(client, leaving) == 1)

    assert [start_of(client, topic) for topic in kept] == [0, 0]


def keyed(**fields):
    from exactlog.core.record.batch_builder import NewRecord, build_batch

    return build_batch([NewRecord(b"v", key=b"k", **fields)])


def test_files_of_removed_segments_go_after_their_delay_and_versions_before_can_no_longer_be_read(broker, client):
    topic = client.create_topic(**{"segment.bytes": "100"})
    fill(client, topic, timestamp_ms=broker.clock.now_ms())
    client.delete_records(topic, 4)
    directory = partition_directory(broker, topic)
    assert len(logs_of(directory)) == 6
    broker.clock.advance_ms(10_001)
    wait_until(lambda: broker.metrics() and len(logs_of(directory)) == 2)

    client.close()
    broker.restart()
    with RawClient(broker.port) as again:
        assert start_of(again, topic) == 4
        assert offsets_and_values(again.fetch(topic, 4).records) == [(4, b"000004")]


def delete(client, topic):
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=topic.name),))
    (answer,) = client.ask(request, 6).responses
    assert answer.error_code == ErrorCode.NONE


def test_a_topic_of_the_same_name_begins_anew_at_once_and_the_old_files_go_after_their_delay(broker, client):
    old = client.create_topic("again")
    assert client.produce(old, sequenced(7, 0, b"old")).base_offset == 0
    delete(client, old)
    new = client.create_topic("again", **{"retention.ms": "-1"})
    assert new.topic_id != old.topic_id
    deleted = Path(broker.data_dir) / ".deleted"
    assert len(list(deleted.iterdir())) == 1

    refused = client.produce(new, sequenced(7, 1, b"of the old topic's producer"))
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "its state went with its topic"
    assert client.produce(new, sequenced(7, 0, b"new")).base_offset == 0
    assert offsets_and_values(client.fetch(new, 0).records) == [(0, b"new")]
    broker.clock.advance_ms(10_001)
    wait_until(lambda: broker.metrics() and not list(deleted.iterdir()))
    assert offsets_and_values(client.fetch(new, 0).records) == [(0, b"new")]


def test_files_of_deleted_topics_that_a_crash_left_go_at_the_next_start(broker, client):
    topic = client.create_topic("gone")
    client.produce(topic, batch_of(b"v"))
    delete(client, topic)
    deleted = Path(broker.data_dir) / ".deleted"
    broker.kill()
    assert list(deleted.iterdir())
    broker.restart()

    wait_until(lambda: broker.metrics() and not list(deleted.iterdir()))
