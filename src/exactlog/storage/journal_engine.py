"""The durability engine over a commit journal ("level 2"): one sync for a round, whatever it touches.

The bytes of a round are written to their segments and its documents aside, none of it synced. Then one record of the
journal takes all of it, and is synced: the round is committed, of all partitions or of none. Documents get their names
after that. What a power cut takes of it, the next start puts back from the journal (`journal_redo`), byte for byte.

Long runs of bytes would be written twice: they are synced in their segment instead, and the journal says which they
are. From time to time all that a file of the journal holds is synced in its place, and the file goes.

A round that need not be durable, or only syncs what others have written, is carried out on the plain files.
"""

import time
from collections.abc import Collection, Iterator, Sequence

import crc32c
from msgspec import Struct, field

from exactlog.core.deltalog.journal_format import (
    HEADER_BYTES,
    JournaledBytes,
    JournaledCommit,
    JournaledPartition,
    JournaledRound,
)
from exactlog.storage.fault_points import JOURNAL_BEFORE_REMOVE, JOURNAL_BEFORE_SETTLE_SYNC
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import Buffer, Filesystem
from exactlog.storage.journal import Journal
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.round import (
    CommitWrite,
    ForeignVersion,
    NameRefused,
    PartitionWrite,
    SegmentWrite,
    StorageRefused,
    Stored,
    SyncFailed,
    WriteOutcome,
)
from exactlog.storage.round_files import RoundFiles, delta_log_of
from exactlog.storage.whole_files import (
    SyncFailedError,
    publish_aside,
    remove_aside,
    sync_data,
    sync_file,
    sync_names,
    write_aside,
)

DIRECT_BYTES_MIN = 64 * 1024
"""From here on, to sync the segment as well costs less than to write the bytes twice."""

JOURNAL_FILE_BYTES = 64 * 1024 * 1024
"""A file of that length is followed by another one: a start reads so much, and a little more."""

SYNCED_ONE_BY_ONE_MAX = 32
"""Of files; more of them are made durable with one flush of all that the file system has."""


class JournalPart(Struct):
    """What the rounds of one file of the journal have touched.

    Attributes:
        number: of the file; None while it is being written to.
        segments: the paths of segments.
        documents: the paths of delta commits.
        directories: those with new names in them.
    """

    number: int | None = None
    segments: dict[str, None] = field(default_factory=dict)
    documents: list[str] = field(default_factory=list)
    directories: dict[str, None] = field(default_factory=dict)


