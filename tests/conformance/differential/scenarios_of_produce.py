"""What is written: Produce, plain and idempotent."""

import struct

from crc32c import crc32c

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import HEADER, BatchHeader
from tests.conformance.differential.hostile import NOBODY
from tests.conformance.differential.scenario import scenario
from tests.support.raw_client import batch_of, fetch_request, produce_request, sequenced

# --- Produce ------------------------------------------------------------------------------------------------------


@scenario(ApiKey.PRODUCE)
def one_batch_in_every_partition(peer):
    topic = peer.topic(partitions=3)
    parts = tuple(PartitionProduceData(index=index, records=batch_of(b"%d" % index)) for index in range(3))
    data = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=parts)
    peer.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,)))
    for index in range(3):
        peer.read(topic, partition=index)


@scenario(ApiKey.PRODUCE)
def good_and_bad_partitions_in_one_request(peer):
    topic = peer.topic(partitions=2)
    parts = tuple(PartitionProduceData(index=index, records=batch_of(b"x")) for index in (0, 1, 2, -1))
    known = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=parts)
    unknown = TopicProduceData(name=peer.name("nobody"), topic_id=NOBODY, partition_data=parts[:1])
    peer.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=(known, unknown)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def nothing_at_all(peer):
    peer.ask(ProduceRequest(acks=-1, timeout_ms=1_000))


@scenario(ApiKey.PRODUCE)
def without_an_answer(peer):
    topic = peer.topic()
    peer.ask(produce_request(topic, batch_of(b"a"), acks=0))
    peer.ask(fetch_request(topic, 0, max_wait_ms=4_000), 12)


