"""The delta versions of a partition that are decided and not yet published: numbered, in order, at most the last open.

What is appended joins the open version. A version is closed when its document is made, or earlier, when somebody is to
be told its number as the one to expect next. A removal or a change of settings is a version of its own.
"""

from collections.abc import Sequence

from msgspec import Struct

from exactlog.core.deltalog.commit_format import TableMetadata
from exactlog.core.deltalog.table_state import TableSegment
from exactlog.core.model.errors import InvariantError
from exactlog.storage.group import Group
from exactlog.storage.segment import Segment


class Rewriting(Struct, frozen=True):
    """A segment that compaction has written, and those in whose place it goes: one or more that follow each other."""

    removed: Sequence[TableSegment]
    added: Segment


class TableChange(Struct, frozen=True, kw_only=True):
    """What a version does besides adding: moves the log start, takes the oldest segments away, says anew what it is.

    Or it puts rewritten segments in the place of others; `data_crc` is the CRC-32C of their bytes, in order.
    """

    log_start_offset: int | None = None
    removed: Sequence[TableSegment] = ()
    metadata: TableMetadata | None = None
    rewritten: Sequence[Rewriting] = ()
    data_crc: int = 0


class PendingVersion:
    """One version: groups, the first `committed` of which are committed, or a change of the table.

    `crc` is the CRC-32C of the committed groups' bytes: those are no longer kept (`interval` and `none`).
    """

    __slots__ = ("change", "committed", "crc", "groups", "is_closed", "number")

    def __init__(self, number: int, change: TableChange | None = None) -> None:
        self.number = number
        self.change = change
        self.groups: list[Group] = []
        self.committed = 0
        self.crc = 0
        self.is_closed = change is not None

    @property
    def uncommitted_groups(self) -> list[Group]:
        """The groups that no round has carried out yet."""
        return self.groups[self.committed :]

    @property
    def data_crc(self) -> int:
        """CRC-32C of the bytes of all groups, or of those that a change puts in the place of others."""
        crc = self.crc if self.change is None else self.change.data_crc
        for group in self.uncommitted_groups:
            crc = group.data_crc(crc)
        return crc


class PendingVersions:
    """The queue of a partition's pending versions.

    Attributes:
        newest: the number of the newest version that is decided, open or not.
    """

    def __init__(self, published: int) -> None:
        self.newest = published
        self._versions: list[PendingVersion] = []

    def __bool__(self) -> bool:
        return bool(self._versions)

    @property
    def closed_version(self) -> int:
        """The newest version that nothing can join any more."""
        return self.newest - self.is_forming

    @property
    def is_forming(self) -> bool:
        """Whether a version is open."""
        return bool(self._versions) and not self._versions[-1].is_closed

    @property
    def has_publishable(self) -> bool:
        """Whether the first version holds something that is committed and has no name yet."""
        return bool(self._versions) and (self._versions[0].committed > 0 or self._versions[0].change is not None)

    def open(self) -> PendingVersion:
        """The version that appends join now."""
        return self._versions[-1] if self.is_forming else self._append(PendingVersion(self.newest + 1))

    def close(self) -> None:
        """Nothing joins the open version any more."""
        if self._versions:
            self._versions[-1].is_closed = True

    def change(self, change: TableChange) -> PendingVersion:
        """A change of the table as a version of its own, behind all that is decided."""
        self.close()
        return self._append(PendingVersion(self.newest + 1, change))

    def uncommitted_groups(self) -> list[Group]:
        """All groups that wait for their round, in order."""
        return [group for version in self._versions for group in version.groups[version.committed :]]

    def commit_next(self) -> None:
        """One more group is committed; its bytes need not be kept, only what its version will say of it."""
        for version in self._versions:
            if version.committed < len(version.groups):
                break
        else:
            raise InvariantError("a group is committed, and no version holds it")
        group = version.groups[version.committed]
        version.crc = group.data_crc(version.crc)
        group.buffers, group.batches = [], []
        version.committed += 1

    def take_all(self) -> list[PendingVersion]:
        """All of them, for a round that publishes what it commits."""
        taken, self._versions = self._versions, []
        return taken

    def take_committed(self) -> list[PendingVersion]:
        """Those that are committed whole; what is committed of an open one becomes a version without the rest."""
        taken = []
        while self._versions and self.has_publishable:
            version = self._versions[0]
            if version.committed < len(version.groups):
                if version.is_closed:
                    break
                rest = PendingVersion(version.number + 1)
                rest.groups = version.uncommitted_groups
                del version.groups[version.committed :]
                self._versions.append(rest)
                self.newest += 1
            taken.append(self._versions.pop(0))
        return taken

    def put_back(self, versions: Sequence[PendingVersion]) -> None:
        """What was taken last, and could not be published; whatever was decided since stands behind it."""
        self._versions = [*versions, *self._versions]

    def reset(self, published: int, put_back: Sequence[PendingVersion] = ()) -> None:
        """Keeps what is committed and forgets the rest; `put_back` was taken, and nothing came of it."""
        kept = [version for version in (*put_back, *self._versions) if version.committed]
        self._versions = []
        self.newest = published
        for version in kept:
            del version.groups[version.committed :]
            version.number = self.newest + 1
            self._append(version)

    def _append(self, version: PendingVersion) -> PendingVersion:
        self._versions.append(version)
        self.newest = version.number
        return version
