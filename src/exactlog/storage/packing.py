"""Packing old delta commits: a thousand files become one, and nothing is lost.

The pack is written aside, synced, given its name and made durable; only then do the files go that it stands for. A
crash leaves both, which say the same: the commits' own files are read, and the next packing takes them away.
Meanwhile readers go on: what they do not find under one name they find under the other.
"""

import logging
from collections.abc import Iterator

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import Checkpoint
from exactlog.core.deltalog.commit_format import DecodedCommit
from exactlog.core.deltalog.compacted_format import encode_line
from exactlog.core.deltalog.log_path import CompactedName, print_checkpoint_name, print_commit_name
from exactlog.core.deltalog.version_cleanup import (
    CHECKPOINTS_KEPT,
    PACK_VERSIONS,
    PackPlan,
    find_first_unpacked,
    find_superfluous_checkpoints,
    plan_pack,
)
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.fault_points import PACK_BEFORE_UNLINK
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.pack_files import print_pack_name, publish_pack

_logger = logging.getLogger(__name__)


class PackingProgress(Struct, frozen=True):
    """How far the versions of a partition are packed; asking it what to pack next costs nothing.

    Attributes:
        first_version: the first version of the range that is packed next.
    """

    first_version: DeltaVersion
    pack_versions: int = PACK_VERSIONS

    @classmethod
    def of(cls, delta_log: DeltaLogFiles, *, pack_versions: int = PACK_VERSIONS) -> "PackingProgress":
        """The progress as a directory shows it; a range whose packing was broken off is next."""
        newest_version, runs = delta_log.newest_version, delta_log.versions.runs
        first_version = find_first_unpacked(
            delta_log.loose_versions,
            oldest_version=runs[-1].first_version if runs else DeltaVersion(newest_version + 1),
            newest_version=newest_version,
            pack_versions=pack_versions,
        )
        return cls(first_version, pack_versions)

    def find_pack(
        self, *, newest_version: DeltaVersion, checkpoint_version: DeltaVersion | None, versions_keep: int
    ) -> PackPlan | None:
        """The next range to pack, if there is one; see `plan_pack`."""
        return plan_pack(
            self.first_version,
            newest_version=newest_version,
            checkpoint_version=checkpoint_version,
            versions_keep=versions_keep,
            pack_versions=self.pack_versions,
        )

    def after(self, plan: PackPlan) -> "PackingProgress":
        """The progress once a range is packed."""
        return PackingProgress(DeltaVersion(plan.last_version + 1), self.pack_versions)


def find_pack(delta_log: DeltaLogFiles, *, versions_keep: int, pack_versions: int = PACK_VERSIONS) -> PackPlan | None:
    """The next range of a directory to pack, if there is one."""
    checkpoint = delta_log.newest_checkpoint()
    return PackingProgress.of(delta_log, pack_versions=pack_versions).find_pack(
        newest_version=delta_log.newest_version,
        checkpoint_version=None if checkpoint is None else checkpoint.version,
        versions_keep=versions_keep,
    )


def pack(filesystem: Filesystem, partition_directory: str, *plans: PackPlan) -> None:
    """Packs ranges of versions, then removes their own files and the checkpoints that this makes superfluous; blocks.

    Every document is checked first, by itself and against the one before it; copies of it must be the same. The
    directory is listed once, whatever the number of ranges.

    Raises:
        DamageError: a document is damaged, missing, or differs from its copy; nothing of its range was removed.
        SyncFailedError: whether a pack is there after a crash cannot be told.
        OSError: a file could not be read, written or removed; what is there is whole.
    """
    delta_log = DeltaLogFiles(filesystem, partition_directory)
    kept_from = _kept_from(delta_log)
    for plan in plans:
        _pack_range(filesystem, delta_log, plan, kept_from=kept_from)


def _pack_range(filesystem: Filesystem, delta_log: DeltaLogFiles, plan: PackPlan, *, kept_from: DeltaVersion) -> None:
    name = CompactedName(first_version=plan.first_version, last_version=plan.last_version)
    commits = _checked_commits(delta_log, plan)
    if name not in delta_log.packs:
        publish_pack(filesystem, delta_log.directory, name, (encode_line(found.commit) for found in commits))
    else:  # a packing that was broken off has made it
        for _ in commits:
            pass
        if not delta_log.open_pack(name).is_complete:
            path = f"{delta_log.directory}/{print_pack_name(name)}"
            raise DamageError(f"{path} has more lines than versions", hint="restore the file from a copy")
    PACK_BEFORE_UNLINK.reach()
    for version in find_superfluous_checkpoints(plan, delta_log.checkpoint_versions, kept_from=kept_from):
        filesystem.remove(f"{delta_log.directory}/{print_checkpoint_name(version)}")
    for version in map(DeltaVersion, range(plan.first_version, plan.last_version + 1)):
        if version in delta_log.loose_versions:
            filesystem.remove(f"{delta_log.directory}/{print_commit_name(version)}")
    for other in delta_log.packs:
        if other != name and name.first_version <= other.first_version and other.last_version <= name.last_version:
            filesystem.remove(f"{delta_log.directory}/{print_pack_name(other)}")
    _logger.info("%s: versions %d to %d are packed", delta_log.directory, plan.first_version, plan.last_version)


def _checked_commits(delta_log: DeltaLogFiles, plan: PackPlan) -> Iterator[DecodedCommit]:
    """The commits of a range, each good, the same in all its copies, and following from the one before it."""
    before: DecodedCommit | None = None
    for version in map(DeltaVersion, range(plan.first_version, plan.last_version + 2)):
        copies = delta_log.read_copies(version)
        if not copies:
            if version > plan.last_version:
                return
            raise DamageError(
                f"{delta_log.directory}: delta version {version} is missing, though later ones exist",
                hint="restore the file from a copy; until then no older version is packed",
            )
        (path, found), *others = copies.items()
        for other_path, other in others:
            if other != found:
                raise DamageError(
                    f"{other_path} holds another delta version {version} than {path}",
                    hint="find out which one the versions behind it follow from, and remove the other",
                )
        if before is not None and found.commit.prev_crc != before.chain_crc:
            raise DamageError(
                f"{path}: delta version {version} does not follow from version {version - 1}: its prev_crc is "
                f"{found.commit.prev_crc}, not {before.chain_crc}",
                hint="restore the file from a copy; until then no older version is packed",
            )
        if version <= plan.last_version:
            yield found
        before = found


def _kept_from(delta_log: DeltaLogFiles) -> DeltaVersion:
    """The older one of the newest two checkpoints that are good: from there on all stay; all, where there is none."""
    good = 0
    for found in delta_log.checkpoints():
        if isinstance(found, Checkpoint):
            good += 1
            if good == CHECKPOINTS_KEPT:
                return found.version
    return DeltaVersion(0)
