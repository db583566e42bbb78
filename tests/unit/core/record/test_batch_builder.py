import pytest

from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import crc_is_valid, decode_header
from exactlog.core.record.record_format import decode_records


def test_a_batch_says_nothing_that_it_was_not_told():
    header = decode_header(build_batch([NewRecord(b"v")]))

    assert (header.base_offset, header.leader_epoch, header.attributes) == (0, -1, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (-1, -1, 1)


def test_a_batch_says_all_that_it_was_told():
    batch = build_batch(
        [NewRecord(b"v", timestamp_ms=50), NewRecord(b"w", timestamp_ms=60)],
        base_offset=1000,
        producer_id=2**62,
        producer_epoch=32767,
        base_sequence=2**31 - 1,
        is_transactional=True,
        append_time_ms=70,
        leader_epoch=4,
    )

    header = decode_header(batch)

    assert crc_is_valid(batch)
    assert (header.base_offset, header.last_offset_delta, header.leader_epoch) == (1000, 1, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**62, 32767, 2**31 - 1)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (50, 70, 2)
    assert header.is_transactional
    assert header.is_log_append_time
    assert [record.timestamp_ms for record in decode_records(batch)] == [70, 70]


def test_the_highest_timestamp_need_not_be_the_last():
    batch = build_batch([NewRecord(b"v", timestamp_ms=at) for at in (20, 90, 10)])

    assert (decode_header(batch).base_timestamp, decode_header(batch).max_timestamp) == (20, 90)


def test_a_batch_can_be_patched_in_place():
    assert isinstance(build_batch([NewRecord(b"v")]), bytearray)


def test_a_batch_of_no_records_is_not_built():
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


@pytest.mark.parametrize(
    "values",
    [{"base_offset": 2**63}, {"producer_epoch": 32768}, {"base_sequence": 2**31}, {"append_time_ms": 2**63}],
)
def test_a_value_that_its_field_cannot_hold_is_not_built(values):
    with pytest.raises(ValueError, match="does not fit"):
        build_batch([NewRecord(b"v")], **values)


def test_times_too_far_apart_for_one_batch_are_not_built():
    with pytest.raises(ValueError, match="does not fit"):
        build_batch([NewRecord(b"v", timestamp_ms=-(2**63)), NewRecord(b"w", timestamp_ms=2**63 - 1)])
