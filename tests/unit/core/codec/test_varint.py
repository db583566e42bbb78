"""Unsigned varints: examples by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.varint import UVARINT_MAX, decode_uvarint, encode_uvarint, skip_tagged_fields
from exactlog.core.model.errors import DecodeError

EXAMPLES = {
    0: b"\x00",
    1: b"\x01",
    127: b"\x7f",
    128: b"\x80\x01",
    300: b"\xac\x02",
    16_383: b"\xff\x7f",
    16_384: b"\x80\x80\x01",
    UVARINT_MAX: b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES.items())
def test_seven_bits_a_byte_low_ones_first(value, encoded):
    assert encode_uvarint(value) == encoded
    assert decode_uvarint(encoded, 0) == (value, len(encoded))


@given(st.integers(0, UVARINT_MAX), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_where_it_stands(value, before, behind):
    encoded = encode_uvarint(value)

    assert decode_uvarint(before + encoded + behind, len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_a_varint_that_is_cut_short_is_malformed(encoded):
    with pytest.raises(DecodeError, match="cut short"):
        decode_uvarint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_a_varint_of_more_than_32_bits_is_malformed(encoded):
    with pytest.raises(DecodeError, match="32 bits"):
        decode_uvarint(encoded, 0)


def test_unknown_tagged_fields_are_skipped():
    two_fields = b"\x00\x03abc" + b"\x85\x01\x00"

    assert skip_tagged_fields(two_fields + b"behind", 0, 2) == len(two_fields)


def test_many_tagged_fields_have_a_count_of_two_bytes():
    fields = b"\x01" + b"\x00\x00" * 130

    assert skip_tagged_fields(fields + b"behind", 0, 0x82) == len(fields)


@pytest.mark.parametrize("fields", [b"", b"\x00", b"\x00\x03ab"])
def test_tagged_fields_that_are_cut_short_are_noticed(fields):
    with pytest.raises(IndexError):
        skip_tagged_fields(fields, 0, 1)