class JournalEngine:
    """Carries rounds out through a journal."""

    is_atomic_across_partitions = True

    def __init__(self, filesystem: Filesystem, open_files: OpenFiles, journal: Journal) -> None:
        self._filesystem = filesystem
        self._open_files = open_files
        self._journal = journal
        self._files = RoundFiles(filesystem, open_files)
        self._plain = FilesEngine(filesystem, open_files)
        self._part = JournalPart()
        self._kept_bytes = 0  # in the present file, of earlier ones
        self._unsynced_names: set[str] = set()
        """The directories in which a segment may have a name that is not durable."""
        self._sync_seconds: list[float] = []

    def close(self) -> None:
        """Waits for the threads to end."""
        self._plain.close()

    def take_sync_seconds(self) -> list[float]:
        taken, self._sync_seconds = self._sync_seconds, []
        return taken + self._plain.take_sync_seconds()

    @property
    def is_file_full(self) -> bool:
        """Whether the present file of the journal is as long as it should be."""
        return self._journal.size_bytes - self._kept_bytes >= JOURNAL_FILE_BYTES

    @property
    def is_file_empty(self) -> bool:
        """Whether no round has gone to the present file, but for what was kept of earlier files."""
        return self._journal.size_bytes - self._kept_bytes <= HEADER_BYTES

    def commit(self, writes: Sequence[PartitionWrite]) -> list[WriteOutcome]:
        has_content = is_apart = False
        for write in writes:
            if not write.durable:
                return self._plain.commit(writes)
            is_apart = is_apart or write.is_fixed
            has_content = has_content or _has_content(write)
        if not has_content:
            return self._plain.commit(writes)
        if is_apart:
            return self._commit_apart(writes)
        # Before it is in the journal: what is there is put in place by the next start, whoever has the name.
        rivals = [self._find_rival(write) for write in writes]
        if not any(rivals):
            return self._commit(writes)
        outcomes: Iterator[WriteOutcome]
        going = [write for write, rival in zip(writes, rivals, strict=True) if rival is None]
        missing = next((rival for write, rival in zip(writes, rivals, strict=True) if rival and write.is_tied), None)
        if missing is not None:
            reason = f"what belongs to it cannot be stored: {missing.reason}"
            outcomes = iter([StorageRefused(f"{write.name}: {reason}", 0) for write in going])
        else:
            outcomes = iter(self._commit(going))
        return [next(outcomes) if rival is None else rival for rival in rivals]

    def _commit_apart(self, writes: Sequence[PartitionWrite]) -> list[WriteOutcome]:
        """Without writing into the journal once more what it has already: it would grow as long as a disk refuses."""
        fixed = iter(self._plain.commit([write for write in writes if write.is_fixed]))
        others = iter(self.commit([write for write in writes if not write.is_fixed]))
        return [next(fixed if write.is_fixed else others) for write in writes]

    # --- letting files of the journal go --------------------------------------------------------------------------

    def end_file(self) -> JournalPart | None:
        """Ends the present file; what its rounds have touched, None where there was no round. Between two rounds."""
        number = self._journal.end_file()
        if number is None:
            return None
        part, self._part = self._part, JournalPart()
        part.number = number
        self._kept_bytes = 0
        return part

    def keep(self, journaled: JournaledRound, content: list[Buffer]) -> None:
        """Writes once more what a file holds of partitions that stand still, before it goes; between two rounds.

        Raises:
            SyncFailedError: whether it is durable is not known.
            OSError: it was not written, and nothing of it is left.
        """
        size_before = max(self._journal.size_bytes, HEADER_BYTES)
        self._journal.append(journaled, content)
        self._kept_bytes += self._journal.size_bytes - size_before

    def settle(self, part: JournalPart) -> None:
        """Syncs all that a file of the journal holds in its place, and lets the file go.

        Beside later rounds; all bytes of the file must be named by delta commits, or have been kept (`keep`), and the
        files before it be gone.

        Raises:
            SyncFailedError: what is durable is not known.
        """
        JOURNAL_BEFORE_SETTLE_SYNC.reach()
        if len(part.segments) + len(part.documents) > SYNCED_ONE_BY_ONE_MAX:
            self._journal.sync_all()
        else:
            self._sync_each(part)
        JOURNAL_BEFORE_REMOVE.reach()
        assert part.number is not None
        self._journal.remove_file(part.number)

    def _sync_each(self, part: JournalPart) -> None:
        for path in part.segments:
            self._sync(path, is_document=False)
        for path in part.documents:
            self._sync(path, is_document=True)
        for directory in part.directories:
            try:
                self._filesystem.sync_directory(directory)
            except FileNotFoundError:  # its topic was deleted
                continue
            except OSError as error:
                raise SyncFailedError(*error.args) from error

    def _sync(self, path: str, *, is_document: bool) -> None:
        try:
            file = self._filesystem.open(path)
        except FileNotFoundError:  # removed, packed, or its topic was deleted: by who has seen to it
            return
        if is_document:
            sync_file(file)
        else:
            sync_data(file)

    # --- a round --------------------------------------------------------------------------------------------------

    def _find_rival(self, write: PartitionWrite) -> ForeignVersion | None:
        """The document of a stranger that has the name of one of these."""
        for group in write.groups:
            commit = group.commit
            if commit is not None and self._filesystem.exists(f"{delta_log_of(write)}/{commit.name}"):
                rival = self._files.judge_rival(write, commit)
                if rival is not None:
                    return rival
        return None

    def _commit(self, writes: Sequence[PartitionWrite]) -> list[WriteOutcome]:
        try:
            refusals = [self._write(write) for write in writes]
            going = [write for write, refusal in zip(writes, refusals, strict=True) if refusal is None]
            if going:
                partitions, content = self._describe(going)
                began = time.perf_counter()
                self._journal.append(JournaledRound(tuple(partitions)), content)
                self._sync_seconds.append(time.perf_counter() - began)
        except SyncFailedError as error:
            return [SyncFailed(f"{write.name}: the commit journal: {error}") for write in writes]
        except OSError as error:
            return self._refuse(writes, error)
        return [refusal or self._name_documents(write) for write, refusal in zip(writes, refusals, strict=True)]

    def _write(self, write: PartitionWrite) -> StorageRefused | None:
        """Writes bytes and documents, not durably; why they were refused, where the rest of the round goes on alone.

        Raises:
            OSError: they were refused, and the rest must be too.
            SyncFailedError: what is there is not known.
        """
        try:
            self._files.write_bytes(write)
            for group in write.groups:
                commit = group.commit
                if commit is not None:
                    write_aside(self._filesystem, delta_log_of(write), commit.name, commit.content, durable=False)
        except OSError as error:
            if write.is_tied or isinstance(error, SyncFailedError):
                raise
            try:
                self._files.take_back(write, write.groups)
            except OSError as second:
                raise SyncFailedError(f"cutting off a refused write failed: {second} (after {error})") from second
            return StorageRefused(f"{write.name}: {error}", 0)
        return None

    def _describe(self, writes: Sequence[PartitionWrite]) -> tuple[list[JournaledPartition], list[Buffer]]:
        """What goes into the journal; long runs of bytes are synced where they stand.

        Raises:
            SyncFailedError: whether such bytes are durable is not known.
        """
        partitions: list[JournaledPartition] = []
        content: list[Buffer] = []
        for write in writes:
            segments = [segment for group in write.groups for segment in group.segments if segment.buffers]
            for segment in segments:
                self._part.segments[segment.path] = None
                if segment.is_new:
                    self._part.directories[write.directory] = None
                    self._unsynced_names.add(write.directory)
            direct = self._sync_long_runs(write, segments)
            described, commits = [], []
            for segment in segments:
                is_direct = segment.path in direct
                described.append(_describe_bytes(segment, is_direct=is_direct))
                if not is_direct:
                    content += segment.buffers
            for group in write.groups:
                if group.commit is not None:
                    commits.append(self._describe_commit(write, group.commit))
                    content.append(group.commit.content)
            name = write.directory.rpartition("/")[2]
            partitions.append(JournaledPartition(name, write.topic_id, tuple(described), tuple(commits)))
        return partitions, content

    def _sync_long_runs(self, write: PartitionWrite, segments: Sequence[SegmentWrite]) -> Collection[str]:
        """Syncs the segments that get a long run of bytes; their paths."""
        if write.size_bytes < DIRECT_BYTES_MIN:
            return ()
        direct = {segment.path for segment in segments if _size(segment) >= DIRECT_BYTES_MIN}
        for path in direct:
            self._sync_segment(path)
        if direct and write.directory in self._unsynced_names:  # also of a segment that an earlier round made
            sync_names(self._filesystem, write.directory)
            self._unsynced_names.remove(write.directory)
        return direct

    def _describe_commit(self, write: PartitionWrite, commit: CommitWrite) -> JournaledCommit:
        delta_log = delta_log_of(write)
        self._part.documents.append(f"{delta_log}/{commit.name}")
        self._part.directories[delta_log] = None
        return JournaledCommit(commit.version, len(commit.content))

    def _sync_segment(self, path: str) -> None:
        try:
            self._open_files.get(path).sync_data()
        except OSError as error:
            raise SyncFailedError(*error.args) from error

    def _name_documents(self, write: PartitionWrite) -> WriteOutcome:
        for position, group in enumerate(write.groups):
            commit = group.commit
            if commit is None:
                continue
            try:
                publish_aside(self._filesystem, delta_log_of(write), commit.name, durable=False)
            except FileExistsError:
                rival = self._files.judge_rival(write, commit)
                if rival is not None:
                    return rival
            except SyncFailedError as error:
                return SyncFailed(f"{write.name}, version {commit.version}: {error}")
            except OSError as error:  # it is committed, and nobody can see it: the next start would put it in place
                return self._leave_unnamed(write, position, error)
        return Stored()

    def _leave_unnamed(self, write: PartitionWrite, position: int, error: OSError) -> WriteOutcome:
        """The documents from a group on stay without a name, and nothing is left aside."""
        commits = [group.commit for group in write.groups[position:] if group.commit is not None]
        try:
            for commit in commits:
                remove_aside(self._filesystem, delta_log_of(write), commit.name)
        except OSError as second:
            return SyncFailed(f"{write.name}, version {commits[0].version}: {second} (after {error})")
        return NameRefused(f"{write.name}, version {commits[0].version}: {error}", position)

    def _refuse(self, writes: Sequence[PartitionWrite], error: OSError) -> list[WriteOutcome]:
        """None of the round is there: it is one."""
        try:
            for write in writes:
                self._files.take_back(write, write.groups)
        except OSError as second:
            return [
                SyncFailed(f"{write.name}: cutting off a refused round failed: {second} (after {error})")
                for write in writes
            ]
        return [StorageRefused(f"{write.name}: {error}", 0) for write in writes]


def _has_content(write: PartitionWrite) -> bool:
    for group in write.groups:
        if group.commit is not None:
            return True
        for segment in group.segments:
            if segment.buffers:
                return True
    return False


def _describe_bytes(segment: SegmentWrite, *, is_direct: bool) -> JournaledBytes:
    crc = _crc(segment) if is_direct else None
    name = segment.path.rpartition("/")[2]
    return JournaledBytes(name, segment.position, _size(segment), segment.is_new, crc)


def _size(segment: SegmentWrite) -> int:
    return sum(map(len, segment.buffers))


def _crc(segment: SegmentWrite) -> int:
    crc = 0
    for buffer in segment.buffers:
        crc = crc32c.crc32c(buffer, crc)
    return crc
