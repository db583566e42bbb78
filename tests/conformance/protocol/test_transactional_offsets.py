"""ListOffsets and DescribeProducers where there are transactions: what is stable, what is no record, what is open."""

import pytest

from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.testing import Broker
from tests.support.isolated_reader import COMMITTED, UNCOMMITTED
from tests.support.raw_client import RawClient
from tests.support.transactions import BrokerWriter

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
SOME_TIME = 1_700_000_000_000


@pytest.fixture
def writer(broker, topic):
    return BrokerWriter(broker, topic.name)


@pytest.fixture
def list_offset(raw, topic):
    """(offset, timestamp) at a time."""

    def ask(time, isolation=UNCOMMITTED):
        answer = raw.list_offset(topic, time, isolation_level=isolation)
        assert answer.error_code == 0
        return answer.offset, answer.timestamp

    return ask


# --- ListOffsets --------------------------------------------------------------------------------------------------


def test_the_latest_offset_is_the_stable_one_for_a_committed_reader(list_offset, writer):
    writer.plain(b"a")
    writer.write(1, b"b")
    writer.write(2, b"c")
    writer.commit(2)
    assert (list_offset(LATEST, COMMITTED), list_offset(LATEST)) == ((1, -1), (4, -1))

    writer.abort(1)

    assert (list_offset(LATEST, COMMITTED), list_offset(LATEST)) == ((5, -1), (5, -1))


@pytest.mark.parametrize("version", [2, 6, 7, 11])
def test_it_is_so_in_every_version_with_an_isolation_level(raw, topic, writer, version):
    writer.write(1, b"a")

    offsets = [
        raw.list_offset(topic, LATEST, version=version, isolation_level=level).offset
        for level in (UNCOMMITTED, COMMITTED)
    ]

    assert offsets == [1, 0]


def test_a_search_by_time_finds_no_marker(list_offset, writer):
    """Markers are younger than all records, and are passed over."""
    writer.write(1, b"a", timestamp_ms=SOME_TIME)
    writer.commit(1)
    writer.write(1, b"b", timestamp_ms=SOME_TIME + 10)
    writer.commit(1)

    assert list_offset(SOME_TIME + 1) == (2, SOME_TIME + 10)
    assert list_offset(SOME_TIME + 11) == (-1, -1)


def test_a_search_by_time_finds_aborted_records_as_kafka_does(list_offset, writer):
    writer.write(1, b"a", timestamp_ms=SOME_TIME)
    writer.abort(1)

    assert list_offset(SOME_TIME, COMMITTED) == (0, SOME_TIME)


def test_a_committed_reader_finds_nothing_by_time_behind_what_is_stable(list_offset, writer):
    writer.plain(b"a", timestamp_ms=SOME_TIME)
    writer.write(1, b"b", timestamp_ms=SOME_TIME + 10)
    writer.plain(b"c", timestamp_ms=SOME_TIME + 20)

    assert list_offset(SOME_TIME + 5) == (1, SOME_TIME + 10)
    assert list_offset(SOME_TIME + 5, COMMITTED) == (-1, -1)
    assert list_offset(SOME_TIME, COMMITTED) == (0, SOME_TIME)


def test_the_latest_time_is_that_of_a_record_not_of_a_marker(list_offset, writer):
    writer.write(1, b"a", timestamp_ms=SOME_TIME)
    writer.write(1, b"b", timestamp_ms=SOME_TIME + 20)
    writer.write(1, b"c", timestamp_ms=SOME_TIME + 10)
    writer.commit(1)

    assert list_offset(MAX_TIMESTAMP) == (1, SOME_TIME + 20)


def test_the_latest_time_of_a_committed_reader_is_of_what_is_stable(list_offset, writer):
    writer.plain(b"a", timestamp_ms=SOME_TIME + 5)
    writer.plain(b"b", timestamp_ms=SOME_TIME)
    writer.write(1, b"c", timestamp_ms=SOME_TIME + 30)

    assert list_offset(MAX_TIMESTAMP) == (2, SOME_TIME + 30)
    assert list_offset(MAX_TIMESTAMP, COMMITTED) == (0, SOME_TIME + 5)


def test_a_log_of_markers_has_no_times(list_offset, writer):
    writer.abort(1)

    assert list_offset(MAX_TIMESTAMP) == (-1, -1)
    assert list_offset(0) == (-1, -1)
    assert list_offset(LATEST) == (1, -1)


def test_records_that_were_undecided_when_they_were_deleted_are_not_waited_for(raw, topic, list_offset, writer):
    writer.write(1, b"a")
    writer.write(1, b"b")
    raw.delete_records(topic, 1)

    assert [list_offset(EARLIEST)[0], list_offset(LATEST, COMMITTED)[0], list_offset(LATEST)[0]] == [1, 1, 2]
    assert list_offset(MAX_TIMESTAMP, COMMITTED) == (-1, -1)
    assert list_offset(0, COMMITTED) == (-1, -1)


# --- DescribeProducers --------------------------------------------------------------------------------------------


def producers_of(raw, topic):
    asked = DescribeProducersTopic(name=topic.name, partition_indexes=(0,))
    ((partition,),) = [part.partitions for part in raw.ask(DescribeProducersRequest(topics=(asked,)), 0).topics]
    assert partition.error_code == 0
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in partition.active_producers
    ]


def test_a_producer_is_shown_with_the_beginning_of_its_open_transaction(raw, topic, writer):
    writer.plain(b"of nobody")
    writer.write(1, b"a", b"b")
    writer.write(2, b"c")
    writer.write(1, b"d")
    assert producers_of(raw, topic) == [(1, 0, 2, -1, 1), (2, 0, 0, -1, 3)]

    writer.commit(2, coordinator_epoch=5)

    assert producers_of(raw, topic) == [(1, 0, 2, -1, 1), (2, 0, 0, 5, -1)]


def test_a_marker_of_a_new_epoch_shows_that_epoch_and_no_sequence(raw, topic, writer):
    writer.write(1, b"a")
    writer.abort(1, epoch=1, coordinator_epoch=2)
    assert producers_of(raw, topic) == [(1, 1, -1, 2, -1)]

    writer.write(1, b"b", epoch=1)

    assert producers_of(raw, topic) == [(1, 1, 0, 2, 2)]


def test_a_marker_counts_as_a_sign_of_life(broker, raw, topic, writer):
    before_ms = broker.clock.now_ms()
    writer.write(1, b"a", timestamp_ms=SOME_TIME)
    writer.commit(1)
    asked = DescribeProducersTopic(name=topic.name, partition_indexes=(0,))
    ((partition,),) = [part.partitions for part in raw.ask(DescribeProducersRequest(topics=(asked,)), 0).topics]

    (producer,) = partition.active_producers
    assert producer.last_timestamp >= before_ms


def test_the_coordinators_epoch_is_known_after_a_restart(tmp_path):
    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            writer = BrokerWriter(broker, topic.name)
            writer.write(1, b"a")
            writer.commit(1, coordinator_epoch=3)
            before = producers_of(raw, topic)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as raw:
            assert producers_of(raw, topic) == before == [(1, 0, 0, 3, -1)]
