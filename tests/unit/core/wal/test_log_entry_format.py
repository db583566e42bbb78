"""Keys and values of entries, and the page that shows them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.errors import DecodeError
from exactlog.core.wal.log_entry_format import (
    LogKey,
    decode_log_key,
    decode_log_value,
    encode_log_key,
    encode_log_value,
)

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "log_entry_format.md"
EXAMPLE = "0100000000000004d200000000000022ce00000000000003e800"

uint64 = st.integers(0, 2**64 - 1)


def test_the_published_example_of_a_key():
    key = LogKey(region=1234, table=8910, sequence=1000)

    assert encode_log_key(key).hex() == EXAMPLE
    assert decode_log_key(bytes.fromhex(EXAMPLE)) == key


def test_the_keys_of_four_entries_one_after_the_other():
    keys = [encode_log_key(LogKey(1234, 8910, sequence)) for sequence in range(1000, 1004)]

    assert [key[17:25].hex() for key in keys] == [
        "00000000000003e8",
        "00000000000003e9",
        "00000000000003ea",
        "00000000000003eb",
    ]
    assert len({(key[:17], key[25:]) for key in keys}) == 1


@given(uint64, uint64, uint64)
def test_a_key_says_what_was_written(region, table, sequence):
    key = LogKey(region, table, sequence)

    assert decode_log_key(encode_log_key(key)) == key


@given(st.lists(st.tuples(uint64, uint64, uint64), min_size=2))
def test_keys_sort_as_regions_tables_and_sequences(numbers):
    encoded = [encode_log_key(LogKey(*each)) for each in numbers]

    assert sorted(encoded) == [encode_log_key(LogKey(*each)) for each in sorted(numbers)]


@given(st.binary())
def test_a_payload_comes_back(payload):
    assert encode_log_value(payload) == b"\x00" + payload
    assert decode_log_value(encode_log_value(payload)) == payload


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "0 bytes"),
        (bytes.fromhex(EXAMPLE)[:-1], "25 bytes"),
        (bytes.fromhex("00" + EXAMPLE[2:]), "namespace 0"),
        (bytes.fromhex(EXAMPLE[:-2] + "01"), "version 1"),
    ],
)
def test_other_bytes_are_no_key(data, told):
    with pytest.raises(DecodeError, match=told):
        decode_log_key(data)


@pytest.mark.parametrize(("data", "told"), [(b"", "empty"), (b"\x01a", "version 1")])
def test_other_bytes_are_no_value(data, told):
    with pytest.raises(DecodeError, match=told):
        decode_log_value(data)


@given(st.binary())
def test_any_bytes_are_a_key_or_refused(data):
    try:
        key = decode_log_key(data)
    except DecodeError:
        return
    assert encode_log_key(key) == data


def test_the_page_shows_the_example():
    assert EXAMPLE in PAGE.read_text().replace(" ", "")
