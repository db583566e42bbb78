"""Faults of other brokers and clients about reading transactions, reported in public, as inputs; one test a row.

The numbers are those of our list of public faults. What clients do with the answers is played by a reader that leaves
out what Kafka's consumer does.
"""

import random

import pytest

from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.record.batch_format import iter_headers
from exactlog.core.record.control_record_format import ControlType, decode_control_type, decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.testing import Broker
from tests.support.isolated_reader import COMMITTED, UNCOMMITTED, aborted_of, read_on, seen_in, values
from tests.support.raw_client import BY_NAME, RawClient, base_offsets, batch_of, fetch_request
from tests.support.transactions import BrokerWriter
from tests.support.watching import RequestCount, requests_handled

LATEST = -1


@pytest.fixture
def writer(broker, topic):
    return BrokerWriter(broker, topic.name)


# --- what is stable -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_not_one_record_of_an_open_transaction_reaches_a_committed_reader(raw, topic, writer, is_commit):
    """B020 (Redpanda PR #3036, Jepsen): the last stable offset was taken for inclusive, one record too many seen."""
    writer.plain(b"before")
    writer.write(1, b"undecided")

    assert values(read_on(raw, topic)) == [b"before"]
    writer.end(1, is_commit=is_commit)
    assert values(read_on(raw, topic)) == [b"before", *([b"undecided"] if is_commit else [])]


def test_a_log_that_begins_with_an_open_transaction_is_empty_and_no_error(raw, topic, writer):
    """B021 (Redpanda PR #3159): a log whose last stable offset is its start tripped an assertion."""
    writer.write(1, b"first ever")

    data = raw.fetch(topic, 0, isolation_level=COMMITTED)

    assert (data.error_code, len(data.records), data.last_stable_offset, data.high_watermark) == (0, 0, 0, 1)
    assert raw.list_offset(topic, LATEST, isolation_level=COMMITTED).offset == 0


def test_what_was_seen_as_stable_never_shrinks_not_even_over_a_restart(tmp_path):
    """B023 (Redpanda PR #7544, #7521): after a leadership move with an open transaction readers saw offsets shrink."""
    seen = []

    def look(raw, topic):
        seen.append(raw.list_offset(topic, LATEST, isolation_level=COMMITTED).offset)
        seen.append(raw.fetch(topic, 0, isolation_level=COMMITTED).last_stable_offset)

    with Broker(tmp_path) as broker:
        with RawClient(broker.port) as raw:
            topic = raw.create_topic()
            writer = BrokerWriter(broker, topic.name)
            look(raw, topic)
            writer.plain(b"a")
            look(raw, topic)
            writer.write(1, b"b")
            writer.plain(b"c")
            look(raw, topic)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as raw:
            look(raw, topic)
            BrokerWriter(broker, topic.name).plain(b"d")
            look(raw, topic)

    assert seen == sorted(seen)
    assert seen[:6] == [0, 0, 1, 1, 1, 1]


def test_a_committed_reader_uses_the_stable_offset_where_it_ends(raw, topic, writer):
    """B045 (nisshi PR #689): read_committed ended at the high watermark."""
    writer.plain(b"a")
    writer.write(1, b"b")
    writer.write(1, b"c")

    assert values(read_on(raw, topic)) == [b"a"]
    assert values(read_on(raw, topic, isolation=UNCOMMITTED)) == [b"a", b"b", b"c"]


def test_an_open_transaction_holds_up_nobody_in_another_partition(broker, raw, topic, writer):
    """B048 (nisshi PR #713): a fetch stalled because of a transaction that had nothing to do with it."""
    other = raw.create_topic(partitions=2)
    writer.write(1, b"open")
    BrokerWriter(broker, other.name, partition=0).write(1, b"open too")
    BrokerWriter(broker, other.name, partition=1).plain(b"a")

    assert base_offsets(raw.fetch(other, 0, partition=1, isolation_level=COMMITTED).records) == [0]
    part = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in (0, 1)]
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        isolation_level=COMMITTED,
        topics=(FetchTopic(topic=other.name, partitions=part),),
    )
    (of_topic,) = raw.ask(request, BY_NAME).responses
    assert [base_offsets(data.records) for data in of_topic.partitions] == [[], [0]]


