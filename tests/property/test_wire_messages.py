"""What every message of the table does, in every version, with any values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.message_codec import decode, decoder, encode, encode_bytes
from exactlog.core.model.errors import DecodeError
from tests.unit.core.codec.message_strategies import (
    FEW_EXAMPLES,
    MESSAGES_AND_VERSIONS,
    messages,
    messages_of_any_kind,
    name_of,
)

CUTS_MAX = 300  # of the long ones, so many cuts are tried


@pytest.mark.parametrize("case", MESSAGES_AND_VERSIONS, ids=name_of)
@FEW_EXAMPLES
@given(data=st.data())
def test_what_is_decoded_is_what_was_encoded_and_nothing_less_will_do(case, data):
    message_class, version = case
    message = data.draw(messages(message_class, version))

    encoded = encode_bytes(message, version)

    assert decode(message_class, version, encoded) == message
    assert decode(message_class, version, memoryview(encoded)) == message
    for size in range(0, len(encoded), 1 + len(encoded) // CUTS_MAX):
        with pytest.raises(DecodeError):
            decode(message_class, version, encoded[:size])


@given(messages_of_any_kind(), st.binary(max_size=20), st.binary(max_size=20))
def test_a_message_is_read_from_any_buffer_at_any_place(message_and_version, before, behind):
    message, version = message_and_version
    encoded = encode_bytes(message, version)
    place = before + encoded + behind

    for buffer in (place, bytearray(place), memoryview(place)):
        assert decoder(type(message), version)(buffer, len(before)) == (message, len(before) + len(encoded))


@given(messages_of_any_kind())
def test_the_parts_of_a_message_are_not_empty_and_encoding_is_stable(message_and_version):
    message, version = message_and_version

    parts = encode(message, version)

    assert all(parts) or parts == [b""]
    assert b"".join(parts) == encode_bytes(decode(type(message), version, b"".join(parts)), version)
