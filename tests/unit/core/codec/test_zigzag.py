import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exactlog.core.codec.zigzag import decode_varint, decode_varlong, encode_varint, encode_varlong
from exactlog.core.model.errors import DecodeError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

# From org.apache.kafka.common.utils.ByteUtilsTest.
KNOWN_VARINTS = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (1048575, "feff7f"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]
KNOWN_VARLONGS = [
    *KNOWN_VARINTS,
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "encoded"), KNOWN_VARINTS)
def test_a_varint_has_the_bytes_that_kafka_gives_it(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@pytest.mark.parametrize(("value", "encoded"), KNOWN_VARLONGS)
def test_a_varlong_has_the_bytes_that_kafka_gives_it(value, encoded):
    assert encode_varlong(value).hex() == encoded
    assert decode_varlong(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_comes_back_from_the_middle_of_a_buffer(value, before, after):
    encoded = encode_varint(value)

    decoded = decode_varint(memoryview(before + encoded + after), len(before))

    assert decoded == (value, len(before) + len(encoded))


@given(INT64)
@example(2**63 - 1)
def test_a_varlong_comes_back(value):
    encoded = encode_varlong(value)

    assert decode_varlong(encoded) == (value, len(encoded))


@given(INT32)
def test_both_widths_write_a_small_number_alike(value):
    assert encode_varint(value) == encode_varlong(value)


@pytest.mark.parametrize(
    ("encode", "value"),
    [(encode_varint, 2**31), (encode_varint, -(2**31) - 1), (encode_varlong, 2**63), (encode_varlong, -(2**63) - 1)],
)
def test_a_number_too_large_for_its_width_is_not_encoded(encode, value):
    with pytest.raises(ValueError, match="does not fit"):
        encode(value)


@pytest.mark.parametrize(
    ("decode", "encoded"),
    [
        (decode_varint, "ffffffff1f"),
        (decode_varint, "ffffffffff"),
        (decode_varint, "808080808000"),
        (decode_varlong, "ffffffffffffffffff03"),
        (decode_varlong, "ffffffffffffffffffff01"),
    ],
)
def test_a_number_longer_than_its_width_is_malformed(decode, encoded):
    with pytest.raises(DecodeError, match="longer than"):
        decode(bytes.fromhex(encoded))


@pytest.mark.parametrize("decode", [decode_varint, decode_varlong])
@pytest.mark.parametrize("encoded", ["", "80", "ff", "8080", "80808080"])
def test_a_number_cut_short_runs_off_the_buffer(decode, encoded):
    with pytest.raises(IndexError):
        decode(bytes.fromhex(encoded))