@scenario(ApiKey.PRODUCE)
def without_an_answer_and_refused(peer):
    topic = peer.topic()
    peer.ask(produce_request(topic, batch_of(b"a"), acks=0, partition=9))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def two_batches_in_one_partition(peer):
    topic = peer.topic()
    peer.ask(produce_request(topic, batch_of(b"a") + batch_of(b"b")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def append_time(peer):
    topic = peer.topic(message_timestamp_type="LogAppendTime")
    peer.ask(produce_request(topic, batch_of(b"a", b"b")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def too_old_and_too_new(peer):
    topic = peer.topic(message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=1_000)
    peer.ask(produce_request(topic, batch_of(b"old")))
    peer.ask(produce_request(topic, batch_of(b"new", timestamp_ms=4_000_000_000_000)))
    peer.ask(produce_request(topic, batch_of(b"none", timestamp_ms=-1)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def timestamps_of_every_kind(peer):
    topic = peer.topic(message_timestamp_after_max_ms=2**63 - 1)
    for timestamp_ms in (-1, 0, 1, 1_700_000_000_000, 4_000_000_000_000):
        peer.ask(produce_request(topic, batch_of(b"x", timestamp_ms=timestamp_ms)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def too_large(peer):
    topic = peer.topic(max_message_bytes=100)
    peer.ask(produce_request(topic, batch_of(b"x" * 39)))
    peer.ask(produce_request(topic, batch_of(b"x" * 200)))
    peer.ask(produce_request(topic, batch_of(b"a") + batch_of(b"x" * 200)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def records_without_a_key_where_the_log_is_compacted(peer):
    topic = peer.topic(cleanup_policy="compact")
    keyed, plain = NewRecord(b"v", key=b"k", timestamp_ms=1), NewRecord(b"v", timestamp_ms=1)
    peer.ask(produce_request(topic, build_batch([keyed])))
    peer.ask(produce_request(topic, build_batch([keyed, plain, keyed, plain])))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def batches_whose_header_is_wrong(peer):
    topic = peer.topic()
    good = batch_of(b"a", b"b")
    changes = {
        "base offset": (0, ">q", 7),
        "length above": (8, ">i", len(good) - 12 + 1),
        "length below": (8, ">i", len(good) - 12 - 1),
        "length none": (8, ">i", 0),
        "length negative": (8, ">i", -1),
        "leader epoch": (12, ">i", 7),
        "magic 0": (16, ">b", 0),
        "magic 1": (16, ">b", 1),
        "magic 3": (16, ">b", 3),
        "crc": (17, ">I", 1),
    }
    for at, form, value in changes.values():
        batch = bytearray(good)
        struct.pack_into(form, batch, at, value)
        peer.ask(produce_request(topic, bytes(batch)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def attribute_bits(peer):
    topic = peer.topic()
    for attributes in (0x10, 0x20, 0x30, 0x40, 0x80, 0x07, 0x05):
        peer.ask(produce_request(topic, _with_header(batch_of(b"a", b"b"), attributes=attributes)))


@scenario(ApiKey.PRODUCE)
def batches_that_count_wrong(peer):
    topic = peer.topic()
    for fields in (
        {"last_offset_delta": 0},
        {"last_offset_delta": 2},
        {"last_offset_delta": -1},
        {"record_count": 0},
        {"record_count": 1},
        {"record_count": 3},
        {"record_count": -1},
        {"max_timestamp": -7},
        {"max_timestamp": 1},
        {"producer_id": 4_712, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
    ):
        peer.ask(produce_request(topic, _with_header(batch_of(b"a", b"b"), **fields)))


@scenario(ApiKey.PRODUCE)
def a_negative_producer_epoch(peer):
    fields = {"producer_id": 4_711, "producer_epoch": -1, "base_sequence": 0}
    peer.ask(produce_request(peer.topic(), _with_header(batch_of(b"a", b"b"), **fields)))


@scenario(ApiKey.PRODUCE)
def a_batch_cut_short_and_one_with_bytes_behind(peer):
    topic = peer.topic()
    batch = batch_of(b"a", b"b")
    for cut in (1, 11, 12, 16, 17, 60, 61, len(batch) - 1):
        peer.ask(produce_request(topic, batch[:cut]))
    peer.ask(produce_request(topic, batch + b"\x00"))
    peer.ask(produce_request(topic, batch + batch[:30]))
    peer.read(topic)


# --- idempotent producers -----------------------------------------------------------------------------------------


@scenario(ApiKey.PRODUCE)
def a_producer_that_counts_well(peer):
    topic, producer = peer.topic(), peer.producer()
    for sequence in range(4):
        peer.ask(produce_request(topic, sequenced(producer, sequence, b"%d" % sequence)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def the_same_batch_again(peer):
    topic, producer = peer.topic(), peer.producer()
    for sequence in (0, 1, 2, 3, 4, 5, 5, 4, 1, 0):
        peer.ask(produce_request(topic, sequenced(producer, sequence, b"%d" % sequence)))
    peer.ask(produce_request(topic, sequenced(producer, 4, b"4", b"5")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def sequences_with_gaps(peer):
    topic, producer = peer.topic(), peer.producer()
    for sequence in (0, 2, 1, 1, 7, -1, 2**31 - 1, 2):
        peer.ask(produce_request(topic, sequenced(producer, sequence, b"x")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def a_first_sequence_above_0(peer):
    topic, producer = peer.topic(), peer.producer()
    peer.ask(produce_request(topic, sequenced(producer, 5, b"first")))


@scenario(ApiKey.PRODUCE)
def the_sequence_of_a_producer_that_comes_later(peer):
    topic, producer = peer.topic(), peer.producer()
    peer.produce(topic, batch_of(b"somebody else"))
    peer.ask(produce_request(topic, sequenced(producer, 5, b"later")))
    peer.ask(produce_request(topic, sequenced(producer, 6, b"after")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def epochs_up_and_down(peer):
    topic, producer = peer.topic(), peer.producer()
    for epoch, sequence in ((0, 0), (1, 1), (1, 0), (0, 1), (1, 1), (3, 0), (2, 0), (3, 0), (3, 1)):
        peer.ask(produce_request(topic, sequenced(producer, sequence, b"x", epoch=epoch)))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def a_sequence_that_wraps(peer):
    topic, producer = peer.topic(), peer.producer()
    peer.produce(topic, batch_of(b"not empty"))
    highest = 2**31 - 1
    peer.ask(produce_request(topic, sequenced(producer, highest - 1, b"a", b"b", b"c")))
    peer.ask(produce_request(topic, sequenced(producer, 1, b"d")))
    peer.ask(produce_request(topic, sequenced(producer, highest - 1, b"a", b"b", b"c")))
    peer.ask(produce_request(topic, sequenced(producer, 3, b"gap")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def two_producers_in_one_partition(peer):
    topic, one, other = peer.topic(), peer.producer(), peer.producer()
    for producer, sequence in ((one, 0), (other, 0), (one, 1), (other, 2), (other, 1), (one, 1)):
        peer.ask(produce_request(topic, sequenced(producer, sequence, b"x")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def two_batches_of_a_producer_in_one_request(peer):
    topic, producer = peer.topic(), peer.producer()
    peer.ask(produce_request(topic, sequenced(producer, 0, b"a") + sequenced(producer, 1, b"b")))
    peer.ask(produce_request(topic, sequenced(producer, 0, b"b")))
    peer.read(topic)


@scenario(ApiKey.PRODUCE)
def a_control_batch_from_a_client(peer):
    topic, producer = peer.topic(), peer.producer()
    marker = _with_header(sequenced(producer, 0, b"\x00\x00\x00\x00\x00\x00"), attributes=0x30)
    peer.ask(produce_request(topic, marker))
    peer.read(topic)


def _with_header(batch, **fields):
    """A batch with other values in its header and a CRC that is right for them."""
    values = dict(zip(BatchHeader.__struct_fields__, HEADER.unpack_from(batch), strict=True)) | fields
    rest = bytes(batch[HEADER.size :])
    covered = HEADER.pack(*values.values())[21:]
    values["crc"] = crc32c(covered + rest)
    return HEADER.pack(*values.values()) + rest
