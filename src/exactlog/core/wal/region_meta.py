"""What a region knows of its tables (the seed's `RegionMeta`): a fold over its entries, from a snapshot on.

    meta = fold(snapshot, entries from `recovery_start(snapshot)` on)

Any split of the entries, any snapshot between them and any entry that comes twice give the same metadata.
"""

from collections.abc import Mapping

from msgspec import Struct

from exactlog.core.wal.errors import TableNotFoundError
from exactlog.core.wal.limits import SNAPSHOT_RUNS_MAX
from exactlog.core.wal.region_snapshot_format import RegionSnapshot, TableSnapshot
from exactlog.core.wal.sequence_offsets import Run, SequenceOffsets
from exactlog.core.wal.table_meta import FIRST_SEQUENCE, TableMeta


class Pin(Struct, frozen=True):
    """The first entry of a region that must stay: nothing from its offset on can be deleted."""

    table: int
    sequence: int
    offset: int


class RegionMeta:
    """A region. It changes in the `replay` methods alone, live and in recovery alike.

    Attributes:
        region: its id.
        tables: by their ids; those that were dropped too.
        high_watermark: the offset behind the last record of the data topic that was looked at.
        skipped_offsets: of records that cannot be read, and that an operator lets be passed over.
    """

    def __init__(self, region: int) -> None:
        self.region = region
        self.tables: dict[int, TableMeta] = {}
        self.high_watermark = 0
        self.skipped_offsets: set[int] = set()

    @classmethod
    def of_snapshot(cls, region: int, snapshot: RegionSnapshot) -> "RegionMeta":
        """The region as it was.

        Raises:
            ValueError: the runs of a table do not rise.
        """
        meta = cls(region)
        meta.tables = {table.table: _table_of(table) for table in snapshot.tables}
        meta.skipped_offsets = set(snapshot.skipped_offsets)
        meta.high_watermark = (
            snapshot.high_watermark
            if snapshot.high_watermark is not None
            else max((table.current_high_watermark for table in snapshot.tables), default=0)
        )
        return meta

    # --- looking ---------------------------------------------------------------------------------------------

    def table(self, table: int) -> TableMeta:
        """One of the tables. Raises `TableNotFoundError`."""
        found = self.tables.get(table)
        if found is None:
            raise TableNotFoundError(
                f"region {self.region} has no table {table}",
                region=self.region,
                table=table,
                hint="a table comes into being with its first entry",
            )
        return found

    def pin(self) -> Pin | None:
        """What must stay longest back; None where nothing must. Tables that are flushed hold nothing up."""
        pins = (
            Pin(table.table, table.latest_mark_deleted, offset)
            for table in self.tables.values()
            if (offset := table.safe_delete_offset) is not None
        )
        return min(pins, key=lambda pin: (pin.offset, pin.table), default=None)

    @property
    def safe_delete_offset(self) -> int:
        """Everything below it may be deleted: with nothing pinned, all that was found."""
        pin = self.pin()
        return self.high_watermark if pin is None else pin.offset

    def snapshot(self, *, runs_max: int = SNAPSHOT_RUNS_MAX) -> RegionSnapshot:
        """The region as it is; with more than `runs_max` runs in HoraeDB's shape, from which recovery reads more."""
        is_whole = sum(table.seq_offset_mapping.run_count for table in self.tables.values()) <= runs_max
        return RegionSnapshot(
            tables=tuple(_snapshot_of(self.tables[table], is_whole=is_whole) for table in sorted(self.tables)),
            high_watermark=self.high_watermark if is_whole else None,
            skipped_offsets=tuple(sorted(self.skipped_offsets)),
        )

    # --- changing --------------------------------------------------------------------------------------------

    def replay(self, table: int, sequence: int, offset: int) -> None:
        """An entry was found there."""
        self.tables.setdefault(table, TableMeta(table)).replay(sequence, offset)
        self.high_watermark = max(self.high_watermark, offset + 1)

    def replay_skip(self, offset: int) -> None:
        """The record there is passed over."""
        self.skipped_offsets.add(offset)
        self.high_watermark = max(self.high_watermark, offset + 1)

    def replay_mark(self, table: int, mark: int) -> None:
        """Entries of a table below the mark may be deleted."""
        self.table(table).replay_mark(mark)

    def replay_drop(self, table: int) -> None:
        """A table is no more; all of its entries may be deleted."""
        found = self.table(table)
        found.replay_mark(found.next_seq_num)
        found.is_dropped = True

    def replay_trim(self, log_start: int) -> None:
        """Nothing lies below this offset any more."""
        self.skipped_offsets = {offset for offset in self.skipped_offsets if offset >= log_start}

    def replay_replacement(self, log_end: int) -> None:
        """The log is another one than that of which something was known, and ends here."""
        self.high_watermark = log_end
        for table in self.tables.values():
            table.current_high_watermark = min(table.current_high_watermark, log_end)

    def replay_loss(self, lost: Mapping[int, tuple[int, int]]) -> None:
        """Those entries of tables are gone, and an operator has accepted it."""
        for table, (first, last) in lost.items():
            if first == self.table(table).latest_mark_deleted:
                self.replay_mark(table, last + 1)


def recovery_start(snapshot: RegionSnapshot | None) -> int | None:
    """The first offset that recovery has to read after a snapshot; None: the first one there is.

    The seed's snapshot has the whole mapping, and recovery goes on from its high watermark. HoraeDB's has one offset a
    table, and recovery reads again what must stay.
    """
    if snapshot is None:
        return None
    if snapshot.high_watermark is not None:
        return snapshot.high_watermark
    return min(
        (table.safe_delete_offset for table in snapshot.tables if table.safe_delete_offset is not None), default=None
    )


def known_losses(meta: RegionMeta, *, log_start: int) -> dict[int, tuple[int, int]]:
    """Which sequences of each table should lie below the first offset there is, and so are gone; ends inclusive."""
    lost: dict[int, tuple[int, int]] = {}
    for table in meta.tables.values():
        safe = table.safe_delete_offset
        if safe is not None and safe < log_start:
            first_left = table.seq_offset_mapping.first_sequence_from(log_start)
            lost[table.table] = (table.latest_mark_deleted, (first_left or table.next_seq_num) - 1)
    return lost


def _table_of(snapshot: TableSnapshot) -> TableMeta:
    runs = snapshot.runs
    if runs is None:
        safe = snapshot.safe_delete_offset
        runs = () if safe is None else (Run(max(snapshot.latest_mark_deleted, FIRST_SEQUENCE), safe, 1),)
    return TableMeta(
        snapshot.table,
        next_seq_num=max(snapshot.next_seq_num, FIRST_SEQUENCE),
        latest_mark_deleted=max(snapshot.latest_mark_deleted, FIRST_SEQUENCE),
        current_high_watermark=snapshot.current_high_watermark,
        seq_offset_mapping=SequenceOffsets.of_runs(runs),
        is_dropped=snapshot.is_dropped,
    )


def _snapshot_of(table: TableMeta, *, is_whole: bool) -> TableSnapshot:
    return TableSnapshot(
        table=table.table,
        next_seq_num=table.next_seq_num,
        latest_mark_deleted=table.latest_mark_deleted,
        current_high_watermark=table.current_high_watermark,
        safe_delete_offset=table.safe_delete_offset,
        runs=table.seq_offset_mapping.runs() if is_whole else None,
        is_dropped=table.is_dropped,
    )
