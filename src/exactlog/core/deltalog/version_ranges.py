"""A set of versions, kept as the runs without a gap that they form.

A directory names a hundred thousand versions by a thousand files and some packs; whether one of them is there, and
where the run it is in begins, is answered by a binary search over the runs: one, where nothing is missing.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from msgspec import Struct

from exactlog.core.deltalog.log_path import CompactedName
from exactlog.core.model.ids import DeltaVersion


class VersionRun(Struct, frozen=True):
    """Versions that follow each other, both ends inclusive."""

    first_version: DeltaVersion
    last_version: DeltaVersion


class VersionRanges:
    """The versions of some single names and of some packs.

    Attributes:
        runs: in rising order, with a gap between one and the next.
    """

    __slots__ = ("runs",)

    def __init__(self, versions: Iterable[DeltaVersion] = (), packs: Iterable[CompactedName] = ()) -> None:
        self.runs: list[VersionRun] = []
        spans = [(version, version) for version in versions]
        spans += [(pack.first_version, pack.last_version) for pack in packs]
        for first_version, last_version in sorted(spans):
            self._add(first_version, last_version)

    def __contains__(self, version: DeltaVersion) -> bool:
        return self.run_of(version) is not None

    def __iter__(self) -> Iterator[DeltaVersion]:
        for run in self.runs:
            yield from map(DeltaVersion, range(run.first_version, run.last_version + 1))

    def __len__(self) -> int:
        return sum(run.last_version - run.first_version + 1 for run in self.runs)

    def __bool__(self) -> bool:
        return bool(self.runs)

    def run_of(self, version: DeltaVersion) -> VersionRun | None:
        """The run that a version is in; None where it is not there."""
        index = bisect_right(self.runs, version, key=_first_version) - 1
        if index < 0 or self.runs[index].last_version < version:
            return None
        return self.runs[index]

    def add_newest(self, version: DeltaVersion) -> None:
        """Takes in one more version, not below any that is there."""
        self._add(version, version)

    def _add(self, first_version: DeltaVersion, last_version: DeltaVersion) -> None:
        before = self.runs[-1] if self.runs else None
        if before is None or first_version > before.last_version + 1:
            self.runs.append(VersionRun(first_version, last_version))
        elif last_version > before.last_version:
            self.runs[-1] = VersionRun(before.first_version, last_version)


def _first_version(run: VersionRun) -> DeltaVersion:
    return run.first_version
