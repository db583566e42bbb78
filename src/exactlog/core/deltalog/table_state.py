"""The table of one partition: what replaying its delta commits gives.

`replay` is the only thing that changes a `TableState`: live, once a version is committed, and in recovery alike. So a
checkpoint at any version, and the commits after it replayed, give what replaying all of them gives.

It is also the judge of the chain: each commit must follow from the one before it. What does not follow is damage, and
is named with its version; the state that met it is not to be used any more.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from exactlog.core.deltalog.canonical_json import NO_CRC, print_crc
from exactlog.core.deltalog.checkpoint_format import (
    Checkpoint,
    LeaderEpochEntry,
    OpenTransactionEntry,
    OriginEntry,
    ProducerEntry,
    SegmentEntry,
    TxnIdEntry,
)
from exactlog.core.deltalog.commit_format import DecodedCommit, DeltaCommit, Operation, TableMetadata
from exactlog.core.deltalog.leader_epochs import EpochEnd, begin_epoch, find_epoch_end, trim_epochs
from exactlog.core.deltalog.log_path import SegmentFileKind, parse_segment_file_name
from exactlog.core.deltalog.table_segments import TableSegment, check_is_whole, rewrite_segments
from exactlog.core.model.errors import DamageError, InvariantError
from exactlog.core.model.ids import DeltaVersion, LeaderEpoch, Offset, TimestampMs
from exactlog.core.model.limits import TXN_IDS_REMEMBERED

__all__ = ["NO_VERSION", "SegmentDetails", "TableSegment", "TableSnapshot", "TableState"]

NO_VERSION: Final = DeltaVersion(-1)
"""The version of a table before its version 0."""


class SegmentDetails(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a checkpoint says of a segment and the delta log does not know: see `SegmentEntry`."""

    max_timestamp: TimestampMs
    index_entries: int
    time_index_entries: int
    aborted_entries: int = 0
    aborted_crc: int = 0


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The table as of one version; it never changes.

    Attributes:
        version: the version it is the table of.
        timestamp: when that version was committed.
        next_offset: the offset after the last one that is committed.
        log_start_offset: the first offset that can still be read.
        last_stable_offset: below it every transaction is decided.
        leader_epoch: the epoch of the leader that committed the version.
        segments: in the order of offsets.
        origins: the last add of each origin.
        txn_ids: the clients' own ids that are remembered, oldest first.
        leader_epochs: in rising order.
        metadata: what the table is.
        chain_crc: what the `prev_crc` of the next version must be.
    """

    version: DeltaVersion
    timestamp: str
    next_offset: Offset
    log_start_offset: Offset
    last_stable_offset: Offset
    leader_epoch: LeaderEpoch
    segments: tuple[TableSegment, ...]
    origins: tuple[OriginEntry, ...]
    txn_ids: tuple[TxnIdEntry, ...]
    leader_epochs: tuple[LeaderEpochEntry, ...]
    metadata: TableMetadata
    chain_crc: str

    @property
    def last_offset(self) -> Offset:
        """The last committed offset; -1 before the first record."""
        return Offset(self.next_offset - 1)

    def to_checkpoint(
        self,
        *,
        segment_details: Mapping[str, SegmentDetails],
        producers: Sequence[ProducerEntry] = (),
        open_transactions: Sequence[OpenTransactionEntry] = (),
    ) -> Checkpoint:
        """This table as a checkpoint.

        Args:
            segment_details: for each segment, by its name, as of the same version.
            producers: what the partition knows of producers, as of the same version.
            open_transactions: those undecided at this version.
        """
        return Checkpoint(
            version=self.version,
            timestamp=self.timestamp,
            last_offset=self.last_offset,
            segments=tuple(_to_entry(segment, segment_details[segment.name]) for segment in self.segments),
            origins=self.origins,
            next_offset=self.next_offset,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            leader_epoch=self.leader_epoch,
            producers=tuple(producers),
            open_transactions=tuple(open_transactions),
            leader_epochs=self.leader_epochs,
            txn_ids=self.txn_ids,
            metadata=self.metadata,
            chain_crc=self.chain_crc,
        )


class TableState:
    """The table of one partition at its newest replayed version. Read its attributes freely; only `replay` sets them.

    Attributes:
        table: what to call the table in an error.
        version: the last version replayed; -1 before version 0.
        timestamp: when that version was committed; empty before version 0.
        next_offset: the offset after the last one that is committed.
        log_start_offset: the first offset that can still be read.
        last_stable_offset: below it every transaction is decided.
        leader_epoch: the epoch of the leader that committed the version; -1 before version 0.
        segments: in the order of offsets; the last one is the active one.
        origins: the last add of each origin, by its id.
        txn_ids: the last `TXN_IDS_REMEMBERED` ids that clients gave, by id, oldest first.
        leader_epochs: in rising order.
        metadata: what the table is; None before version 0.
        chain_crc: what the `prev_crc` of the next version must be.
    """

    __slots__ = (
        "chain_crc",
        "last_stable_offset",
        "leader_epoch",
        "leader_epochs",
        "log_start_offset",
        "metadata",
        "next_offset",
        "origins",
        "segments",
        "table",
        "timestamp",
        "txn_ids",
        "version",
    )

    def __init__(self, *, table: str) -> None:
        self.table = table
        self.version = NO_VERSION
        self.timestamp = ""
        self.next_offset = Offset(0)
        self.log_start_offset = Offset(0)
        self.last_stable_offset = Offset(0)
        self.leader_epoch = LeaderEpoch(-1)
        self.segments: list[TableSegment] = []
        self.origins: dict[int, OriginEntry] = {}
        self.txn_ids: OrderedDict[str, TxnIdEntry] = OrderedDict()
        self.leader_epochs: list[LeaderEpochEntry] = []
        self.metadata: TableMetadata | None = None
        self.chain_crc = NO_CRC

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, *, table: str) -> "TableState":
        """The table as of a checkpoint, ready for the commit after it."""
        state = cls(table=table)
        state.version = checkpoint.version
        state.timestamp = checkpoint.timestamp
        state.next_offset = checkpoint.next_offset
        state.log_start_offset = checkpoint.log_start_offset
        state.last_stable_offset = checkpoint.last_stable_offset
        state.leader_epoch = checkpoint.leader_epoch
        state.segments = [
            TableSegment(name=entry.name, base=entry.base, next_offset=entry.next_offset, size=entry.size)
            for entry in checkpoint.segments
        ]
        state.origins = {entry.origin_id: entry for entry in checkpoint.origins}
        state.txn_ids = OrderedDict((entry.txn_id, entry) for entry in checkpoint.txn_ids)
        state.leader_epochs = list(checkpoint.leader_epochs)
        state.metadata = checkpoint.metadata
        state.chain_crc = checkpoint.chain_crc
        return state

    def freeze(self) -> TableSnapshot:
        """An immutable copy: for readers, and for encoding a checkpoint while commits go on.

        Raises:
            InvariantError: before version 0 there is no table.
        """
        if self.metadata is None:
            raise InvariantError(f"{self.table}: there is no table before version 0")
        return TableSnapshot(
            version=self.version,
            timestamp=self.timestamp,
            next_offset=self.next_offset,
            log_start_offset=self.log_start_offset,
            last_stable_offset=self.last_stable_offset,
            leader_epoch=self.leader_epoch,
            segments=tuple(self.segments),
            origins=tuple(self.origins.values()),
            txn_ids=tuple(self.txn_ids.values()),
            leader_epochs=tuple(self.leader_epochs),
            metadata=self.metadata,
            chain_crc=self.chain_crc,
        )

    def replay(self, decoded: DecodedCommit) -> None:
        """Makes this the table of the next version. Costs as much as the commit has operations.

        Raises:
            DamageError: the commit does not follow from the version this state is at; names its version and why.
        """
        commit = decoded.commit
        self.check_follows(commit)
        first_offset = self.next_offset
        if commit.is_rewriting:
            self._rewrite(commit)
        else:
            self._add_and_remove(commit)
        self._check_bounds(commit)
        if commit.leader_epoch > self.leader_epoch:
            begin_epoch(self.leader_epochs, commit.leader_epoch, start_offset=first_offset)
            self.leader_epoch = commit.leader_epoch
        if commit.log_start_offset > self.log_start_offset:
            trim_epochs(self.leader_epochs, log_start_offset=commit.log_start_offset)
            self.log_start_offset = commit.log_start_offset
        if commit.metadata is not UNSET:
            self.metadata = commit.metadata
        self.version = commit.version
        self.timestamp = commit.timestamp
        self.last_stable_offset = commit.last_stable_offset
        self.chain_crc = decoded.chain_crc

    def end_offset_for_epoch(
        self, epoch: int, *, leader_epoch: LeaderEpoch | None = None, log_end_offset: Offset | None = None
    ) -> EpochEnd:
        """Where a leader epoch ends (OffsetForLeaderEpoch: KIP-101, KIP-279); -1 and -1 where it is not known.

        Args:
            epoch: the one asked for.
            leader_epoch: that of the leader who is asked, if no version need be of it yet: what has been committed
                behind the newest version is.
            log_end_offset: the end of what is committed, if no version need reach that far yet.
        """
        entries = self.leader_epochs
        if leader_epoch is not None and leader_epoch > self.leader_epoch:
            entries = [*entries]
            begin_epoch(entries, leader_epoch, start_offset=self.next_offset)
        return find_epoch_end(
            entries, epoch, log_end_offset=self.next_offset if log_end_offset is None else log_end_offset
        )

    def check_follows(self, commit: DeltaCommit) -> None:
        """Whether a commit is the next one of this history, whatever it adds and removes; changes nothing.

        Raises:
            DamageError: it is not; names its version and why.
        """
        if commit.version != self.version + 1:
            raise self._damage(commit, f"version {self.version + 1} was to be next")
        if commit.prev_crc != self.chain_crc:
            raise self._damage(
                commit,
                f"its prev_crc is {commit.prev_crc}, version {self.version} has {self.chain_crc}: "
                "one of the two is not of this history",
            )
        # One spelling, one width: the texts compare as the times do.
        if commit.timestamp < self.timestamp:
            raise self._damage(commit, f"its timestamp {commit.timestamp} is earlier than {self.timestamp} before it")
        if commit.leader_epoch < self.leader_epoch:
            raise self._damage(commit, f"its leader epoch {commit.leader_epoch} is below {self.leader_epoch} before it")
        if commit.metadata is UNSET:
            if self.metadata is None:
                raise self._damage(commit, "version 0 must carry the metadata")
            if not commit.operations and commit.log_start_offset == self.log_start_offset:
                raise self._damage(commit, "it has no operations and changes nothing")
        elif self.metadata is not None and (
            commit.metadata.topic_id != self.metadata.topic_id
            or commit.metadata.topic != self.metadata.topic
            or commit.metadata.partition != self.metadata.partition
        ):
            raise self._damage(commit, "its metadata is of another partition")

    def _rewrite(self, commit: DeltaCommit) -> None:
        """Puts other segments in the place of some of the sealed ones, over the same offsets."""
        try:
            self.segments = rewrite_segments(self.segments, commit.operations)
        except DamageError as error:
            raise self._damage(commit, str(error)) from None

    def _add_and_remove(self, commit: DeltaCommit) -> None:
        for operation in commit.operations:
            if operation.type == "add":
                self._add(operation, commit)
            else:
                self._remove(operation, commit)

    def _add(self, operation: Operation, commit: DeltaCommit) -> None:
        if operation.offset_start != self.next_offset:
            raise self._damage(commit, f"an add begins at offset {operation.offset_start}, not at {self.next_offset}")
        if operation.offset_end < operation.offset_start:
            raise self._damage(commit, f"an add ends at offset {operation.offset_end}, before it begins")
        next_offset = Offset(operation.offset_end + 1)
        self._extend_segment(operation, commit, next_offset)
        self._remember_origin(operation, commit)
        if operation.txn_id is not UNSET:
            self._remember_txn_id(operation.txn_id, operation, commit)
        self.next_offset = next_offset

    def _extend_segment(self, operation: Operation, commit: DeltaCommit, next_offset: Offset) -> None:
        segments = self.segments
        active = segments[-1] if segments else None
        if active is not None and active.name == operation.segment:
            if operation.position != active.size:
                raise self._damage(
                    commit, f"an add begins at byte {operation.position} of {active.name}, which ends at {active.size}"
                )
            segments[-1] = TableSegment(
                name=active.name, base=active.base, next_offset=next_offset, size=active.size + operation.size
            )
            return
        name = parse_segment_file_name(operation.segment)
        if name is None or name.kind is not SegmentFileKind.LOG:
            raise self._damage(commit, f"{operation.segment!r} is not the name of a segment")
        if operation.position != 0 or name.base != operation.offset_start:
            raise self._damage(
                commit,
                f"an add to {operation.segment}, which is not the active segment, must begin a new one: at byte 0 and "
                f"named after its first offset {operation.offset_start}",
            )
        segments.append(
            TableSegment(
                name=operation.segment, base=operation.offset_start, next_offset=next_offset, size=operation.size
            )
        )

    def _remember_origin(self, operation: Operation, commit: DeltaCommit) -> None:
        last = self.origins.get(operation.origin_id)
        if last is not None and operation.origin_seq <= last.last_seq:
            raise self._damage(
                commit,
                f"origin {operation.origin_id} adds its sequence {operation.origin_seq} after {last.last_seq}",
            )
        self.origins[operation.origin_id] = OriginEntry(
            origin_id=operation.origin_id,
            last_seq=operation.origin_seq,
            payload_crc=operation.payload_crc,
            version=commit.version,
            offset_start=operation.offset_start,
            offset_end=operation.offset_end,
        )

    def _remember_txn_id(self, txn_id: str, operation: Operation, commit: DeltaCommit) -> None:
        first = self.txn_ids.get(txn_id)
        if first is not None:
            raise self._damage(commit, f"txn_id {txn_id!r} was already added by version {first.version}")
        self.txn_ids[txn_id] = TxnIdEntry(
            txn_id=txn_id,
            payload_crc=operation.payload_crc,
            version=commit.version,
            offset_start=operation.offset_start,
            offset_end=operation.offset_end,
        )
        if len(self.txn_ids) > TXN_IDS_REMEMBERED:
            self.txn_ids.popitem(last=False)

    def _remove(self, operation: Operation, commit: DeltaCommit) -> None:
        """Takes the oldest segment out of the table, whole."""
        oldest = self.segments[0] if self.segments else None
        if oldest is None or operation.segment != oldest.name:
            raise self._damage(commit, f"it removes {operation.segment}, which is not the oldest segment")
        try:
            check_is_whole(operation, oldest)
        except DamageError as error:
            raise self._damage(commit, str(error)) from None
        del self.segments[0]

    def _check_bounds(self, commit: DeltaCommit) -> None:
        end_offset = commit.end_offset
        if end_offset != self.next_offset:
            raise self._damage(commit, f"its end_offset is {end_offset}, its operations end at {self.next_offset}")
        if not self.last_stable_offset <= commit.last_stable_offset <= end_offset:
            raise self._damage(
                commit,
                f"its last_stable_offset {commit.last_stable_offset} is not between the one before it, "
                f"{self.last_stable_offset}, and its end_offset {end_offset}",
            )
        if not self.log_start_offset <= commit.log_start_offset <= end_offset:
            raise self._damage(
                commit,
                f"its log_start_offset {commit.log_start_offset} is not between the one before it, "
                f"{self.log_start_offset}, and its end_offset {end_offset}",
            )
        first_kept = self.segments[0].base if self.segments else self.next_offset
        if commit.log_start_offset < first_kept:
            raise self._damage(
                commit, f"its log_start_offset {commit.log_start_offset} lies below the first segment, {first_kept}"
            )

    def _damage(self, commit: DeltaCommit, reason: str) -> DamageError:
        return DamageError(f"{self.table}: delta version {commit.version} does not follow: {reason}")


def _to_entry(segment: TableSegment, details: SegmentDetails) -> SegmentEntry:
    return SegmentEntry(
        name=segment.name,
        base=segment.base,
        next_offset=segment.next_offset,
        size=segment.size,
        max_timestamp=details.max_timestamp,
        index_entries=details.index_entries,
        time_index_entries=details.time_index_entries,
        aborted_entries=details.aborted_entries or UNSET,
        aborted_crc=print_crc(details.aborted_crc) if details.aborted_entries else UNSET,
    )
