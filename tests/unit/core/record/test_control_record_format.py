import pytest

from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_format import crc_is_valid, decode_header
from exactlog.core.record.control_record_format import (
    ControlType,
    TransactionMarker,
    build_marker_batch,
    decode_control_type,
    decode_marker,
)
from exactlog.core.record.record_format import Record, decode_records

COMMIT_KEY, ABORT_KEY = bytes.fromhex("00000001"), bytes.fromhex("00000000")


def control_record(key, value):
    return Record(0, 0, key, value)


@pytest.mark.parametrize(("is_commit", "key"), [(True, COMMIT_KEY), (False, ABORT_KEY)])
def test_a_marker_has_the_bytes_that_kafka_gives_it(is_commit, key):
    batch = build_marker_batch(
        TransactionMarker(is_commit=is_commit, coordinator_epoch=7),
        producer_id=9,
        producer_epoch=3,
        timestamp_ms=1234,
        base_offset=50,
        leader_epoch=2,
    )

    header = decode_header(batch)
    assert crc_is_valid(batch)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (50, 2, 1)
    assert (header.base_timestamp, header.max_timestamp) == (1234, 1234)
    assert list(decode_records(batch)) == [Record(50, 1234, key, bytes.fromhex("000000000007"))]


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [-1, 0, 2**31 - 1])
def test_a_marker_comes_back(is_commit, coordinator_epoch):
    marker = TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    batch = build_marker_batch(marker, producer_id=1, producer_epoch=0, timestamp_ms=0)

    assert [decode_marker(record) for record in decode_records(batch)] == [marker]


def test_a_marker_of_a_later_version_is_read_as_far_as_it_is_known():
    record = control_record(bytes.fromhex("0009 0001 ffff"), bytes.fromhex("0009 00000005 ffff"))

    assert decode_marker(record) == TransactionMarker(is_commit=True, coordinator_epoch=5)


@pytest.mark.parametrize("control_type", [kind for kind in ControlType if kind > ControlType.COMMIT])
def test_a_control_record_of_another_type_is_no_marker(control_type):
    key = bytes((0, 0, 0, control_type))

    assert decode_control_type(key) is control_type
    assert decode_marker(control_record(key, b"whatever")) is None


@pytest.mark.parametrize("type_bytes", ["0007", "7fff", "ffff"])
def test_a_type_that_is_not_known_is_to_be_ignored(type_bytes):
    key = bytes.fromhex("0000" + type_bytes)

    assert decode_control_type(key) is None
    assert decode_marker(control_record(key, None)) is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, b"", "has 0"),
        (b"\x00\x00\x00", b"", "has 3"),
        (bytes.fromhex("ffff0001"), bytes(6), "version -1"),
        (COMMIT_KEY, None, "has 0"),
        (ABORT_KEY, bytes(5), "has 5"),
        (COMMIT_KEY, bytes.fromhex("800000000000"), "version -32768"),
    ],
)
def test_a_control_record_that_is_not_whole_is_malformed(key, value, message):
    with pytest.raises(DecodeError, match=message):
        decode_marker(control_record(key, value))
