"""The versions of a table that are still there: looked up by number, by time, by what they added.

Each look-up reads about log2 of them. Vacuum may go on meanwhile: what it takes away is told as such, with the oldest
version that is left, and a search that meets it is made again over what is left.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from exactlog.core.deltalog.as_of import (
    VersionExpired,
    VersionFound,
    VersionUnknown,
    find_first_version,
    find_version,
    find_version_at,
)
from exactlog.core.deltalog.commit_format import DeltaCommit
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.model.errors import DamageError, VersionExpiredError, VersionUnknownError
from exactlog.core.model.ids import DeltaVersion, Offset, TimestampMs
from exactlog.storage.delta_log_files import DeltaLogFiles

T = TypeVar("T")


class VersionBounds(Struct, frozen=True, gc=False):
    """What a reader of a version could see: the offsets from its log start to its end, exclusive; and since when.

    Below `last_stable_offset` every transaction was decided.
    """

    version: DeltaVersion
    timestamp: str
    log_start_offset: Offset
    last_stable_offset: Offset
    end_offset: Offset


class TableVersions:
    """The versions of one table.

    Attributes:
        newest: the newest one that the reader knows of.
    """

    def __init__(self, delta_log: DeltaLogFiles, *, table: str, newest: DeltaVersion) -> None:
        self._delta_log = delta_log
        self._table = table
        self.newest = newest

    @property
    def oldest(self) -> DeltaVersion:
        """The oldest one that can still be read."""
        return self._delta_log.oldest_version

    def commits(self, *, limit: int | None, newest_first: bool) -> Iterator[DeltaCommit]:
        """The delta commits that are still there, each read when it is asked for; with `limit` the newest so many.

        Raises:
            VersionExpiredError: one that is still to come has been vacuumed meanwhile.
        """
        newest, oldest = self.newest, self.oldest
        if limit is not None:
            oldest = DeltaVersion(max(oldest, newest - limit + 1))
        numbers: Iterable[int] = range(newest, oldest - 1, -1) if newest_first else range(oldest, newest + 1)
        for version in map(DeltaVersion, numbers):
            if version in self._delta_log.versions:  # else a checkpoint stands in for it
                yield self.commit(version)

    def commit(self, version: DeltaVersion) -> DeltaCommit:
        """The delta commit of a version that was there.

        Raises:
            VersionExpiredError: it has been vacuumed since.
            DamageError: it is damaged.
        """
        try:
            return self._delta_log.read_commit(version)[0].commit
        except DamageError:
            if version < self.oldest:
                raise VersionExpiredError(self._table, oldest=self.oldest) from None
            raise

    def bounds(self, version: int) -> VersionBounds:
        """What a version could see.

        Raises:
            VersionExpiredError, VersionUnknownError: that version cannot be read.
        """
        number = DeltaVersion(version)
        match find_version(number, oldest=self.oldest, newest=self.newest):
            case VersionExpired(oldest=oldest):
                raise VersionExpiredError(self._table, oldest=oldest)
            case VersionUnknown(newest=newest):
                raise VersionUnknownError(self._table, newest=newest)
            case VersionFound():
                return self._bounds(number)

    def at(self, timestamp_ms: int) -> DeltaVersion:
        """The version that was the newest at a time, in milliseconds since the epoch.

        Raises:
            VersionExpiredError: the time is before the oldest version that can be read.
        """
        found = self._search(
            lambda: find_version_at(
                TimestampMs(timestamp_ms),
                oldest=self.oldest,
                newest=self.newest,
                timestamp_of=lambda version: parse_timestamp(self._bounds(version).timestamp),
            )
        )
        if isinstance(found, VersionExpired):
            raise VersionExpiredError(self._table, oldest=found.oldest)
        return found.version

    def first_from(self, log_start_offset: int) -> DeltaVersion:
        """The first version that begins at a log start, which is that of the newest, or behind it."""
        found = self._first(lambda bounds: bounds.log_start_offset >= log_start_offset)
        return self.newest if found is None else found

    def first_added(self, version: int) -> Offset:
        """The first offset that a version or a later one added: the end of the version before.

        Raises:
            VersionExpiredError, VersionUnknownError: that version is not there any more, or not yet.
        """
        self.bounds(version)
        if version > self.oldest:
            return self.bounds(version - 1).end_offset
        if DeltaVersion(version) not in self._delta_log.versions:  # a checkpoint stands in for it
            raise VersionExpiredError(self._table, oldest=self.oldest + 1)
        return _first_added(self.commit(DeltaVersion(version)))

    def that_ends_behind(self, offset: int) -> tuple[VersionBounds, DeltaCommit | None] | None:
        """The first version that ends behind an offset; without its commit where that is gone, None where none does."""
        version = self._first(lambda bounds: bounds.end_offset > offset)
        if version is None:
            return None
        return self._bounds(version), self.commit(version) if version in self._delta_log.versions else None

    def _first(self, holds: Callable[[VersionBounds], bool]) -> DeltaVersion | None:
        return self._search(
            lambda: find_first_version(
                oldest=self.oldest, newest=self.newest, holds=lambda version: holds(self._bounds(version))
            )
        )

    def _search(self, search: Callable[[], T]) -> T:
        while True:
            try:
                return search()
            except VersionExpiredError:
                continue  # there are fewer now

    def _bounds(self, version: DeltaVersion) -> VersionBounds:
        if version in self._delta_log.versions:
            commit = self.commit(version)
            return VersionBounds(
                version, commit.timestamp, commit.log_start_offset, commit.last_stable_offset, commit.end_offset
            )
        checkpoint = self._delta_log.read_checkpoint(version)
        return VersionBounds(
            version,
            checkpoint.timestamp,
            checkpoint.log_start_offset,
            checkpoint.last_stable_offset,
            checkpoint.next_offset,
        )


class AddingVersions:
    """Which version added a record, for records in rising order of offsets: one commit is read for each version."""

    def __init__(self, versions: TableVersions) -> None:
        self._versions = versions
        self._commit: DeltaCommit | None = None
        self._first_added = 0
        self._end_offset = 0  # below it, no other commit needs to be looked at

    def of(self, offset: int) -> DeltaCommit | None:
        """The commit of the version that added an offset; None when it is no longer there."""
        if offset >= self._end_offset:
            self._find(offset)
        return self._commit if self._first_added <= offset else None

    def _find(self, offset: int) -> None:
        commit = self._following(offset)
        if commit is None:
            found = self._versions.that_ends_behind(offset)
            if found is None or found[1] is None:
                self._commit, self._end_offset = None, offset + 1 if found is None else found[0].end_offset
                return
            commit = found[1]
        self._commit, self._end_offset = commit, commit.end_offset
        self._first_added = _first_added(commit)

    def _following(self, offset: int) -> DeltaCommit | None:
        """The commit that added an offset, if it is behind the last one that was found."""
        commit = self._commit
        try:
            while commit is not None and commit.end_offset <= offset:
                commit = self._versions.commit(DeltaVersion(commit.version + 1))
        except VersionExpiredError:
            return None
        return commit


def _first_added(commit: DeltaCommit) -> Offset:
    """The first offset that a commit added; its end where it added none: adds follow each other up to the end."""
    return commit.appends[0].offset_start if commit.appends else commit.end_offset
