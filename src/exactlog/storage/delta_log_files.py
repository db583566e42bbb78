"""Reading a partition's `_delta_log` directory: the newest checkpoint that holds, and the delta commits behind it.

A delta commit is found in a file of its own or in a pack. Packing and vacuum may go on beside a reader: a file that has
gone since the names were listed is looked for under the names of now, once.
"""

import errno
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import Checkpoint, decode_checkpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, decode_commit
from exactlog.core.deltalog.compacted_format import Pack, encode_line
from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    CheckpointName,
    CommitName,
    CompactedName,
    is_temporary_name,
    parse_delta_log_name,
    print_checkpoint_name,
    print_commit_name,
)
from exactlog.core.deltalog.version_ranges import VersionRanges
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion
from exactlog.core.model.limits import PACKS_OPEN_MAX
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.pack_files import print_pack_name, publish_pack


class DamagedCheckpoint(Struct, frozen=True):
    """A checkpoint that cannot be used, and why; an older one, or a full replay, gives the same table."""

    version: DeltaVersion
    reason: str


class DeltaLogFiles:
    """The names in one `_delta_log` directory, listed once; documents are read when asked for.

    Attributes:
        directory: its path.
        loose_versions: the versions that have a file of their own.
        packs: the packs, by their first version.
        versions: all versions that are there, in files of their own or in packs.
        checkpoint_versions: the versions that have a checkpoint, the newest first.
        temporary_names: of files that never got their name.

    Raises:
        DamageError: there is no such directory, or it holds no version at all.
    """

    def __init__(self, filesystem: Filesystem, partition_directory: str) -> None:
        self._filesystem = filesystem
        self.directory = f"{partition_directory}/{DELTA_LOG_DIRECTORY}"
        self._open_packs: OrderedDict[CompactedName, Pack] = OrderedDict()
        self.list_names()
        if len(self.versions.runs) > 1:  # it may have been listed in the middle of a packing
            self.list_names()
        if not self.versions and not self.checkpoint_versions:
            raise DamageError(
                f"{self.directory} holds neither a delta commit nor a checkpoint",
                hint="restore the directory from a copy, or remove the partition's directory if it never held anything",
            )

    def list_names(self) -> None:
        """Lists the directory again.

        Raises:
            DamageError: there is no such directory.
        """
        try:
            names = self._filesystem.list_names(self.directory)
        except FileNotFoundError:
            raise DamageError(f"{self.directory} is missing", hint="restore the directory from a copy") from None
        parsed = [parse_delta_log_name(name) for name in names]
        self.loose_versions = {name.version for name in parsed if isinstance(name, CommitName)}
        self.packs = sorted((name for name in parsed if isinstance(name, CompactedName)), key=_first_version)
        self.checkpoint_versions = sorted(
            (name.version for name in parsed if isinstance(name, CheckpointName)), reverse=True
        )
        self.temporary_names = [name for name in names if is_temporary_name(name)]
        self.versions = VersionRanges(self.loose_versions, self.packs)
        self._has_checkpoint = frozenset(self.checkpoint_versions)
        self._packs_end = list(accumulate((pack.last_version for pack in self.packs), max))

    @property
    def newest_version(self) -> DeltaVersion:
        """The highest version that has a delta commit or a checkpoint."""
        return max([*self.checkpoint_versions[:1], *(run.last_version for run in self.versions.runs[-1:])])

    @property
    def oldest_version(self) -> DeltaVersion:
        """The lowest version from which on every one is there; a checkpoint stands in for the commit of its version."""
        oldest = DeltaVersion(self.newest_version + 1)
        while True:
            below = DeltaVersion(oldest - 1)
            run = self.versions.run_of(below)
            if run is not None:
                oldest = run.first_version
            elif below in self._has_checkpoint:
                oldest = below
            else:
                return oldest

    # --- checkpoints --------------------------------------------------------------------------------------------

    def checkpoints(self) -> Iterator[Checkpoint | DamagedCheckpoint]:
        """The checkpoints, newest first, each read when it is asked for."""
        try:
            yield from self._read_checkpoints()
        except FileNotFoundError:  # it was newer checkpoints that made this one superfluous
            self.list_names()
            yield from self._read_checkpoints()

    def _read_checkpoints(self) -> Iterator[Checkpoint | DamagedCheckpoint]:
        for version in self.checkpoint_versions:
            try:
                yield self.read_checkpoint(version)
            except DamageError as error:
                yield DamagedCheckpoint(version, str(error))

    def newest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is not damaged; None where there is none."""
        return next((found for found in self.checkpoints() if isinstance(found, Checkpoint)), None)

    def read_checkpoint(self, version: DeltaVersion) -> Checkpoint:
        """The checkpoint of a version.

        Raises:
            DamageError: it is damaged.
            FileNotFoundError: there is none.
        """
        path = f"{self.directory}/{print_checkpoint_name(version)}"
        return decode_checkpoint(self._filesystem.read_file(path), path_hint=path)

    def checkpoint_size(self, version: DeltaVersion) -> int:
        """The size of the checkpoint of a version, in bytes."""
        return self._filesystem.file_size(f"{self.directory}/{print_checkpoint_name(version)}")

    # --- commits ------------------------------------------------------------------------------------------------

    def read_commit(self, version: DeltaVersion) -> tuple[DecodedCommit, int]:
        """The delta commit of a version, and the size of its document in bytes.

        That of its own file, where it has one; a copy in a pack serves where that one is damaged.

        Raises:
            DamageError: it is missing or damaged.
        """
        try:
            return self._read_any(version)
        except FileNotFoundError:
            self.list_names()
        try:
            return self._read_any(version)
        except FileNotFoundError as error:
            raise DamageError(
                f"{error.filename}: delta version {version} is missing, though later ones exist",
                hint="restore the file from a copy; without it nothing behind it can be trusted",
            ) from None

    def read_copies(self, version: DeltaVersion) -> dict[str, DecodedCommit]:
        """Every copy of the delta commit of a version, that of its own file first, by the paths of the files.

        Raises:
            DamageError: one of them is damaged.
            OSError: one of them cannot be read.
        """
        copies = {}
        if version in self.loose_versions:
            copies[self._path_of(version)] = self._read_loose(version)[0]
        for pack in self._packs_of(version):
            copies[f"{self.directory}/{print_pack_name(pack)}"] = self.open_pack(pack).read(version)[0]
        return copies

    def read_next(self, version: DeltaVersion) -> DecodedCommit | None:
        """The delta commit behind the newest version that was seen, if there is one by now.

        It is looked for under its own name; only when the one before it has lost its own, as by a packing, are the
        names listed again.

        Args:
            version: one more than a version that was there.

        Raises:
            DamageError: it is damaged.
        """
        try:
            found, _ = self._read_loose(version)
        except FileNotFoundError:
            if self._filesystem.exists(self._path_of(DeltaVersion(version - 1))):
                return None
            self.list_names()
            return self.read_commit(version)[0] if version in self.versions else None
        if version not in self.versions:
            self.loose_versions.add(version)
            self.versions.add_newest(version)
        return found

    def commits_after(self, version: DeltaVersion) -> Iterator[DecodedCommit]:
        """All delta commits behind a version, in order, each read when it is asked for.

        Raises:
            DamageError: one is missing or damaged.
        """
        for number in range(version + 1, self.newest_version + 1):
            yield self.read_commit(DeltaVersion(number))[0]

    def open_pack(self, name: CompactedName) -> Pack:
        """A pack; the last few that were asked for stay open."""
        pack = self._open_packs.get(name)
        if pack is None:
            path = f"{self.directory}/{print_pack_name(name)}"
            pack = Pack(name, self._filesystem.open(path, read_only=True).read_at, path_hint=path)
            self._open_packs[name] = pack
            if len(self._open_packs) > PACKS_OPEN_MAX:
                self._open_packs.popitem(last=False)
        else:
            self._open_packs.move_to_end(name)
        return pack

    def _read_any(self, version: DeltaVersion) -> tuple[DecodedCommit, int]:
        damage: DamageError | None = None
        if version in self.loose_versions:
            try:
                return self._read_loose(version)
            except FileNotFoundError:
                pass  # packed since, perhaps
            except DamageError as error:
                damage = error
        for name in self._packs_of(version):
            try:
                return self.open_pack(name).read(version)
            except FileNotFoundError:
                pass  # vacuumed since, perhaps
            except DamageError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path_of(version))

    def _read_loose(self, version: DeltaVersion) -> tuple[DecodedCommit, int]:
        path = self._path_of(version)
        document = self._filesystem.read_file(path)
        return decode_commit(document, path_hint=path), len(document)

    def _path_of(self, version: DeltaVersion) -> str:
        return f"{self.directory}/{print_commit_name(version)}"

    def _packs_of(self, version: DeltaVersion) -> Iterator[CompactedName]:
        """The packs that hold a version: one, unless several overlap."""
        index = bisect_right(self.packs, version, key=_first_version) - 1
        while index >= 0 and self._packs_end[index] >= version:
            if self.packs[index].last_version >= version:
                yield self.packs[index]
            index -= 1

    # --- removing -----------------------------------------------------------------------------------------------

    def remove_from(self, version: DeltaVersion) -> None:
        """Removes the commits and checkpoints at and above a version, highest first, durably."""
        for number in sorted((found for found in self.loose_versions if found >= version), reverse=True):
            self._filesystem.remove(self._path_of(number))
        for pack in [found for found in reversed(self.packs) if found.last_version >= version]:
            self._cut_pack(pack, version)
        for number in [found for found in self.checkpoint_versions if found >= version]:
            self._filesystem.remove(f"{self.directory}/{print_checkpoint_name(number)}")
        self._filesystem.sync_directory(self.directory)
        self.list_names()

    def _cut_pack(self, pack: CompactedName, version: DeltaVersion) -> None:
        """Removes a pack; what it holds below a version goes to a shorter one first."""
        shorter = CompactedName(first_version=pack.first_version, last_version=DeltaVersion(version - 1))
        if pack.first_version < version and shorter not in self.packs:
            found = self.open_pack(pack)
            numbers = map(DeltaVersion, range(pack.first_version, version))
            lines = (encode_line(found.read(number)[0].commit) for number in numbers)
            publish_pack(self._filesystem, self.directory, shorter, lines)
        self._filesystem.remove(f"{self.directory}/{print_pack_name(pack)}")


def _first_version(pack: CompactedName) -> DeltaVersion:
    return pack.first_version
