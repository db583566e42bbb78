"""What a store of event journals does, for readers and for the replicator that fills it (seed 003).

Readers ask an `EventualJournal`: it may lag behind the log, and says how far it has come (`pointer`). A replicator
writes through `ReplicatedJournal` -> `TopicJournal` -> `PartitionJournal` -> `KeyJournal`. What becomes of an action is
decided by one pure function for all stores, `exactlog.core.journal.key_journal.plan_batches`; a store reads a head row,
asks it, and carries out the steps.

What a store keeps, under kafka-journal's names (`docs/formats/event_journal_format.md`):

    metajournal   a `HeadRow` for each journal that there is
    journal       an `EventRow` for each event that is not deleted, in segments of the journal's own size
    pointer2      a `PointerRow` for each partition that a replicator has read
    snapshot      a `SnapshotRow` for each snapshot

How an aggregate A with events E(seq_nr, segment) and snapshots S(seq_nr) can look:

| head row | event rows | snapshots |
|---|---|---|
| A(seq_nr 3, delete_to none, segment_size 5) | E(1,0) E(2,0) E(3,0) | |
| A(seq_nr 5, delete_to none, segment_size 3) | E(1,0) E(2,0) E(3,0) E(4,1) E(5,1) | |
| A(seq_nr 5, delete_to 2, segment_size 3) | E(3,0) E(4,1) E(5,1) | |
| A(seq_nr 5, delete_to none, segment_size 3) | E(1,0) E(2,0) E(3,0) E(4,1) E(5,1) | S(5) |
| A(seq_nr 5, delete_to 5, segment_size 3) | | |
| A(seq_nr 5, delete_to 5, segment_size 3) | | S(5) |
| A(seq_nr 5, delete_to 5, segment_size 3) | | S(2) S(5) |
| none | none | none |

What must not be assumed of a journal: that its numbers have no gaps, that all journals have one segment size, that
`delete_to` is at most `seq_nr` in rows that other programs wrote, that every row below a head belongs to its life.

Errors. A store that cannot be reached, or is not done in time, raises `Retriable`; whether what was asked has happened
is then unknown, and every call here may be made again. Two rows of one life with the same number raise
`ForkedJournalError`. A schema newer than the code is refused when the store is opened, untouched.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from typing import Protocol, Self
from uuid import UUID

from exactlog.core.journal.batches import Batch
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.key_plan import KeyPlan
from exactlog.core.journal.keys import SEQ_NR_MIN, JournalKey, SeqRange
from exactlog.core.journal.rows import DueJournal, HeadRow, PointerRow, SnapshotRow
from exactlog.core.model.ids import TopicPartition


class EventualJournal(Protocol):
    """Reading a store that is eventually as far as the log.

    Order matters to readers: what `head` and `rows` give is at least as new as what `pointer` gave before. When
    `pointer` says n, every action up to offset n of that partition is in what is asked for afterwards.
    """

    async def pointer(self, topic_partition: TopicPartition) -> PointerRow | None:
        """How far a partition is replicated; None: nothing of it is yet."""

    async def pointers(self, topic: str) -> Mapping[int, PointerRow]:
        """How far each partition of a topic is replicated, by its number; those without a pointer are left out."""

    async def head(self, key: JournalKey) -> HeadRow | None:
        """Where a journal stands; None: there is none, so far as it is replicated.

        It holds every action of this journal up to its own offset, none left out, whatever the pointer says: a
        replicator writes it after the rows, and moves the pointer after all heads.
        """

    def rows(self, key: JournalKey, head: HeadRow, seq_range: SeqRange) -> AsyncIterator[EventRow]:
        """The events of a journal within these numbers, ascending; each is there before it is told.

        Args:
            key: the journal.
            head: its head row, as `head` gave it: it says where the rows are (segment size) and which count.
            seq_range: the numbers. Below `delete_to` of the head and above its `seq_nr` a store need not look, but a
                row above it that belongs to the same life may come, where it is there.

        A row counts when its life is that of the head; where the head has none, every row counts. Gaps are no end: all
        segments up to the last number are looked into. It is read by and by, so that a journal larger than memory can
        be, and may be closed at any time.

        Raises:
            ForkedJournalError: two rows that count have one number.
        """

    def ids(self, topic: str) -> AsyncIterator[str]:
        """The ids of all journals of a topic that have a head row, in any order, each once; none of a topic unknown."""

    def due(self, topic: str, *, through: date) -> AsyncIterator[DueJournal]:
        """The journals of a topic whose `expire_on` is this day (UTC) or an earlier one, in any order.

        Asked again after some were purged it gives the rest: so a job that was stopped goes on.
        """

    async def latest_snapshot(
        self,
        key: JournalKey,
        *,
        record_id: UUID | None,
        to_seq_nr: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> SnapshotRow | None:
        """The snapshot of this life with the greatest number; None: there is none.

        Args:
            key: the journal.
            record_id: the life it is in, by its head row or by the log; None: it is from before there were such ids.
            to_seq_nr: the greatest number that is wanted; None: any.
            to_timestamp_ms: the latest time that is wanted; None: any.
        """


class KeyJournal(Protocol):
    """Writing one journal. One object serves one caller at a time."""

    async def apply(self, batches: Sequence[Batch], *, now_ms: int) -> KeyPlan:
        """Carry out actions of this journal, in the order of the log; the answer tells what was done.

        Reads the head row (a store may keep the one that this object wrote last), asks `plan_batches`, and carries out
        the steps of its plan. With transactions: head row and all steps in one, and the head row is read in it.
        Without: one step after the other, each whole (as durable as the store can) before the next begins.

        What each step guarantees:

        | step | afterwards |
        |---|---|
        | `WriteRows` | every row is there, in segment `(seq_nr - 1) // segment_size`; written again, it is one row |
        | `DeleteRows` | no row of the range is there, of whichever life; a store drops whole segments where it can |
        | `PutHead` | the head row is this one in all columns; `expiry` None clears both of its columns |
        | `DropHead` | there is no head row |
        | `DropSnapshots` | no snapshot of this partition that was taken at or before the offset is there |

        What the plan guarantees, and the contract suite asks of every store:

        | action | without a head row | with one |
        |---|---|---|
        | mark | nothing | nothing |
        | append | head with the last event's number, rows | `seq_nr` updated, rows added |
        | delete | head with `seq_nr` and `delete_to` both `to` | `delete_to` raised, the rows up to it gone |
        | purge | nothing | all rows gone, from `delete_to` to `seq_nr`, and the head |

        Append and delete also set partition and offset of the head. An action at or before that offset changes nothing,
        so that any of it may come again; a purge may come again at its own offset. A crash between two steps is made
        good by the same batches.

        Raises:
            DecodeError: an append that counts cannot be read; nothing of these batches was done.
            Retriable: the store could not be asked; some of the steps may have been carried out.
        """


class PartitionJournal(Protocol):
    """Writing the journals of one partition. One replicator at a time has it: whom its group gave the partition."""

    async def pointer(self) -> PointerRow | None:
        """How far the partition is replicated; None: nothing of it is yet."""

    async def create_pointer(self, offset: int, *, now_ms: int) -> None:
        """The partition is replicated up to this offset, for the first time: `created` and `updated` are now."""

    async def move_pointer(self, offset: int, *, now_ms: int) -> None:
        """The partition is replicated up to this offset: every action up to it is in head rows and rows.

        `updated` is now, `created` stays. A pointer does not go back: a lower offset changes nothing.
        It is moved before a purge with an expectation, too, to all that is before it (`core/journal/purge_cuts.py`).
        """

    def key(self, key_id: str) -> KeyJournal:
        """The journal of this id. Several may be written at the same time."""


class TopicJournal(Protocol):
    """Writing the journals of one topic."""

    def partition(self, partition: int) -> PartitionJournal:
        """Those of one partition."""


class ReplicatedJournal(Protocol):
    """Writing a store, as a replicator does."""

    async def topics(self) -> frozenset[str]:
        """The topics that have a pointer."""

    def topic(self, topic: str) -> TopicJournal:
        """The journals of one topic."""


class SnapshotStore(Protocol):
    """Writing snapshots: past the log, by whoever made them. They are a shortcut, never the truth."""

    async def save_snapshot(self, key: JournalKey, snapshot: SnapshotRow) -> None:
        """Keep a snapshot; one of the same life and number is replaced."""

    async def delete_snapshots(
        self, key: JournalKey, *, to_seq_nr: int, from_seq_nr: int = SEQ_NR_MIN, to_timestamp_ms: int | None = None
    ) -> None:
        """Drop the snapshots with these numbers, taken at this time or before, of whichever life."""


class JournalStore(EventualJournal, ReplicatedJournal, SnapshotStore, Protocol):
    """A whole store. Entering the context opens it and brings its schema up to date; leaving it closes it."""

    async def close(self) -> None:
        """Give back connections and files."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...
