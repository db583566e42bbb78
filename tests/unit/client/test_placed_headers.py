"""Where the batches of an answer lie, and where to read on behind one that is damaged."""

import pytest

from exactlog.client.ports import DamagedBatchError
from exactlog.client.wire.placed_headers import offset_behind, placed_headers
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord, build_batch

PLACE = TopicPartition("orders", 0)
BASE, LENGTH, MAGIC, LAST_DELTA = 0, 8, 16, 23  # where the fields of a header begin


@pytest.fixture
def batches():
    """Three batches of three records each, from offset 10 on."""
    return [build_batch([NewRecord(b"x", timestamp_ms=0)] * 3, base_offset=offset) for offset in (10, 13, 16)]


def answer(batches, which=0, at=0, change=b""):
    found = [bytearray(batch) for batch in batches]
    found[which][at : at + len(change)] = change
    return b"".join(found)


def offsets(records, from_offset=10, end=19, *, is_end_newer=True):
    found = placed_headers(records, place=PLACE, from_offset=from_offset, end=end, is_end_newer=is_end_newer)
    return [header.base_offset for _, header in found]


@pytest.mark.parametrize("from_offset", [10, 11, 12])
def test_an_answer_may_begin_within_its_first_batch(batches, from_offset):
    assert offsets(answer(batches), from_offset) == [10, 13, 16]


def test_offsets_may_be_left_out_between_batches(batches):
    assert offsets(answer([batches[0], batches[2]]), 8) == [10, 16]


def test_a_last_batch_may_be_cut_short(batches):
    assert offsets(answer(batches)[:-1]) == [10, 13]


@pytest.mark.parametrize("end", [10, 12, 13, 15, 16])
def test_what_was_committed_since_the_high_watermark_was_looked_at_is_left_for_the_next_answer(batches, end):
    taken = offsets(answer(batches), end=end, is_end_newer=False)

    assert taken == [offset for offset in (10, 13, 16) if offset + 3 <= end]


def test_what_lies_beyond_a_newer_high_watermark_is_damaged(batches):
    records = answer(batches, 2, BASE, (1_000).to_bytes(8, "big"))

    assert offsets(records) == [10, 13]  # as if it had been committed since
    with pytest.raises(DamagedBatchError, match=r"offset 16 says that it is that of .* 1000 to"):
        offsets(records[len(batches[0]) + len(batches[1]) :], 16)


@pytest.mark.parametrize("base_offset", [0, 12, 14, 1_000])
def test_a_batch_that_lies_where_it_cannot_lie_is_damaged(batches, base_offset):
    records = answer(batches, 1, BASE, base_offset.to_bytes(8, "big"))
    with pytest.raises(DamagedBatchError, match=f"offset 13 says that it is that of .* {base_offset} to") as told:
        offsets(records)
    assert (told.value.offset, told.value.next_offset) == (13, 16)


def test_a_batch_that_ends_before_what_was_asked_for_is_damaged(batches):
    with pytest.raises(DamagedBatchError, match="the batch at offset 13 says"):
        offsets(answer(batches), 13)


@pytest.mark.parametrize(("at", "change"), [(MAGIC, b"\x01"), (LENGTH, bytes(4)), (LENGTH, b"\xff" * 4)])
def test_what_is_no_batch_is_damaged_and_says_still_how_far_it_reached(batches, at, change):
    with pytest.raises(DamagedBatchError, match="orders-0: the batch at offset 13: ") as told:
        offsets(answer(batches, 1, at, change))
    assert (told.value.offset, told.value.next_offset) == (13, 16)
    assert isinstance(told.value, DecodeError)


def test_a_batch_that_claims_to_be_longer_than_all_that_came_is_damaged(batches):
    with pytest.raises(DamagedBatchError, match="no whole batch") as told:
        offsets(answer(batches, 0, LENGTH, b"\x7f\x00\x00\x00"))
    assert (told.value.offset, told.value.next_offset) == (10, 13)


def test_behind_a_batch_that_lies_about_its_offsets_comes_the_next_one(batches):
    records = answer(batches, 0, LAST_DELTA, b"\x00\x00\x10\x00")
    assert offset_behind(records, 0, begin=10) == 13
    assert offset_behind(records[: len(batches[0])], 0, begin=10) == 11  # nothing tells
