"""Any records in any batch come back; no damage is ever read as something else than damage."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import crc_is_valid, decode_header, iter_headers, place
from exactlog.core.record.batch_validation import InvalidRecords, ValidRecords, validate_produced
from exactlog.core.record.record_format import Record, decode_records

NULLABLE_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), NULLABLE_BYTES), max_size=3).map(tuple)
TIMES = st.integers(-1, 2**62)
NEW_RECORDS = st.builds(NewRecord, value=NULLABLE_BYTES, key=NULLABLE_BYTES, headers=HEADERS, timestamp_ms=TIMES)
PRODUCED = st.fixed_dictionaries(
    {
        "records": st.lists(NEW_RECORDS, min_size=1, max_size=6),
        "compression": st.sampled_from(Compression),
    },
    optional={
        "producer_id": st.integers(0, 2**63 - 1),
        "producer_epoch": st.integers(0, 2**15 - 1),
        "base_sequence": st.integers(0, 2**31 - 1),
    },
).filter(lambda batch: len(batch.keys() & {"producer_id", "producer_epoch", "base_sequence"}) in {0, 3})


def build(batch, **more):
    return build_batch(**{"records": None} | batch | more)


@given(PRODUCED, st.integers(0, 2**62), st.integers(-1, 2**31 - 1))
def test_any_records_come_back_at_the_offsets_assigned(batch, base_offset, leader_epoch):
    encoded = build(batch)

    place(encoded, decode_header(encoded), base_offset=base_offset, leader_epoch=leader_epoch)

    assert crc_is_valid(encoded)
    assert decode_header(encoded).leader_epoch == leader_epoch
    assert list(decode_records(encoded)) == [
        Record(base_offset + index, record.timestamp_ms, record.key, record.value, record.headers)
        for index, record in enumerate(batch["records"])
    ]


@given(PRODUCED)
def test_whatever_is_built_for_a_producer_is_valid(batch):
    encoded = build(batch)

    verdict = validate_produced(encoded, batch_bytes_max=len(encoded))

    assert verdict == ValidRecords(decode_header(encoded))


@given(st.lists(PRODUCED, max_size=4))
def test_batches_one_after_the_other_are_found_again(batches):
    encoded = [build(batch) for batch in batches]

    found = list(iter_headers(b"".join(encoded)))

    assert [header.size_bytes for _, header in found] == [len(batch) for batch in encoded]
    assert [header for _, header in found] == [decode_header(batch) for batch in encoded]


@given(PRODUCED, st.data())
def test_a_flipped_bit_is_never_taken_for_the_batch_that_was_sent(batch, data):
    encoded = build(batch)
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= 1 << data.draw(st.integers(0, 7))

    verdict = validate_produced(encoded, batch_bytes_max=len(encoded))

    # The checksum leaves out the leader epoch, which is the broker's to write.
    assert isinstance(verdict, ValidRecords if 12 <= position < 16 else InvalidRecords)


@given(PRODUCED, st.data())
def test_records_read_past_a_bad_checksum_are_records_or_malformed(batch, data):
    encoded = build(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(encoded) - 1))
        encoded[position] = data.draw(st.integers(0, 255))

    try:
        records = list(decode_records(encoded))
    except DecodeError:
        return
    assert all(isinstance(record, Record) for record in records)


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_invalid(junk):
    assert isinstance(validate_produced(junk, batch_bytes_max=1000), InvalidRecords | ValidRecords)
