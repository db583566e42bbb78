"""Batches of kafka-python and aiokafka are ours, and ours are theirs: same records, same header, every codec.

Both clients have builders and readers of their own for the record format; aiokafka has them twice, in C and in Python.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka.record.default_records as aiokafka_default
import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatch as AiokafkaBatchC
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder as AiokafkaBuilderC
from aiokafka.record.legacy_records import _LegacyRecordBatchBuilderPy
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import crc_is_valid, decode_header, place, set_log_append_time
from exactlog.core.record.batch_validation import InvalidRecords, ValidRecords, validate_produced
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from exactlog.core.record.record_format import Record, decode_records

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)  # on 3.11
    import kafka.record.default_records as kafka_python_default
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords


class Client(NamedTuple):
    """The record code of one client."""

    builder: Callable[..., Any]
    reader: Callable[..., Any]


CLIENTS = {
    "kafka-python": Client(kafka_python_default.DefaultRecordBatchBuilder, kafka_python_default.DefaultRecordBatch),
    "aiokafka C": Client(AiokafkaBuilderC, AiokafkaBatchC),
    "aiokafka Python": Client(aiokafka_default._DefaultRecordBatchBuilderPy, aiokafka_default._DefaultRecordBatchPy),
}
EACH_CLIENT = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
EACH_CODEC = pytest.mark.parametrize("codec", list(Compression), ids=[codec.name.lower() for codec in Compression])

FIRST_MS = 1_700_000_000_000
RECORDS = [
    NewRecord(b"value " * 50, key=b"key", headers=(("trace", b"\x00\x01"), ("none", None)), timestamp_ms=FIRST_MS),
    NewRecord(None, key=b"tombstone", timestamp_ms=FIRST_MS - 70_000),
    NewRecord(b"", key=None, timestamp_ms=FIRST_MS + 70_000),
    NewRecord(b"x" * 100_000, key=b"long", headers=(("é", b"accent"),), timestamp_ms=FIRST_MS),
]


def build_theirs(client, records, codec, *, is_transactional=False, producer_id=-1, producer_epoch=-1, sequence=-1):
    builder = client.builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(is_transactional),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        batch_size=10_000_000,
    )
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read_theirs(client, batch):
    """The records as they read them, in our words."""
    reader = client.reader(bytes(batch))
    assert reader.validate_crc()
    return [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in reader
    ]


def as_read(records, *, base_offset=0):
    return [
        Record(base_offset + index, record.timestamp_ms, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    ]


@EACH_CLIENT
@EACH_CODEC
def test_their_batch_is_valid_and_has_the_records_they_put_in(client, codec):
    batch = build_theirs(client, RECORDS, codec, is_transactional=True, producer_id=9, producer_epoch=2, sequence=40)

    verdict = validate_produced(memoryview(batch), batch_bytes_max=10_000_000, is_compacted=False)

    assert isinstance(verdict, ValidRecords)
    header = verdict.header
    assert header.compression is codec
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 40, 43)
    assert (header.base_timestamp, header.max_timestamp) == (FIRST_MS, FIRST_MS + 70_000)
    assert list(decode_records(batch)) == as_read(RECORDS)


@EACH_CLIENT
@EACH_CODEC
def test_they_read_our_batch_with_the_offsets_that_we_assigned(client, codec):
    batch = build_batch(RECORDS, compression=codec, producer_id=9, producer_epoch=2, base_sequence=40)
    place(batch, decode_header(batch), base_offset=1 << 33, leader_epoch=5)

    assert read_theirs(client, batch) == as_read(RECORDS, base_offset=1 << 33)


@EACH_CLIENT
def test_they_read_the_same_header(client):
    batch = build_batch(
        RECORDS[:2], base_offset=7, producer_id=9, producer_epoch=2, base_sequence=40, is_transactional=True
    )
    header, theirs = decode_header(batch), client.reader(bytes(batch))

    assert (theirs.base_offset, theirs.next_offset) == (header.base_offset, header.next_offset)
    assert (theirs.magic, theirs.crc, theirs.attributes) == (2, header.crc, header.attributes)
    assert (theirs.first_timestamp, theirs.max_timestamp) == (header.base_timestamp, header.max_timestamp)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 2, 40)
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)


@EACH_CLIENT
def test_without_compression_we_build_the_very_bytes_that_they_build(client):
    ours = build_batch(RECORDS, producer_id=9, producer_epoch=2, base_sequence=40)
    theirs = bytearray(build_theirs(client, RECORDS, Compression.NONE, producer_id=9, producer_epoch=2, sequence=40))

    # The leader epoch is the broker's to write: some leave 0 there, Kafka's own producer and we -1.
    theirs[12:16] = b"\xff" * 4
    assert ours == theirs


@EACH_CLIENT
def test_they_read_a_transaction_marker(client):
    batch = build_marker_batch(
        TransactionMarker(is_commit=False, coordinator_epoch=3), producer_id=9, producer_epoch=2, timestamp_ms=FIRST_MS
    )
    theirs = client.reader(bytes(batch))

    assert theirs.validate_crc()
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, True)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 2, -1)
    (record,) = theirs
    if hasattr(record, "abort"):
        assert (record.version, record.type, record.abort, record.commit) == (0, 0, True, False)
    assert (record.key, record.value) == (bytes(4), bytes.fromhex("000000000003"))


@EACH_CLIENT
def test_they_read_append_time_as_the_time_of_all_records(client):
    batch = build_batch(RECORDS)
    set_log_append_time(batch, 0, timestamp_ms=FIRST_MS + 5)

    theirs = read_theirs(client, batch)

    assert theirs == list(decode_records(batch))
    assert {record.timestamp_ms for record in theirs} == {FIRST_MS + 5}


@EACH_CLIENT
@EACH_CODEC
@given(
    records=st.lists(
        st.builds(
            NewRecord,
            value=st.none() | st.binary(max_size=40).map(lambda value: value * 9),
            key=st.none() | st.binary(max_size=40),
            headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
            timestamp_ms=st.integers(0, 2**44),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_records_pass_both_ways(client, codec, records):
    assert list(decode_records(build_theirs(client, records, codec))) == as_read(records)
    assert read_theirs(client, build_batch(records, compression=codec)) == as_read(records)


def test_they_find_our_batches_one_after_the_other():
    batches = build_batch(RECORDS, base_offset=3) + build_batch(RECORDS[:1], base_offset=7)

    found = list(MemoryRecords(bytes(batches)))

    assert [batch.base_offset for batch in found] == [3, 7]
    assert all(crc_is_valid(batches, position) for position in (0, len(batches) - found[1].size_in_bytes))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("builder", [LegacyRecordBatchBuilder, _LegacyRecordBatchBuilderPy])
def test_a_message_of_a_client_before_kafka_0_11_is_refused_by_its_magic(magic, builder):
    legacy = builder(magic=magic, compression_type=0, batch_size=10_000)
    legacy.append(0, FIRST_MS, b"key", b"value")
    message = bytes(legacy.build())

    verdict = validate_produced(memoryview(message), batch_bytes_max=10_000)

    assert verdict == InvalidRecords(
        ErrorCode.INVALID_RECORD, f"the batch has magic {magic}; only magic 2 (Kafka 0.11 and later) is accepted"
    )
