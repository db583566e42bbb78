"""What readers of a region are given, and what it tells of itself."""

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from exactlog.core.wal.cleaning import KeptBy
from exactlog.core.wal.region_meta import Pin

Payload = TypeVar("Payload")


class WalEntry(Struct, Generic[Payload], frozen=True):
    """An entry of a table.

    Attributes:
        table: the table.
        sequence: its number in the table, from 1 on.
        payload: what was written.
        offset: where it lies in the region's data topic.
    """

    table: int
    sequence: int
    payload: Payload
    offset: int


class ScanProgress(Struct, frozen=True):
    """How far a scan is.

    Attributes:
        offset: the next one to be read.
        end: the one at which the scan ends.
        entry_count: how many entries were given.
        duplicate_count: how many records were passed over whose sequence had come before.
        last_duplicate_offset: where the last of those lies.
    """

    offset: int
    end: int
    entry_count: int
    duplicate_count: int
    last_duplicate_offset: int | None


OnProgress = Callable[[ScanProgress], None]


class TableStats(Struct, frozen=True):
    """A table of a region.

    Attributes:
        table: its id.
        last_sequence: of its last entry.
        marked_up_to: entries up to this one, inclusive, may be deleted.
        kept_count: how many entries must stay.
        first_offset: where the first of those lies; None where there is none.
        is_dropped: it takes no entries any more.
    """

    table: int
    last_sequence: int
    marked_up_to: int
    kept_count: int
    first_offset: int | None
    is_dropped: bool


class RegionStats(Struct, frozen=True):
    """A region, and what keeps its log from being deleted.

    Attributes:
        region: its id.
        tables: in order of their ids.
        log_start: the first offset of the data topic.
        end: the one behind its last.
        pin: the entry that is longest back and must stay: its table pins the log; None where nothing must stay.
        pinned_offsets: how many offsets lie from there to the end.
        reader_offsets: where open readers stand.
        replay_count: how many entries came since the last snapshot: what recovery would read.
        findings: what is not as it should be, as sentences.
    """

    region: int
    tables: tuple[TableStats, ...]
    log_start: int
    end: int
    pin: Pin | None
    pinned_offsets: int
    reader_offsets: tuple[int, ...]
    replay_count: int
    findings: tuple[str, ...]


class CleanResult(Struct, frozen=True):
    """What a clean-up did.

    Attributes:
        region: of which region.
        deleted_before: the records below this offset were deleted; None: there was nothing to delete.
        log_start: the first offset that is left.
        kept_by: what keeps the rest.
        pin: the entry that is longest back and must stay.
        has_snapshot: whether a snapshot was written.
    """

    region: int
    deleted_before: int | None
    log_start: int
    kept_by: KeptBy
    pin: Pin | None
    has_snapshot: bool
