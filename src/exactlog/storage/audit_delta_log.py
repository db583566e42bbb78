"""Every document of a `_delta_log` directory in order of version, loose and packed, however many there are.

Written for audits, apart from what recovery and readers use: it looks at all documents, not at the first that will do,
and at no more than one of them at a time.
"""

import heapq
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    CheckpointName,
    CommitName,
    CompactedName,
    is_temporary_name,
    parse_delta_log_name,
    print_checkpoint_name,
    print_commit_name,
    print_compacted_name,
)
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.filesystem import Filesystem

_CHUNK_BYTES: Final = 256 * 1024
_STATED_VERSION: Final = re.compile(rb'\{"version":([0-9]{1,19}),')
_HOLE: Final = bytes(2)  # no JSON has even one zero byte
_TRUNCATED: Final = "truncated"  # what msgspec says of JSON that ends too early


class Document(NamedTuple):
    """The bytes of one delta commit, and which file they are from. Without bytes, `problem` says why."""

    file: str
    content: bytes
    position: int = 0
    is_packed: bool = False
    problem: str = ""


_Versioned = tuple[DeltaVersion, Document]


class DeltaLogListing:
    """The names in one `_delta_log` directory at one moment.

    Attributes:
        loose: the versions that have a file of their own, in rising order.
        packs: the packed ranges, by their first version.
        checkpoints: the versions that have a checkpoint, in rising order.
        temporary: names of files that never got their name.
        foreign: other names that are not ours.
        names: all of them.

    Raises:
        FileNotFoundError: there is no such directory.
    """

    def __init__(self, filesystem: Filesystem, partition_directory: str) -> None:
        self._filesystem = filesystem
        self.directory = f"{partition_directory}/{DELTA_LOG_DIRECTORY}"
        self.loose: list[DeltaVersion] = []
        self.packs: list[CompactedName] = []
        self.checkpoints: list[DeltaVersion] = []
        self.temporary: list[str] = []
        self.foreign: list[str] = []
        self.names = sorted(filesystem.list_names(self.directory))
        for name in self.names:
            match parse_delta_log_name(name):
                case CommitName(version=version):
                    self.loose.append(version)
                case CheckpointName(version=version):
                    self.checkpoints.append(version)
                case CompactedName() as pack:
                    self.packs.append(pack)
                case None:
                    (self.temporary if is_temporary_name(name) else self.foreign).append(name)

    @property
    def newest_version(self) -> DeltaVersion | None:
        """The newest version that any name tells of."""
        newest = [*self.loose[-1:], *self.checkpoints[-1:], *(pack.last_version for pack in self.packs)]
        return max(newest, default=None)

    def versions(self) -> Iterator[tuple[DeltaVersion, list[Document]]]:
        """The versions that are there, in rising order, each with all of its documents.

        Raises:
            FileNotFoundError: a name has gone since they were listed.
        """
        sources = [self._loose_documents(), *map(self._packed_documents, _without_overlap(self.packs))]
        merged = heapq.merge(*sources, key=_version_of)
        for version, documents in groupby(merged, key=_version_of):
            yield version, [document for _, document in documents]

    def read_checkpoint(self, version: DeltaVersion) -> bytes:
        """The bytes of a checkpoint."""
        return self._filesystem.read_file(f"{self.directory}/{print_checkpoint_name(version)}")

    def _loose_documents(self) -> Iterator[_Versioned]:
        for version in self.loose:
            name = print_commit_name(version)
            try:
                content = self._filesystem.read_file(f"{self.directory}/{name}")
            except FileNotFoundError:
                raise
            except OSError as error:
                yield version, Document(in_delta_log(name), b"", problem=f"it cannot be read: {error}")
            else:
                yield version, Document(in_delta_log(name), content)

    def _packed_documents(self, packs: Sequence[CompactedName]) -> Iterator[_Versioned]:
        for pack in packs:
            name = print_compacted_name(first_version=pack.first_version, last_version=pack.last_version)
            file, version, position = in_delta_log(name), pack.first_version, 0
            try:
                for line in self._lines(f"{self.directory}/{name}"):
                    stated = _STATED_VERSION.match(line)
                    if stated is not None and version < int(stated[1]) <= pack.last_version:
                        version = DeltaVersion(int(stated[1]))  # lines are missing, or one has lost its end
                    if version > pack.last_version:
                        problem = f"it goes on behind version {pack.last_version}, its last one by its name"
                        yield pack.last_version, Document(file, b"", position, is_packed=True, problem=problem)
                        break
                    yield version, Document(file, line, position, is_packed=True)
                    version, position = DeltaVersion(version + 1), position + len(line)
                else:
                    if version <= pack.last_version:
                        problem = f"it ends before version {version}, its name says {pack.last_version}"
                        yield version, Document(file, b"", position, is_packed=True, problem=problem)
            except FileNotFoundError:
                raise
            except OSError as error:
                problem = f"it cannot be read: {error}"
                yield version, Document(file, b"", position, is_packed=True, problem=problem)

    def _lines(self, path: str) -> Iterator[bytes]:
        """The lines of a file, each with its newline; the last one may lack it."""
        file = self._filesystem.open(path, read_only=True)
        position, rest = 0, b""
        while chunk := file.read_at(_CHUNK_BYTES, position):
            position += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest


def in_delta_log(name: str) -> str:
    """A file of the delta log, relative to the partition's directory."""
    return f"{DELTA_LOG_DIRECTORY}/{name}"


def is_half_written(document: bytes) -> bool:
    """Whether that is what a power cut leaves of a document that was not synced: cut short, or with holes of zeros."""
    if _HOLE in document:
        return True
    if document.endswith(b"\n"):
        return False
    try:
        msgspec.json.decode(document)
    except msgspec.DecodeError as error:
        return _TRUNCATED in str(error)
    except (UnicodeDecodeError, RecursionError):
        return False
    return True  # only the newline is missing


def _version_of(entry: _Versioned) -> DeltaVersion:
    return entry[0]


def _without_overlap(packs: Sequence[CompactedName]) -> list[list[CompactedName]]:
    """The packs in as few rows as possible, in which one ends before the next begins; usually that is one row."""
    rows: list[list[CompactedName]] = []
    for pack in sorted(packs, key=lambda pack: (pack.first_version, pack.last_version)):
        row = next((row for row in rows if row[-1].last_version < pack.first_version), None)
        if row is None:
            rows.append([pack])
        else:
            row.append(pack)
    return rows
