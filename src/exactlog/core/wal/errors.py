"""What can be wrong with a write-ahead log, or with what is asked of it.

Each error names what it is about: the region, and where they are known the table, the sequence and the offset.
"""

from exactlog.core.model.errors import ExactlogError


class WalError(ExactlogError):
    """What every error of the write-ahead log derives from.

    Attributes:
        region: the region it is about.
        table: the table; None where it is about no single one.
        sequence: of an entry, or a mark; None where it is about none.
        offset: in the region's data topic, or meta topic where the message says so.
    """

    code = "wal-failed"

    def __init__(
        self,
        message: str,
        *,
        region: int | None = None,
        table: int | None = None,
        sequence: int | None = None,
        offset: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.region = region
        self.table = table
        self.sequence = sequence
        self.offset = offset


class EmptyBatchError(WalError):
    """A write without an entry."""

    code = "empty-batch"


class EntryTooLargeError(WalError):
    """An entry that the log does not take."""

    code = "entry-too-large"


class SequenceConflictError(WalError):
    """The table's last sequence is not the one that the writer expected; nothing was written."""

    code = "sequence-conflict"


class RegionNotFoundError(WalError):
    """There is no such region in the namespace."""

    code = "not-found"


class TableNotFoundError(WalError):
    """Nothing was ever written to that table of the region."""

    code = "not-found"


class TableDroppedError(WalError):
    """The table was dropped: late writes to it are refused."""

    code = "table-dropped"


class MarkOutOfRangeError(WalError):
    """A mark beyond what was written, or below the present one."""

    code = "mark-out-of-range"


class InvalidBoundsError(WalError):
    """Bounds of a read that are the wrong way round, or that nothing can lie between."""

    code = "invalid-bounds"


class UnreadableRecordError(WalError):
    """A record of the region's topics that is not of this format: foreign, or damaged."""

    code = "damage"


class RegionMetaLostError(WalError):
    """The meta topic once had snapshots, and has none now."""

    code = "region-meta-lost"


class RegionDataLostError(WalError):
    """Records are gone from the data topic that no clean-up of this region deleted.

    Attributes:
        lost: for each table the ranges of sequences that are known to be gone, both ends inclusive.
        first_offset: the first offset that should be there.
        log_start: the first offset that is.
    """

    code = "region-data-lost"

    def __init__(
        self,
        message: str,
        *,
        region: int,
        lost: dict[int, tuple[int, int]],
        first_offset: int,
        log_start: int,
        hint: str = "",
    ) -> None:
        super().__init__(message, region=region, offset=first_offset, hint=hint)
        self.lost = lost
        self.first_offset = first_offset
        self.log_start = log_start


class RegionTopicsError(WalError):
    """The topics of a region are not as a region needs them."""

    code = "region-topics"


class RegionTrimmedError(WalError):
    """What was being read has been deleted meanwhile, by the region's owner; read again."""

    code = "region-trimmed"
    retryable = True


class RegionFenced(WalError):  # noqa: N818  the name that users rely on
    """Somebody else has opened the region since: this owner writes no more."""

    code = "fenced"


class RegionClosedError(WalError):
    """The region, or the whole log, was closed."""

    code = "region-closed"


class RegionReadOnlyError(WalError):
    """The region was opened to be read only."""

    code = "region-read-only"


class WriteOutcomeUnknownError(WalError):
    """Whether a write counts is not known yet; the region finds out before its next write."""

    code = "outcome-unknown"
