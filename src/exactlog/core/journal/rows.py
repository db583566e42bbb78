"""What a store keeps of journals beside their events, and the steps that change it.

The names of the columns are those of kafka-journal's tables (`docs/formats/event_journal_format.md`).
"""

from datetime import date
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from exactlog.core.journal.events import EventRow
from exactlog.core.journal.expiry import Expiry
from exactlog.core.journal.keys import JournalKey, Place, SeqRange
from exactlog.core.journal.payload import Payload
from exactlog.core.journal.state import JournalState

SEGMENT_SIZE_DEFAULT = 10_000
SEGMENT_SIZE_MIN = 2
TIMESTAMP_MS_MAX = 2**63 - 1
"""Nothing that a store keeps is later."""


class HeadRow(Struct, frozen=True, kw_only=True):
    """Where a journal stands in the store: one row of `metajournal`. No row: there is no journal.

    Attributes:
        place: of the last action that was applied.
        segment_size: events in one segment of the journal, from its first append on and as long as it lives.
        seq_nr: its last sequence number.
        delete_to: events up to this number are deleted; None: none is.
        created_ms: when the row came to be, milliseconds since 1970.
        updated_ms: when it last changed.
        expiry: when it may be purged; None: never.
        record_id: the life it is in; None in rows from before there were such ids.
        origin: who wrote the last action.
        is_reset: the journal began with a delete, and has had no event since.
    """

    place: Place
    segment_size: int
    seq_nr: int
    delete_to: int | None = None
    created_ms: int
    updated_ms: int
    expiry: Expiry | None = None
    record_id: UUID | None = None
    origin: str | None = None
    is_reset: bool = False

    @property
    def offset(self) -> int:
        """Of the last action that was applied."""
        return self.place.offset

    @property
    def state(self) -> JournalState:
        """What the row says, as the folds see it.

        Other programs have written rows that are deleted beyond their last event. A delete takes nothing that comes
        after it, so such a row is deleted to its last event.
        """
        delete_to = min(self.delete_to or 0, self.seq_nr)
        return JournalState(self.seq_nr, delete_to, is_reset=self.is_reset, record_id=self.record_id)

    @property
    def rows_to(self) -> int:
        """No event of the journal has a row above this number, unless a crash left it there."""
        return max(self.seq_nr, self.delete_to or 0)


class PointerRow(Struct, frozen=True, kw_only=True):
    """How far a partition is replicated: one row of `pointer2`.

    Attributes:
        offset: of the last record of the partition that has been seen to.
        created_ms: when the row came to be, milliseconds since 1970.
        updated_ms: when it last moved.
    """

    offset: int
    created_ms: int
    updated_ms: int


class SnapshotRow(Struct, frozen=True, kw_only=True):
    """The state of an entity after one of its events: one row of `snapshot`.

    Attributes:
        seq_nr: of the last event that went into it.
        record_id: the life of the journal it is of: a reader takes no other's.
        place: of an action at or behind which the state was taken; a purge behind that takes the snapshot along.
        timestamp_ms: when it was taken, milliseconds since 1970.
        metadata: what its writer says of it, a JSON value as text.
    """

    seq_nr: int
    record_id: UUID | None
    place: Place
    timestamp_ms: int
    payload: Payload | None
    metadata: str | None = None


class DueJournal(Struct, frozen=True, kw_only=True):
    """A journal whose time is over, as it stood when that was seen."""

    key: JournalKey
    expire_on: date
    seq_nr: int
    record_id: UUID | None


# --- steps ------------------------------------------------------------------------------------------------------------


class WriteRows(Struct, frozen=True):
    """Rows that are to be there, in ascending order of their numbers; one that is already is the same one.

    `segment_size` is the journal's: it says which segment each belongs to.
    """

    rows: tuple[EventRow, ...]
    segment_size: int


class DeleteRows(Struct, frozen=True):
    """Rows of these numbers are to be gone, of whichever life; many of them were never there."""

    range: SeqRange
    segment_size: int


class PutHead(Struct, frozen=True):
    """The head row is to be this one, all columns of it."""

    head: HeadRow


class DropHead(Struct, frozen=True):
    """The head row is to be gone."""


class DropSnapshots(Struct, frozen=True):
    """Snapshots of the journal that were taken in this partition at or before this offset are to be gone."""

    place: Place


Step: TypeAlias = WriteRows | DeleteRows | PutHead | DropHead | DropSnapshots
