"""Fetch under both isolation levels (KIP-98): what is withheld, which aborted transactions are named, who is woken."""

import itertools

import pytest

from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.testing import Broker
from tests.support.isolated_reader import COMMITTED, UNCOMMITTED, aborted_of, read_on, seen_in, values
from tests.support.raw_client import (
    BY_ID,
    BY_NAME,
    RawClient,
    base_offsets,
    batch_of,
    fetch_request,
    offsets_and_values,
)
from tests.support.transactions import BrokerWriter
from tests.support.watching import RequestCount

LONG_MS = 60_000  # longer than a client waits for an answer: a fetch that is not woken fails its test
MARKER_BYTES = 78


@pytest.fixture
def writer(broker, topic):
    return BrokerWriter(broker, topic.name)


@pytest.fixture
def fetch(raw, topic):
    """A fetch of read_committed that does not wait."""
    return lambda offset, **fields: raw.fetch(topic, offset, isolation_level=COMMITTED, **fields)


# --- what is withheld ---------------------------------------------------------------------------------------------


def test_a_committed_reader_gets_nothing_from_the_first_open_transaction_on(fetch, writer):
    writer.plain(b"a")
    writer.write(1, b"b")
    writer.plain(b"c")
    writer.write(2, b"d")
    writer.commit(2)

    data = fetch(0)

    assert base_offsets(data.records) == [0]
    assert (data.last_stable_offset, data.high_watermark) == (1, 5)
    for offset in (1, 2, 5):
        assert (fetch(offset).error_code, len(fetch(offset).records)) == (0, 0)


def test_an_uncommitted_reader_gets_everything_at_once(raw, topic, writer):
    writer.write(1, b"a")
    writer.plain(b"b")

    data = raw.fetch(topic, 0)

    assert base_offsets(data.records) == [0, 1]
    assert (data.last_stable_offset, data.high_watermark) == (0, 2)


def test_what_is_decided_is_given_up_to_the_next_open_transaction(fetch, writer):
    writer.write(1, b"a")
    writer.write(2, b"b")
    writer.write(1, b"c")
    writer.commit(1)
    assert base_offsets(fetch(0).records) == [0]

    writer.abort(2)

    assert base_offsets(fetch(0).records) == [0, 1, 2, 3, 4]
    assert values(seen_in(fetch(0), 0)) == [b"a", b"c"]


def test_the_offset_that_is_stable_never_goes_back(raw, topic, writer, fetch):
    seen = []
    steps = [
        lambda: writer.write(1, b"a"),
        lambda: writer.plain(b"b"),
        lambda: writer.write(2, b"c"),
        lambda: writer.commit(1),
        lambda: writer.write(1, b"d"),
        lambda: writer.abort(2),
        lambda: writer.commit(1),
        lambda: raw.delete_records(topic, 3),
        lambda: writer.write(3, b"e"),
        lambda: writer.plain(b"f"),
        lambda: raw.delete_records(topic, -1),
        lambda: writer.abort(3),
    ]
    for step in steps:
        step()
        seen.append(raw.list_offset(topic, -1, isolation_level=COMMITTED).offset)
        seen.append(fetch(seen[-1]).last_stable_offset)

    assert seen == sorted(seen)
    assert seen[-1] == 10


# --- the list of aborted transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_the_list_is_null_for_an_uncommitted_reader_and_never_for_a_committed_one(raw, topic, writer, version):
    assert raw.fetch(topic, 0, version=version, isolation_level=COMMITTED).aborted_transactions == ()
    writer.write(1, b"a")
    writer.abort(1)

    assert raw.fetch(topic, 0, version=version).aborted_transactions is None
    assert aborted_of(raw.fetch(topic, 0, version=version, isolation_level=COMMITTED)) == [(1, 0)]
    assert aborted_of(raw.fetch(topic, 2, version=version, isolation_level=COMMITTED)) == []


def test_it_is_complete_from_every_offset_and_in_the_order_of_beginnings(fetch, writer):
    """1 and 2 overlap, the one that began later ends first; 3 commits, 1 aborts once more."""
    writer.write(1, b"0")
    writer.write(2, b"1")
    writer.write(3, b"2")
    writer.abort(2)
    writer.write(1, b"4")
    writer.abort(1)
    writer.commit(3)
    writer.write(1, b"7")
    writer.abort(1)

    named = [aborted_of(fetch(offset)) for offset in range(10)]
    assert named[:4] == [[(1, 0), (2, 1), (1, 7)]] * 4
    assert named[4:6] == [[(1, 0), (1, 7)]] * 2
    assert named[6:] == [[(1, 7)]] * 3 + [[]]


