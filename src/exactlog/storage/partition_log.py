"""One partition: an append-only log of record batches whose delta log says which bytes count.

Three cursors run one behind the other. *Head* is what has been decided: offsets are given, bytes wait or are on their
way. *Committed* is what a finished round made good: only that is read, and only then is anything answered (on a single
node it is the high watermark). *Published* is the newest delta version with a name. In flush mode `commit` a round
commits and publishes at once; in `interval` and `none` bytes are committed as soon as the operating system has them and
their version follows within a moment.

Producer state exists twice, at head and at committed, changed by the same `replay`. Appends are judged by head, so that
a batch in flight is recognised when it is sent again; its answer waits for committed all the same. When a round fails,
everything after it fails and head goes back to committed.

All methods belong to the event loop's thread; only what `take_*` hands out travels to another.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from msgspec import Struct

from exactlog.core.deltalog.commit_format import DecodedCommit
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.log.producer_state import Duplicate, Fresh, ProducerStates, Refused
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from exactlog.core.record.batch_format import BatchHeader, assign, decode_header, set_log_append_time
from exactlog.storage.background import BackgroundLane
from exactlog.storage.checkpointer import Checkpointer, PreparedCheckpoint
from exactlog.storage.delta_head import DeltaHead
from exactlog.storage.filesystem import Buffer
from exactlog.storage.group import Group
from exactlog.storage.log_reading import FoundRecord, find_by_time, find_latest_in_time, read_batches
from exactlog.storage.round import (
    CommitWrite,
    ForeignVersion,
    GroupWrite,
    PartitionWrite,
    SegmentWrite,
    StorageRefused,
    Stored,
    SyncFailed,
    WriteOutcome,
)
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.settings import FlushMode, LogSettings

_logger = logging.getLogger(__name__)

_RETIRE_POLL_S = 0.001

CommittedCallback = Callable[[ErrorCode], None]
"""Called once what it waits for is committed (NONE), or will never be (the error)."""


class Appended(Struct, frozen=True, gc=False):
    """The batch has its place, now or since an earlier try; to be told once it is committed."""

    base_offset: Offset
    log_append_time_ms: TimestampMs


class AppendRefused(Struct, frozen=True, gc=False):
    """The batch may not be appended; nothing was."""

    error_code: ErrorCode
    message: str


class OpenedLog(Struct, frozen=True):
    """What a partition log starts from."""

    table: TableState
    producers: ProducerStates
    segments: list[Segment]
    """In order of base offset, the last one active; empty before the first record."""


class ClosedVersion(Struct, frozen=True):
    """A delta version on its way to be published."""

    write: CommitWrite
    decoded: DecodedCommit
    checkpoint: PreparedCheckpoint | None


class PartitionLog:
    """A partition that is open for appends.

    Attributes:
        failure: why the partition has stopped; None while it works.
        committed_bytes: how many bytes have been committed since it was opened; only grows.
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
        background: BackgroundLane,
        mark_dirty: "Callable[[PartitionLog, int], None]",
    ) -> None:
        self.topic_partition = topic_partition
        self._name = str(topic_partition)
        self.directory = directory
        self.settings = settings
        self.table = opened.table
        self.segments = opened.segments
        self.failure: str | None = None
        self.committed_bytes = 0
        self._files = files
        self._checkpointer = checkpointer
        self._background = background
        self._mark_dirty = mark_dirty
        self._committed_offset = opened.table.next_offset
        self._committed_producers = opened.producers
        self._forming: list[Group] = []
        self._in_flight: list[tuple[Group, ClosedVersion | None]] = []
        self._unpublished: list[Group] = []
        self._unpublished_crc = 0
        self._refused_version: ClosedVersion | None = None
        self._is_publishing = False
        self._unsynced: dict[Segment, bool] = {}
        self._is_syncing = False
        self._waiting: deque[tuple[int, CommittedCallback]] = deque()
        self._watchers: dict[Callable[[], None], None] = {}
        self._delta_head = DeltaHead(self.table, settings)
        self._head_producers = self._committed_producers.copy()
        self._head_offset = self._committed_offset
        self._head_segment = self._active_segment()
        self._head_position = self._head_segment.size

    # --- what readers see ---------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.table.log_start_offset

    @property
    def high_watermark(self) -> Offset:
        """The end of what is committed: the first offset that cannot be read yet."""
        return self._committed_offset

    @property
    def last_stable_offset(self) -> Offset:
        """The first offset a read_committed reader may not see."""
        return self._committed_offset

    def read(self, offset: int, *, end_offset: int, bytes_max: int, at_least_one_batch: bool) -> Buffer:
        """Whole committed batches from the one that holds `offset` on; see `read_batches`."""
        return read_batches(
            self.segments,
            offset,
            end_offset=min(end_offset, self._committed_offset),
            bytes_max=bytes_max,
            at_least_one_batch=at_least_one_batch,
        )

    def find_by_time(self, timestamp_ms: int, *, end_offset: int) -> FoundRecord | None:
        """The first committed record below `end_offset` that is not older than a time."""
        return find_by_time(self.segments, timestamp_ms, end_offset=min(end_offset, self._committed_offset))

    def find_latest_in_time(self, *, end_offset: int) -> FoundRecord | None:
        """The committed record below `end_offset` with the greatest timestamp."""
        return find_latest_in_time(self.segments, end_offset=min(end_offset, self._committed_offset))

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back each time the committed end moves, or the partition fails, until `unwatch`."""
        self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Ends a `watch`; one that was not there is fine."""
        self._watchers.pop(callback, None)

    # --- appending ----------------------------------------------------------------------------------------------

    def append(self, header: BatchHeader, batch: memoryview, *, now_ms: int) -> Appended | AppendRefused:
        """Gives a validated batch its offsets, or the answer an earlier try got, or says why not.

        `batch` must be writable and stay untouched by others afterwards. Whatever the outcome, it may be told only once
        `when_committed` calls back.
        """
        if self.failure is not None:
            return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        decision = self._head_producers.decide(header, log_is_empty_forever=self._head_offset == 0)
        match decision:
            case Fresh():
                pass
            case Duplicate(batch=first):
                return Appended(first.offset_start, first.timestamp)
            case Refused(error_code=code, message=message):
                return AppendRefused(code, message)
        append_time = NO_TIMESTAMP
        if self.settings.log_append_time:
            append_time = TimestampMs(now_ms)
            set_log_append_time(batch, 0, timestamp_ms=append_time)
            header = decode_header(batch)
        leader_epoch = LeaderEpoch(self.settings.leader_epoch)
        assign(batch, 0, base_offset=self._head_offset, leader_epoch=leader_epoch)
        placed = header.placed(base_offset=self._head_offset, leader_epoch=leader_epoch)
        producer = self._head_producers.replay(placed)
        group = self._group_for(placed)
        group.add(placed, batch, producer)
        self._head_position = group.position + group.size
        self._head_offset = Offset(group.end_offset)
        self._mark_dirty(self, len(batch))
        return Appended(placed.base_offset, append_time)

    def when_committed(self, callback: CommittedCallback) -> None:
        """Calls back when all that is decided by now is committed, or has failed; at once when it already is."""
        if self._head_offset == self._committed_offset:
            callback(ErrorCode.NONE)
        else:
            self._waiting.append((self._head_offset, callback))

    def _group_for(self, header: BatchHeader) -> Group:
        """The open group, or a new one; in a new segment, when the batch would not fit the old one."""
        if not self._head_segment.has_room_for(header, self._head_position, self.settings.segment_bytes):
            self._head_segment = self._files.new(self.directory, base_offset=header.base_offset)
            self._head_position = 0
        elif self._forming:
            return self._forming[-1]
        group = Group(self._head_segment, position=self._head_position, base_offset=header.base_offset)
        self._forming.append(group)
        return group

    # --- rounds -------------------------------------------------------------------------------------------------

    def take_write(self, *, now_ms: int) -> PartitionWrite | None:
        """Closes what is forming and hands it to a round; None when there is nothing."""
        groups, self._forming = self._forming, []
        if not groups:
            return None
        is_durable = self.settings.flush_mode is FlushMode.COMMIT
        writes = []
        for group in groups:
            version = self._close_version([group], group.data_crc(), now_ms=now_ms) if is_durable else None
            self._in_flight.append((group, version))
            writes.append(GroupWrite((group.segment_write(),), version.write if version is not None else None))
        size_bytes = sum(group.size for group in groups)
        return PartitionWrite(self._name, self.directory, writes, size_bytes, is_durable)

    def complete_write(self, outcome: WriteOutcome, *, now_ms: int) -> None:
        """Takes in how the round ended; a failed sync ends the node and never arrives here."""
        taken, self._in_flight = self._in_flight, []
        match outcome:
            case Stored():
                self._commit(taken, now_ms=now_ms)
            case StorageRefused(reason=reason, groups_stored=stored):
                _logger.error("storage refused a write: %s", reason)
                self._commit(taken[:stored], now_ms=now_ms)
                self._reset_head()
            case ForeignVersion():
                self.fail(_tell_foreign(self.topic_partition, outcome))
            case SyncFailed(reason=reason):
                raise InvariantError(reason)

    def take_publication(self, *, now_ms: int) -> tuple[PartitionWrite, ClosedVersion] | None:
        """Closes a version over all that is committed and not yet published (`interval` and `none`)."""
        if self.failure is not None:
            return None
        version = self._refused_version or self._close_unpublished(now_ms=now_ms)
        if version is None:
            return None
        self._is_publishing = True
        write = PartitionWrite(self._name, self.directory, [GroupWrite((), version.write)], size_bytes=0, durable=False)
        return write, version

    def complete_publication(self, outcome: WriteOutcome, version: ClosedVersion, *, now_ms: int) -> None:
        """Takes in how the publication of a version ended. One that was refused is handed out again, unchanged."""
        self._is_publishing = False
        match outcome:
            case Stored():
                self._refused_version = None
                self._publish(version, now_ms=now_ms)
            case StorageRefused(reason=reason):
                if self._refused_version is None:
                    _logger.error(
                        "version %d is committed and cannot be published yet: %s", version.write.version, reason
                    )
                self._refused_version = version
            case ForeignVersion():
                self.fail(_tell_foreign(self.topic_partition, outcome))
            case SyncFailed(reason=reason):
                raise InvariantError(reason)

    @property
    def has_unpublished(self) -> bool:
        """Whether something is committed that no published version names yet."""
        return bool(self._unpublished or self._refused_version)

    def _close_unpublished(self, *, now_ms: int) -> ClosedVersion | None:
        groups, self._unpublished = self._unpublished, []
        if not groups:
            return None
        version = self._close_version(groups, self._unpublished_crc, now_ms=now_ms)
        self._unpublished_crc = 0
        if self._checkpointer.is_wanted(version.decoded.commit.version, now_ms=now_ms):
            # Now, since by the time the version is published more may be committed.
            prepared = self._checkpointer.prepare(self._committed_producers, self.segments)
            version = ClosedVersion(version.write, version.decoded, prepared)
        return version

    def take_sync(self) -> PartitionWrite | None:
        """What is committed and not yet synced (`interval`), as a round that writes nothing and syncs it."""
        unsynced, self._unsynced = self._unsynced, {}
        if not unsynced:
            return None
        writes = [SegmentWrite(segment.path, segment.size, [], is_new) for segment, is_new in unsynced.items()]
        self._is_syncing = True
        group = GroupWrite(writes, None)
        return PartitionWrite(self._name, self.directory, [group], size_bytes=0, durable=True)

    def complete_sync(self) -> None:
        """The sync has ended well; a failed one ends the node."""
        self._is_syncing = False

    def expire_producers(self, *, now_ms: int, expiration_ms: int) -> None:
        """Forgets the producers that have been silent for so long (`producer.id.expiration.ms`)."""
        for producers in (self._head_producers, self._committed_producers):
            producers.expire(now_ms=TimestampMs(now_ms), expiration_ms=expiration_ms)

    def fail(self, reason: str) -> None:
        """Stops this partition: appends and reads are refused from here on, everybody else goes on."""
        _logger.critical("%s", reason)
        self.failure = reason
        self._reset_head()

    async def retire(self) -> None:
        """Stops the partition since its topic is deleted; when this returns, nothing writes to its files any more."""
        self.failure = "the topic was deleted"
        while self._is_busy:  # noqa: ASYNC110  once in a topic's life; an event would live in every round
            await asyncio.sleep(_RETIRE_POLL_S)
        await self._background.wait()
        self._unsynced = {}
        self._reset_head(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @property
    def _is_busy(self) -> bool:
        """Whether a round writes to the partition's files, or is going to."""
        return bool(self._forming or self._in_flight or self._is_publishing or self._is_syncing)

    def _close_version(self, groups: list[Group], data_crc: int, *, now_ms: int) -> ClosedVersion:
        write, decoded = self._delta_head.close(groups, data_crc=data_crc, now_ms=now_ms)
        return ClosedVersion(write, decoded, None)

    def _commit(self, taken: list[tuple[Group, ClosedVersion | None]], *, now_ms: int) -> None:
        for group, version in taken:
            if group.is_new_segment:
                self._begin_segment(group.segment)
            for header, position, producer in group.batches:
                group.segment.on_appended(header, position)
                if producer is not None:
                    self._committed_producers.adopt(producer)
            self._committed_offset = Offset(group.end_offset)
            self.committed_bytes += group.size
            if version is not None:
                self._publish(version, now_ms=now_ms)
            else:
                self._unpublished.append(group)
                self._unpublished_crc = group.data_crc(self._unpublished_crc)
                if self.settings.flush_mode is FlushMode.INTERVAL:
                    self._unsynced[group.segment] = self._unsynced.get(group.segment, False) or group.is_new_segment
                group.buffers = []  # the operating system has them; only the version's document is still to come
        while self._waiting and self._waiting[0][0] <= self._committed_offset:
            self._waiting.popleft()[1](ErrorCode.NONE)
        self._notify()

    def _publish(self, version: ClosedVersion, *, now_ms: int) -> None:
        self.table.replay(version.decoded)
        self._checkpointer.count(len(version.write.content))
        prepared = version.checkpoint
        is_current = self.settings.flush_mode is FlushMode.COMMIT
        if is_current and self._checkpointer.is_wanted(self.table.version, now_ms=now_ms):
            prepared = self._checkpointer.prepare(self._committed_producers, self.segments)
        if prepared is not None:
            self._checkpointer.write(self.table, prepared, now_ms=now_ms)

    def _active_segment(self) -> Segment:
        if self.segments:
            return self.segments[-1]
        return self._files.new(self.directory, base_offset=self._committed_offset)

    def _begin_segment(self, segment: Segment) -> None:
        """The first bytes of a segment are committed; the one before it will not grow any more."""
        if self.segments:
            self._seal(self.segments[-1])
        self.segments.append(segment)

    def _seal(self, segment: Segment) -> None:
        rows = segment.index.take_new_rows(is_last=True)

        def work() -> bool:
            for new_rows in rows:
                new_rows.write(self._files.filesystem)
            return True

        def then(is_written: bool | None) -> None:  # noqa: FBT001  the shape of a continuation
            if is_written:
                segment.index.drop_memory()

        self._background.submit(work, then)

    def _reset_head(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """Forgets what is decided and not committed: its bytes are cut off or were never written."""
        self._mark_dirty(self, -sum(group.size for group in self._forming))
        self._forming = []
        self._head_producers = self._committed_producers.copy()
        self._head_offset = self._committed_offset
        self._head_segment = self._active_segment()
        self._head_position = self._head_segment.size
        if self.settings.flush_mode is FlushMode.COMMIT:
            self._delta_head = DeltaHead(self.table, self.settings)
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)
        self._notify()

    def _notify(self) -> None:
        for callback in list(self._watchers):
            callback()


def _tell_foreign(topic_partition: TopicPartition, outcome: ForeignVersion) -> str:
    return (
        f"{topic_partition}: delta version {outcome.version} was already published by {outcome.their_txn_id!r} when "
        f"{outcome.our_txn_id!r} wanted it ({outcome.reason}). Somebody else writes into this directory: the partition "
        "stops. Find the other writer, then start the broker again."
    )
