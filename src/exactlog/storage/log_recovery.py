"""Opening a partition: from what is on disk to a log that can be read and appended to.

The newest checkpoint that holds gives the table, the producers and the indexes up to its version; the delta commits
behind it are replayed one by one, their bytes checked against `data_crc` and their batch headers replayed into producer
state and indexes. What comes out equals a full replay from version 0, which is also what happens without a checkpoint.
What cannot be made equal is refused: the error names the partition, the version, the file and what to do.

Bytes behind the last version are cut off: nobody was told of them. In flush modes `interval` and `none` a power cut may
have taken pages and names that were not synced. There, trailing versions whose document or bytes it may have taken are
dropped, and valid batches behind the last version are adopted as a version of their own, each with a warning; what it
cannot have done is refused there, too. With a commit journal, the batches that it has are adopted, and all of them must
be there.
"""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import crc32c
import msgspec
from msgspec import UNSET, Struct

from exactlog.core.deltalog.checkpoint_format import Checkpoint
from exactlog.core.deltalog.checkpoint_policy import LastCheckpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, DeltaCommit, decode_commit
from exactlog.core.deltalog.log_path import parse_segment_file_name, print_commit_name, print_temporary_name
from exactlog.core.deltalog.table_segments import rewrite_segments
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.ids import DeltaVersion, LeaderEpoch, Offset
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.storage.aborted_transactions import rebuild_aborted
from exactlog.storage.checkpoint_choice import choose_checkpoint
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.fault_points import RECOVERY_AFTER_TRUNCATE, RECOVERY_BEFORE_TRUNCATE
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.group import Group
from exactlog.storage.leftovers import remove_temporary, sweep_leftovers
from exactlog.storage.partition_history import RESTORE_BYTES, RESTORE_DOCUMENT, PartitionHistory
from exactlog.storage.producer_entries import producers_of
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.settings import FlushMode, recorded_flush_mode
from exactlog.storage.version_bytes import (
    PlacedBatch,
    UnusableBytesError,
    check_added_bytes,
    find_valid_tail,
    marker_of,
    walk_added_bytes,
)
from exactlog.storage.whole_files import publish_new, sync_names

_logger = logging.getLogger(__name__)


class RecoveredLog(Struct):
    """A partition as recovery leaves it."""

    table: TableState
    producers: ProducerStates
    segments: list[Segment]
    """In order of base offset; empty before the first record."""
    last_checkpoint: LastCheckpoint | None
    commit_bytes_since_checkpoint: int
    adopted: list[Group]
    """Valid batches behind the last version (`interval` and `none`, and those of a commit journal); producers and
    indexes know them, the table does not yet: a version must be made of them."""
    adopted_crc: int
    delta_log: DeltaLogFiles
    """The names in its `_delta_log`, as recovery leaves them."""
    adopted_leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    """That of the newest adopted batch, which the version that is made of them must have; -1 where there are none."""
    checkpoint_version: DeltaVersion | None = None
    """The checkpoint it began from; None where everything was replayed."""
    removed_files: list[str] = msgspec.field(default_factory=list)
    """Segment files whose records have been removed from the table: they go once no checkpoint can need them."""
    replayed_versions: int = 0
    """How many versions were replayed."""
    replayed_bytes: int = 0
    """How many bytes of records these added: all of them were read."""


def recover(
    filesystem: Filesystem,
    files: SegmentFiles,
    directory: str,
    *,
    name: str,
    boot_epoch: LeaderEpoch | None,
    journaled: Mapping[str, int] = MappingProxyType({}),
) -> RecoveredLog:
    """Opens a partition for writing, and leaves nothing on disk behind its end.

    Args:
        name: what to call the partition in messages.
        journaled: where the bytes end in segments, by name, that a commit journal says are committed: what of them no
            version names yet is adopted, and must be there.
        boot_epoch: the leader epoch of the first start since the machine was started, None if that is not known. A
            checkpoint is synced, in `interval` and `none` the bytes it counts are not: a power cut may have taken them.
            So every batch is checked that a checkpoint of an earlier epoch counts.

    Raises:
        DamageError: the partition cannot be opened without losing what was acknowledged.
        OSError: a file could not be read or written.
    """
    try:
        history = PartitionHistory(filesystem, directory, name=name)
        recovery = _Recovery(filesystem, files, history, journaled)
        checkpoint = choose_checkpoint(history, files, boot_epoch=boot_epoch)
        if checkpoint is not None:
            recovery.start_from(checkpoint)
        recovery.replay_commits()
        recovery.finish_publications()
        recovery.adopt_tail()
        recovery.mend_aborted_indexes()
        recovery.cut_off()
        recovery.keep_names()
    except DamageError as error:
        if str(error).startswith(f"{name}: ") and error.hint:
            raise
        hint = error.hint or f"look what is wrong with `exactlog log verify {directory}`"
        raise DamageError(f"{name}: {error}", hint=hint) from error
    return recovery.log


