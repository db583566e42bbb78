"""Snapshots of a region's metadata, in HoraeDB's shape and in the one with the whole mapping."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.errors import DecodeError
from exactlog.core.wal.region_snapshot_format import (
    RegionSnapshot,
    TableSnapshot,
    decode_meta_key,
    decode_snapshot,
    encode_meta_key,
    encode_snapshot,
)
from exactlog.core.wal.sequence_offsets import Run

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "region_snapshot_format.md"
HORAEDB = "00120a102a1828208e01288c01120a0801100218 01200c280a".replace(" ", "")
HORAEDB_TABLES = (
    TableSnapshot(0, 42, 40, 142, 140),
    TableSnapshot(1, 2, 1, 12, 10),
)

uint64 = st.integers(0, 2**64 - 1)
offsets = st.integers(0, 2**62)


@st.composite
def rising_runs(draw):
    runs, sequence, offset = [], 0, 0
    for _ in range(draw(st.integers(0, 5))):
        sequence += draw(st.integers(1, 2**40))
        offset += draw(st.integers(0, 2**40))
        run = Run(sequence, offset, draw(st.integers(1, 2**30)))
        runs.append(run)
        sequence, offset = sequence + run.length - 1, offset + run.length - 1
    return tuple(runs)


tables = st.builds(
    TableSnapshot,
    table=uint64,
    next_seq_num=uint64,
    latest_mark_deleted=uint64,
    current_high_watermark=offsets,
    safe_delete_offset=st.none() | offsets,
    runs=st.none() | rising_runs(),
    is_dropped=st.booleans(),
)
snapshots = st.builds(
    RegionSnapshot,
    tables=st.lists(tables, unique_by=lambda table: table.table).map(
        lambda found: tuple(sorted(found, key=lambda table: table.table))
    ),
    high_watermark=st.none() | offsets,
    skipped_offsets=st.lists(offsets).map(tuple),
)


def test_the_published_example_of_a_key():
    assert encode_meta_key(42).hex() == "0000000000000000002a"
    assert decode_meta_key(bytes.fromhex("0000000000000000002a")) == 42


def test_the_published_example_of_a_value():
    snapshot = RegionSnapshot(HORAEDB_TABLES)

    assert encode_snapshot(snapshot).hex() == HORAEDB
    assert decode_snapshot(bytes.fromhex(HORAEDB)) == snapshot


def test_our_shape_is_one_that_a_reader_of_horaedbs_passes_over():
    whole = RegionSnapshot(
        (TableSnapshot(1, 5, 2, 32, 16, (Run(2, 16, 1), Run(3, 16, 1), Run(4, 31, 1))),), high_watermark=64
    )
    encoded = encode_snapshot(whole)

    assert decode_snapshot(encoded) == whole
    plain = RegionSnapshot((TableSnapshot(1, 5, 2, 32, 16),))
    theirs = encode_snapshot(plain)[3:]  # without version, field and length
    assert theirs in encoded
    assert encoded.hex() == EXAMPLE_OF_PAGE


EXAMPLE_OF_PAGE = "00121608011005180220202810aa0609021000010000010f00a80640"


def test_the_page_shows_both_examples():
    page = PAGE.read_text().replace(" ", "")

    assert HORAEDB in page
    assert EXAMPLE_OF_PAGE in page
    assert "0000000000000000002a" in page


@given(snapshots)
def test_a_snapshot_comes_back(snapshot):
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


@given(snapshots)
def test_fields_that_are_not_known_are_passed_over(snapshot):
    unknown = bytes.fromhex("f83f07" + "f93f0102030405060708" + "fa3f0161" + "fd3f01020304")

    assert decode_snapshot(encode_snapshot(snapshot) + unknown) == snapshot


@given(st.binary())
def test_any_bytes_are_a_snapshot_or_refused(data):
    for candidate in (data, b"\x00" + data):
        try:
            decoded = decode_snapshot(candidate)
        except DecodeError:
            continue
        assert isinstance(decoded, RegionSnapshot)


@given(snapshots, st.data())
def test_a_snapshot_that_is_cut_short_is_refused_or_another_one(snapshot, data):
    encoded = encode_snapshot(snapshot)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with contextlib.suppress(DecodeError):
        assert decode_snapshot(encoded[:cut]) != snapshot


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("", "empty"),
        ("01", "version 1"),
        ("0012", "cut short"),
        ("001205", "5 bytes"),
        ("0013", "wire type 3"),
        ("0000", "without a number"),
        ("00" + "08" + "ff" * 11, "more than 10 bytes"),
        ("00" + "12040801 1002".replace(" ", "") + "12040801 1003".replace(" ", ""), "table twice"),
        ("001205aa06020101", "each run has three"),
        ("001206aa0603000101", "a run of 2"),
    ],
)
def test_a_damaged_snapshot_is_refused(data, told):
    with pytest.raises(DecodeError, match=told):
        decode_snapshot(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["", "0000000000000000002a00", "0100000000000000002a", "0001000000000000002a"])
def test_other_bytes_are_no_key(data):
    with pytest.raises(DecodeError):
        decode_meta_key(bytes.fromhex(data))