def test_it_names_none_that_begins_behind_the_batches_of_the_answer(fetch, writer):
    batch = len(batch_of(b"0"))
    for number in range(5):
        writer.write(number, b"%d" % number)
    for number in range(5):
        writer.abort(number)

    for count in range(1, 6):
        data = fetch(0, partition_max_bytes=batch * count)
        assert base_offsets(data.records) == list(range(count))
        assert aborted_of(data) == [(number, number) for number in range(count)]
    assert aborted_of(fetch(0, partition_max_bytes=1)) == [(0, 0)]
    assert aborted_of(fetch(3, partition_max_bytes=batch * 2)) == [(number, number) for number in range(5)]


def test_an_answer_without_batches_names_none(broker, raw, topic, writer):
    """The second partition finds no room in the answer."""
    other = raw.create_topic()
    of_other = BrokerWriter(broker, other.name)
    writer.plain(b"a")
    of_other.write(1, b"b")
    of_other.abort(1)
    parts = (FetchPartition(partition=0, partition_max_bytes=1_000_000, fetch_offset=0),)

    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        isolation_level=COMMITTED,
        topics=(
            FetchTopic(topic=topic.name, partitions=parts),
            FetchTopic(topic=other.name, partitions=parts),
        ),
    )
    first, second = raw.ask(request, BY_NAME).responses

    assert base_offsets(first.partitions[0].records) == [0]
    assert (aborted_of(first.partitions[0]), aborted_of(second.partitions[0])) == ([], [])


def test_it_is_the_same_from_segments_and_after_a_restart(tmp_path):
    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic(segment_bytes=700)
            writer = BrokerWriter(broker, topic.name)
            for number in range(4):
                writer.write(1, b"%d" % number * 150)
                writer.write(2, b"%d" % number * 150)
                writer.abort(2)
                (writer.commit if number % 2 else writer.abort)(1)
            before = [aborted_of(raw.fetch(topic, offset, isolation_level=COMMITTED)) for offset in range(16)]
            seen = read_on(raw, topic)
        broker.restart()
        with RawClient(broker.port) as raw:
            after = [aborted_of(raw.fetch(topic, offset, isolation_level=COMMITTED)) for offset in range(16)]

            assert after == before
            assert before[0] == [(1, 0), (2, 1)]
            assert read_on(raw, topic) == seen
            assert values(seen) == [b"1" * 150, b"3" * 150]


@pytest.mark.parametrize("partition_max_bytes", [1, 100, 200, 300, 1_000, 100_000])
@pytest.mark.parametrize("version", [4, 18])
def test_whatever_fits_an_answer_a_reader_sees_the_same_records(raw, topic, writer, partition_max_bytes, version):
    committed = []
    for number in range(12):
        producer_id = number % 3
        offset = writer.write(producer_id, b"%d" % number, b"%d again" % number)
        if number % 4 == 3:
            writer.abort(producer_id)
        else:
            writer.commit(producer_id)
            committed += [(offset, b"%d" % number), (offset + 1, b"%d again" % number)]

    for start in (0, 1, 2, 10, 11, 12):
        seen = read_on(raw, topic, start, version=version, partition_max_bytes=partition_max_bytes)
        assert seen == [each for each in committed if each[0] >= start]


# --- waiting ------------------------------------------------------------------------------------------------------


@pytest.fixture
def wait(broker, connect, topic):
    """Sends a fetch that waits, and returns its connection once it does."""

    def send(offset, **fields):
        reader, count = connect(), RequestCount(broker, "Fetch")
        reader.send(fetch_request(topic, offset, max_wait_ms=LONG_MS, **fields), BY_ID)
        count.wait_for(1)
        assert not reader.has_answer()
        return reader

    return send


@pytest.fixture
def still_waits(broker):
    def look(reader):
        broker.metrics()  # a turn of the loop, in which an answer would have left
        return not reader.has_answer()

    return look


def the_partition(response):
    (of_topic,) = response.responses
    (data,) = of_topic.partitions
    return data


