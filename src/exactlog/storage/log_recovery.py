"""Opening a partition: from what is on disk to a log that can be read and appended to.

The newest checkpoint that holds gives the table, the producers and the indexes up to its version; the delta commits
behind it are replayed one by one, their bytes checked against `data_crc` and their batch headers replayed into producer
state and indexes. What comes out equals a full replay from version 0, which is also what happens without a checkpoint.

Bytes behind the last version are cut off: nobody was told of them. Bytes that a version names and that are not there
are damage, and the partition is refused, naming what is missing. In flush modes `interval` and `none` a power cut may
have taken unsynced pages, so there trailing versions without their bytes are dropped and valid batches behind the last
version are adopted as a version of their own, each with a warning.
"""

import logging
from collections.abc import Collection, Sequence

import crc32c
import msgspec
from msgspec import Struct

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_format import Checkpoint
from exactlog.core.deltalog.checkpoint_policy import LastCheckpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, DeltaCommit, decode_commit
from exactlog.core.deltalog.log_path import (
    SegmentFileKind,
    is_temporary_name,
    parse_segment_file_name,
    print_commit_name,
    print_temporary_name,
)
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.ids import DeltaVersion, LeaderEpoch, Offset
from exactlog.core.record.batch_format import BatchHeader, crc_is_valid, iter_headers
from exactlog.storage.delta_log_files import DamagedCheckpoint, DeltaLogFiles
from exactlog.storage.fault_points import RECOVERY_AFTER_TRUNCATE, RECOVERY_BEFORE_TRUNCATE
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.group import Group
from exactlog.storage.producer_entries import producers_of
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.settings import FlushMode, recorded_flush_mode
from exactlog.storage.whole_files import publish_new

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
    """Valid batches behind the last version (`interval` and `none`); producers and indexes know them, the table does
    not yet: a version must be made of them."""
    adopted_crc: int
    delta_log: DeltaLogFiles
    """The names in its `_delta_log`, as recovery leaves them."""
    checkpoint_version: DeltaVersion | None = None
    """The checkpoint it began from; None where everything was replayed."""
    removed_files: list[str] = msgspec.field(default_factory=list)
    """Segment files whose records have been removed from the table: they go once no checkpoint can need them."""
    adopted_leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    """That of the newest adopted batch: what the version that is made of them must say; -1 where there are none."""
    replayed_versions: int = 0
    """How many versions were replayed."""


_RESTORE_HINT = "restore the file from a copy; the partition stays closed, since acknowledged records are missing"


class _UnusableError(Exception):
    """The bytes of a version are not what its document says.

    Attributes:
        segments: the names of the segments that the version adds to.
    """

    def __init__(self, reason: str, commit: DeltaCommit) -> None:
        super().__init__(reason)
        self.segments = {operation.segment for operation in commit.operations}


def recover(
    filesystem: Filesystem, files: SegmentFiles, directory: str, *, name: str, trusts_page_cache: bool
) -> RecoveredLog:
    """Opens a partition for writing, and leaves nothing on disk behind its end.

    Args:
        name: what to call the partition in messages.
        trusts_page_cache: whether all that was ever written is there, as after a killed process. If not, and nothing
            was synced, every batch is checked that a checkpoint counts: checkpoints are synced, the bytes are not.

    Raises:
        DamageError: the partition cannot be opened without losing what was acknowledged.
        OSError: a file could not be read or written.
    """
    recovery = _Recovery(filesystem, files, directory, name, trusts_page_cache=trusts_page_cache)
    recovery.start_from_checkpoint()
    recovery.replay_commits()
    recovery.finish_publications()
    recovery.adopt_tail()
    recovery.cut_off()
    return recovery.log


