"""The delta log of one partition as recovery asks it: what it says, where that stands, how to tell what is wrong."""

from typing import Final

from exactlog.core.deltalog.commit_format import DecodedCommit, TableMetadata
from exactlog.core.deltalog.log_path import parse_partition_directory_name, print_commit_name
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.audit_delta_log import is_half_written
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.pack_files import print_pack_name
from exactlog.storage.settings import FLUSH_MODE_KEY, FlushMode

RESTORE_BYTES: Final = (
    "restore the file from a copy; the partition stays closed, since acknowledged records are missing"
)
RESTORE_DOCUMENT: Final = "restore the file from a copy; nothing behind it can be trusted without it"


class PartitionHistory:
    """The delta commits of a partition, and how to speak of them.

    Attributes:
        name: what to call the partition in messages.
        directory: its path.
        delta_log: the names in its `_delta_log`.

    Raises:
        DamageError: there is no delta log.
    """

    def __init__(self, filesystem: Filesystem, directory: str, *, name: str) -> None:
        self.name = name
        self.directory = directory
        self.delta_log = DeltaLogFiles(filesystem, directory)
        self._filesystem = filesystem
        self._owner = parse_partition_directory_name(directory.rpartition("/")[2])

    def find_good(self, version: DeltaVersion) -> DecodedCommit | None:
        """The delta commit of a version, if it is there and not damaged."""
        if version not in self.delta_log.versions:
            return None
        try:
            return self.delta_log.read_commit(version)[0]
        except DamageError:
            return None

    def find_removals(self, after: DeltaVersion) -> dict[str, DeltaVersion]:
        """Which segments are removed behind a version, and by which versions: all that are there and can be read."""
        removals = {}
        for version in self.delta_log.versions:
            decoded = self.find_good(version) if version > after else None
            for operation in () if decoded is None else decoded.commit.operations:
                if operation.type == "remove":
                    removals[operation.segment] = version
        return removals

    def path_of(self, version: DeltaVersion) -> str:
        """The file that a delta commit is in, or should be in."""
        file_name = print_commit_name(version)
        if version not in self.delta_log.loose_versions:
            packs = (pack for pack in self.delta_log.packs if pack.first_version <= version <= pack.last_version)
            file_name = next(map(print_pack_name, packs), file_name)
        return f"{self.delta_log.directory}/{file_name}"

    def may_be_lost(self, version: DeltaVersion) -> bool:
        """Whether a power cut may have left so little of a document, if it was not synced.

        What is packed is synced, and so is all that lies before it.
        """
        if any(pack.last_version >= version for pack in self.delta_log.packs):
            return False
        try:
            return is_half_written(self._filesystem.read_file(self.path_of(version)))
        except FileNotFoundError:
            return True

    def find_misfit(self, metadata: TableMetadata) -> str | None:
        """What shows that metadata are not of this partition, or not for this exactlog."""
        owner = self._owner
        if owner is not None and (metadata.partition != owner.partition or owner.topic not in (None, metadata.topic)):
            return f"it is of partition {metadata.topic}-{metadata.partition}"
        flush_mode = metadata.config.get(FLUSH_MODE_KEY, FlushMode.COMMIT)
        return None if flush_mode in set(FlushMode) else f"it is written in flush mode {flush_mode!r}, which is unknown"

    def refusal(self, version: DeltaVersion, reason: str, *, hint: str) -> DamageError:
        """Why the partition cannot be opened."""
        return DamageError(f"{self.name}: delta version {version}: {reason}", hint=hint)

    def broken_history(self, version: DeltaVersion, error: DamageError) -> DamageError:
        """Why a commit cannot be the next one, from what the table said of it."""
        return DamageError(f"{error} ({self.path_of(version)})", hint=RESTORE_DOCUMENT)

    def removed_bytes(self, version: DeltaVersion, reason: str, *, removed_by: DeltaVersion) -> DamageError:
        """Why a version cannot be replayed whose bytes a later one removed."""
        return self.refusal(
            version,
            f"{reason}, since version {removed_by} removed its records",
            hint=f"restore a checkpoint of {self.delta_log.directory} from a copy: what the removed records said of "
            "their producers cannot be found again without them",
        )