def test_the_latest_offset_is_what_a_reader_can_reach(raw, topic, writer):
    """B105 (klag-exporter #104), B107 (SPARK-24720): lag and end were computed from the high watermark."""
    writer.plain(b"a")
    writer.write(1, b"b")
    writer.plain(b"c")

    assert raw.list_offset(topic, LATEST, isolation_level=COMMITTED).offset == 1
    assert raw.list_offset(topic, LATEST, isolation_level=UNCOMMITTED).offset == 3
    writer.abort(1)
    assert raw.list_offset(topic, LATEST, isolation_level=COMMITTED).offset == 4


# --- waiting --------------------------------------------------------------------------------------------------------


def test_readers_of_a_long_open_transaction_wait_and_ask_again_only_when_it_ends(broker, connect, topic, writer):
    """B041 (Redpanda #17788): committed readers were woken by each record behind the open transaction, to no end."""
    writer.write(1, b"open")
    readers, count = [connect() for _ in range(10)], RequestCount(broker, "Fetch")
    for reader in readers:
        reader.send(fetch_request(topic, 0, isolation_level=COMMITTED, max_wait_ms=60_000), BY_NAME)
    count.wait_for(len(readers))
    asked = requests_handled(broker, "Fetch")

    for number in range(50):
        writer.plain(b"%d" % number)
    broker.metrics()
    assert not any(reader.has_answer() for reader in readers)
    writer.abort(1)

    for reader in readers:
        (of_topic,) = reader.receive().responses
        assert values(seen_in(of_topic.partitions[0], 0)) == [b"%d" % number for number in range(50)]
    assert requests_handled(broker, "Fetch") == asked


# --- the list of aborted transactions ---------------------------------------------------------------------------------


def test_an_uncommitted_reader_is_given_aborted_records(raw, topic, writer):
    """B031 (Redpanda #6630): read_uncommitted hid records that were aborted."""
    writer.write(1, b"a", b"b", b"c")
    writer.abort(1)

    assert values(read_on(raw, topic, isolation=UNCOMMITTED)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(4, 19))
def test_an_uncommitted_reader_gets_no_list(raw, topic, writer, version):
    """B032 (franz-go PR #758, of Redpanda): with a list on an uncommitted answer clients dropped data."""
    writer.write(1, b"a")
    writer.abort(1)

    assert raw.fetch(topic, 0, version=version, isolation_level=UNCOMMITTED).aborted_transactions is None


@pytest.mark.parametrize("version", [4, 11, 18])
def test_a_committed_reader_gets_each_aborted_transaction_of_the_range(raw, topic, writer, version):
    """B044 (nisshi PR #716): the list was an empty stub, and clients delivered what was aborted."""
    writer.write(1, b"a")
    writer.write(2, b"b")
    writer.abort(1)
    writer.commit(2)
    writer.write(2, b"c")
    writer.abort(2)

    data = raw.fetch(topic, 0, version=version, isolation_level=COMMITTED)

    assert aborted_of(data) == [(1, 0), (2, 4)]
    assert values(seen_in(data, 0)) == [b"b"]


@pytest.mark.parametrize("offset", range(12))
def test_a_transaction_that_began_before_the_fetch_is_in_the_list(raw, topic, writer, offset):
    """B063 (franz-go d6655dd5), B085 (librdkafka #3020): it was left out, and the rest of it was seen."""
    for number in range(10):
        writer.write(1, b"%d" % number)
    writer.abort(1)
    writer.plain(b"after")

    data = raw.fetch(topic, offset, isolation_level=COMMITTED)

    assert aborted_of(data) == ([(1, 0)] if offset < 11 else [])
    assert values(seen_in(data, offset)) == [b"after"]


def test_commit_markers_of_the_same_producer_do_not_end_what_is_aborted(raw, topic, writer):
    """brod #659: a reader gave up an aborted transaction at another marker of its producer."""
    writer.write(1, b"a")
    writer.commit(1)
    writer.write(1, b"b")
    writer.write(2, b"c")
    writer.commit(2)
    writer.write(1, b"d")
    writer.abort(1)
    writer.write(1, b"e")
    writer.commit(1)

    for offset in range(9):
        data = raw.fetch(topic, offset, isolation_level=COMMITTED)
        expected = [(0, b"a"), (3, b"c"), (7, b"e")]
        assert seen_in(data, offset) == [each for each in expected if each[0] >= offset]


