"""What an event journal is called, and how its events are numbered.

Sequence numbers begin at 1 and end at 2^63-1 (kafka-journal's `SeqNr`). They grow; they may have gaps.
"""

from typing import Final, NamedTuple, NewType
from uuid import UUID, uuid5

from msgspec import Struct

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.model.ids import Offset, TopicPartition

SeqNr = NewType("SeqNr", int)
"""The number of an event in its journal, from 1 on."""

SEQ_NR_MIN: Final = SeqNr(1)
SEQ_NR_MAX: Final = SeqNr(2**63 - 1)
NOTHING_DELETED: Final = 0
"""The `delete_to` of a journal of which nothing was deleted."""

_RECORD_IDS: Final = UUID("5f1c3a52-7d0e-5c3b-9a46-0d8e3c1f7b21")
"""The name space of record ids; it never changes."""


class JournalKey(NamedTuple):
    """One journal: an entity, by the topic its actions are in and its id there."""

    topic: str
    id: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.id}"


class Place(NamedTuple):
    """Where an action stands in its topic."""

    partition: int
    offset: Offset


class SeqRange(Struct, frozen=True, order=True):
    """Sequence numbers from `first` to `last`, both inclusive."""

    first: SeqNr
    last: SeqNr

    def __contains__(self, seq_nr: int) -> bool:
        return self.first <= seq_nr <= self.last


def check_seq_nr(number: int, *, what: str = "a sequence number") -> SeqNr:
    """The number, where it can be one of an event.

    Raises:
        JournalInputError: it is below 1 or above 2^63-1.
    """
    if not SEQ_NR_MIN <= number <= SEQ_NR_MAX:
        raise JournalInputError(
            f"{what} is from {SEQ_NR_MIN} to {SEQ_NR_MAX}, not {number}",
            hint="the first event of a journal has number 1",
        )
    return SeqNr(number)


def check_range(first: int, last: int) -> SeqRange:
    """The range, where it is one.

    Raises:
        JournalInputError: a bound is out of range, or the first is behind the last.
    """
    checked = SeqRange(check_seq_nr(first), check_seq_nr(last))
    if first > last:
        raise JournalInputError(f"the range {first} to {last} ends before it begins", hint="exchange the bounds")
    return checked


def record_id_of(topic_partition: TopicPartition, offset: int) -> UUID:
    """The id of the life that an action begins: UUIDv5 of its place.

    Whoever carries the same action out again, after a crash or in another store, gives the same id, so that rows that
    were written before are its own. A later life of the same journal has another one, and never shows rows of this.
    """
    topic, partition = topic_partition
    return uuid5(_RECORD_IDS, f"{partition}:{offset}:{topic}")
