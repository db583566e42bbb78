"""What every message of the table must do in every version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.message_codec import decode, decoder, encode, encode_bytes
from exactlog.core.model.errors import DecodeError
from tests.unit.core.codec.message_strategies import MESSAGES_AND_VERSIONS, messages, messages_of_any_kind, name_of


@pytest.mark.parametrize("case", MESSAGES_AND_VERSIONS, ids=name_of)
@given(data=st.data())
def test_a_decoded_message_is_the_one_that_was_encoded(case, data):
    message_class, version = case
    message = data.draw(messages(message_class, version))

    encoded = encode_bytes(message, version)

    assert decode(message_class, version, encoded) == message
    assert decode(message_class, version, bytearray(encoded)) == message
    assert decode(message_class, version, memoryview(encoded)) == message
