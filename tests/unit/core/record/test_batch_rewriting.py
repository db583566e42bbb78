"""Batches with fewer records: byte for byte what stays, and headers that say so."""

import pytest

from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import (
    BATCH_OVERHEAD,
    DELETE_HORIZON_BIT,
    HEADER,
    crc_is_valid,
    decode_header,
)
from exactlog.core.record.batch_rewriting import empty_batch, filler_batch, index_records, is_filler, keep_records
from exactlog.core.record.record_format import decode_records

FIRST_MS = 1_762_539_302_883
HORIZON_MS = FIRST_MS + 86_400_000
RECORDS = [
    NewRecord(b"v", b"k", headers=(("größe", b"1"), ("", None)), timestamp_ms=FIRST_MS),
    NewRecord(None, b"k", timestamp_ms=FIRST_MS + 500),
    NewRecord(b"", None, timestamp_ms=FIRST_MS - 70),
    NewRecord(b"w" * 300, b"", timestamp_ms=FIRST_MS + 3),
]


def batch_of(**fields):
    return build_batch(
        RECORDS,
        base_offset=400,
        leader_epoch=5,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        is_transactional=True,
        **fields,
    )


def rewritten(batch, keep, *, horizon_ms=None):
    header = decode_header(batch)
    content, spans = index_records(batch, header)
    return keep_records(header, content, [spans[index] for index in keep], delete_horizon_ms=horizon_ms)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("keep", [(0,), (1, 3), (2,), (0, 1, 2, 3)])
@pytest.mark.parametrize("horizon_ms", [None, HORIZON_MS])
def test_records_that_stay_are_those_that_were_there(compression, keep, horizon_ms):
    batch = batch_of(compression=compression)
    before, left = list(decode_records(batch)), rewritten(batch, keep, horizon_ms=horizon_ms)
    assert list(decode_records(left)) == [before[index] for index in keep]
    assert crc_is_valid(left)
    old, new = decode_header(batch), decode_header(left)
    assert new.record_count == len(keep)
    assert new.compression is compression
    assert new.max_timestamp == max(before[index].timestamp_ms for index in keep)
    assert new.base_timestamp == (old.base_timestamp if horizon_ms is None else horizon_ms)
    assert new.attributes == old.attributes | (DELETE_HORIZON_BIT if horizon_ms else 0)
    for name in ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "last_sequence"):
        assert getattr(new, name) == getattr(old, name)


def test_a_batch_of_which_all_stays_is_the_same_bytes():
    batch = batch_of()
    assert rewritten(batch, (0, 1, 2, 3)) == batch


def test_a_second_horizon_does_not_move_the_records_in_time():
    left = rewritten(rewritten(batch_of(), (0, 1), horizon_ms=HORIZON_MS), (1,))
    (record,) = decode_records(left)
    assert (record.offset, record.timestamp_ms) == (401, FIRST_MS + 500)
    assert decode_header(left).base_timestamp == HORIZON_MS


def test_a_record_of_no_real_time_gets_no_horizon():
    batch = build_batch([NewRecord(None, b"k", timestamp_ms=-(2**63) + 5)])
    assert rewritten(batch, (0,), horizon_ms=HORIZON_MS) == batch


def test_the_time_of_the_append_stays():
    left = rewritten(batch_of(append_time_ms=FIRST_MS + 9), (0,), horizon_ms=HORIZON_MS)
    assert decode_header(left).max_timestamp == FIRST_MS + 9
    assert [record.timestamp_ms for record in decode_records(left)] == [FIRST_MS + 9]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_an_emptied_batch_has_its_offsets_and_its_producer_and_nothing_else(compression):
    old = decode_header(batch_of(compression=compression))
    left = empty_batch(old)
    new = decode_header(left)
    assert len(left) == BATCH_OVERHEAD
    assert crc_is_valid(left)
    assert list(decode_records(left)) == []
    assert new.is_transactional
    assert new.max_timestamp == old.max_timestamp
    for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "last_sequence"):
        assert getattr(new, name) == getattr(old, name)
    assert not is_filler(new)


def test_a_filler_is_of_nobody_and_stays_what_it_is():
    left = filler_batch(decode_header(batch_of()))
    header = decode_header(left)
    assert is_filler(header)
    assert crc_is_valid(left)
    assert (header.base_offset, header.last_offset, header.is_transactional) == (400, 403, False)
    assert header.max_timestamp == FIRST_MS + 500
    assert filler_batch(header) == left


@pytest.mark.parametrize("record_count", [3, 5, -1])
def test_another_number_of_records_than_the_header_says_is_malformed(record_count):
    batch = bytearray(batch_of())
    fields = list(HEADER.unpack_from(batch))
    fields[-1] = record_count
    HEADER.pack_into(batch, 0, *fields)
    with pytest.raises(DecodeError):
        index_records(batch, decode_header(batch))


@pytest.mark.parametrize("position", range(BATCH_OVERHEAD, BATCH_OVERHEAD + 40))
def test_changed_bytes_are_malformed_or_other_records_and_nothing_worse(position):
    batch = batch_of()
    for value in (0x00, 0x7F, 0x80, 0xFF):
        batch[position] = value
        try:
            content, spans = index_records(batch, decode_header(batch))
        except DecodeError:
            continue
        assert all(span.end <= len(content) for span in spans)
