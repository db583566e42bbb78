import msgspec
import pytest
from crc32c import crc32c
from msgspec.structs import replace

from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import (
    BATCH_OVERHEAD,
    batch_size,
    crc_is_valid,
    decode_header,
    iter_headers,
    place,
    set_log_append_time,
)
from exactlog.core.record.record_format import decode_records

TWO_RECORDS = [NewRecord(b"a", timestamp_ms=1000), NewRecord(b"b", timestamp_ms=900)]


def test_a_header_has_each_field_where_kafka_puts_it():
    # A batch of Apache Kafka's protocol guide layout, each field another number.
    encoded = bytes.fromhex(
        "0000000000000101"  # base offset
        "00000102"  # length
        "00000103"  # leader epoch
        "02"  # magic
        "f0000104"  # crc
        "0035"  # attributes: lz4 would be 3, this is 5; transactional, control
        "00000106"  # last offset delta
        "0000000000000107"  # base timestamp
        "0000000000000108"  # max timestamp
        "0000000000000109"  # producer id
        "010a"  # producer epoch
        "0000010b"  # base sequence
        "0000010c"  # record count
    )

    header = decode_header(b"xx" + encoded, 2)

    assert msgspec.structs.astuple(header) == (
        0x101, 0x102, 0x103, 2, 0xF0000104, 0x35, 0x106, 0x107, 0x108, 0x109, 0x10A, 0x10B, 0x10C,
    )  # fmt: skip


def test_derived_values_follow_from_the_fields():
    batch = build_batch(TWO_RECORDS, base_offset=40, producer_id=7, producer_epoch=1, base_sequence=10)

    header = decode_header(batch)

    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 41, 42)
    assert header.last_sequence == 11
    assert header.has_producer_id
    assert header.max_timestamp == 1000
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (False, False, False)


def test_a_batch_without_a_producer_has_no_last_sequence():
    header = decode_header(build_batch(TWO_RECORDS))

    assert not header.has_producer_id
    assert header.last_sequence == -1
    assert header.compression is Compression.NONE


@pytest.mark.parametrize(("base_sequence", "last_sequence"), [(0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, 0)])
def test_sequences_go_on_at_zero_behind_the_highest(base_sequence, last_sequence):
    batch = build_batch(TWO_RECORDS, producer_id=1, producer_epoch=0, base_sequence=base_sequence)

    assert decode_header(batch).last_sequence == last_sequence


def test_a_batch_that_gets_its_place_has_the_header_that_is_told():
    batch = build_batch(TWO_RECORDS, producer_id=1, producer_epoch=2, base_sequence=3)

    told = place(batch, decode_header(batch), base_offset=1 << 40, leader_epoch=9)

    assert told == decode_header(batch)
    assert (told.base_offset, told.leader_epoch) == (1 << 40, 9)
    assert crc_is_valid(batch)


@pytest.mark.parametrize("codec", list(Compression))
def test_attributes_name_codec_and_kind(codec):
    batch = build_batch(
        TWO_RECORDS, compression=codec, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True
    )

    header = decode_header(batch)

    assert header.compression is codec
    assert (header.is_transactional, header.is_control) == (True, True)


def test_an_offset_and_an_epoch_are_assigned_without_a_new_checksum():
    batch = bytearray(b"before") + build_batch(TWO_RECORDS)
    as_sent = decode_header(batch, 6)

    place(memoryview(batch)[6:], as_sent, base_offset=1 << 40, leader_epoch=9)

    assert crc_is_valid(batch, 6)
    assert decode_header(batch, 6) == replace(as_sent, base_offset=1 << 40, leader_epoch=9)
    assert batch[:6] == b"before"
    assert [record.offset for record in decode_records(batch, 6)] == [1 << 40, (1 << 40) + 1]


def test_append_time_is_the_time_of_every_record_and_gets_a_new_checksum():
    batch = bytearray(b"before") + build_batch(TWO_RECORDS)

    set_log_append_time(batch, 6, timestamp_ms=5000)

    header = decode_header(batch, 6)
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)
    assert crc_is_valid(batch, 6)
    assert [record.timestamp_ms for record in decode_records(batch, 6)] == [5000, 5000]


def test_the_checksum_covers_everything_from_the_attributes_on():
    batch = build_batch(TWO_RECORDS)

    for position in range(21, len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 1
        assert not crc_is_valid(flipped), position


def test_a_batch_cut_short_is_not_valid():
    batch = build_batch(TWO_RECORDS)

    assert crc_is_valid(batch)
    assert not crc_is_valid(batch[:-1])


def test_a_batch_cut_short_is_not_valid_even_if_the_checksum_is_that_of_what_is_left():
    batch = build_batch(TWO_RECORDS)
    batch[17:21] = crc32c(batch[21:-1]).to_bytes(4)

    assert not crc_is_valid(batch[:-1])


def test_the_size_of_a_batch_is_known_from_its_first_twelve_bytes():
    batch = build_batch(TWO_RECORDS)

    assert batch_size(b"before" + batch[:12], 6) == len(batch)


def test_headers_of_one_batch_after_the_other_come_with_their_positions():
    first, second = build_batch(TWO_RECORDS, base_offset=5), build_batch(TWO_RECORDS[:1], base_offset=7)

    found = list(iter_headers(memoryview(first + second)))

    assert found == [(0, decode_header(first)), (len(first), decode_header(second))]


def test_no_bytes_are_no_batches():
    assert list(iter_headers(b"")) == []


def test_a_last_batch_that_is_not_whole_may_be_expected_or_is_malformed():
    first, second = build_batch(TWO_RECORDS), build_batch(TWO_RECORDS)

    for size in range(1, len(second)):
        cut = first + second[:size]
        assert [position for position, _ in iter_headers(cut, may_be_cut=True)] == [0]
        with pytest.raises(DecodeError):
            list(iter_headers(cut))


def test_an_unwhole_batch_does_not_excuse_a_malformed_header():
    first, second = build_batch(TWO_RECORDS), build_batch(TWO_RECORDS)
    second[16] = 1

    with pytest.raises(DecodeError, match="magic 1"):
        list(iter_headers(first + second[:-1], may_be_cut=True))


@pytest.mark.parametrize("size", [0, 1, BATCH_OVERHEAD - 1])
def test_too_few_bytes_hold_no_header(size):
    with pytest.raises(DecodeError, match=f"{size} are left"):
        decode_header(build_batch(TWO_RECORDS)[:size])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_only_magic_2_is_a_header(magic):
    batch = build_batch(TWO_RECORDS)
    batch[16] = magic

    with pytest.raises(DecodeError, match="magic"):
        decode_header(batch)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_without_room_for_the_header_is_malformed(length):
    batch = build_batch(TWO_RECORDS)
    batch[8:12] = length.to_bytes(4, signed=True)

    with pytest.raises(DecodeError, match="less than its header"):
        decode_header(batch)
