"""What a broker serves of a topic that was compacted while it was stopped."""

import time

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.metadata import MetadataRequest
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.testing import Broker
from tests.support.compacted_tables import NOW_MS, committed, compact_at, findings_of
from tests.support.isolated_reader import UNCOMMITTED, read_on, values
from tests.support.raw_client import RawClient, Topic, base_offsets

NAME = "topic=orders-part=0"
FIRST_MS = NOW_MS - 1_000_000
RECORDS = 30


def record_of(number, **fields):
    record = NewRecord(b"%d" % number, b"key-%d" % (number % 4), timestamp_ms=FIRST_MS + number)
    return build_batch([record], **fields)


def sequence_of(number, producer_id=7):
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": number}


@pytest.fixture
def data_dir(tmp_path):
    """Thirty records of four keys by one idempotent producer, in small segments; compacted."""
    root = tmp_path / "data"
    with Broker(root) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic("orders", cleanup_policy="compact,delete", segment_bytes=400, retention_ms=-1)
        for number in range(RECORDS):
            assert raw.produce(topic, record_of(number, **sequence_of(number))).error_code == 0
    report = compact_at(root, NAME)
    assert report.segments < report.segments_before
    return root


@pytest.fixture
def served(data_dir):
    with Broker(data_dir) as broker, RawClient(broker.port) as raw:
        (topic,) = [topic for topic in topics_of(raw) if topic.name == "orders"]
        yield broker, raw, topic


def topics_of(raw):
    return [Topic(topic.name, topic.topic_id) for topic in raw.ask(MetadataRequest(topics=None), 12).topics]


def test_an_idempotent_producer_goes_on_with_its_next_sequence(served):
    _, raw, topic = served
    again = raw.produce(topic, record_of(RECORDS - 1, **sequence_of(RECORDS - 1)))
    assert (again.error_code, again.base_offset) == (0, RECORDS - 1), "a resend is recognised"
    gap = raw.produce(topic, record_of(RECORDS, **sequence_of(RECORDS + 5)))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    following = raw.produce(topic, record_of(RECORDS, **sequence_of(RECORDS)))
    assert (following.error_code, following.base_offset) == (0, RECORDS)


def test_every_offset_can_be_fetched_from_and_finds_the_same_records(served, data_dir):
    _, raw, topic = served
    left = [(record.offset, record.value) for record in committed(data_dir, NAME)]
    for start in range(RECORDS):
        expected = [(offset, value) for offset, value in left if offset >= start]
        assert read_on(raw, topic, start) == expected
        assert read_on(raw, topic, start, isolation=UNCOMMITTED, max_bytes=1) == expected


def test_times_lead_to_the_records_that_are_left(served, data_dir):
    _, raw, topic = served
    left = [record.offset for record in committed(data_dir, NAME)]
    for number in range(RECORDS):
        found = raw.list_offset(topic, FIRST_MS + number)
        assert found.offset == min(offset for offset in left if offset >= number)
    youngest = raw.list_offset(topic, -3)
    assert (youngest.offset, youngest.timestamp) == (RECORDS - 1, FIRST_MS + RECORDS - 1)


def test_a_batch_without_records_is_never_the_youngest(tmp_path):
    with Broker(tmp_path) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic("orders", cleanup_policy="compact", segment_bytes=400)

        def put(key, value, *, age_ms, **fields):
            record = NewRecord(value, key, timestamp_ms=FIRST_MS - age_ms)
            assert raw.produce(topic, build_batch([record], **fields)).error_code == 0

        put(b"k", b"old", age_ms=0, **sequence_of(0))
        put(b"k", b"new", age_ms=5_000)
        for number in range(3):
            put(b"filler-%d" % number, b"x" * 300, age_ms=9_000)
    assert compact_at(tmp_path, NAME).records_removed == 1
    with Broker(tmp_path) as broker, RawClient(broker.port) as raw:
        youngest = raw.list_offset(topic, -3)
        assert (youngest.offset, youngest.timestamp) == (1, FIRST_MS - 5_000)
        assert raw.list_offset(topic, FIRST_MS - 4_000).offset == -1
    assert findings_of(tmp_path, NAME) == []


def test_files_of_replaced_segments_go_after_their_delay_and_nobody_misses_them(data_dir):
    before = sorted(path.name for path in (data_dir / NAME).glob("*.log"))
    with Broker(data_dir, config={"delta.checkpoint.min.interval.ms": "0"}) as broker, RawClient(broker.port) as raw:
        (topic,) = [topic for topic in topics_of(raw) if topic.name == "orders"]
        seen = values(read_on(raw, topic))
        for number in range(RECORDS, RECORDS + 25):
            raw.produce(topic, record_of(number))
            broker.clock.advance_ms(10_000)
        names = wait_for_files(data_dir, broker, len(before))
    assert len([name for name in names if ".g" in name]) >= 1
    assert len(names) < len(before) + 6
    assert findings_of(data_dir, NAME) == []
    with Broker(data_dir) as broker, RawClient(broker.port) as raw:
        assert set(seen) <= set(values(read_on(raw, topic)))


def wait_for_files(data_dir, broker, count):
    """The segments that are there once the broker has let those of before go."""
    for _ in range(200):
        names = sorted(path.name for path in (data_dir / NAME).glob("*.log"))
        if f"{0:020d}.log" not in names:
            return names
        broker.clock.advance_ms(10_000)
        time.sleep(0.05)
    pytest.fail(f"{count} segments were there, and these still are: {names}")


def test_records_are_removed_from_the_front_and_compacted_again(data_dir):
    with Broker(data_dir) as broker, RawClient(broker.port) as raw:
        (topic,) = [topic for topic in topics_of(raw) if topic.name == "orders"]
        for number in range(RECORDS, RECORDS + 20):
            raw.produce(topic, record_of(number))
        assert raw.delete_records(topic, 27).error_code == 0
        expected = [offset for offset, _ in read_on(raw, topic, 27)]
        assert expected[0] >= 27
    compact_at(data_dir, NAME)
    assert findings_of(data_dir, NAME) == []
    with Broker(data_dir) as broker, RawClient(broker.port) as raw:
        left = [offset for offset, _ in read_on(raw, topic, 27)]
        assert set(left) < set(expected)
        assert left[-4:] == expected[-4:]
        assert base_offsets(raw.fetch(topic, 27).records)[0] >= 26
        assert raw.fetch(topic, 26).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
