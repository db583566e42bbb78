"""Faults of other brokers about compaction, reported in public, as inputs; one test a row.

A broker writes a compacted topic and stops, `exactlog log compact` runs, and a broker serves what is left. The numbers
are those of our list of public faults.
"""

from contextlib import contextmanager

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import iter_headers
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.testing import Broker
from tests.support.compacted_tables import NOW_MS, compact_at
from tests.support.isolated_reader import COMMITTED, UNCOMMITTED, aborted_of, read_on, values
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import COMMIT, TransactionalProducer, produced
from tests.support.transactions import BrokerWriter

DAY_MS = 86_400_000
NAME = "topic=orders-part=0"


class CompactedTopic:
    """A topic of small segments on a data directory of its own."""

    def __init__(self, data_dir):
        self.data_dir = data_dir

    @contextmanager
    def served(self):
        """A broker on it: what writes into the partition, a connection, and the topic."""
        with Broker(self.data_dir) as broker, RawClient(broker.port) as raw:
            if not (self.data_dir / NAME).exists():
                self.topic = raw.create_topic("orders", cleanup_policy="compact", segment_bytes=150)
            yield Writer(broker), raw, self.topic

    def compact(self, *, days=0):
        """With a clock that has gone on so many days since the tests began."""
        return compact_at(self.data_dir, NAME, now_ms=NOW_MS + int(days * DAY_MS))


class Writer(BrokerWriter):
    """Writes records with keys."""

    def __init__(self, broker):
        super().__init__(broker, "orders")

    def put(self, key, value, *, producer_id=None, sequence=0):
        """A record, in a transaction of the producer's if there is one."""
        fields = {}
        if producer_id is not None:
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "is_transactional": True,
            }
        record = NewRecord(value, key, timestamp_ms=self._time_of(None))
        return self.append(build_batch([record], **fields))

    def fill(self):
        """Something that stays, so that all before it is in sealed segments."""
        for number in range(3):
            self.put(b"filler-%d" % number, b"x" * 80)


@pytest.fixture
def compacted(tmp_path):
    return CompactedTopic(tmp_path / "data")


def markers_in(raw, topic):
    """The markers that are left, as offset, producer and outcome."""
    found, offset = [], 0
    while True:
        data = raw.fetch(topic, offset, isolation_level=UNCOMMITTED)
        if offset >= data.high_watermark:
            return found
        for position, header in iter_headers(data.records):
            found += [
                (record.offset, header.producer_id, decode_marker(record).is_commit)
                for record in (decode_records(data.records, position, header=header) if header.is_control else ())
            ]
            offset = header.next_offset


def test_abort_markers_of_two_producers_do_not_supersede_each_other(compacted):
    """B038 (Redpanda PR #15672): of abort markers with one key the newest was kept, and aborted records came back."""
    with compacted.served() as (writer, raw, topic):
        for producer_id in (1, 2):
            writer.put(b"k", b"aborted", producer_id=producer_id)
        for producer_id in (1, 2):
            writer.abort(producer_id)
        writer.put(b"k", b"good")
        writer.fill()
        aborted_before = read_on(raw, topic, isolation=COMMITTED)

    assert compacted.compact().records_removed == 2, "the aborted ones"

    with compacted.served() as (_, raw, topic):
        assert read_on(raw, topic) == aborted_before
        assert b"aborted" not in values(read_on(raw, topic, isolation=UNCOMMITTED))
        assert [(producer_id, is_commit) for _, producer_id, is_commit in markers_in(raw, topic)] == [
            (1, False),
            (2, False),
        ]


def test_commit_markers_of_different_producers_are_not_merged(compacted):
    """B047 (crabka #528): compaction kept one marker per key, and so merged commit markers of different producers."""
    with compacted.served() as (writer, raw, topic):
        for producer_id in (1, 2, 3):
            writer.put(b"key-%d" % producer_id, b"committed", producer_id=producer_id)
        for producer_id in (1, 2, 3):
            writer.commit(producer_id)
        writer.put(b"key-1", b"newer")
        writer.fill()
        before = dict(keyed(raw, topic))

    compacted.compact()
    compacted.compact(days=3)

    with compacted.served() as (_, raw, topic):
        assert dict(keyed(raw, topic)) == before
        assert [producer_id for _, producer_id, is_commit in markers_in(raw, topic) if is_commit] == [1, 2, 3]
        assert raw.list_offset(topic, -1, isolation_level=COMMITTED).offset == raw.list_offset(topic, -1).offset


