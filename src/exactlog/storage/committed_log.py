"""The committed side of a partition: what a finished round made good, which is all that anybody reads.

Segments and producers move when a round has committed a group; the table moves when a version is published. A segment's
index is completed once the next segment has begun, a checkpoint is written when one is due, files of removed segments
go when two checkpoints can do without them: all of that in the background.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from exactlog.core.deltalog.commit_format import DecodedCommit
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.model.ids import DeltaVersion, Offset
from exactlog.storage.aborted_transactions import find_aborted
from exactlog.storage.background import Lane
from exactlog.storage.checkpointer import Checkpointer, PreparedCheckpoint
from exactlog.storage.filesystem import Buffer
from exactlog.storage.group import Group
from exactlog.storage.log_reading import (
    FoundRecord,
    bytes_between,
    end_of_batches,
    find_by_time,
    find_latest_in_time,
    read_batches,
)
from exactlog.storage.pending_versions import PendingVersion, Rewriting
from exactlog.storage.removal import CHECKPOINTS_NEEDED, RemovedFiles, RemovedSegments
from exactlog.storage.round import CommitWrite, GroupWrite
from exactlog.storage.segment import Segment, SegmentFiles


class OpenedLog(Struct, frozen=True):
    """What a partition log starts from."""

    table: TableState
    producers: ProducerStates
    segments: list[Segment]
    """In order of base offset, the last one active; empty before the first record."""
    opened_ms: int
    removed_names: Sequence[str] = ()
    """Segments that are not in the table any more, and whose files are still there."""


class ClosedVersion(Struct, frozen=True):
    """A delta version on its way to be published; `checkpoint` where it had to be prepared already."""

    pending: PendingVersion
    write: CommitWrite
    decoded: DecodedCommit
    checkpoint: PreparedCheckpoint | None = None


class CarriedGroups(Struct, frozen=True):
    """One group write of a round: groups to commit, and the version to publish with them, if any."""

    groups: Sequence[Group]
    version: ClosedVersion | None

    def group_write(self) -> GroupWrite:
        """What the round must write for it."""
        segments = [group.segment_write() for group in self.groups]
        return GroupWrite(segments, None if self.version is None else self.version.write)


class CommittedLog:
    """What is committed of one partition.

    Attributes:
        table: the table as of the newest published version.
        producers: what the committed batches made of their producers.
        segments: in order of base offset, the last one active; empty before the first record.
        end_offset: the high watermark: the end of what is committed.
        last_stable_offset: below it every transaction is decided, at most the high watermark; never goes back.
        size_bytes: how many bytes have been committed since it was opened; only grows.
        has_aborted_transactions: whether there is, or was, any.
    """

    def __init__(
        self, directory: str, opened: OpenedLog, *, files: SegmentFiles, checkpointer: Checkpointer, background: Lane
    ) -> None:
        self.table = opened.table
        self.producers = opened.producers
        self.segments = opened.segments
        self.end_offset = opened.table.next_offset
        undecided = opened.producers.first_undecided_offset
        self._stable_end_offset: int = self.end_offset if undecided is None else undecided
        self._move_stable_end()
        self.size_bytes = 0
        self.has_aborted_transactions = any(len(segment.aborted) for segment in opened.segments)
        self._directory = directory
        self._files = files
        self._checkpointer = checkpointer
        self._background = background
        self._removed = RemovedFiles(directory, files, background)
        self._removed.add(RemovedSegments(opened.table.version, opened.opened_ms, opened.removed_names))
        self._watchers: dict[Callable[[], None], None] = {}

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, offset: int, *, end_offset: int, bytes_max: int, at_least_one_batch: bool) -> Buffer:
        """Whole batches from the one that holds `offset` on; see `read_batches`."""
        return read_batches(
            self.segments,
            offset,
            end_offset=min(end_offset, self.end_offset),
            bytes_max=bytes_max,
            at_least_one_batch=at_least_one_batch,
        )

    def end_of_batches(self, offset: int, content: Buffer) -> int:
        """The offset behind the batches that `read` has just given from an offset on."""
        return end_of_batches(self.segments, offset, content)

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """How many bytes the batches between two offsets take; see `bytes_between`."""
        return bytes_between(self.segments, start_offset, end_offset)

    def find_by_time(self, timestamp_ms: int, *, end_offset: int) -> FoundRecord | None:
        """The first record from the log start to below `end_offset` that is not older than a time."""
        return find_by_time(
            self.segments,
            timestamp_ms,
            start_offset=self.table.log_start_offset,
            end_offset=min(end_offset, self.end_offset),
        )

    def find_latest_in_time(self, *, end_offset: int) -> FoundRecord | None:
        """The record from the log start to below `end_offset` with the greatest timestamp."""
        return find_latest_in_time(
            self.segments, start_offset=self.table.log_start_offset, end_offset=min(end_offset, self.end_offset)
        )

    def aborted_transactions(self, start_offset: Offset, end_offset: Offset) -> tuple[AbortedTransaction, ...]:
        """The committed abort markers' transactions that reach into a range of offsets, by first offset.

        Args:
            start_offset: the first offset of the range; a transaction may have begun before it.
            end_offset: its exclusive end; at most the last stable offset, else some may be missing.

        Raises:
            DamageError, OSError: the index of aborted transactions can neither be read nor made anew.
        """
        return find_aborted(self.segments, start_offset, end_offset)

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back each time the end or the last stable offset moves, or the partition fails, until `unwatch`."""
        self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Ends a `watch`; one that was not there is fine."""
        self._watchers.pop(callback, None)

    def notify(self) -> None:
        """Calls back who watches."""
        for callback in list(self._watchers):
            callback()

    # --- moving -------------------------------------------------------------------------------------------------

    def commit(self, group: Group) -> None:
        """Takes in the batches of a group that a round has carried out."""
        if group.is_new_segment:
            self._begin_segment(group.segment)
        for header, position, producer in group.batches:
            group.segment.on_appended(header, position)
            if producer is not None:
                self.producers.adopt(producer)
        for aborted in group.aborted:
            group.segment.aborted.append(aborted)
            self.has_aborted_transactions = True
        self.end_offset = Offset(group.end_offset)
        self._stable_end_offset = group.stable_end_offset
        self._move_stable_end()
        self.size_bytes += group.size

    def _move_stable_end(self) -> None:
        """A transaction that began among removed records holds up nobody who reads what is left."""
        self.last_stable_offset = Offset(max(self._stable_end_offset, self.table.log_start_offset))

    def publish(self, version: ClosedVersion, *, now_ms: int, is_current: bool) -> None:
        """Takes a version into the table; with `is_current`, nothing behind the version is committed yet."""
        self.table.replay(version.decoded)
        stable_before = self.last_stable_offset
        self._move_stable_end()
        self._checkpointer.count(len(version.write.content))
        change = version.pending.change
        if change is not None and change.removed:
            count = len(change.removed)
            self._removed.add(
                RemovedSegments(self.table.version, now_ms, [segment.name for segment in self.segments[:count]])
            )
            self.segments = self.segments[count:]  # another list: a reader may be at the old one
        if change is not None and change.rewritten:
            self._rewrite(change.rewritten, now_ms=now_ms)
        prepared = version.checkpoint
        if is_current:
            prepared = self.prepare_checkpoint(self.table.version, now_ms=now_ms)
        if prepared is not None:
            self._checkpointer.write(self.table, prepared, now_ms=now_ms)
        if self.last_stable_offset != stable_before:
            self.notify()

    def _rewrite(self, rewritten: Sequence[Rewriting], *, now_ms: int) -> None:
        leaving = [segment.name for each in rewritten for segment in each.removed]
        self._removed.add(RemovedSegments(self.table.version, now_ms, leaving))
        kept = [segment for segment in self.segments if segment.name not in set(leaving)]
        self.segments = sorted([*kept, *(each.added for each in rewritten)], key=_base_offset)

    def prepare_checkpoint(self, version: DeltaVersion, *, now_ms: int) -> PreparedCheckpoint | None:
        """What a checkpoint of the version that ends where this log does would say; None when none is wanted."""
        if not self._checkpointer.is_wanted(version, now_ms=now_ms):
            return None
        return self._checkpointer.prepare(self.producers, self.segments)

    def make_up_for_checkpoint(self, due: DeltaVersion, *, now_ms: int) -> bool:
        """Writes a checkpoint, of the newest version, where the one due at a version was left out.

        Only while all that is committed is published. True when it has been written by the time this returns, which is
        so where background work is carried out at once.
        """
        if self._checkpointer.is_running or any(version >= due for version in self._checkpointer.durable_versions):
            return False
        self._write_checkpoint(now_ms=now_ms)
        return any(version >= due for version in self._checkpointer.durable_versions)

    def _write_checkpoint(self, *, now_ms: int) -> None:
        prepared = self._checkpointer.prepare(self.producers, self.segments)
        self._checkpointer.write(self.table, prepared, now_ms=now_ms)

    def checkpoint_age_ms(self, *, now_ms: int) -> int:
        """How old the newest checkpoint is; 0 where nothing was committed behind it."""
        newest, durable = self._checkpointer.last_written_ms, self._checkpointer.durable_versions
        if newest is None or durable[-1:] == (self.table.version,):
            return 0
        return now_ms - newest

    def active_segment(self) -> Segment:
        """The segment that the next batch goes to, if it fits."""
        return self.segments[-1] if self.segments else self._files.new(self._directory, base_offset=self.end_offset)

    def _begin_segment(self, segment: Segment) -> None:
        """The first bytes of a segment are committed; the one before it will not grow any more."""
        if self.segments:
            self._seal(self.segments[-1])
        self.segments.append(segment)

    def _seal(self, segment: Segment) -> None:
        rows = segment.take_new_rows(is_last=True)

        def work() -> bool:
            for new_rows in rows:
                new_rows.write(self._files.filesystem)
            return True

        def then(is_written: bool | None) -> None:  # noqa: FBT001  the shape of a continuation
            if is_written:
                segment.drop_memory()

        self._background.submit(work, then)

    # --- removed files ------------------------------------------------------------------------------------------

    @property
    def has_removed_files(self) -> bool:
        """Whether files of removed segments are still there."""
        return bool(self._removed)

    def sweep_removed(self, *, now_ms: int, delay_ms: int, is_quiet: bool) -> bool:
        """Lets files of removed segments go that have waited so long, once two checkpoints can do without them.

        With `is_quiet` (all that is committed is published) a checkpoint is made for it where one lacks. To be called
        again and again; true when it takes another version to get on.
        """
        version = self._removed.due(now_ms=now_ms, delay_ms=delay_ms)
        if version is None:
            return False
        durable = self._checkpointer.durable_versions
        if sum(checkpoint >= version for checkpoint in durable) >= CHECKPOINTS_NEEDED:
            self._removed.unlink_due()
        elif is_quiet and not self._checkpointer.is_running:
            if durable and durable[-1] >= self.table.version:
                return True
            self._write_checkpoint(now_ms=now_ms)
        return False


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
