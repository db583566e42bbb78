"""Few writes, few copies."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.network.outgoing import JOIN_BYTES_MAX, join_small_parts

LENGTHS = st.integers(min_value=0, max_value=50) | st.integers(JOIN_BYTES_MAX - 1, JOIN_BYTES_MAX + 1)


@given(st.lists(st.builds(bytes, LENGTHS)))
def test_joining_keeps_every_byte_in_its_place(parts):
    assert b"".join(join_small_parts(parts)) == b"".join(parts)


def test_large_parts_are_not_copied_and_small_neighbours_become_one():
    large = bytearray(JOIN_BYTES_MAX)
    chunks = join_small_parts([b"a", memoryview(b"b"), large, b"c", b"d"])
    assert chunks[0] == b"ab"
    assert chunks[1].obj is large
    assert chunks[2:] == [b"cd"]
