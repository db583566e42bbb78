"""What a reader sees of transactions that are not committed (KIP-98)."""

from enum import IntEnum


class IsolationLevel(IntEnum):
    """Whether records of transactions that are open or aborted are seen; the numbers are those of Kafka's requests."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
