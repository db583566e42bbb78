"""Which partition a record goes to, as Kafka's Java client decides it.

A key decides by its murmur2 hash, so that records of a key meet whichever client wrote them. Records without a key stay
on one partition until a batch's worth of bytes has gone there, then move on (KIP-480, KIP-794).
"""

from collections.abc import Sequence
from typing import Final

from exactlog.core.model.errors import InvariantError

STICKY_BYTES: Final = 16 * 1024  # Kafka's batch.size

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The 32-bit hash of a key, without its sign: `Utils.murmur2` of Kafka's clients."""
    size = len(key)
    digest = (_SEED ^ size) & _MASK
    whole_bytes = size & ~3
    for position in range(0, whole_bytes, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ word
    if whole_bytes < size:
        digest = (digest ^ int.from_bytes(key[whole_bytes:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15


def partition_of_key(key: bytes, *, partition_count: int) -> int:
    """The partition of every record with that key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Spreads the records of one topic that have no key."""

    def __init__(self, start: int) -> None:
        """`start` says where to begin; producers that begin at random places spread over the partitions together."""
        self._turn = start
        self._bytes_left = STICKY_BYTES

    def choose(self, available: Sequence[int], *, record_bytes: int) -> int:
        """A partition for the next record, of those that have a leader."""
        if not available:
            raise InvariantError("a topic without partitions has no place for a record")
        if self._bytes_left <= 0:
            self._turn += 1
            self._bytes_left = STICKY_BYTES
        self._bytes_left -= record_bytes
        return available[self._turn % len(available)]
