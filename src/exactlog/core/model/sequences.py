"""The arithmetic of producer sequences: 0 to 2^31-1, then 0 again (KIP-98).

A batch carries the sequence of its first record; its other records follow one by one, across the end of the range if
need be. Apache Kafka writes the same rule as two cases (``DefaultRecordBatch.incrementSequence``).
"""

from typing import Final

from exactlog.core.model.ids import NO_SEQUENCE

SEQUENCE_MAX: Final = (1 << 31) - 1


def add_to_sequence(sequence: int, count: int) -> int:
    """Return the sequence ``count`` records after ``sequence``."""
    return (sequence + count) & SEQUENCE_MAX


def sequence_after(last_sequence: int) -> int:
    """Return the sequence that must follow ``last_sequence``: 0 where nothing was sent yet (`NO_SEQUENCE`)."""
    return 0 if last_sequence == NO_SEQUENCE else add_to_sequence(last_sequence, 1)
