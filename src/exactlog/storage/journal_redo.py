"""What a start does with the commit journal: puts everything back in its place that a crash may have taken.

Bytes go to their segments and documents get their names, as the rounds had fixed them; then all of it is synced. Done
once more, after a crash in the middle or by the start after that, it changes nothing. What a partition has removed,
packed or vacuumed meanwhile stays away, and so does what belongs to a topic that is gone.

Bytes that no document names yet are committed all the same: where they end is handed on, and the opening of the
partition makes a version of them. Until every such partition has been opened the files of the journal stay.
"""

import logging
from collections.abc import Iterator
from functools import cached_property

import crc32c
from msgspec import Struct, field

from exactlog.core.deltalog.checkpoint_format import Checkpoint
from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.journal_format import (
    HEADER_BYTES,
    JOURNAL_DIRECTORY,
    FoundRound,
    JournaledBytes,
    JournaledPartition,
    decode_file_header,
    parse_journal_name,
    print_journal_name,
)
from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, parse_segment_file_name, print_commit_name
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.fault_points import JOURNAL_BEFORE_REDO_SYNC
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.journal_reading import read_rounds
from exactlog.storage.table_owner import find_owner
from exactlog.storage.whole_files import publish_new, replace, sync_file, sync_names

_logger = logging.getLogger(__name__)


class JournaledTail(Struct):
    """What the journal says of one partition.

    Attributes:
        ends: where the journaled bytes of each segment end, by the segment's name.
        damage: why the partition cannot be opened; None where it can.
    """

    ends: dict[str, int] = field(default_factory=dict)
    damage: str | None = None


class RedoneJournal(Struct):
    """A journal whose rounds are in place.

    Attributes:
        tails: by the name of the partition's directory; a partition that has been opened is taken out.
        files: the numbers of the files that were read, in order.
        next_number: of the file that comes next.
        next_sequence: of the round that comes next.
    """

    tails: dict[str, JournaledTail] = field(default_factory=dict)
    files: list[int] = field(default_factory=list)
    next_number: int = 1
    next_sequence: int = 1


def redo_journal(filesystem: Filesystem, root: str) -> RedoneJournal:
    """Puts back what the journal of a data directory holds; one that has none is fine.

    Raises:
        DamageError: rounds that were acknowledged cannot be read any more.
        OSError: a file could not be read or written.
    """
    redo = _Redo(filesystem, root)
    for found in redo.read():
        redo.carry_out(found)
    redo.sync()
    return redo.journal


def remove_redone(filesystem: Filesystem, root: str, journal: RedoneJournal) -> None:
    """Lets the files go whose rounds are in place, and whose partitions have been opened since, or are kept; blocks.

    Raises:
        SyncFailedError: whether they are gone is not known.
    """
    directory = f"{root}/{JOURNAL_DIRECTORY}"
    while journal.files:  # in order: none in between may be missing
        filesystem.remove(f"{directory}/{print_journal_name(journal.files[0])}")
        del journal.files[0]
        sync_names(filesystem, directory)


class _Place:
    """A partition directory that rounds have written to.

    Attributes:
        segments, documents: the paths of those that the journal has, as far as they are not durable for certain.
    """

    def __init__(self, directory: str, tail: JournaledTail, delta_log: DeltaLogFiles) -> None:
        self.directory = directory
        self.tail = tail
        self.delta_log = delta_log
        self.segments: dict[str, None] = {}
        self.documents: dict[str, None] = {}

    def has_removed(self, segment: str) -> bool:
        """Whether a segment that is not there has been removed: no file goes before checkpoints say so."""
        parsed, checkpoint = parse_segment_file_name(segment), self._checkpoint
        if parsed is None or checkpoint is None or parsed.base >= checkpoint.next_offset:
            return False
        return all(entry.name != segment for entry in checkpoint.segments)

    @cached_property
    def _checkpoint(self) -> Checkpoint | None:
        return self.delta_log.newest_checkpoint()

    @property
    def first_version(self) -> int:
        """The oldest version that is left: what is older was vacuumed, for the creation is synced before any round."""
        oldest_run = [run.first_version for run in self.delta_log.versions.runs[:1]]
        return min([*oldest_run, *self.delta_log.checkpoint_versions[-1:]])


