"""What a hostile or broken client can put into the records of a Produce request, and what a damaged file can hold.

Whatever it is, the broker answers with a code and the readers raise `DecodeError`: never another exception, never a
long wait, never more memory than the limit.
"""

import tracemalloc
from functools import partial

import pytest

from exactlog.core.codec.compression import Compression, decompress
from exactlog.core.model.errors import DecodeError
from exactlog.core.record import record_format
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BATCH_OVERHEAD, checksum, crc_is_valid, decode_header, iter_headers
from exactlog.core.record.batch_validation import InvalidRecords, ValidRecords, validate_produced
from exactlog.core.record.record_format import Record, decode_records

RECORDS = [
    NewRecord(
        b"value " * 10, key=b"key", headers=(("trace", b"\x00\x01"), ("none", None)), timestamp_ms=1_700_000_000_000
    ),
    NewRecord(None, key=b"tombstone", timestamp_ms=1_700_000_000_001),
]
BATCHES = {
    codec.name.lower(): build_batch(RECORDS, compression=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    for codec in Compression
}
EACH_CODEC = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())


def sealed(batch):
    """The batch with the checksum its bytes now call for."""
    batch[17:21] = checksum(batch, 0, len(batch)).to_bytes(4)
    return batch


def read(batch):
    """Read the batch as all readers do; return its records, or None where it is malformed."""
    try:
        decode_header(batch)
        list(iter_headers(batch))
        crc_is_valid(batch)
        return list(decode_records(batch))
    except DecodeError:
        return None


@EACH_CODEC
def test_a_batch_cut_short_anywhere_is_refused_and_malformed(batch):
    for size in range(len(batch)):
        assert isinstance(validate_produced(batch[:size], batch_bytes_max=10_000), InvalidRecords), size
        assert read(batch[:size]) is None, size


@EACH_CODEC
def test_a_bit_flipped_anywhere_is_refused_or_outside_the_checksum(batch):
    for bit in range(len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8

        verdict = validate_produced(flipped, batch_bytes_max=10_000)

        is_leader_epoch = 12 <= bit // 8 < 16
        assert isinstance(verdict, ValidRecords if is_leader_epoch else InvalidRecords), bit
        assert is_leader_epoch or bit // 8 < 8 or read(flipped) is None or not crc_is_valid(flipped), bit


@EACH_CODEC
def test_a_bit_flipped_under_a_good_checksum_gives_records_or_malformed(batch):
    for bit in range(BATCH_OVERHEAD * 8, len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8

        records = read(sealed(flipped))

        assert records is None or all(type(record) is Record for record in records), bit


@EACH_CODEC
def test_a_compacted_topic_takes_no_batch_that_cannot_be_read(batch):
    for bit in range(BATCH_OVERHEAD * 8, len(batch) * 8):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        sealed(flipped)

        verdict = validate_produced(flipped, batch_bytes_max=10_000, is_compacted=True)

        assert isinstance(verdict, ValidRecords) == (read(flipped) is not None), bit


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_a_small_batch_that_opens_to_gigabytes_takes_no_memory(codec, monkeypatch):
    opened_max = 4 * 1024 * 1024
    monkeypatch.setattr(record_format, "decompress", partial(decompress, bytes_max=opened_max))
    bomb = build_batch([NewRecord(bytes(8 * opened_max), key=b"k")], compression=codec)
    assert len(bomb) < opened_max

    tracemalloc.start()
    verdict = validate_produced(bomb, batch_bytes_max=len(bomb), is_compacted=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(verdict, InvalidRecords)
    assert "more" in verdict.message
    assert peak < 3 * opened_max


@pytest.mark.parametrize("count", [2**31 - 1, 2**20])
def test_a_batch_that_claims_billions_of_records_ends_at_the_first_that_is_missing(count):
    batch = build_batch(RECORDS)
    batch[57:61] = count.to_bytes(4)
    batch[23:27] = (count - 1).to_bytes(4)
    sealed(batch)

    assert isinstance(validate_produced(batch, batch_bytes_max=10_000), ValidRecords)
    assert isinstance(validate_produced(batch, batch_bytes_max=10_000, is_compacted=True), InvalidRecords)
    with pytest.raises(DecodeError, match="ends inside record 2"):
        list(decode_records(batch))


@pytest.mark.parametrize("junk", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(61), bytes(1000), b"\xff" * 1000])
def test_what_is_no_batch_at_all_is_refused(junk):
    assert isinstance(validate_produced(memoryview(junk), batch_bytes_max=10_000), InvalidRecords)
    assert isinstance(validate_produced(memoryview(junk), batch_bytes_max=10_000, is_compacted=True), InvalidRecords)
