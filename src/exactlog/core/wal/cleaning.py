"""What of a region may be deleted now, and what keeps the rest."""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from exactlog.core.wal.limits import SNAPSHOT_ENTRIES_DUE
from exactlog.core.wal.region_meta import Pin, RegionMeta


class KeptBy(Enum):
    """Why not more can be deleted."""

    NOTHING = "nothing"
    TABLE = "table"
    READER = "reader"


class Cleaning(Struct, frozen=True):
    """What a clean-up does.

    Attributes:
        keep_from: the first offset that stays.
        log_start: the first offset there was.
        kept_by: what keeps the rest.
        pin: the entry of a table that is longest back, whether or not a reader is further back.
    """

    keep_from: int
    log_start: int
    kept_by: KeptBy
    pin: Pin | None

    @property
    def delete_before(self) -> int | None:
        """Delete the records below this offset; None: there is nothing to delete."""
        return self.keep_from if self.keep_from > self.log_start else None

    @property
    def deleted_count(self) -> int:
        """How many offsets are given up."""
        return self.keep_from - self.log_start


def decide_cleaning(meta: RegionMeta, *, log_start: int, reader_offsets: Iterable[int] = ()) -> Cleaning:
    """What a clean-up of a region may delete: never what a table needs, nor what a reader has before it.

    It never runs backwards: where the log begins further on already, nothing is done.

    Args:
        meta: of the region.
        log_start: the first offset there is.
        reader_offsets: where each open reader stands.
    """
    pin = meta.pin()
    keep_from, kept_by = meta.safe_delete_offset, KeptBy.NOTHING if pin is None else KeptBy.TABLE
    nearest_reader = min(reader_offsets, default=keep_from)
    if nearest_reader < keep_from:
        keep_from, kept_by = nearest_reader, KeptBy.READER
    return Cleaning(keep_from=max(keep_from, log_start), log_start=log_start, kept_by=kept_by, pin=pin)


def snapshot_is_due(*, replayed_since: int, marks_since: int, is_cleaning: bool) -> bool:
    """Whether a clean-up writes a snapshot.

    Always before it deletes, and else when what was marked, or what recovery would read again, is worth one.

    Args:
        replayed_since: how many entries came since the last snapshot.
        marks_since: how many marks.
        is_cleaning: whether records are about to be deleted.
    """
    return is_cleaning or marks_since > 0 or replayed_since >= SNAPSHOT_ENTRIES_DUE
