"""Vacuum: the one way in which delta versions expire. It needs the data directory for itself.

What goes is decided first, by the rules of `core.deltalog.version_cleanup`, and then removed from the lowest version
on: a crash in the middle leaves a table whose oldest version is higher than before, and that opens as it did.
"""

from collections.abc import Iterator

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import Checkpoint
from exactlog.core.deltalog.log_path import print_checkpoint_name, print_commit_name
from exactlog.core.deltalog.version_cleanup import (
    CHECKPOINTS_KEPT,
    NothingToExpire,
    VacuumPlan,
    count_expired,
    find_cutoff,
    plan_vacuum,
)
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import DeltaVersion
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.fault_points import VACUUM_AFTER_UNLINK, VACUUM_BEFORE_UNLINK
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.pack_files import print_pack_name
from exactlog.storage.whole_files import sync_names


class VacuumReport(Struct, frozen=True, kw_only=True):
    """What a vacuum removed, or would.

    Attributes:
        versions_expired: how many versions cannot be read any more.
        files_removed: how many files held them, and checkpoints among them.
        bytes_freed: what these files had.
        oldest_version: the oldest version that is left.
        newest_version: the newest one.
        reason: why nothing expired; empty where something did.
    """

    versions_expired: int = 0
    files_removed: int = 0
    bytes_freed: int = 0
    oldest_version: DeltaVersion
    newest_version: DeltaVersion
    reason: str = ""


def vacuum(
    filesystem: Filesystem, partition_directory: str, *, versions_keep: int, dry_run: bool = False
) -> VacuumReport:
    """Lets the versions of a partition expire that are older than the newest so many; blocks.

    More than these stay where what is kept would not begin with a checkpoint, or be part of a pack.

    Args:
        versions_keep: how many of the newest versions stay at least, 1 or more.
        dry_run: only say what would go.

    Raises:
        InvariantError: `versions_keep` is less than 1.
        DamageError: a version that is to stay is missing; nothing was removed.
        SyncFailedError: whether what was removed comes back after a crash cannot be told.
        OSError: a file could not be read or removed.
    """
    delta_log = DeltaLogFiles(filesystem, partition_directory)
    cutoff = find_cutoff(delta_log.newest_version, versions_keep=versions_keep)
    base, newest = _find_checkpoints(filesystem, partition_directory, delta_log, cutoff)
    commits = sorted(delta_log.loose_versions)
    plan = plan_vacuum(
        cutoff=cutoff,
        commits=commits,
        packs=delta_log.packs,
        checkpoints=delta_log.checkpoint_versions,
        base_checkpoint=base,
        newest_checkpoints=newest,
    )
    if isinstance(plan, NothingToExpire):
        return VacuumReport(
            oldest_version=delta_log.oldest_version, newest_version=delta_log.newest_version, reason=plan.reason
        )
    _refuse_gap(delta_log, plan)
    paths = [f"{delta_log.directory}/{name}" for name in _names_of(plan)]
    report = VacuumReport(
        versions_expired=count_expired(plan, commits=commits, packs=delta_log.packs),
        files_removed=len(paths),
        bytes_freed=sum(map(filesystem.file_size, paths)),
        oldest_version=plan.oldest_version,
        newest_version=delta_log.newest_version,
    )
    if not dry_run:
        VACUUM_BEFORE_UNLINK.reach()
        for path in paths:
            filesystem.remove(path)
            VACUUM_AFTER_UNLINK.reach()
        sync_names(filesystem, delta_log.directory)
    return report


def _find_checkpoints(
    filesystem: Filesystem, directory: str, delta_log: DeltaLogFiles, cutoff: DeltaVersion
) -> tuple[DeltaVersion | None, list[DeltaVersion]]:
    """The newest good checkpoint at or below the cutoff, and the newest ones that a start could begin from."""
    base: DeltaVersion | None = None
    newest: list[DeltaVersion] = []
    for version in delta_log.checkpoint_versions:
        is_wanted_to_start = len(newest) < CHECKPOINTS_KEPT
        is_wanted_as_base = base is None and version <= cutoff
        if not is_wanted_to_start and not is_wanted_as_base:
            continue
        try:
            checkpoint = delta_log.read_checkpoint(version)
        except DamageError:
            continue  # nothing is kept for its sake
        if is_wanted_as_base:
            base = version
        if is_wanted_to_start and _has_its_bytes(filesystem, directory, checkpoint):
            newest.append(version)
    return base, newest


def _has_its_bytes(filesystem: Filesystem, directory: str, checkpoint: Checkpoint) -> bool:
    """Whether the segments it names are there: without syncs (`interval`, `none`) a power cut may have taken them."""
    try:
        return all(filesystem.file_size(f"{directory}/{entry.name}") >= entry.size for entry in checkpoint.segments)
    except FileNotFoundError:
        return False


def _refuse_gap(delta_log: DeltaLogFiles, plan: VacuumPlan) -> None:
    """Without all that is to stay, what is older may still be needed."""
    oldest = delta_log.oldest_version
    if oldest > plan.oldest_version:
        raise DamageError(
            f"{delta_log.directory}: delta version {oldest - 1} is missing, though later ones exist",
            hint="restore the file from a copy; until then nothing expires",
        )


def _names_of(plan: VacuumPlan) -> Iterator[str]:
    """The files of a plan, those of the lowest versions first."""
    names = [(version, print_commit_name(version)) for version in plan.commits]
    names += [(version, print_checkpoint_name(version)) for version in plan.checkpoints]
    names += [(pack.first_version, print_pack_name(pack)) for pack in plan.packs]
    return (name for _, name in sorted(names))
