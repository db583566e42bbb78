import struct

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import checksum, decode_header
from exactlog.core.record.batch_validation import InvalidRecords, ValidRecords, validate_produced

RECORDS = [NewRecord(b"a", key=b"k"), NewRecord(b"b", key=b"l"), NewRecord(b"c", key=b"m")]
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def judge(records, **settings):
    return validate_produced(memoryview(records), **({"batch_bytes_max": 10_000} | settings))


def patched(batch, position, code, value):
    """The batch with one field changed and a checksum that knows."""
    struct.pack_into(">" + code, batch, position, value)
    struct.pack_into(">I", batch, 17, checksum(batch, 0, len(batch)))
    return batch


def test_a_batch_as_producers_send_it_is_valid():
    batch = build_batch(RECORDS, **IDEMPOTENT)

    assert judge(batch) == ValidRecords(decode_header(batch))


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    "producer", [{}, IDEMPOTENT, IDEMPOTENT | {"is_transactional": True}, IDEMPOTENT | {"base_sequence": 2**31 - 1}]
)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_every_codec_and_kind_of_producer_is_accepted(codec, producer, is_compacted):
    batch = build_batch(RECORDS, compression=codec, **producer)

    assert isinstance(judge(batch, is_compacted=is_compacted), ValidRecords)


def test_a_batch_of_the_largest_size_is_valid_and_one_byte_more_is_too_large():
    batch = build_batch(RECORDS)

    assert isinstance(judge(batch, batch_bytes_max=len(batch)), ValidRecords)
    verdict = judge(batch, batch_bytes_max=len(batch) - 1)
    assert verdict.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(len(batch)) in verdict.message


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_bytes_too_few_for_a_batch_are_none(size):
    assert judge(build_batch(RECORDS)[:size]).error_code is ErrorCode.INVALID_RECORD


def test_a_batch_cut_short_is_none():
    assert judge(build_batch(RECORDS)[:-1]).error_code is ErrorCode.INVALID_RECORD


def test_two_batches_are_one_too_many():
    verdict = judge(build_batch(RECORDS) + build_batch(RECORDS))

    assert verdict.error_code is ErrorCode.INVALID_RECORD
    assert "exactly one batch" in verdict.message


def test_bytes_behind_the_batch_are_not_dropped_in_silence():
    assert judge(build_batch(RECORDS) + b"x") == InvalidRecords(
        ErrorCode.INVALID_RECORD, "the records of a partition must be exactly one batch; 1 bytes follow it"
    )


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48])
def test_a_length_without_room_for_the_header_is_corrupt(length):
    batch = build_batch(RECORDS)
    batch[8:12] = length.to_bytes(4, signed=True)

    assert judge(batch).error_code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(("length_off", "said"), [(1, "have only"), (1000, "have only"), (-1, "1 bytes follow")])
def test_a_length_that_lies_is_invalid(length_off, said):
    batch = build_batch(RECORDS)
    batch[8:12] = (len(batch) - 12 + length_off).to_bytes(4)

    verdict = judge(batch)

    assert verdict.error_code is ErrorCode.INVALID_RECORD
    assert said in verdict.message


@pytest.mark.parametrize(
    ("magic", "error_code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
@pytest.mark.parametrize("size", [17, 26, 61, None])
def test_another_magic_is_refused_however_long_the_message(magic, error_code, size):
    batch = build_batch(RECORDS)
    batch[16] = magic

    verdict = judge(batch[:size])

    assert verdict.error_code is error_code
    assert f"magic {magic}" in verdict.message


def test_a_flipped_bit_is_corrupt():
    batch = build_batch(RECORDS)
    batch[-1] ^= 0x10

    assert judge(batch) == InvalidRecords(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")


INVALID_FIELDS = [
    pytest.param(0, "q", 1, "base offset", id="an offset of its own"),
    pytest.param(57, "i", 0, "claims 0 records", id="no records"),
    pytest.param(57, "i", -3, "claims -3 records", id="a negative count"),
    pytest.param(57, "i", 4, "last offset delta of 2", id="a count above the offsets"),
    pytest.param(23, "i", 3, "last offset delta of 3", id="offsets above the count"),
    pytest.param(23, "i", -1, "last offset delta of -1", id="a negative offset delta"),
    pytest.param(21, "h", 0x20, "control records", id="control"),
    pytest.param(21, "h", 0x30, "control records", id="transactional control"),
    pytest.param(53, "i", -1, "sequence -1", id="no sequence"),
    pytest.param(51, "h", -1, "epoch -1", id="no epoch"),
]


@pytest.mark.parametrize(("position", "code", "value", "said"), INVALID_FIELDS)
def test_a_header_that_no_producer_may_send_is_invalid(position, code, value, said):
    batch = patched(build_batch(RECORDS, **IDEMPOTENT), position, code, value)

    verdict = judge(batch)

    assert verdict.error_code is ErrorCode.INVALID_RECORD
    assert said in verdict.message


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_no_records_are_invalid_even_if_the_offsets_agree(count):
    batch = patched(build_batch(RECORDS), 57, "i", count)
    patched(batch, 23, "i", max(count - 1, -(2**31)))

    assert judge(batch) == InvalidRecords(ErrorCode.INVALID_RECORD, f"the batch claims {count} records")


def test_a_transactional_batch_needs_a_producer():
    assert judge(build_batch(RECORDS, is_transactional=True)) == InvalidRecords(
        ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id"
    )


def test_only_the_broker_sets_append_time():
    assert judge(build_batch(RECORDS, append_time_ms=5)).error_code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_not_supported(codec):
    batch = patched(build_batch(RECORDS), 21, "h", codec)

    assert judge(batch) == InvalidRecords(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown"
    )


def test_zstd_is_not_for_clients_that_do_not_know_it():
    batch = build_batch(RECORDS, compression=Compression.ZSTD)

    assert judge(batch, is_zstd_known=False).error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(judge(build_batch(RECORDS), is_zstd_known=False), ValidRecords)


def test_a_compacted_topic_needs_keys_and_the_record_without_one_is_named():
    batch = build_batch([*RECORDS, NewRecord(b"d"), NewRecord(b"e")])

    assert judge(batch, is_compacted=True) == InvalidRecords(
        ErrorCode.INVALID_RECORD, "a compacted topic needs a key on each record", batch_index=3
    )
    assert isinstance(judge(batch), ValidRecords)


def test_an_empty_key_is_a_key():
    assert isinstance(judge(build_batch([NewRecord(b"v", key=b"")]), is_compacted=True), ValidRecords)


@pytest.mark.parametrize("codec", list(Compression))
def test_records_that_cannot_be_read_do_not_enter_a_compacted_topic(codec):
    batch = build_batch(RECORDS, compression=codec)
    batch[-3:] = b"\xff\xff\xff"
    patched(batch, 0, "q", 0)

    verdict = judge(batch, is_compacted=True)

    assert verdict.error_code is ErrorCode.INVALID_RECORD
    assert "cannot be read" in verdict.message


def test_the_first_fault_in_kafkas_order_is_the_one_answered():
    too_large_and_corrupt = build_batch(RECORDS)
    too_large_and_corrupt[-1] ^= 1
    corrupt_and_control = build_batch(RECORDS, is_control=True)
    corrupt_and_control[-1] ^= 1

    assert judge(too_large_and_corrupt, batch_bytes_max=10).error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert judge(corrupt_and_control).error_code is ErrorCode.CORRUPT_MESSAGE
