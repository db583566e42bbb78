"""The checksum that tells a retry from another payload."""

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.payload_crc import payload_crc

texts = st.binary(max_size=20)
record_lists = st.lists(
    st.builds(
        NewRecord,
        st.none() | texts,
        key=st.none() | texts,
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | texts), max_size=3).map(tuple),
        timestamp_ms=st.integers(-1, 2**63 - 1),
    ),
    max_size=4,
)


def crc32c_bit_by_bit(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_it_is_the_crc_of_the_documented_encoding():
    record = NewRecord(b"value", key=b"k", headers=(("å", b""), ("n", None)), timestamp_ms=0x0102)
    encoded = b"\0\0\0\1k\0\0\0\5value\0\0\0\0\0\0\1\2\0\0\0\2\0\0\0\2\xc3\xa5\0\0\0\0\0\0\0\1n\xff\xff\xff\xff"

    assert payload_crc([record]) == f"{crc32c_bit_by_bit(encoded):08x}"


def test_a_record_with_nothing_but_a_value():
    encoded = b"\xff\xff\xff\xff\0\0\0\1v\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"

    assert payload_crc([NewRecord(b"v"), NewRecord(b"v")]) == f"{crc32c_bit_by_bit(encoded * 2):08x}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *combinations(
            [
                [NewRecord(b"ab")],
                [NewRecord(b"b", key=b"a")],
                [NewRecord(None, key=b"ab")],
                [NewRecord(b"a"), NewRecord(b"b")],
                [NewRecord(b"b"), NewRecord(b"a")],
                [NewRecord(None)],
                [NewRecord(b"")],
                [NewRecord(b"", key=b"")],
                [NewRecord(b"ab", timestamp_ms=0)],
                [NewRecord(b"ab", timestamp_ms=1)],
                [NewRecord(b"ab", headers=(("n", None),))],
                [NewRecord(b"ab", headers=(("n", b""),))],
                [NewRecord(b"ab", headers=(("n", b"x"), ("m", b"x")))],
                [NewRecord(b"ab", headers=(("m", b"x"), ("n", b"x")))],
            ],
            2,
        )
    ],
)
def test_whatever_differs_changes_it(one, other):
    assert payload_crc(one) != payload_crc(other)


@given(record_lists)
def test_it_is_eight_digits_and_the_same_for_a_copy(records):
    crc = payload_crc(records)

    assert re.fullmatch("[0-9a-f]{8}", crc)
    assert payload_crc(iter(records)) == crc
