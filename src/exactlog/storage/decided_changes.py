"""What the decided versions of a partition change of its table, besides what they add."""

from collections.abc import Iterable

from exactlog.core.deltalog.commit_format import TableMetadata
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.ids import Offset
from exactlog.storage.committed_log import ClosedVersion
from exactlog.storage.pending_versions import TableChange


class DecidedChanges:
    """The table as it will be, as far as it matters before its versions are published.

    Attributes:
        log_start_offset: the first offset that will be left.
        metadata: what the table will say of itself.
        segments_leaving: how many of the first segments will have been removed.

    Args:
        publishing: the versions on the way to be published.
    """

    __slots__ = ("log_start_offset", "metadata", "segments_leaving")

    def __init__(self, table: TableState, publishing: Iterable[ClosedVersion]) -> None:
        self.log_start_offset: Offset = table.log_start_offset
        self.metadata: TableMetadata | None = table.metadata
        self.segments_leaving = 0
        for version in publishing:
            if version.pending.change is not None:
                self.decide(version.pending.change)

    def decide(self, change: TableChange) -> None:
        """One more is decided."""
        if change.log_start_offset is not None:
            self.log_start_offset = Offset(change.log_start_offset)
        self.segments_leaving += len(change.removed)
        self.metadata = change.metadata or self.metadata

    def publish(self, change: TableChange | None) -> None:
        """The oldest one is in the table now."""
        if change is not None:
            self.segments_leaving -= len(change.removed)