class _Recovery:
    def __init__(
        self, filesystem: Filesystem, files: SegmentFiles, directory: str, name: str, *, trusts_page_cache: bool
    ) -> None:
        self._filesystem = filesystem
        self._trusts_page_cache = trusts_page_cache
        self._files = files
        self._directory = directory
        self._name = name
        self._delta_log = DeltaLogFiles(filesystem, directory)
        self.log = RecoveredLog(TableState(table=name), ProducerStates(), [], None, 0, [], 0, self._delta_log)

    @property
    def _is_lenient(self) -> bool:
        """Whether what comes next was written without syncs, so that a power cut may have taken it."""
        metadata = self.log.table.metadata
        return metadata is not None and recorded_flush_mode(metadata) is not FlushMode.COMMIT

    def start_from_checkpoint(self) -> None:
        """Takes up the newest checkpoint that holds; without one, everything is replayed from version 0."""
        for found in self._delta_log.checkpoints():
            if isinstance(found, DamagedCheckpoint):
                _logger.warning("%s: checkpoint %d is passed over: %s", self._name, found.version, found.reason)
                continue
            if not self._is_of_this_history(found):
                _logger.warning("%s: checkpoint %d is passed over: it is of another history", self._name, found.version)
                continue
            is_synced = recorded_flush_mode(found.metadata) is FlushMode.COMMIT
            missing = self._missing_bytes(found)
            if missing is None and not is_synced and not self._trusts_page_cache:
                missing = self._find_torn_batch(found)
            if missing is None:
                self._take_up(found)
                return
            if is_synced:
                raise DamageError(
                    f"{self._name}: {missing}, as version {found.version} says",
                    hint="restore the segment from a copy; the partition stays closed",
                )
            _logger.warning("%s: checkpoint %d is passed over: %s", self._name, found.version, missing)
        if DeltaVersion(0) not in self._delta_log.versions:
            raise DamageError(
                f"{self._name}: no checkpoint can be used and version 0 is no longer there to replay from",
                hint=f"restore a checkpoint of {self._delta_log.directory} from a copy",
            )

    def replay_commits(self) -> None:
        """Replays the delta commits behind the checkpoint, their bytes and batches checked."""
        version, newest = DeltaVersion(self.log.table.version + 1), self._delta_log.newest_version
        while version <= newest:
            try:
                decoded, size = self._delta_log.read_commit(version)
                batches = self._check_bytes(decoded)
            except (_UnusableError, DamageError) as error:
                self._drop_or_refuse(version, error)
                return
            self._take_in(decoded, batches)
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
                batches = self._check_bytes(decoded)
                self._take_in(decoded, batches)
            except (_UnusableError, DamageError) as error:
                _logger.warning("%s: version %d had no name yet and is dropped: %s", self._name, version, error)
                return
            publish_new(self._filesystem, self._delta_log.directory, name, document, durable=False)
            self._delta_log.temporary_names.remove(print_temporary_name(name))
            _logger.warning("%s: version %d had no name yet and gets it now", self._name, version)
            self.log.commit_bytes_since_checkpoint += len(document)
            version = DeltaVersion(version + 1)

    def _take_in(self, decoded: DecodedCommit, batches: Sequence[tuple[str, int, BatchHeader]]) -> None:
        """One more version, its bytes checked.

        Raises:
            DamageError: it does not follow from the version before it.
        """
        try:
            self.log.table.replay(decoded)
        except DamageError as error:
            path = f"{self._delta_log.directory}/{print_commit_name(decoded.commit.version)}"
            raise DamageError(f"{error} ({path})", hint=_RESTORE_HINT) from error
        self.log.replayed_versions += 1
        for segment_name, position, header in batches:
            self._apply(self._segment(segment_name, header), header, position)
        if any(operation.type == "remove" for operation in decoded.commit.operations):
            kept = {segment.name for segment in self.log.table.segments}
            self.log.segments = [segment for segment in self.log.segments if segment.name in kept]

    def adopt_tail(self) -> None:
        """In `interval` and `none`: takes in the batches behind the last version whose document was still to come."""
        if not self._is_lenient:
            return
        next_offset = self.log.table.next_offset
        segment = (
            self.log.segments[-1] if self.log.segments else self._files.new(self._directory, base_offset=next_offset)
        )
        while self._filesystem.exists(segment.path):
            tail = segment.read_file(segment.size)
            group = Group(segment, position=segment.size, base_offset=next_offset)
            for position, header in _valid_batches(tail, next_offset):
                group.add(header, memoryview(tail)[position : position + header.size_bytes], None)
            if group.size:
                self._adopt(group)
                next_offset = Offset(group.end_offset)
            following = self._files.new(self._directory, base_offset=next_offset)
            if group.size < len(tail) or following.name == segment.name:
                break
            segment = following
        if self.log.adopted:
            first, last = self.log.adopted[0].base_offset, self.log.adopted[-1].end_offset - 1
            _logger.warning("%s: offsets %d to %d had no delta version yet and get one now", self._name, first, last)

    def cut_off(self) -> None:
        """Removes what is behind the end: torn or unacknowledged bytes, segments of no version, temporary files."""
        known = {segment.name for segment in self.log.segments}
        end = self.log.segments[-1].next_offset if self.log.segments else self.log.table.next_offset
        for name in self._filesystem.list_names(self._directory):
            path = f"{self._directory}/{name}"
            parsed = parse_segment_file_name(name)
            if is_temporary_name(name) or (parsed is not None and parsed.base >= end and name not in known):
                self._files.forget(path)
                self._filesystem.remove(path)
            elif parsed is not None and parsed.kind is SegmentFileKind.LOG and name not in known:
                self.log.removed_files.append(name)
        for name in self._delta_log.temporary_names:
            self._filesystem.remove(f"{self._delta_log.directory}/{name}")
        if self.log.segments:
            active = self.log.segments[-1]
            surplus = self._filesystem.file_size(active.path) - active.size
            if surplus > 0:
                _logger.warning("%s: %d bytes of no delta version are cut off %s", self._name, surplus, active.name)
                RECOVERY_BEFORE_TRUNCATE.reach()
                active.truncate_file()
                RECOVERY_AFTER_TRUNCATE.reach()

    def _take_up(self, checkpoint: Checkpoint) -> None:
        self.log.table = TableState.from_checkpoint(checkpoint, table=self._name)
        self.log.producers = producers_of(checkpoint)
        self.log.segments = [self._files.attach(self._directory, entry) for entry in checkpoint.segments]
        self.log.checkpoint_version = checkpoint.version
        self.log.last_checkpoint = LastCheckpoint(
            written_ms=parse_timestamp(checkpoint.timestamp),
            size_bytes=self._delta_log.checkpoint_size(checkpoint.version),
        )

    def _is_of_this_history(self, checkpoint: Checkpoint) -> bool:
        """Whether the commit of the checkpoint's version, if it is still there and good, has the same chain."""
        if checkpoint.version not in self._delta_log.versions:
            return True
        try:
            decoded, _ = self._delta_log.read_commit(checkpoint.version)
        except DamageError:
            return True  # the checkpoint stands in for it
        return decoded.chain_crc == checkpoint.chain_crc

    def _missing_bytes(self, checkpoint: Checkpoint) -> str | None:
        for entry in checkpoint.segments:
            path = f"{self._directory}/{entry.name}"
            size = self._filesystem.file_size(path) if self._filesystem.exists(path) else 0
            if size < entry.size:
                return f"{path} has {size} bytes of {entry.size}"
        return None

    def _find_torn_batch(self, checkpoint: Checkpoint) -> str | None:
        """The first batch that a checkpoint counts and that is not what was written."""
        for entry in checkpoint.segments:
            segment = self._files.attach(self._directory, entry)
            try:
                for position, header in segment.headers_from(0):
                    if not crc_is_valid(segment.read_batch(position, header)):
                        return f"{segment.path}: the batch at byte {position} does not match its checksum"
            except DamageError as error:
                return str(error)
        return None

    def _check_bytes(self, decoded: DecodedCommit) -> list[tuple[str, int, BatchHeader]]:
        """The batches of a version, with the names of their segments and their positions.

        Raises:
            _UnusableError: they are not there, or not what was committed.
        """
        commit = decoded.commit
        crc = 0
        batches = []
        for operation in commit.operations:
            if operation.type != "add":
                continue
            path = f"{self._directory}/{operation.segment}"
            where = f"{path}, bytes {operation.position} to {operation.position + operation.size}"
            try:
                content = self._files.read(path, size=operation.size, position=operation.position)
            except FileNotFoundError:
                raise _UnusableError(f"{path} is missing", commit) from None
            if len(content) < operation.size:
                raise _UnusableError(f"{where}: only {len(content)} bytes are there", commit)
            crc = crc32c.crc32c(content, crc)
            next_offset: int = operation.offset_start
            try:
                for position, header in iter_headers(content):
                    if header.base_offset != next_offset:
                        raise _UnusableError(
                            f"{where}: a batch has offset {header.base_offset}, not {next_offset}", commit
                        )
                    next_offset = header.next_offset
                    batches.append((operation.segment, operation.position + position, header))
            except DecodeError as error:
                raise _UnusableError(f"{where}: {error}", commit) from error
            if next_offset != operation.offset_end + 1:
                raise _UnusableError(
                    f"{where}: the batches end before offset {next_offset}, not {operation.offset_end}", commit
                )
        if print_crc(crc) != commit.data_crc:
            where = ", ".join(f"{self._directory}/{operation.segment}" for operation in commit.operations)
            raise _UnusableError(
                f"its bytes in {where} have CRC {print_crc(crc)}, the delta commit says {commit.data_crc}", commit
            )
        return batches

    def _drop_or_refuse(self, version: DeltaVersion, error: "_UnusableError | DamageError") -> None:
        removal = self._find_removal(version, error.segments) if isinstance(error, _UnusableError) else None
        if removal is not None:
            raise self._refusal(
                version,
                f"{error}, since version {removal} removed its records",
                hint=f"restore a checkpoint of {self._delta_log.directory} from a copy: what the removed records said "
                "of their producers cannot be found again without them",
            )
        if not self._is_lenient:
            raise self._refusal(version, str(error), hint=getattr(error, "hint", "") or _RESTORE_HINT) from error
        _logger.warning(
            "%s: versions %d to %d are dropped: %s", self._name, version, self._delta_log.newest_version, error
        )
        self._delta_log.remove_from(version)

    def _refusal(self, version: DeltaVersion, reason: str, *, hint: str) -> DamageError:
        return DamageError(f"{self._name}: delta version {version}: {reason}", hint=hint)

    def _find_removal(self, version: DeltaVersion, segments: Collection[str]) -> DeltaVersion | None:
        """The version behind another that removed one of these segments, as far as they can be read."""
        try:
            for decoded in self._delta_log.commits_after(version):
                if any(op.type == "remove" and op.segment in segments for op in decoded.commit.operations):
                    return decoded.commit.version
        except DamageError:
            pass  # those from there on are refused or dropped as well
        return None

    def _segment(self, name: str, header: BatchHeader) -> Segment:
        if not self.log.segments or self.log.segments[-1].name != name:
            self._begin_segment(self._files.named(self._directory, name, base_offset=header.base_offset))
        return self.log.segments[-1]

    def _begin_segment(self, segment: Segment) -> None:
        """The one before it will not grow any more."""
        if self.log.segments:
            self.log.segments[-1].seal_now()
        self.log.segments.append(segment)

    def _apply(self, segment: Segment, header: BatchHeader, position: int) -> None:
        segment.on_appended(header, position)
        if not header.is_control:
            self.log.producers.replay(header)

    def _adopt(self, group: Group) -> None:
        if group.is_new_segment:
            self._begin_segment(group.segment)
        for header, position, _ in group.batches:
            self._apply(group.segment, header, position)
            self.log.adopted_leader_epoch = header.leader_epoch
        self.log.adopted.append(group)
        self.log.adopted_crc = group.data_crc(self.log.adopted_crc)
        group.buffers = []


def _valid_batches(tail: bytes, next_offset: int) -> Sequence[tuple[int, BatchHeader]]:
    """The batches at the start of `tail` that are whole, have their CRC and follow each other."""
    found = []
    try:
        for position, header in iter_headers(tail, may_be_cut=True):
            if header.base_offset != next_offset or header.record_count <= 0 or not crc_is_valid(tail, position):
                break
            found.append((position, header))
            next_offset = header.next_offset
    except DecodeError:
        pass  # the first bytes that are no batch end the log: what a crash tore
    return found
