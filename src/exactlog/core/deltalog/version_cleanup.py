"""Which old delta commits are packed, and which versions vacuum may expire: plans, made of names alone.

Packing moves old commits together and loses nothing; only vacuum expires versions, when an operator asks for it. A
version that stays can be rebuilt, so what vacuum keeps begins with a checkpoint; and the newest two checkpoints stay,
with all that is behind the older one: should the newer one be damaged, a start begins from that.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from exactlog.core.deltalog.log_path import CompactedName
from exactlog.core.deltalog.version_ranges import VersionRanges
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import DeltaVersion

PACK_VERSIONS: Final = 1_000
"""How many versions a pack holds. A thousand files become one of half a megabyte, with usual commits: small enough to
be read through for one of them, and a million versions make no more packs than the newest ones make files."""

CHECKPOINTS_KEPT: Final = 2
"""The newest checkpoints that stay whatever happens: should one be damaged, the other is there."""


# --- packing -----------------------------------------------------------------------------------------------------


class PackPlan(Struct, frozen=True, kw_only=True):
    """A range of versions whose commits go into one pack, both ends inclusive."""

    first_version: DeltaVersion
    last_version: DeltaVersion


def find_first_unpacked(
    loose_versions: Iterable[DeltaVersion],
    *,
    oldest_version: DeltaVersion,
    newest_version: DeltaVersion,
    pack_versions: int = PACK_VERSIONS,
) -> DeltaVersion:
    """The first version of the range that is packed next: that of the oldest version with a file of its own.

    A packing that did not come to its end has left such files: its range is found again.

    Args:
        loose_versions: those with a file of their own.
        oldest_version: the oldest one from which on all commits are there; vacuum may have left files below it.
        newest_version: the newest one.
        pack_versions: how many versions a pack holds.
    """
    oldest_loose = min(
        (version for version in loose_versions if version >= oldest_version), default=DeltaVersion(newest_version + 1)
    )
    return max(oldest_version, DeltaVersion(oldest_loose - oldest_loose % pack_versions))


def plan_pack(
    first_version: DeltaVersion,
    *,
    newest_version: DeltaVersion,
    checkpoint_version: DeltaVersion | None,
    versions_keep: int,
    pack_versions: int = PACK_VERSIONS,
) -> PackPlan | None:
    """The next range to pack; None while it is not old enough, or no checkpoint lies at or behind its end.

    Ranges end where the next multiple of `pack_versions` is next. All begin at one, but the first that vacuum has left.

    Args:
        first_version: the first version that is not packed; see `find_first_unpacked`.
        newest_version: the newest one.
        checkpoint_version: of the newest durable checkpoint; None where there is none.
        versions_keep: how many of the newest versions keep a file of their own (`delta.versions.keep`).
        pack_versions: how many versions a pack holds.
    """
    last_version = DeltaVersion(first_version - first_version % pack_versions + pack_versions - 1)
    if checkpoint_version is None or checkpoint_version < last_version:
        return None
    if newest_version - last_version < versions_keep:
        return None
    return PackPlan(first_version=first_version, last_version=last_version)


def find_superfluous_checkpoints(
    plan: PackPlan, checkpoints: Iterable[DeltaVersion], *, kept_from: DeltaVersion
) -> list[DeltaVersion]:
    """The checkpoints that go when a range is packed: all within it but the first.

    No start needs them any more. The first one stays for the versions behind it, so that they can be rebuilt when what
    is before it expires.

    Args:
        plan: the range.
        checkpoints: the versions that have one.
        kept_from: the older one of the newest two that are good; from there on all stay.
    """
    within = sorted(version for version in checkpoints if plan.first_version <= version <= plan.last_version)
    return [version for version in within[1:] if version < kept_from]


# --- vacuum ------------------------------------------------------------------------------------------------------


class VacuumPlan(Struct, frozen=True, kw_only=True):
    """What expires.

    Attributes:
        oldest_version: the oldest version that stays.
        commits: the versions whose own files go.
        packs: the packs that go.
        checkpoints: the versions whose checkpoints go.
    """

    oldest_version: DeltaVersion
    commits: tuple[DeltaVersion, ...]
    packs: tuple[CompactedName, ...]
    checkpoints: tuple[DeltaVersion, ...]


class NothingToExpire(Struct, frozen=True):
    """Every version stays, and why."""

    reason: str


def find_cutoff(newest_version: DeltaVersion, *, versions_keep: int) -> DeltaVersion:
    """The oldest version that must stay where the newest `versions_keep` are kept.

    Raises:
        InvariantError: not even the newest version is kept.
    """
    if versions_keep < 1:
        raise InvariantError(f"vacuum keeps at least one version, not {versions_keep}")
    return DeltaVersion(newest_version - versions_keep + 1)


def plan_vacuum(
    *,
    cutoff: DeltaVersion,
    commits: Sequence[DeltaVersion],
    packs: Sequence[CompactedName],
    checkpoints: Sequence[DeltaVersion],
    base_checkpoint: DeltaVersion | None,
    newest_checkpoints: Sequence[DeltaVersion],
) -> VacuumPlan | NothingToExpire:
    """What expires where the versions from `cutoff` on are kept.

    They begin with a checkpoint, at or below the cutoff; it stays, and all commits from its own on. So do the newest
    two checkpoints and the commits behind the older one. A pack goes whole or stays whole.

    Args:
        cutoff: see `find_cutoff`.
        commits: the versions with a file of their own.
        packs: the packs.
        checkpoints: the versions that have a checkpoint, damaged ones included.
        base_checkpoint: the newest one at or below the cutoff that is not damaged; None where there is none.
        newest_checkpoints: the newest two that a start could begin from; fewer where there are not so many.
    """
    if not any(version < cutoff for version in commits) and not any(pack.first_version < cutoff for pack in packs):
        return NothingToExpire("there are no older versions")
    if base_checkpoint is None:
        return NothingToExpire(
            f"no good checkpoint lies at or below version {cutoff}: what is kept must begin with one"
        )
    if len(newest_checkpoints) < CHECKPOINTS_KEPT:
        return NothingToExpire(f"there are fewer than {CHECKPOINTS_KEPT} good checkpoints to start from")
    floor = min(base_checkpoint, *newest_checkpoints)
    kept_packs = [pack for pack in packs if pack.last_version >= floor]
    oldest = min([floor, *(pack.first_version for pack in kept_packs)])
    plan = VacuumPlan(
        oldest_version=oldest,
        commits=tuple(sorted(version for version in commits if version < oldest)),
        packs=tuple(sorted((pack for pack in packs if pack.last_version < floor), key=_first_version)),
        checkpoints=tuple(sorted(version for version in checkpoints if version < oldest)),
    )
    if not plan.commits and not plan.packs:
        return NothingToExpire(f"what is kept begins with version {oldest}, the oldest one there is")
    return plan


def count_expired(plan: VacuumPlan, *, commits: Sequence[DeltaVersion], packs: Sequence[CompactedName]) -> int:
    """How many versions are gone when a plan is carried out."""
    gone, gone_packs = set(plan.commits), set(plan.packs)
    left = VersionRanges(
        (version for version in commits if version not in gone), (pack for pack in packs if pack not in gone_packs)
    )
    return len(VersionRanges(commits, packs)) - len(left)


def _first_version(pack: CompactedName) -> DeltaVersion:
    return pack.first_version