def test_records_behind_an_open_transaction_do_not_wake_a_committed_reader_and_its_end_does(wait, still_waits, writer):
    writer.write(1, b"a")
    reader = wait(0, isolation_level=COMMITTED)

    writer.plain(b"b")
    writer.write(2, b"c")
    writer.commit(2)
    assert still_waits(reader)
    writer.commit(1)

    data = the_partition(reader.receive())
    assert base_offsets(data.records) == [0, 1, 2, 3, 4]
    assert (data.last_stable_offset, data.high_watermark) == (5, 5)


def test_the_same_records_wake_an_uncommitted_reader(wait, writer):
    writer.write(1, b"a")
    reader = wait(1, isolation_level=UNCOMMITTED)

    writer.plain(b"b")

    assert offsets_and_values(the_partition(reader.receive()).records) == [(1, b"b")]


def test_an_abort_wakes_a_committed_reader_too_and_is_named_in_its_answer(wait, writer):
    writer.write(1, b"a")
    reader = wait(0, isolation_level=COMMITTED)

    writer.abort(1)

    data = the_partition(reader.receive())
    assert (base_offsets(data.records), aborted_of(data)) == ([0, 1], [(1, 0)])


def test_a_committed_reader_without_transactions_is_woken_by_records(wait, writer):
    reader = wait(0, isolation_level=COMMITTED)

    writer.plain(b"a")

    assert base_offsets(the_partition(reader.receive()).records) == [0]


def test_bytes_count_once_they_are_stable(wait, still_waits, writer):
    batch = len(batch_of(b"a"))
    writer.write(1, b"a")
    reader = wait(0, isolation_level=COMMITTED, min_bytes=2 * batch + MARKER_BYTES + 1)

    writer.plain(b"b")
    writer.commit(1)
    assert still_waits(reader)
    writer.plain(b"c")

    assert base_offsets(the_partition(reader.receive()).records) == [0, 1, 2, 3]


def test_a_reader_behind_what_is_stable_is_not_woken_before_that_reaches_it(wait, still_waits, writer):
    """It has read further before, uncommitted."""
    writer.write(1, b"a")
    writer.write(2, b"b")
    reader = wait(2, isolation_level=COMMITTED)

    writer.commit(1)
    assert still_waits(reader)
    writer.commit(2)

    assert base_offsets(the_partition(reader.receive()).records) == [2, 3]


def test_a_reader_whose_time_is_over_is_told_where_things_stand(raw, topic, writer):
    writer.write(1, b"a")

    data = raw.fetch(topic, 0, isolation_level=COMMITTED, max_wait_ms=20)

    assert (len(data.records), data.last_stable_offset, data.high_watermark) == (0, 0, 1)


# --- sessions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def in_session(raw, topic):
    """Fetches in one session: what each answer tells of the partition; None where it leaves it out."""
    epochs, session_ids = itertools.count(), [0]

    def fetch(offset=None):
        part = FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=1_000_000)
        topics = () if offset is None else (FetchTopic(topic_id=topic.topic_id, partitions=(part,)),)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=COMMITTED,
            session_id=session_ids[-1],
            session_epoch=next(epochs),
            topics=topics,
        )
        response = raw.ask(request, BY_ID)
        assert response.error_code == 0
        session_ids.append(response.session_id)
        return the_partition(response) if response.responses else None

    return fetch


def test_a_session_tells_what_becomes_stable_and_what_is_new_behind_it(in_session, writer):
    assert in_session(0) is not None
    assert in_session() is None

    writer.write(1, b"a")
    told = in_session()
    assert (told.high_watermark, told.last_stable_offset, len(told.records)) == (1, 0, 0)
    assert in_session() is None

    writer.abort(1)
    told = in_session()
    assert (told.high_watermark, told.last_stable_offset, aborted_of(told)) == (2, 2, [(1, 0)])
    assert in_session(2) is None


def test_a_session_tells_that_what_is_stable_has_moved_without_a_record(in_session, raw, topic, writer):
    """The records that were undecided are deleted: the log begins behind them, and what is stable with it."""
    writer.write(1, b"a")
    told = in_session(0)
    assert (told.high_watermark, told.last_stable_offset) == (1, 0)
    assert in_session(1) is None

    raw.delete_records(topic, -1)

    told = in_session()
    assert (told.high_watermark, told.last_stable_offset, told.log_start_offset) == (1, 1, 1)
