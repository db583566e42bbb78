"""Bytes that are no message: every decoder refuses them with `DecodeError`, and makes nothing large of them first."""

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.codec.message_codec import decode, decoder, encode_bytes
from exactlog.core.model.errors import DecodeError
from tests.unit.core.codec.message_strategies import FEW_EXAMPLES, MESSAGES_AND_VERSIONS, messages, name_of

# Lengths and counts that lie, in the fixed sizes and as varints, wherever a decoder may look for one.
LIES = {
    "huge fixed": b"\x7f",
    "negative fixed": b"\x80",
    "huge varint": b"\xff\xff\xff\xff\x0f",
    "large varint": b"\xff\xff\xff\x7f",
    "endless varint": b"\xff",
    "zero and huge": b"\x00\x7f\xff\xff\xff",
    "one and huge": b"\x01\x00\x00\x00\x7f",
}
MEMORY_BYTES_MAX = 256 * 1024


def refuse_or_decode(message_class, version, buffer):
    """Whatever the bytes are, the decoder either makes a message of them or says `DecodeError`."""
    with suppress(DecodeError):
        decode(message_class, version, buffer)


@pytest.mark.parametrize("case", MESSAGES_AND_VERSIONS, ids=name_of)
@FEW_EXAMPLES
@given(data=st.data())
def test_no_bytes_raise_anything_but_decode_error(case, data):
    message_class, version = case
    noise = data.draw(st.binary(max_size=200))
    damaged = bytearray(encode_bytes(data.draw(messages(message_class, version)), version) or b"\x00")
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))

    for buffer in (noise, memoryview(noise), damaged, memoryview(damaged)):
        refuse_or_decode(message_class, version, buffer)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_size_that_lies_takes_no_memory(lie):
    for message_class, version in MESSAGES_AND_VERSIONS:
        decoder(message_class, version)  # compiled before memory is counted

    tracemalloc.start()
    try:
        for message_class, version in MESSAGES_AND_VERSIONS:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            for offset in range(8):
                refuse_or_decode(message_class, version, bytes(offset) + lie * 40)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MEMORY_BYTES_MAX, name_of((message_class, version))
    finally:
        tracemalloc.stop()
