"""In which segment of a table a row is: kafka-journal's formulas, on which its Cassandra partitions rest.

Two tables have segments, of two kinds. A journal's head row is in one of so many segments by the hash of its id; its
events are in as many as it needs, so many numbers each. Wrong by one, and the rows of others are not found.
"""

from collections.abc import Iterator
from typing import Final

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.keys import SEQ_NR_MIN, SeqRange
from exactlog.core.journal.rows import SEGMENT_SIZE_MIN

SEGMENTS: Final = 10_000
"""Of head rows that are written for the first time now."""
SEGMENTS_BEFORE: Final = 100
"""Of head rows that kafka-journal wrote first before it changed the number: they stay where they are."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def head_segment(key_id: str, *, segments: int) -> int:
    """The segment of a journal's head row, from 0 on: the hash of the id in lower case.

    The sign goes after 64-bit arithmetic: -2^31 has no positive 32-bit twin. Lower case is that of no language; a JVM
    in a Turkish one makes another of `I`, and finds its own rows only.
    """
    return abs(java_hash(key_id.lower())) % segments


def head_segments(key_id: str, *, first: int = SEGMENTS, second: int = SEGMENTS_BEFORE) -> tuple[int, ...]:
    """Where to look for a head row, in this order; it is written where it is found, else to the first."""
    found = head_segment(key_id, segments=first)
    return (found,) if first == second else (found, head_segment(key_id, segments=second))


def event_segment(seq_nr: int, segment_size: int) -> int:
    """The segment of an event, from 0 on.

    Raises:
        JournalInputError: the size is below 2.
    """
    if segment_size < SEGMENT_SIZE_MIN:
        raise JournalInputError(f"a segment holds {SEGMENT_SIZE_MIN} numbers at least, not {segment_size}")
    return (seq_nr - SEQ_NR_MIN) // segment_size


def event_segments(seq_range: SeqRange, segment_size: int) -> range:
    """The segments in which events of these numbers can be, ascending."""
    return range(event_segment(seq_range.first, segment_size), event_segment(seq_range.last, segment_size) + 1)


def segments_of_partition(partition: int, *, partitions: int, segments: int) -> Iterator[int]:
    """The segments of head rows that one of so many workers looks through; all together leave none out.

    With fewer segments than workers several look through the same one.
    """
    if partitions >= segments:
        yield partition % segments
    else:
        yield from range(partition, segments, partitions)
