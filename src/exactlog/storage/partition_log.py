"""One partition: an append-only log of record batches whose delta log says which bytes count.

Three cursors run one behind the other. *Head* is what has been decided: offsets are given, bytes wait or are on their
way. *Committed* is what a finished round made good: only that is read, and only then is anything answered (on a single
node it is the high watermark). *Published* is the newest delta version with a name. On plain files in flush mode
`commit` a round commits and publishes at once; else (a journal; `interval`, `none`) versions follow within a moment.

Producer state exists twice, at head and at committed, changed by the same `replay`. Appends are judged by head, so that
a batch in flight is recognised when it is sent again; its answer waits for committed all the same. When a round fails,
everything after it fails and head goes back to committed.

Appends on terms (an expected version, ids of the writer's own) and a moved log start live in the delta log alone: they
are answered when their version is published, by the next round.

All methods belong to the event loop's thread; only what `take_*` hands out travels to another.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from exactlog.core.deltalog.append_terms import (
    Accepted,
    AppendTerms,
    Committed,
    Conflicted,
    DecidedIds,
    PayloadDiffers,
    Superseded,
    TermsRefused,
)
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.log.producer_state import Duplicate, Fresh, ProducerEntry, Refused
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from exactlog.core.model.metrics import Counter
from exactlog.core.model.topic_name import TRANSACTION_STATE, is_internal
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.storage.append_outcome import DELETED, Appended, AppendRefused
from exactlog.storage.background import Lane
from exactlog.storage.checkpointer import Checkpointer
from exactlog.storage.committed_log import CarriedGroups, ClosedVersion, CommittedLog, OpenedLog
from exactlog.storage.decided_changes import DecidedChanges
from exactlog.storage.delta_head import NO_CHANGE, DeltaHead
from exactlog.storage.log_head import LogHead
from exactlog.storage.pending_versions import PendingVersion, PendingVersions, TableChange
from exactlog.storage.publication import Publication
from exactlog.storage.removal import Retention, find_retained_start
from exactlog.storage.round import (
    ForeignVersion,
    GroupWrite,
    NameRefused,
    PartitionWrite,
    StorageRefused,
    Stored,
    SyncFailed,
    WriteOutcome,
)
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.settings import FlushMode, LogSettings
from exactlog.storage.unsynced_segments import UnsyncedSegments
from exactlog.storage.waiting import WaitCallback, Waiting

__all__ = ["HIGH_WATERMARK", "AppendRefused", "Appended", "PartitionLog"]

_logger = logging.getLogger(__name__)

_RETIRE_POLL_S = 0.001

HIGH_WATERMARK = -1
"""Instead of an offset to remove up to: all that is committed."""


class PartitionLog:
    """A partition that is open for appends.

    Attributes:
        failure: why the partition has stopped; None while it works.
        committed: what finished rounds made good; readers ask it.
        is_leading: see `PartitionWrite`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        opened: OpenedLog,
        settings: LogSettings,
        *,
        files: SegmentFiles,
        checkpointer: Checkpointer,
        background: Lane,
        mark_dirty: "Callable[[PartitionLog, int], None]",
        conflicts: Counter,
    ) -> None:
        self.topic_partition = topic_partition
        self._name = str(topic_partition)
        self._topic_id = "" if opened.table.metadata is None else str(opened.table.metadata.topic_id)
        self.directory = directory
        self.settings = settings
        self.committed = CommittedLog(directory, opened, files=files, checkpointer=checkpointer, background=background)
        self.failure: str | None = None
        self._files = files
        self._background = background
        self._mark_dirty = mark_dirty
        self._conflicts = conflicts
        self._versions = PendingVersions(opened.table.version)
        self._in_flight: list[CarriedGroups] = []
        self._publication = Publication(self.committed)
        self._is_internal = is_internal(topic_partition.topic)
        self._always_publishes_in_round = settings.publishes_in_round
        self.is_leading = topic_partition.topic == TRANSACTION_STATE
        self._unsynced = UnsyncedSegments(self._name, directory)
        self._waiting = Waiting()
        self._waiting_for_version = Waiting()
        self._reset_decisions()

    def _reset_decisions(self) -> None:
        """Head stands where committed does."""
        if not self._publication.versions:
            self._delta_head = DeltaHead(self.table, self.settings)
        self._ids = DecidedIds(self.table, node_id=self.settings.node_id)
        self._head = LogHead(self.committed, self._versions, files=self._files, directory=self.directory)
        self._changes = DecidedChanges(self.table, self._publication.versions)
        self._has_markers = False  # among what waits for a round

    # --- what readers see ---------------------------------------------------------------------------------------

    @property
    def table(self) -> TableState:
        """The table as of the newest published version."""
        return self.committed.table

    @property
    def segments(self) -> list[Segment]:
        """The committed segments, in order of base offset."""
        return self.committed.segments

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.committed.table.log_start_offset

    @property
    def high_watermark(self) -> Offset:
        """The end of what is committed: the first offset that cannot be read yet."""
        return self.committed.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """The first offset a read_committed reader may not see: all below it is decided."""
        return self.committed.last_stable_offset

    # --- appending ----------------------------------------------------------------------------------------------

    def append(
        self,
        header: BatchHeader,
        batch: memoryview,
        *,
        now_ms: int,
        is_client: bool = True,
        is_verified: bool = False,
        first_sequence_max: int | None = None,
    ) -> Appended | AppendRefused:
        """Gives a validated batch its offsets, or the answer an earlier try got, or says why not.

        `batch` must be writable and stay untouched by others afterwards. Whatever the outcome, it may be told only once
        `when_committed` calls back. The rules, and what the last three arguments say: `ProducerStates.decide`.
        """
        if self.failure is not None:
            return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        decision = self._head.producers.decide(
            header,
            log_is_empty_forever=self._head.offset == 0,
            is_client=is_client,
            is_verified=is_verified,
            first_sequence_max=first_sequence_max,
        )
        match decision:
            case Fresh():
                appended = self._head.append(header, batch, self.settings, now_ms=now_ms)
                self._mark_dirty(self, len(batch))
                return appended
            case Duplicate(batch=first):
                return Appended(first.offset_start, first.timestamp)
            case Refused(error_code=code, message=message):
                return AppendRefused(code, message)

    def append_marker(
        self,
        marker: TransactionMarker,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        transaction_version: int,
        now_ms: int,
    ) -> Appended | AppendRefused:
        """Ends the producer's transaction here, as its coordinator has decided, or says why not.

        As with `append` the outcome may be told only once `when_committed` calls back. The rules, and what the
        arguments say: `ProducerStates.judge_marker`.
        """
        if self.failure is not None:
            return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        judged = self._head.producers.judge_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=transaction_version,
        )
        if isinstance(judged, Refused):
            return AppendRefused(judged.error_code, judged.message)
        appended, size_bytes = self._head.append_marker(
            marker, self.settings, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms
        )
        self._has_markers = True
        self._mark_dirty(self, size_bytes)
        return appended

    def has_open_transaction(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Whether a transaction of the producer at that epoch is open here, by what is decided."""
        return self._head.producers.has_open_transaction(producer_id, producer_epoch)

    def open_transactions(self) -> list[ProducerEntry]:
        """The producers whose transactions are open here, by what is decided; the oldest transaction first."""
        return self._head.producers.open_transactions()

    def append_on_terms(
        self, header: BatchHeader, batch: memoryview, terms: AppendTerms, *, now_ms: int
    ) -> Committed | Conflicted | Superseded | PayloadDiffers | AppendRefused:
        """As `append`, of a batch without a producer id, if the terms hold; told only once `when_published` calls back.

        Who comes again with the id or the sequence of an earlier append gets the first result.
        """
        refusal = self.failure or self._publication.unnamed
        if refusal is not None:
            return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, refusal)
        if header.has_producer_id:
            return AppendRefused(ErrorCode.INVALID_REQUEST, "an append on terms cannot be an idempotent producer's")
        versions = self._versions
        judged = self._ids.judge(terms, closed_version=versions.closed_version, is_forming=versions.is_forming)
        match judged:
            case Accepted():
                pass
            case TermsRefused(message=message):
                return AppendRefused(ErrorCode.INVALID_REQUEST, message)
            case Conflicted():
                self._conflicts.inc()
                self._versions.close()  # so that the actual version can be expected next
                self._head.open_group = None
                return judged
            case _:
                return judged
        placed = self._head.append(header, batch, self.settings, now_ms=now_ms)
        self._mark_dirty(self, len(batch))
        committed = Committed(versions.newest, placed.base_offset, self._head.offset - 1)
        group = self._head.open_group
        if group is not None and (terms.txn_id is not None or terms.origin_id is not None):
            group.mark_last_as_own(terms, origin_seq=judged.origin_seq)
            self._ids.decide(terms, judged, committed)
        return committed

    def when_committed(self, callback: WaitCallback) -> None:
        """Calls back when all that is decided by now is committed, or has failed; at once when it already is."""
        if self._head.offset == self.committed.end_offset:
            callback(ErrorCode.NONE)
        else:
            self._waiting.add(self._head.offset, callback)

    def is_settled(self, producer_id: ProducerId) -> bool:
        """Whether all that is decided of a producer is committed: whatever changes an entry replaces it."""
        return self._head.producers.get(producer_id) is self.committed.producers.get(producer_id)

    def when_published(self, callback: WaitCallback) -> None:
        """Calls back when all that is decided by now is published, or has failed; at once when it already is."""
        if self._versions.newest == self.table.version:
            callback(ErrorCode.NONE)
        else:
            self._waiting_for_version.add(self._versions.newest, callback)
            self._mark_dirty(self, 0)

    # --- removing -----------------------------------------------------------------------------------------------

    def move_log_start(self, offset: int) -> ErrorCode:
        """Takes all records below an offset away, for good; -1 is the high watermark (DeleteRecords, KIP-107).

        Nothing happens where they are gone. Told by `when_published`: OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if self.failure is not None or self._publication.unnamed is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if offset == HIGH_WATERMARK:
            offset = self.committed.end_offset
        if not 0 <= offset <= self.committed.end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if offset > self._changes.log_start_offset:
            leaving = self._segments_below(offset)
            self.change(TableChange(log_start_offset=offset, removed=[segment.in_table() for segment in leaving]))
        return ErrorCode.NONE

    def apply_retention(self, retention: Retention, *, now_ms: int) -> bool:
        """Takes whole segments away that are too old or too much; gives whether it publishes a version for that."""
        start = find_retained_start(self.segments[self._changes.segments_leaving :], retention, now_ms=now_ms)
        return start is not None and self.move_log_start(start) is ErrorCode.NONE

    def sweep_removed(self, *, now_ms: int) -> bool:
        """Lets files of removed segments go when they may (`CommittedLog.sweep_removed`); as `apply_retention`."""
        if self.failure is not None or not self.committed.has_removed_files:
            return False
        settings, is_quiet = self.settings, not self._versions and not self._is_busy
        if not self.committed.sweep_removed(now_ms=now_ms, delay_ms=settings.file_delete_delay_ms, is_quiet=is_quiet):
            return False
        self.change(TableChange(metadata=self._changes.metadata))  # says anew what the table is
        return True

    def apply(self, settings: LogSettings) -> None:
        """Works under other settings of its topic from the next append on; a version says so where they were set on it.

        Those of the node stay.
        """
        self.settings = settings
        self._files.index_interval_bytes = settings.index_interval_bytes
        before = self._changes.metadata
        if self.failure is None and before is not None and not settings.are_recorded_in(before):
            self.change(TableChange(metadata=settings.record_in(before)))

    def _segments_below(self, offset: int) -> list[Segment]:
        """The segments with nothing but records below an offset; the active one only where nothing is under way."""
        segments = self.segments[self._changes.segments_leaving :]
        if segments and offset == self.committed.end_offset == self._head.offset:
            self._head.begin_segment(offset)
            return segments
        return [segment for segment in segments[:-1] if segment.next_offset <= offset]

    def change(self, change: TableChange) -> None:
        """Changes the table by a version of its own, behind all that is decided; told by `when_published`."""
        self._versions.change(change)
        self._changes.decide(change)
        self._head.open_group = None
        self._mark_dirty(self, 0)

    # --- rounds -------------------------------------------------------------------------------------------------

    @property
    def _publishes_in_round(self) -> bool:
        """Whether the next round publishes what it commits: where rounds always do, else when somebody waits for it."""
        return self._always_publishes_in_round or bool(self._waiting_for_version)

    def take_write(self, *, now_ms: int) -> PartitionWrite | None:
        """Closes what is forming and hands it to a round; None when there is nothing, or a publication comes first."""
        publishes = self._publishes_in_round
        work = self._versions if publishes else self._head.forming_bytes
        if not work or self._in_flight or (publishes and self._publication.versions):
            return None
        if publishes:
            for pending in self._versions.take_all():
                self._in_flight.append(CarriedGroups(pending.uncommitted_groups, self._close(pending, now_ms=now_ms)))
        else:
            self._in_flight = [CarriedGroups((group,), None) for group in self._versions.uncommitted_groups()]
        writes = [carried.group_write() for carried in self._in_flight]
        is_tied, self._has_markers = self._is_internal or self._has_markers, False
        return self._write(writes, size_bytes=self._head.take_forming(), is_tied=is_tied)

    def complete_write(self, outcome: WriteOutcome, *, now_ms: int) -> None:
        """Takes in how the round ended; a failed sync ends the node and never arrives here."""
        taken, self._in_flight = self._in_flight, []
        match outcome:
            case Stored():
                self._commit(taken, now_ms=now_ms)
            case NameRefused(reason=reason, groups_stored=stored):
                self._commit(taken, named=stored, now_ms=now_ms)
                self._publication.park(taken[stored:], reason, now_ms=now_ms)
            case StorageRefused(reason=reason, groups_stored=stored):
                _logger.error("storage refused a write: %s", reason)
                self._commit(taken[:stored], now_ms=now_ms)
                self._reset_head(put_back=[refused.version.pending for refused in taken[stored:] if refused.version])
            case ForeignVersion():
                self.fail(outcome.tell(self._name))
            case SyncFailed(reason=reason):
                raise InvariantError(reason)
        if self._publication.unnamed is not None:
            self._give_up_waiting_for_names()

    def take_publication(self, *, now_ms: int) -> PartitionWrite | None:
        """Closes a version over all that is committed and not yet published, where rounds do not publish."""
        publication = self._publication
        if self.failure is not None or publication.is_running:
            return None
        if not publication.is_parked and not self._waiting_for_version:
            closed = [self._close(pending, now_ms=now_ms) for pending in self._versions.take_committed()]
            publication.begin(closed, now_ms=now_ms)
        return self._write(publication.hand_out(), is_fixed=publication.is_fixed) if publication.versions else None

    def _write(
        self, groups: Sequence[GroupWrite], *, size_bytes: int = 0, is_tied: bool = False, is_fixed: bool = False
    ) -> PartitionWrite:
        durable = self.settings.flush_mode is FlushMode.COMMIT
        return PartitionWrite(
            self._name, self.directory, groups, size_bytes, durable, self._topic_id, is_tied, self.is_leading, is_fixed
        )

    def complete_publication(self, outcome: WriteOutcome, *, now_ms: int) -> None:
        """Takes in how the publication ended. What was refused is closed anew and handed out again."""
        named, refused = self._publication.end(outcome)
        self._publish(named, now_ms=now_ms, is_current=False)
        if refused:
            self._versions.put_back([version.pending for version in refused])
            self._delta_head = DeltaHead(self.table, self.settings)
        if isinstance(outcome, ForeignVersion):
            self.fail(outcome.tell(self._name))
        self._give_up_waiting_for_names()
        if self._waiting_for_version:
            self._mark_dirty(self, 0)

    def _give_up_waiting_for_names(self) -> None:
        """While versions cannot get their names nobody waits for one: it might be for long."""
        if self._publication.unnamed is not None and self._waiting_for_version and not self._in_flight:
            self._reset_head()

    @property
    def has_unpublished(self) -> bool:
        """Whether something is committed that no published version names yet."""
        return self._publication.is_parked or self._versions.has_publishable

    def take_sync(self) -> PartitionWrite | None:
        """What is committed and not yet synced (`interval`), as a round that writes nothing and syncs it."""
        return self._unsynced.take()

    def complete_sync(self) -> None:
        """The sync has ended well; a failed one ends the node."""
        self._unsynced.is_syncing = False

    def expire_producers(self, *, now_ms: int, expiration_ms: int) -> None:
        """Forgets the producers that have been silent for so long (`producer.id.expiration.ms`)."""
        for producers in (self._head.producers, self.committed.producers):
            producers.expire(now_ms=TimestampMs(now_ms), expiration_ms=expiration_ms)

    def fail(self, reason: str) -> None:
        """Stops this partition: appends and reads are refused from here on, everybody else goes on."""
        _logger.critical("%s", reason)
        self.failure = reason
        self._reset_head()

    async def retire(self) -> None:
        """Stops the partition since its topic is deleted; when this returns, nothing writes to its files any more."""
        self.failure = DELETED
        while self._is_busy:  # noqa: ASYNC110  once in a topic's life; an event would live in every round
            await asyncio.sleep(_RETIRE_POLL_S)
        await self._background.wait()
        self._unsynced.clear()
        self._reset_head(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def _is_busy(self) -> bool:
        """Whether a round writes to the partition's files, or is going to."""
        to_write = self._versions if self._publishes_in_round else self._head.forming_bytes
        return bool(to_write or self._in_flight or self._publication.is_running or self._unsynced.is_syncing)

    def _close(self, pending: PendingVersion, *, now_ms: int) -> ClosedVersion:
        pending.is_closed = True
        write, decoded = self._delta_head.close(
            pending.groups, data_crc=pending.data_crc, now_ms=now_ms, change=pending.change or NO_CHANGE
        )
        if write.version != pending.number:
            raise InvariantError(f"{self._name}: version {pending.number} was decided and becomes {write.version}")
        return ClosedVersion(pending, write, decoded)

    def _commit(self, taken: Sequence[CarriedGroups], *, named: int | None = None, now_ms: int) -> None:
        """Takes in what is durable; the versions of the first `named` ones (None: of all) have their names."""
        for position, carried in enumerate(taken):
            for group in carried.groups:
                self.committed.commit(group)
                if self.settings.flush_mode is FlushMode.INTERVAL:
                    self._unsynced.add(group.segment, is_new=group.is_new_segment)
                if carried.version is None:
                    self._versions.commit_next()
            if carried.version is not None and (named is None or position < named):
                self._publish([carried.version], now_ms=now_ms, is_current=True)
        self._waiting.reach(self.committed.end_offset)
        self.committed.notify()

    def _publish(self, versions: Sequence[ClosedVersion], *, now_ms: int, is_current: bool) -> None:
        for version in versions:
            self.committed.publish(version, now_ms=now_ms, is_current=is_current)
            self._changes.publish(version.pending.change)
        self._ids.forget_published()
        self._waiting_for_version.reach(self.table.version)

    def _reset_head(
        self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, *, put_back: Sequence[PendingVersion] = ()
    ) -> None:
        """Forgets what is decided and not committed: its bytes are cut off or were never written."""
        self._mark_dirty(self, -self._head.forming_bytes)
        self._versions.reset(self.table.version + len(self._publication.versions), put_back)
        self._reset_decisions()
        for callback in [*self._waiting.take_all(), *self._waiting_for_version.take_all()]:
            callback(error)
        self.committed.notify()
