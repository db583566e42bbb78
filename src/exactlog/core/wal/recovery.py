"""Recovery as a fold: a snapshot, and then the records behind it, in as many pieces as one likes."""

from msgspec import Struct

from exactlog.core.wal.errors import RegionDataLostError, UnreadableRecordError
from exactlog.core.wal.log_records import read_log_record
from exactlog.core.wal.region_meta import RegionMeta, known_losses, recovery_start
from exactlog.core.wal.region_snapshot_format import RegionSnapshot


class RecoveryPlan(Struct, frozen=True):
    """What is to be read.

    Attributes:
        start: the first offset.
        missing_from: the first offset that should be there and is not; None: all is there.
        is_replaced: the log ends before what was read of it already: it is another one, or was cut off.
    """

    start: int
    missing_from: int | None = None
    is_replaced: bool = False


def plan_recovery(snapshot: RegionSnapshot | None, *, log_start: int, log_end: int) -> RecoveryPlan:
    """From where to read the data topic after a snapshot."""
    wanted = recovery_start(snapshot)
    if wanted is None:
        return RecoveryPlan(log_start)
    if wanted > log_end:
        return RecoveryPlan(log_start, missing_from=log_end, is_replaced=True)
    return RecoveryPlan(max(wanted, log_start), missing_from=wanted if wanted < log_start else None)


class Recovery:
    """The metadata of a region while it is being recovered.

    Attributes:
        meta: so far.
        lost: for each table the sequences that are known to be gone, ends inclusive.
        replayed_count: how many entries were read.
    """

    def __init__(self, region: int, snapshot: RegionSnapshot | None, *, plan: RecoveryPlan, log_start: int) -> None:
        """Begin with a snapshot.

        Raises:
            ValueError: the snapshot contradicts itself.
        """
        self.meta = RegionMeta(region) if snapshot is None else RegionMeta.of_snapshot(region, snapshot)
        self.replayed_count = 0
        self._plan = plan
        self._log_start = log_start
        self._gap_end: int | None = None  # the highest offset before which sequences are missing
        self.lost = known_losses(self.meta, log_start=self.meta.high_watermark if plan.is_replaced else log_start)

    def replay(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        """The next record of the data topic.

        Raises:
            UnreadableRecordError: it is no entry, and is not one of those that are passed over.
        """
        if offset in self.meta.skipped_offsets:
            self.meta.replay_skip(offset)
            return
        entry = read_log_record(self.meta.region, offset=offset, key=key, value=value)
        if self._plan.missing_from is not None or not self.meta.skipped_offsets:
            self._notice_gap(entry.table, entry.sequence, offset)
        self.meta.replay(entry.table, entry.sequence, offset)
        self.replayed_count += 1

    def replay_damage(self, offset: int, next_offset: int) -> None:
        """Records that lie together are passed over, by the offset of the first of them."""
        self.meta.replay_skip(offset)
        self.meta.high_watermark = max(self.meta.high_watermark, next_offset)

    def accept_losses(self) -> None:
        """Go on without what is gone."""
        self.meta.replay_loss(self.lost)
        if self._plan.is_replaced and self._plan.missing_from is not None:
            self.meta.replay_replacement(self._plan.missing_from)
        self.meta.high_watermark = max(self.meta.high_watermark, self._log_start)

    def check_nothing_is_lost(self) -> None:
        """Refuse a region of which records are gone; raises `RegionDataLostError`, which says exactly which."""
        missing_from = self._plan.missing_from
        if missing_from is None and not self.lost:
            return
        lost_offsets = [self._offset_of(table, first) for table, (first, _) in self.lost.items()]
        first = min(lost_offsets if missing_from is None else [missing_from, *lost_offsets])
        last = self.meta.high_watermark - 1 if self._plan.is_replaced else (self._gap_end or self._log_start) - 1
        told = "; ".join(f"table {table}: {low}..{high}" for table, (low, high) in sorted(self.lost.items()))
        raise RegionDataLostError(
            f"region {self.meta.region}: the records from offset {first} to {last} are gone, and no "
            f"clean-up of the region deleted them; lost sequences: {told or 'none that are known of'}",
            region=self.meta.region,
            lost=dict(self.lost),
            first_offset=first,
            log_start=self._log_start,
            hint="see that no retention applies to the topic; accept_loss=True opens the region without them",
        )

    def _offset_of(self, table: int, sequence: int) -> int:
        offset = self.meta.tables[table].seq_offset_mapping.offset_from(sequence)
        return self._log_start if offset is None else offset

    def _notice_gap(self, table: int, sequence: int, offset: int) -> None:
        known = self.meta.tables.get(table)
        expected = 1 if known is None else known.next_seq_num
        if sequence > expected:
            first, _ = self.lost.get(table, (expected, 0))
            self.lost[table] = (first, sequence - 1)
            if self._plan.missing_from is None:
                self._gap_end = offset


def newest_snapshot_error(region: int, *, offset: int, error: Exception) -> UnreadableRecordError:
    """The error for a snapshot that cannot be read."""
    return UnreadableRecordError(
        f"region {region}: the snapshot at offset {offset} of the meta topic cannot be read: {error}",
        region=region,
        offset=offset,
        hint="accept_loss=True opens the region with the newest snapshot that can be read, or from its entries alone",
    )
