"""What a region knows of one of its tables (the seed's `TableMeta`)."""

from exactlog.core.wal.errors import MarkOutOfRangeError, TableDroppedError
from exactlog.core.wal.sequence_offsets import SequenceOffsets

FIRST_SEQUENCE = 1


class TableMeta:
    """A table. It changes in `replay` and `replay_mark` alone, live and in recovery alike.

    Attributes:
        table: its id.
        next_seq_num: what the next entry gets; the first one gets 1.
        latest_mark_deleted: entries below it may be deleted.
        current_high_watermark: the offset behind the last entry that was found.
        seq_offset_mapping: the offset of every entry that may not be deleted.
        is_dropped: it takes no entries any more. Its sequences are never given again, so what is late is recognised.
    """

    __slots__ = (
        "current_high_watermark",
        "is_dropped",
        "latest_mark_deleted",
        "next_seq_num",
        "seq_offset_mapping",
        "table",
    )

    def __init__(
        self,
        table: int,
        *,
        next_seq_num: int = FIRST_SEQUENCE,
        latest_mark_deleted: int = FIRST_SEQUENCE,
        current_high_watermark: int = 0,
        seq_offset_mapping: SequenceOffsets | None = None,
        is_dropped: bool = False,
    ) -> None:
        self.table = table
        self.next_seq_num = next_seq_num
        self.latest_mark_deleted = latest_mark_deleted
        self.current_high_watermark = current_high_watermark
        self.seq_offset_mapping = SequenceOffsets() if seq_offset_mapping is None else seq_offset_mapping
        self.is_dropped = is_dropped

    @property
    def last_sequence(self) -> int:
        """The sequence of the last entry; 0: there was none."""
        return self.next_seq_num - 1

    @property
    def is_flushed(self) -> bool:
        """Whether every entry may be deleted: the table holds nothing up."""
        return self.latest_mark_deleted >= self.next_seq_num

    @property
    def safe_delete_offset(self) -> int | None:
        """Where its first entry lies that must stay; None where none must."""
        return None if self.is_flushed else self.seq_offset_mapping.offset_from(self.latest_mark_deleted)

    def replay(self, sequence: int, offset: int) -> None:
        """An entry was found there. Found once more, here or further on, it changes nothing but the high watermark."""
        if sequence >= self.latest_mark_deleted:
            self.seq_offset_mapping.remember(sequence, offset)
        self.next_seq_num = max(self.next_seq_num, sequence + 1)
        self.current_high_watermark = max(self.current_high_watermark, offset + 1)

    def replay_mark(self, mark: int) -> None:
        """Entries below the mark may be deleted; a mark below the present one changes nothing."""
        self.latest_mark_deleted = max(self.latest_mark_deleted, mark)
        self.seq_offset_mapping.forget_below(self.latest_mark_deleted)

    def decide_mark(self, up_to: int, *, region: int) -> int:
        """The mark that lets all up to this sequence, inclusive, be deleted.

        Raises:
            MarkOutOfRangeError: it was not written yet, or the mark is higher already.
        """
        mark = up_to + 1
        where = {"region": region, "table": self.table, "sequence": up_to}
        if mark > self.next_seq_num:
            raise MarkOutOfRangeError(
                f"region {region}, table {self.table}: cannot mark up to {up_to}; the last entry is "
                f"{self.last_sequence}",
                **where,
                hint=f"mark up to {self.last_sequence} or less",
            )
        if mark < self.latest_mark_deleted:
            raise MarkOutOfRangeError(
                f"region {region}, table {self.table}: cannot mark up to {up_to}; all up to "
                f"{self.latest_mark_deleted - 1} is marked already",
                **where,
                hint="marks only rise: what was deleted does not come back",
            )
        return mark

    def check_is_live(self, *, region: int) -> None:
        """Refuse a table that was dropped; raises `TableDroppedError`."""
        if self.is_dropped:
            raise self.dropped_error(region=region)

    def dropped_error(self, *, region: int) -> TableDroppedError:
        """The error for a table that was dropped."""
        return TableDroppedError(
            f"region {region}, table {self.table} was dropped",
            region=region,
            table=self.table,
            hint="a table that is made anew needs an id of its own",
        )
