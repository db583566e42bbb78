"""Record batches no producer may send: refused with Kafka's error, alone, and nothing of them is stored."""

import struct

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.record import batch_format
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import CRC_POSITION, checksum
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from tests.support.raw_client import BY_NAME, base_offsets, batch_of, offsets_and_values, sequenced

LENGTH, MAGIC, ATTRIBUTES, LAST_OFFSET_DELTA, PRODUCER_EPOCH, SEQUENCE, COUNT = 8, 16, 21, 23, 51, 53, 57


def changed(position, layout, value, *, batch=None, with_crc=True):
    """A batch with one field changed, and its checksum made right."""
    batch = bytearray(batch or batch_of(b"one", b"two", b"three"))
    struct.pack_into(layout, batch, position, value)
    if with_crc:
        struct.pack_into(">I", batch, CRC_POSITION, checksum(batch, 0, len(batch)))
    return bytes(batch)


def with_bits(bits):
    return changed(ATTRIBUTES, ">h", bits)


GOOD = bytes(batch_of(b"good"))
MARKER = build_marker_batch(
    TransactionMarker(is_commit=True, coordinator_epoch=0), producer_id=1, producer_epoch=0, timestamp_ms=0
)

BAD_RECORDS = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "a few bytes": (b"\x00" * 10, ErrorCode.INVALID_RECORD),
    "half a header": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "cut by a byte": (GOOD[:-1], ErrorCode.INVALID_RECORD),
    "a byte too much": (GOOD + b"\x00", ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "a wrong checksum": (changed(CRC_POSITION, ">I", 1, with_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a changed value": (GOOD[:-2] + b"XX", ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (changed(MAGIC, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (changed(MAGIC, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (changed(MAGIC, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "a length of 0": (changed(LENGTH, ">i", 0, with_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (changed(LENGTH, ">i", -1, with_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a length of two billion": (changed(LENGTH, ">i", 2**31 - 1, with_crc=False), ErrorCode.INVALID_RECORD),
    "an offset of its own": (changed(0, ">q", 7), ErrorCode.INVALID_RECORD),
    "no records": (changed(COUNT, ">i", 0), ErrorCode.INVALID_RECORD),
    "a negative count": (changed(COUNT, ">i", -1), ErrorCode.INVALID_RECORD),
    "a count too high": (changed(COUNT, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "a last offset too high": (changed(LAST_OFFSET_DELTA, ">i", 1_000), ErrorCode.INVALID_RECORD),
    "a negative last offset": (changed(LAST_OFFSET_DELTA, ">i", -1), ErrorCode.INVALID_RECORD),
    "a codec nobody knows": (with_bits(5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "the control bit": (with_bits(batch_format.CONTROL_BIT), ErrorCode.INVALID_RECORD),
    "a transaction marker": (bytes(MARKER), ErrorCode.INVALID_RECORD),
    "the bit for append time": (with_bits(batch_format.LOG_APPEND_TIME_BIT), ErrorCode.INVALID_TIMESTAMP),
    "the transaction bit without a producer": (with_bits(batch_format.TRANSACTIONAL_BIT), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (
        changed(SEQUENCE, ">i", -1, batch=sequenced(1, 0, b"v")),
        ErrorCode.INVALID_RECORD,
    ),
    "a producer without an epoch": (
        changed(PRODUCER_EPOCH, ">h", -1, batch=sequenced(1, 0, b"v")),
        ErrorCode.INVALID_RECORD,
    ),
    "more than the topic allows": (bytes(batch_of(b"x" * 20_000)), ErrorCode.MESSAGE_TOO_LARGE),
    "a time in the far future": (
        bytes(build_batch([NewRecord(b"v", timestamp_ms=2**62)])),
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize("version", [3, BY_NAME])
@pytest.mark.parametrize(("records", "error"), BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_bad_batch_is_refused_alone_and_its_neighbours_are_stored(raw, records, error, version):
    topic = raw.create_topic(partitions=3, max_message_bytes=10_000)
    parts = tuple(
        PartitionProduceData(index=index, records=content) for index, content in enumerate((GOOD, records, GOOD))
    )

    response = raw.ask(
        ProduceRequest(
            transactional_id="for the batches that claim a transaction",  # without it the whole request is refused
            acks=-1,
            timeout_ms=1_000,
            topic_data=(TopicProduceData(name=topic.name, partition_data=parts),),
        ),
        version,
    )

    answers = response.responses[0].partition_responses
    assert [(ErrorCode(answer.error_code), answer.base_offset) for answer in answers] == [
        (ErrorCode.NONE, 0),
        (error, -1),
        (ErrorCode.NONE, 0),
    ]
    assert [raw.fetch(topic, 0, partition=index).high_watermark for index in range(3)] == [1, 0, 1]
    if version == BY_NAME:
        assert answers[1].error_message


def unreadable(codec):
    """A batch whose envelope is right and whose records are noise."""
    batch = bytearray(batch_of(b"v" * 100, compression=codec))
    batch[batch_format.BATCH_OVERHEAD :] = b"\xff" * (len(batch) - batch_format.BATCH_OVERHEAD)
    struct.pack_into(">I", batch, CRC_POSITION, checksum(batch, 0, len(batch)))
    return bytes(batch)


@pytest.mark.parametrize("codec", list(Compression), ids=[codec.name.lower() for codec in Compression])
def test_records_that_cannot_be_read_pass_through_and_harm_only_who_looks_into_them(raw, codec):
    topic = raw.create_topic(partitions=2)
    bad = raw.produce(topic, unreadable(codec))
    raw.produce(topic, GOOD, partition=1)
    assert (bad.error_code, bad.base_offset) == (ErrorCode.NONE, 0)

    parts = tuple(ListOffsetsPartition(partition_index=index, timestamp=0) for index in (0, 1))
    response = raw.ask(
        ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=parts),)), 7
    )

    poisoned, healthy = response.topics[0].partitions
    assert poisoned.error_code != ErrorCode.NONE
    assert (healthy.error_code, healthy.offset) == (ErrorCode.NONE, 0)
    assert raw.produce(topic, GOOD).base_offset == 1
    assert base_offsets(raw.fetch(topic, 0).records) == [0, 1]
    assert offsets_and_values(raw.fetch(topic, 1).records) == [(1, b"good")]


@pytest.mark.parametrize("codec", list(Compression), ids=[codec.name.lower() for codec in Compression])
def test_records_that_cannot_be_read_are_refused_where_their_keys_are_needed(raw, codec):
    topic = raw.create_topic(cleanup_policy="compact")

    assert raw.produce(topic, unreadable(codec)).error_code == ErrorCode.INVALID_RECORD
    assert raw.fetch(topic, 0).high_watermark == 0