class _Redo:
    def __init__(self, filesystem: Filesystem, root: str) -> None:
        self.journal = RedoneJournal()
        self._filesystem = filesystem
        self._root = root
        self._places: dict[tuple[str, str], _Place | None] = {}
        self._expected_sequence: int | None = None
        """Of the round that comes next; None before the first file that says so."""

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[FoundRound]:
        """The rounds of all files, in order."""
        directory = f"{self._root}/{JOURNAL_DIRECTORY}"
        if not self._filesystem.exists(directory):
            return
        numbers = sorted(filter(None, map(parse_journal_name, self._filesystem.list_names(directory))))
        for number in numbers:
            path = f"{directory}/{print_journal_name(number)}"
            try:
                yield from self._read_file(path, number, is_last=number == numbers[-1])
            except DamageError as error:
                raise DamageError(f"{path}: {error}", hint=error.hint) from error
            self.journal.files.append(number)
            self.journal.next_number = number + 1
        if numbers:
            sync_names(self._filesystem, directory)

    def _read_file(self, path: str, number: int, *, is_last: bool) -> Iterator[FoundRound]:
        file = self._filesystem.open(path, read_only=True)
        size = file.size()
        try:
            header = decode_file_header(file.read_at(HEADER_BYTES, 0), number=number)
        except DecodeError as error:
            if size > HEADER_BYTES:
                raise DamageError(str(error), hint="restore the file from a copy") from error
            return  # its header is synced before the first round goes to it: there was none
        if header.first_sequence != self._expected_sequence and self._expected_sequence is not None:
            raise DamageError(
                f"it begins with round {header.first_sequence}, and round {self._expected_sequence} is missing",
                hint="restore the files of the journal from a copy: rounds that were acknowledged are missing",
            )
        self._expected_sequence = header.first_sequence
        start, end = 0, HEADER_BYTES
        for found in read_rounds(file, size, header):
            yield found
            self._expected_sequence = found.sequence + 1
            start, end = found.position, found.end
        self.journal.next_sequence = self._expected_sequence
        if is_last:
            self._keep(path, file.read_at(size - start, start), start)
        if end < size:
            _logger.warning("%s: %d bytes of no whole round are left out: a crash tore them", path, size - end)

    def _keep(self, path: str, last: bytes, start: int) -> None:
        """Makes the last round durable, for others follow it: its process may have been killed before its sync.

        It is written once more: should its sync have failed, it counts as synced, and is not on the disk.
        """
        file = self._filesystem.open(path)
        file.write_at((last,), start)
        sync_file(file)

    # --- putting back ---------------------------------------------------------------------------------------------

    def carry_out(self, found: FoundRound) -> None:
        """Puts one round back, as far as what it belongs to is still there."""
        for partition, content in found.parts():
            place = self._place_of(partition)
            if place is not None:
                self._put_back(place, partition, content)

    def _put_back(self, place: _Place, partition: JournaledPartition, content: memoryview) -> None:
        for piece in partition.bytes:
            self._put_bytes(place, piece, content[: piece.size] if piece.crc is None else None)
            content = content[piece.stored_size :]
        for commit in partition.commits:
            self._put_document(place, DeltaVersion(commit.version), bytes(content[: commit.size]))
            content = content[commit.size :]

    def _place_of(self, partition: JournaledPartition) -> _Place | None:
        """Where the bytes of a partition go; None where its topic is gone."""
        key = partition.directory, partition.topic_id
        if key not in self._places:
            self._places[key] = self._find_place(*key)
        return self._places[key]

    def _find_place(self, name: str, topic_id: str) -> _Place | None:
        directory = f"{self._root}/{name}"
        if not self._filesystem.exists(directory):
            return None
        owner = find_owner(self._filesystem, directory)
        if owner is not None and str(owner) != topic_id:
            return None
        tail = self.journal.tails.setdefault(name, JournaledTail())
        if owner is None:
            tail.damage = (
                f"neither version 0 nor a checkpoint of {directory} tells whose it is: what the commit journal has of "
                "it is not put back"
            )
            return None
        return _Place(directory, tail, DeltaLogFiles(self._filesystem, directory))

    def _put_bytes(self, place: _Place, piece: JournaledBytes, stored: memoryview | None) -> None:
        path, end = f"{place.directory}/{piece.segment}", piece.position + piece.size
        # What was kept of an earlier file may stand behind what is newer: committed bytes stay committed.
        place.tail.ends[piece.segment] = max(end, place.tail.ends.get(piece.segment, 0))
        try:
            file = self._filesystem.open(path)
        except FileNotFoundError:  # its records were removed, and its file too; should it not be so, the opening tells
            if stored is None or not piece.is_new or place.has_removed(piece.segment):
                return
            file = self._filesystem.open(path, create=True)
        if stored is not None:
            file.write_at((stored,), piece.position)
            place.segments[path] = None
        elif crc32c.crc32c(file.read_at(piece.size, piece.position)) != piece.crc:
            place.tail.damage = f"{path}, bytes {piece.position} to {end}: they are not what the journal says"

    def _put_document(self, place: _Place, version: DeltaVersion, document: bytes) -> None:
        delta_log = place.delta_log
        name = print_commit_name(version)
        path = f"{delta_log.directory}/{name}"
        if version in delta_log.loose_versions:
            present = self._filesystem.read_file(path)
            if present != document:
                if _is_whole(present, path):
                    place.tail.damage = f"{path} is not what the journal says of version {version}"
                    return
                replace(self._filesystem, delta_log.directory, name, document, durable=False)
            else:  # the same once more: should a sync of it have failed, it counts as synced unless it is written
                self._filesystem.open(path).write_at((document,), 0)
            place.documents[path] = None
        elif version not in delta_log.versions and version > place.first_version and path not in place.documents:
            publish_new(self._filesystem, delta_log.directory, name, document, durable=False)
            place.documents[path] = None

    def sync(self) -> None:
        """Makes all of it durable.

        Raises:
            SyncFailedError: whether it is durable is not known.
        """
        JOURNAL_BEFORE_REDO_SYNC.reach()
        for place in self._places.values():
            if place is None:
                continue
            for path in (*place.segments, *place.documents):
                sync_file(self._filesystem.open(path))
            if place.documents:
                sync_names(self._filesystem, f"{place.directory}/{DELTA_LOG_DIRECTORY}")
            if place.segments:
                sync_names(self._filesystem, place.directory)


def _is_whole(document: bytes, path: str) -> bool:
    """Whether a document is one: a power cut leaves it empty, or a part of it."""
    try:
        decode_commit(document, path_hint=path)
    except DamageError:
        return False
    return True