@pytest.mark.parametrize("seed", range(4))
def test_a_mix_of_commits_and_aborts_is_read_as_what_was_committed(raw, topic, writer, seed):
    """B096 (kafka-python #1707), B097 (kafka-go #1332, #1446): aborted and control records were delivered."""
    rng, committed, opened = random.Random(seed), [], {}
    for number in range(60):
        producer_id = rng.randint(1, 4)
        if producer_id in opened and rng.random() < 0.4:
            is_commit = rng.random() < 0.5
            writer.end(producer_id, is_commit=is_commit)
            written = opened.pop(producer_id)
            committed += written if is_commit else []
        elif rng.random() < 0.2:
            committed.append((writer.plain(b"%d" % number), b"%d" % number))
        else:
            offset = writer.write(producer_id, b"%d" % number)
            opened.setdefault(producer_id, []).append((offset, b"%d" % number))
    for producer_id in opened:
        writer.abort(producer_id)

    for limits in ({}, {"partition_max_bytes": 1}, {"partition_max_bytes": 300}):
        assert read_on(raw, topic, **limits) == sorted(committed)


def test_the_list_and_the_records_are_of_one_moment(connect, topic, writer, broker):
    """B101 (KoP #1283, #1856): the stable offset and the list were read at different times, aborted records were seen.

    A reader waits for more than there is; whatever is aborted meanwhile stands in the answer, records and list alike.
    """
    reader, count = connect(), RequestCount(broker, "Fetch")
    batch = len(batch_of(b"a"))
    request = fetch_request(topic, 0, isolation_level=COMMITTED, min_bytes=8 * batch, max_wait_ms=60_000)
    reader.send(request, BY_NAME)
    count.wait_for(1)

    for _ in range(4):
        writer.write(1, b"aborted")
        writer.abort(1)

    (of_topic,) = reader.receive().responses
    (data,) = of_topic.partitions
    last = [header for _, header in iter_headers(data.records)][-1]
    assert last.next_offset <= data.last_stable_offset
    assert aborted_of(data) == [(1, first) for first in (0, 2, 4, 6) if first < last.next_offset]
    assert seen_in(data, 0) == []


# --- getting on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_a_reader_gets_on_over_markers_and_what_was_aborted(raw, topic, writer, isolation):
    """B098 (kafka-go #807, #653, #781), B099 (sarama #2053, brod #659, kafkajs #403, #1256): readers stalled on a
    window of control batches only."""
    for producer_id in range(5):
        writer.write(producer_id, b"aborted")
    for producer_id in range(5):
        writer.abort(producer_id)
    writer.plain(b"last")

    for offset in range(11):
        seen = read_on(raw, topic, offset, isolation=isolation, partition_max_bytes=1)
        assert seen[-1] == (10, b"last")
        assert len(seen) == (1 if isolation is COMMITTED else 1 + max(0, 5 - offset))
    data = raw.fetch(topic, 5, isolation_level=isolation, partition_max_bytes=1)
    assert [header.is_control for _, header in iter_headers(data.records)] == [True]


def test_offsets_have_gaps_where_markers_are_and_nothing_is_renumbered(raw, topic, writer):
    """B102 (Pinot #18337 ff.), B106 (SPARK-25005), B108 (Hudi #8258): gaps were taken for loss, or for records."""
    writer.write(1, b"a")
    writer.commit(1)
    writer.write(1, b"b")
    writer.abort(1)
    writer.plain(b"c")
    writer.write(1, b"d")
    writer.commit(1)

    assert read_on(raw, topic) == [(0, b"a"), (4, b"c"), (5, b"d")]
    for start, expected in ((1, [4, 5]), (2, [4, 5]), (3, [4, 5]), (6, []), (7, [])):
        assert [offset for offset, _ in read_on(raw, topic, start)] == expected
    assert raw.list_offset(topic, LATEST, isolation_level=COMMITTED).offset == 7


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_has_the_bytes_that_strict_readers_want(raw, topic, writer, is_commit):
    """B072 (kfake): control records had no value, and strict readers refused them."""
    writer.write(1, b"a")
    writer.end(1, is_commit=is_commit, coordinator_epoch=7)

    _, (position, header) = iter_headers(raw.fetch(topic, 0).records)
    records = raw.fetch(topic, 0).records
    (record,) = decode_records(records, position, header=header)

    assert (header.is_control, header.is_transactional, header.base_sequence, header.record_count) == (
        True,
        True,
        -1,
        1,
    )
    assert header.attributes & 7 == 0
    assert decode_control_type(record.key) is (ControlType.COMMIT if is_commit else ControlType.ABORT)
    assert record.key == bytes([0, 0, 0, int(is_commit)])
    assert record.value == bytes([0, 0, 0, 0, 0, 7])
    assert decode_marker(record).coordinator_epoch == 7