def keyed(raw, topic):
    """The keys and values that a reader of committed records gets, in order; no aborted one is expected."""
    offset = 0
    while True:
        data = raw.fetch(topic, offset, isolation_level=COMMITTED)
        if offset >= data.last_stable_offset:
            return
        for position, header in iter_headers(data.records):
            if not header.is_control:
                for record in decode_records(data.records, position, header=header):
                    yield record.key, record.value
            offset = header.next_offset


def test_a_transaction_over_several_segments_is_not_torn_by_compactions_in_between(compacted):
    """B115 (KAFKA-8351, KAFKA-13727, KAFKA-8522): markers and tombstones were lost, or kept, by a wrong horizon."""
    with compacted.served() as (writer, raw, topic):
        writer.put(b"a", b"old")
        writer.put(b"gone", b"old")
        writer.put(b"gone", None)
        writer.put(b"other", b"")
        producer = TransactionalProducer(raw, "over segments")
        assert producer.init() == ErrorCode.NONE
        send(producer, topic, b"a", b"first", sequence=0)
        writer.fill()

    assert compacted.compact().records_removed == 1, "of the segments before the undecided offset, and no other"
    with compacted.served() as (writer, raw, topic):
        assert (b"a", b"old") in list(keyed(raw, topic))
        assert b"first" in values(read_on(raw, topic, isolation=UNCOMMITTED))
        producer.raw = raw
        send(producer, topic, b"b", b"second", sequence=1)
        writer.fill()
    compacted.compact(days=3)
    with compacted.served() as (writer, raw, topic):
        assert (b"a", b"first") not in list(keyed(raw, topic))
        producer.raw = raw
        assert producer.end(COMMIT) == ErrorCode.NONE
        while raw.list_offset(topic, -1, isolation_level=COMMITTED).offset < raw.list_offset(topic, -1).offset:
            continue  # its marker is on its way
        writer.put(b"a", b"third")
        writer.put(b"b", b"third")
        writer.fill()

    compacted.compact(days=3)

    with compacted.served() as (_, raw, topic):
        newest = dict(keyed(raw, topic))
        assert (newest[b"a"], newest[b"b"]) == (b"third", b"third")
        assert [outcome for _, _, outcome in markers_in(raw, topic)] == [True]


def send(producer, topic, key, value, *, sequence):
    """A record with a key, in the producer's transaction."""
    records = build_batch(
        [NewRecord(value, key, timestamp_ms=NOW_MS)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = TopicProduceData(topic_id=topic.topic_id, partition_data=(PartitionProduceData(index=0, records=records),))
    request = ProduceRequest(transactional_id="over segments", acks=-1, timeout_ms=10_000, topic_data=(data,))
    assert produced(producer.raw.ask(request, 13)) == [ErrorCode.NONE]


def test_a_tombstone_stays_for_its_retention_and_goes_then(compacted):
    """B115: a reader that begins before the horizon learns of the deletion; what is deleted does not come back."""
    with compacted.served() as (writer, raw, topic):
        writer.put(b"gone", b"old")
        writer.put(b"gone", None)
        writer.put(b"kept", b"new")
        writer.fill()

    for days, tombstones in ((0, 1), (0.9, 1), (1.1, 0)):
        compacted.compact(days=days)
        with compacted.served() as (_, raw, topic):
            found = list(keyed(raw, topic))
            assert (b"gone", b"old") not in found
            assert found.count((b"gone", None)) == tombstones
            assert (b"kept", b"new") in found


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_a_reader_gets_on_over_batches_without_records_and_over_gaps(compacted, isolation):
    """B098 (kafka-go #807, #653, #781): readers got stuck at a batch that yields no records."""
    with compacted.served() as (writer, raw, topic):
        for number in range(12):
            writer.put(b"same", b"%d" % number, producer_id=number % 2 + 1, sequence=number // 2)
            if number % 4 == 3:
                writer.abort(1)
                writer.commit(2)
        writer.put(b"same", b"last")
        writer.fill()
        end = raw.list_offset(topic, -1).offset

    assert compacted.compact().records_removed > 6

    with compacted.served() as (_, raw, topic):
        for start in range(end):
            data = raw.fetch(topic, start, isolation_level=isolation, max_bytes=1)
            headers = [header for _, header in iter_headers(data.records)]
            assert headers[-1].next_offset > start, "an answer below the end takes its reader on"
            assert headers[0].record_count > 0, "and begins with a record, or a marker"
        found = values(read_on(raw, topic, isolation=isolation, max_bytes=1))
        assert found[0] == b"last"
        assert aborted_of(raw.fetch(topic, 0, isolation_level=COMMITTED, max_bytes=1 << 20)) != []
