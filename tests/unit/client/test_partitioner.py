"""Keys go where Kafka's Java client sends them."""

from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.wire.partitioner import STICKY_BYTES, StickyPartitioner, murmur2, partition_of_key
from exactlog.core.model.errors import InvariantError


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_the_java_client(key, signed_hash):
    assert murmur2(key) == signed_hash & 0xFFFFFFFF


@given(st.binary(max_size=100), st.integers(1, 1_000))
def test_the_hash_is_that_of_aiokafka(key, partition_count):
    assert murmur2(key) == aiokafka_murmur2(key)
    assert partition_of_key(key, partition_count=partition_count) < partition_count


def test_records_without_a_key_stay_together_and_then_move_on():
    partitioner = StickyPartitioner(start=4)
    chosen = [partitioner.choose([0, 1, 2], record_bytes=STICKY_BYTES // 4) for _ in range(16)]
    assert chosen == [1] * 4 + [2] * 4 + [0] * 4 + [1] * 4
    assert Counter(chosen)[1] == 8


def test_only_partitions_that_have_a_leader_are_chosen():
    partitioner = StickyPartitioner(start=0)
    assert {partitioner.choose([1, 3], record_bytes=STICKY_BYTES) for _ in range(10)} == {1, 3}
    with pytest.raises(InvariantError):
        partitioner.choose([], record_bytes=1)
