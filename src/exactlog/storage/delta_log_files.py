"""Reading a partition's `_delta_log` directory: the newest checkpoint that holds, and the delta commits behind it."""

from collections.abc import Iterator

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import Checkpoint, decode_checkpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, decode_commit
from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    CheckpointName,
    CommitName,
    is_temporary_name,
    parse_delta_log_name,
    print_checkpoint_name,
    print_commit_name,
)
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.filesystem import Filesystem


class DamagedCheckpoint(Struct, frozen=True):
    """A checkpoint that cannot be used, and why; an older one, or a full replay, gives the same table."""

    version: DeltaVersion
    reason: str


class DeltaLogFiles:
    """The names in one `_delta_log` directory, listed once; documents are read when asked for.

    Raises:
        DamageError: there is no such directory, or it holds no version at all.
    """

    def __init__(self, filesystem: Filesystem, partition_directory: str) -> None:
        self._filesystem = filesystem
        self.directory = f"{partition_directory}/{DELTA_LOG_DIRECTORY}"
        try:
            names = filesystem.list_names(self.directory)
        except FileNotFoundError:
            raise DamageError(f"{self.directory} is missing", hint="restore the directory from a copy") from None
        parsed = [parse_delta_log_name(name) for name in names]
        self.versions = {name.version for name in parsed if isinstance(name, CommitName)}
        self.checkpoint_versions = sorted(
            (name.version for name in parsed if isinstance(name, CheckpointName)), reverse=True
        )
        self.temporary_names = [name for name in names if is_temporary_name(name)]
        if not self.versions and not self.checkpoint_versions:
            raise DamageError(
                f"{self.directory} holds neither a delta commit nor a checkpoint",
                hint="restore the directory from a copy, or remove the partition's directory if it never held anything",
            )

    @property
    def newest_version(self) -> DeltaVersion:
        """The highest version that has a delta commit or a checkpoint."""
        return max(self.versions.union(self.checkpoint_versions[:1]))

    @property
    def oldest_version(self) -> DeltaVersion:
        """The lowest version from which on every delta commit is there."""
        oldest = self.newest_version
        while DeltaVersion(oldest - 1) in self.versions:
            oldest = DeltaVersion(oldest - 1)
        return oldest

    def checkpoints(self) -> Iterator[Checkpoint | DamagedCheckpoint]:
        """The checkpoints, newest first, each read when it is asked for."""
        for version in self.checkpoint_versions:
            path = f"{self.directory}/{print_checkpoint_name(version)}"
            try:
                yield decode_checkpoint(self._filesystem.read_file(path), path_hint=path)
            except DamageError as error:
                yield DamagedCheckpoint(version, str(error))

    def newest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is not damaged; None where there is none."""
        return next((found for found in self.checkpoints() if isinstance(found, Checkpoint)), None)

    def checkpoint_size(self, version: DeltaVersion) -> int:
        """The size of the checkpoint of a version, in bytes."""
        return self._filesystem.file_size(f"{self.directory}/{print_checkpoint_name(version)}")

    def read_commit(self, version: DeltaVersion) -> tuple[DecodedCommit, int]:
        """The delta commit of a version, and the size of its document in bytes.

        Raises:
            DamageError: it is missing or damaged.
        """
        path = f"{self.directory}/{print_commit_name(version)}"
        try:
            document = self._filesystem.read_file(path)
            return decode_commit(document, path_hint=path), len(document)
        except FileNotFoundError:
            raise DamageError(
                f"{path}: delta version {version} is missing, though later ones exist",
                hint="restore the file from a copy; without it nothing behind it can be trusted",
            ) from None

    def commits_after(self, version: DeltaVersion) -> Iterator[DecodedCommit]:
        """All delta commits behind a version, in order, each read when it is asked for.

        Raises:
            DamageError: one is missing or damaged.
        """
        for number in range(version + 1, self.newest_version + 1):
            yield self.read_commit(DeltaVersion(number))[0]

    def remove_from(self, version: DeltaVersion) -> None:
        """Removes the commits and checkpoints at and above a version, highest first, durably."""
        for number in sorted((found for found in self.versions if found >= version), reverse=True):
            self._filesystem.remove(f"{self.directory}/{print_commit_name(number)}")
        for number in [found for found in self.checkpoint_versions if found >= version]:
            self._filesystem.remove(f"{self.directory}/{print_checkpoint_name(number)}")
        self._filesystem.sync_directory(self.directory)
        self.versions = {found for found in self.versions if found < version}
        self.checkpoint_versions = [found for found in self.checkpoint_versions if found < version]
