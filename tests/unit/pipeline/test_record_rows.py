"""Rows of Arrow become the very batches that are built record by record."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exactlog.core.codec.compression import Compression
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.pipeline.record_rows import (
    InvalidRowError,
    build_batch_of_rows,
    concatenate,
    to_record_rows,
)

NOW_MS = 1_700_000_000_123
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
LAST_MS = 253_402_300_799_999  # the year 9999, where Spark's timestamps end

contents = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)
records = st.builds(
    NewRecord,
    contents,
    key=contents,
    headers=headers.map(tuple),
    timestamp_ms=st.one_of(st.integers(0, LAST_MS), st.integers(NOW_MS - 100, NOW_MS + 100)),
)


def arrow_batch(given_, *, micros=0):
    """The records as columns; `micros` are what the timestamps have below a millisecond."""
    columns = {
        "key": pa.array([record.key for record in given_], pa.binary()),
        "value": pa.array([record.value for record in given_], pa.binary()),
        "headers": pa.array(
            [[{"name": name, "value": value} for name, value in record.headers] for record in given_], HEADERS
        ),
        "timestamp": pa.array(
            [record.timestamp_ms * 1_000 + micros for record in given_], pa.timestamp("us", tz="UTC")
        ),
    }
    return pa.record_batch(list(columns.values()), list(columns))


@given(st.lists(records, min_size=1, max_size=150), st.sampled_from(Compression), st.integers(0, 999))
@example([NewRecord(b"x" * 70_000, key=b"y" * 9_000, timestamp_ms=0)], Compression.NONE, 0)
@example([NewRecord(None, timestamp_ms=5), NewRecord(b"", key=b"", timestamp_ms=3)], Compression.NONE, 999)
def test_a_batch_of_rows_is_that_of_their_records(given_, compression, micros):
    signature = {"producer_id": 17, "producer_epoch": 3, "base_sequence": 2**31 - 7}
    rows = to_record_rows(arrow_batch(given_, micros=micros), now_ms=NOW_MS)
    assert build_batch_of_rows(rows, compression=compression, **signature) == build_batch(
        given_, compression=compression, is_transactional=True, **signature
    )


@given(st.lists(records, min_size=1, max_size=40), st.data())
def test_cut_and_put_together_rows_are_the_same(given_, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(given_)), max_size=4)))
    rows = to_record_rows(arrow_batch(given_), now_ms=NOW_MS)
    edges = [0, *cuts, len(given_)]
    pieces = [rows.slice(start, end) for start, end in pairwise(edges)]
    pieces = [piece.copied() if data.draw(st.booleans()) else piece for piece in pieces if len(piece)]
    again = concatenate(pieces)
    assert built(again) == built(rows)
    assert [len(piece) for piece in pieces] == [end - start for start, end in pairwise(edges) if end > start]
    order = data.draw(st.permutations(range(len(given_))))
    assert built(rows.take(pa.array(order).to_numpy())) == built(
        to_record_rows(arrow_batch([given_[place] for place in order]), now_ms=NOW_MS)
    )


def built(rows):
    return build_batch_of_rows(rows, compression=Compression.NONE, producer_id=1, producer_epoch=1, base_sequence=0)


@given(st.lists(records, min_size=1, max_size=40))
def test_no_record_is_larger_than_its_size_says(given_):
    rows = to_record_rows(arrow_batch(given_), now_ms=NOW_MS)
    overhead = len(built(to_record_rows(arrow_batch([NewRecord(b"", timestamp_ms=0)]), now_ms=NOW_MS)))
    for place, size in enumerate(rows.sizes().tolist()):
        assert len(built(rows.slice(place, place + 1))) <= size + overhead
        assert size <= len(built(rows.slice(place, place + 1)))


def test_strings_are_written_as_utf_8_and_missing_columns_are_null():
    batch = pa.record_batch([pa.array(["é", None])], ["value"])
    expected = [NewRecord("é".encode(), timestamp_ms=NOW_MS), NewRecord(None, timestamp_ms=NOW_MS)]
    assert built(to_record_rows(batch, now_ms=NOW_MS)) == build_batch(
        expected, producer_id=1, producer_epoch=1, base_sequence=0, is_transactional=True
    )


@pytest.mark.parametrize("type_", [pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view()])
def test_other_layouts_of_arrow_are_the_same_rows(type_):
    as_strings = pa.record_batch([pa.array(["a", "bcd"]), pa.array(["k", None])], ["value", "key"])
    others = pa.record_batch([column.cast(type_) for column in as_strings.columns], ["value", "key"])
    assert built(to_record_rows(others, now_ms=NOW_MS)) == built(to_record_rows(as_strings, now_ms=NOW_MS))


def test_a_slice_of_a_batch_has_its_own_rows_alone():
    given_ = [
        NewRecord(b"%d" % number, key=b"k%d" % number, headers=(("h", b"%d" % number),), timestamp_ms=number)
        for number in range(9)
    ]
    sliced = arrow_batch(given_).slice(3, 4)
    assert built(to_record_rows(sliced, now_ms=NOW_MS)) == built(
        to_record_rows(arrow_batch(given_[3:7]), now_ms=NOW_MS)
    )


def test_headers_may_be_null_as_a_whole():
    column = pa.array([None, [{"name": "a", "value": b"1"}], None], HEADERS)
    batch = pa.record_batch([pa.array([b"x", b"y", b"z"]), column], ["value", "headers"])
    expected = [
        NewRecord(value, headers=headers_) for value, headers_ in ((b"x", ()), (b"y", (("a", b"1"),)), (b"z", ()))
    ]
    expected = [NewRecord(record.value, headers=record.headers, timestamp_ms=NOW_MS) for record in expected]
    assert built(to_record_rows(batch, now_ms=NOW_MS)) == build_batch(
        expected, producer_id=1, producer_epoch=1, base_sequence=0, is_transactional=True
    )


def test_a_null_time_is_the_time_of_the_write():
    column = pa.array([None, 5_000], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch([pa.array([b"x", b"y"]), column], ["value", "timestamp"])
    assert to_record_rows(batch, now_ms=NOW_MS).timestamps_ms.tolist() == [NOW_MS, 5]


@pytest.mark.parametrize("header", [{"name": None, "value": b"1"}, None])
def test_a_header_needs_a_name(header):
    batch = pa.record_batch([pa.array([b"x"]), pa.array([[header]], HEADERS)], ["value", "headers"])
    with pytest.raises(InvalidRowError, match="a row has a header without a name"):
        to_record_rows(batch, now_ms=NOW_MS)


def test_no_record_is_older_than_1970():
    column = pa.array([5, -1], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch([pa.array([b"x", b"y"]), column], ["value", "timestamp"])
    with pytest.raises(InvalidRowError, match="a row has a timestamp 1 ms before 1970"):
        to_record_rows(batch, now_ms=NOW_MS)