class _Added(Struct, frozen=True):
    """What a version adds: batches at the end, or segments in the place of others."""

    batches: Sequence[PlacedBatch]
    segments: Sequence[Segment]

    @property
    def size_bytes(self) -> int:
        """How many bytes they are."""
        batches = sum(batch.header.size_bytes for batch in self.batches)
        return batches + sum(segment.size for segment in self.segments)


class _Recovery:
    def __init__(
        self, filesystem: Filesystem, files: SegmentFiles, history: PartitionHistory, journaled: Mapping[str, int]
    ) -> None:
        self._filesystem = filesystem
        self._journaled = journaled
        self._files = files
        self._history = history
        self._directory = history.directory
        self._name = history.name
        self._delta_log = history.delta_log
        self.log = RecoveredLog(TableState(table=history.name), ProducerStates(), [], None, 0, [], 0, history.delta_log)
        self._tail_epoch_max: LeaderEpoch | None = None
        """What the document of the bytes behind the end said, if it was there: no CRC covers their own."""
        self._rewritten: set[Segment] = set()

    @property
    def _is_lenient(self) -> bool:
        """Whether what comes next was written without syncs, so that a power cut may have taken it."""
        metadata = self.log.table.metadata
        return metadata is not None and recorded_flush_mode(metadata) is not FlushMode.COMMIT

    def start_from(self, checkpoint: Checkpoint) -> None:
        """Takes up a checkpoint."""
        self.log.table = TableState.from_checkpoint(checkpoint, table=self._name)
        self.log.producers = producers_of(checkpoint)
        self.log.segments = [self._files.attach(self._directory, entry) for entry in checkpoint.segments]
        self.log.checkpoint_version = checkpoint.version
        self.log.last_checkpoint = LastCheckpoint(
            written_ms=parse_timestamp(checkpoint.timestamp),
            size_bytes=self._delta_log.checkpoint_size(checkpoint.version),
        )

    # --- versions -----------------------------------------------------------------------------------------------

    def replay_commits(self) -> None:
        """Replays the delta commits behind the checkpoint, their bytes and batches checked."""
        version, newest = DeltaVersion(self.log.table.version + 1), self._delta_log.newest_version
        while version <= newest:
            try:
                decoded, size = self._delta_log.read_commit(version)
            except DamageError as error:
                self._meet_damaged_document(version, error)
                return
            self._check_history(decoded)
            try:
                added = self._check_bytes(decoded.commit)
            except UnusableBytesError as error:
                self._meet_unusable_bytes(decoded.commit, error)
                return
            self._take_in(decoded, added)
            self.log.commit_bytes_since_checkpoint += size
            version = DeltaVersion(version + 1)

    def finish_publications(self) -> None:
        """In `interval` and `none`: gives the documents their names whose bytes are there and whose names were to come.

        Such a document says what cannot be told from the bytes: ids of clients, and who supplied a sequence.
        """
        version = DeltaVersion(self.log.table.version + 1)
        while self._is_lenient and version not in self._delta_log.versions:
            name = print_commit_name(version)
            aside = f"{self._delta_log.directory}/{print_temporary_name(name)}"
            if not self._filesystem.exists(aside):
                return
            document = self._filesystem.read_file(aside)
            try:
                decoded = decode_commit(document, path_hint=f"{self._delta_log.directory}/{name}")
                self.log.table.check_follows(decoded.commit)
                added = self._check_bytes(decoded.commit)
            except (UnusableBytesError, DamageError) as error:
                _logger.warning("%s: version %d had no name yet and is dropped: %s", self._name, version, error)
                return
            self._take_in(decoded, added)
            publish_new(self._filesystem, self._delta_log.directory, name, document, durable=False)
            self._delta_log.temporary_names.remove(print_temporary_name(name))
            _logger.warning("%s: version %d had no name yet and gets it now", self._name, version)
            self.log.commit_bytes_since_checkpoint += len(document)
            version = DeltaVersion(version + 1)

    def _check_history(self, decoded: DecodedCommit) -> None:
        commit = decoded.commit
        try:
            self.log.table.check_follows(commit)
        except DamageError as error:
            raise self._history.broken_history(commit.version, error) from error
        misfit = None if commit.metadata is UNSET else self._history.find_misfit(commit.metadata)
        if misfit is not None:
            path = self._history.path_of(commit.version)
            raise self._history.refusal(commit.version, f"{path}: {misfit}", hint=RESTORE_DOCUMENT)

    def _check_bytes(self, commit: DeltaCommit) -> "_Added":
        """What a version adds, all of which is there and as it was committed.

        Raises:
            UnusableBytesError: it is not; says in which file.
            DamageError: it cannot be added to this table.
        """
        if not commit.is_rewriting:
            return _Added(check_added_bytes(self._files, self._directory, commit), ())
        try:
            rewrite_segments(self.log.table.segments, commit.operations)
        except DamageError as error:
            damage = DamageError(f"{self._name}: delta version {commit.version} does not follow: {error}")
            raise self._history.broken_history(commit.version, damage) from error
        bases = {operation.segment: operation.offset_start for operation in commit.operations}
        segments: list[Segment] = []
        for batch in walk_added_bytes(self._files, self._directory, commit):  # of a whole partition: not all at once
            if not segments or segments[-1].name != batch.segment:
                base_offset = bases[batch.segment]
                segments.append(self._files.named(self._directory, batch.segment, base_offset=base_offset))
            segments[-1].on_appended(batch.header, batch.position)
        return _Added((), segments)

    def _take_in(self, decoded: DecodedCommit, added: "_Added") -> None:
        """One more version, its bytes checked."""
        commit = decoded.commit
        try:
            self.log.table.replay(decoded)
        except DamageError as error:
            raise self._history.broken_history(commit.version, error) from error
        self.log.replayed_versions += 1
        self.log.replayed_bytes += added.size_bytes
        if commit.is_rewriting:
            self._rewrite(added.segments)
            return
        removed = {operation.segment for operation in commit.operations if operation.type == "remove"}
        if removed:
            self.log.segments = [segment for segment in self.log.segments if segment.name not in removed]
        for batch in added.batches:
            segment = None
            if batch.segment not in removed:
                segment = self._segment_of(batch)
                segment.on_appended(batch.header, batch.position)
            self._follow_producer(batch.header, batch.marker, segment)

    def _rewrite(self, added: Sequence[Segment]) -> None:
        """Takes up the segments of a rewriting version; what they say of producers is known already."""
        for segment in added:
            segment.seal_now()
        self._rewritten.update(added)
        segments = {segment.name: segment for segment in (*self.log.segments, *added)}
        self.log.segments = [segments[entry.name] for entry in self.log.table.segments]

    def _meet_damaged_document(self, version: DeltaVersion, error: DamageError) -> None:
        if not self._is_lenient or not self._history.may_be_lost(version):
            raise self._history.refusal(version, str(error), hint=error.hint or RESTORE_DOCUMENT) from error
        self._drop_from(version, str(error))

    def _meet_unusable_bytes(self, commit: DeltaCommit, error: UnusableBytesError) -> None:
        version = commit.version
        removals = {} if error.missing_segment is None else self._history.find_removals(version)
        removed_by = removals.get(error.missing_segment or "")
        if removed_by is not None:
            raise self._history.removed_bytes(version, str(error), removed_by=removed_by) from error
        if not self._is_lenient:
            raise self._history.refusal(version, str(error), hint=RESTORE_BYTES) from error
        self._drop_from(version, str(error))
        self._tail_epoch_max = commit.leader_epoch

    def _drop_from(self, version: DeltaVersion, reason: str) -> None:
        """Drops trailing versions, unless those before them need a segment that one of these had removed."""
        for segment in self.log.segments:
            if not self._filesystem.exists(segment.path):
                removed_by = self._history.find_removals(version)[segment.name]
                raise self._history.removed_bytes(version, f"{segment.path} is missing", removed_by=removed_by)
        newest = self._delta_log.newest_version
        _logger.warning("%s: versions %d to %d are dropped: %s", self._name, version, newest, reason)
        self._delta_log.remove_from(version)

    # --- what is behind the last version ------------------------------------------------------------------------

    def adopt_tail(self) -> None:
        """Takes in the batches behind the last version whose document was still to come.

        In `interval` and `none` all that are whole; else those that a journal has, and no other.
        """
        if not self._is_lenient and not self._journaled:
            return
        next_offset = self.log.table.next_offset
        segment = (
            self.log.segments[-1] if self.log.segments else self._files.new(self._directory, base_offset=next_offset)
        )
        while self._filesystem.exists(segment.path):
            group = self._adopt(segment, next_offset)
            next_offset = Offset(group.end_offset)
            following = self._files.new(self._directory, base_offset=next_offset)
            # Bytes that no journal has may stand behind those that it has: a round that was refused, after a power cut.
            is_torn = self._is_lenient and segment.size < self._filesystem.file_size(segment.path)
            if is_torn or following.name == segment.name:
                break
            segment = following
        if self.log.adopted:
            first, last = self.log.adopted[0].base_offset, self.log.adopted[-1].end_offset - 1
            level = logging.WARNING if self._is_lenient else logging.INFO
            _logger.log(level, "%s: offsets %d to %d had no delta version yet and get one now", self._name, first, last)
        self._check_journaled(next_offset)

    def _check_journaled(self, end_offset: Offset) -> None:
        """All that the journal has is there, unless it has been removed since."""
        sizes = {segment.name: segment.size for segment in self.log.segments}
        for name, end in self._journaled.items():
            parsed = parse_segment_file_name(name)
            is_due = name in sizes or parsed is None or parsed.base >= end_offset
            if is_due and sizes.get(name, 0) < end:
                raise DamageError(
                    f"{self._name}: {self._directory}/{name} has {sizes.get(name, 0)} bytes that can be used, and "
                    f"the commit journal has acknowledged {end}",
                    hint=RESTORE_BYTES,
                )

    def _adopt(self, segment: Segment, next_offset: Offset) -> Group:
        """Takes in the valid batches behind the end of a segment: a group, which is empty where there are none."""
        group = Group(segment, position=segment.size, base_offset=next_offset)
        leader_epoch = max(self.log.table.leader_epoch, self.log.adopted_leader_epoch)
        file = self._files.open(segment.path)
        for found in find_valid_tail(file, segment.size, next_offset=next_offset, leader_epoch=leader_epoch):
            if self._tail_epoch_max is not None and found.header.leader_epoch > self._tail_epoch_max:
                break
            if not self._is_lenient and found.position + found.header.size_bytes > self._journaled.get(segment.name, 0):
                break
            try:
                marker = marker_of(found)
            except DecodeError:
                break
            if group.size == group.position == 0:
                self._begin_segment(segment)
            group.add(found.header, found.content, None)
            group.buffers.clear()  # they are on the disk
            segment.on_appended(found.header, found.position)
            self._follow_producer(found.header, marker, segment)
            group.first_undecided_offset = self.log.producers.first_undecided_offset
            self.log.adopted_crc = crc32c.crc32c(found.content, self.log.adopted_crc)
            self.log.adopted_leader_epoch = found.header.leader_epoch
        if group.size:
            self.log.adopted.append(group)
        return group

    def mend_aborted_indexes(self) -> None:
        """Makes the indexes of aborted transactions anew that are not as the checkpoint says."""
        segments = self.log.segments
        damaged = [segment for segment in segments if segment in self._rewritten or not segment.aborted.is_good()]
        rebuild_aborted(segments, damaged)
        for segment in damaged:
            if segment not in self._rewritten:
                _logger.warning("%s: the index of aborted transactions was made anew", segment.path)
            segment.aborted.write_anew(self._filesystem, is_sealed=segment is not segments[-1])

    def cut_off(self) -> None:
        """Removes what is behind the end: torn or unacknowledged bytes, segments of no version, temporary files."""
        segments = self.log.segments
        self.log.removed_files = sweep_leftovers(
            self._files,
            self._directory,
            segments=[segment.name for segment in segments],
            end_offset=segments[-1].next_offset if segments else self.log.table.next_offset,
        )
        for name in self._delta_log.temporary_names:
            remove_temporary(self._filesystem, f"{self._delta_log.directory}/{name}")
        if not segments:
            return
        active = segments[-1]
        active.aborted.cut_file(self._filesystem)
        surplus = self._filesystem.file_size(active.path) - active.size
        if surplus > 0:
            _logger.warning("%s: %d bytes of no delta version are cut off %s", self._name, surplus, active.name)
            RECOVERY_BEFORE_TRUNCATE.reach()
            active.truncate_file()
            RECOVERY_AFTER_TRUNCATE.reach()

    def keep_names(self) -> None:
        """Makes the names of the versions durable: a killed process may have left the newest one unsynced.

        It is served from here on, and who comes again with its id is told of it.
        """
        if not self._is_lenient:
            sync_names(self._filesystem, self._delta_log.directory)

    # --- one batch ----------------------------------------------------------------------------------------------

    def _segment_of(self, batch: PlacedBatch) -> Segment:
        if not self.log.segments or self.log.segments[-1].name != batch.segment:
            base_offset = batch.header.base_offset
            self._begin_segment(self._files.named(self._directory, batch.segment, base_offset=base_offset))
        return self.log.segments[-1]

    def _begin_segment(self, segment: Segment) -> None:
        """The one before it will not grow any more."""
        if self.log.segments:
            self.log.segments[-1].seal_now()
        self.log.segments.append(segment)

    def _follow_producer(self, header: BatchHeader, marker: TransactionMarker | None, segment: Segment | None) -> None:
        """What a batch makes of its producer; and of the index of its segment, unless that is removed."""
        if not header.is_control:
            self.log.producers.replay(header)
        elif marker is not None:
            _, aborted = self.log.producers.replay_marker(header, marker)
            if aborted is not None and segment is not None:
                segment.aborted.append(aborted)
