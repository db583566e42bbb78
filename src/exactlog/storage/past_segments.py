"""The segments that a table had as of an earlier version, where compaction has put others in their place since.

Without compaction a table only grows, and loses its oldest segments whole: then what it has now is what it had. The
files of segments that were replaced stay until they may go as those of removed ones do; the version that can no longer
be read then is named, never read short.
"""

from collections.abc import Sequence

from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.table_segments import TableSegment, is_rewritten
from exactlog.core.deltalog.table_state import TableSnapshot, TableState
from exactlog.core.model.errors import DamageError, VersionExpiredError
from exactlog.core.model.ids import NO_TIMESTAMP, DeltaVersion
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.segment import Segment, SegmentFiles

Layout = tuple[Sequence[Segment], Sequence[TableSegment]]
"""Segments for reading, and what the table says of each; in the order of offsets."""


class PastSegments:
    """Finds them, and keeps those of the version that was asked for last."""

    def __init__(self, files: SegmentFiles, directory: str, delta_log: DeltaLogFiles, *, table: str) -> None:
        self._files = files
        self._directory = directory
        self._delta_log = delta_log
        self._table = table
        self._last: tuple[DeltaVersion, DeltaVersion, Layout] | None = None

    def of(self, version: DeltaVersion, snapshot: TableSnapshot, segments: Sequence[Segment]) -> Layout:
        """What to read a version from.

        Args:
            version: one that is there, not behind the newest.
            snapshot: the table as of the newest version.
            segments: those of the newest version.

        Raises:
            VersionExpiredError: files of segments that were replaced are gone; names the oldest version that is whole.
            DamageError: a delta commit on the way is damaged.
        """
        if version == snapshot.version or not any(is_rewritten(entry.name) for entry in snapshot.segments):
            return segments, snapshot.segments
        if self._last is None or self._last[:2] != (version, snapshot.version):
            self._last = version, snapshot.version, self._find(version, snapshot, segments)
        return self._last[2]

    def _find(self, version: DeltaVersion, snapshot: TableSnapshot, segments: Sequence[Segment]) -> Layout:
        now = {entry.name: (segment, entry) for segment, entry in zip(segments, snapshot.segments, strict=True)}
        first_left = snapshot.segments[0].base if snapshot.segments else snapshot.next_offset
        found = []
        for entry in self._table_at(version).segments:
            if entry.next_offset <= first_left:
                continue  # removed since: whoever asks for its records is told so
            if entry.name not in now:
                self._refuse_gone(entry, version, snapshot.version)
            found.append(now.get(entry.name) or (self._files.attach(self._directory, _unindexed(entry)), entry))
        return [segment for segment, _ in found], [entry for _, entry in found]

    def _table_at(self, version: DeltaVersion) -> TableState:
        state = TableState(table=self._table)
        for checkpoint_version in sorted(self._delta_log.checkpoint_versions, reverse=True):
            if checkpoint_version > version:
                continue
            try:
                checkpoint = self._delta_log.read_checkpoint(checkpoint_version)
            except DamageError:
                continue
            state = TableState.from_checkpoint(checkpoint, table=self._table)
            break
        while state.version < version:
            state.replay(self._delta_log.read_commit(DeltaVersion(state.version + 1))[0])
        return state

    def _refuse_gone(self, entry: TableSegment, version: DeltaVersion, newest: DeltaVersion) -> None:
        """Raises VersionExpiredError where the file of a segment is gone: behind the last version that let one go."""
        if self._files.filesystem.exists(f"{self._directory}/{entry.name}"):
            return
        for later in map(DeltaVersion, range(newest, version, -1)):
            commit = self._delta_log.read_commit(later)[0].commit
            removed = [operation.segment for operation in commit.operations if operation.type == "remove"]
            if commit.is_rewriting and not all(
                self._files.filesystem.exists(f"{self._directory}/{name}") for name in removed
            ):
                raise VersionExpiredError(self._table, oldest=later)
        raise DamageError(f"{self._directory}/{entry.name} is missing", hint="restore the file from a copy")


def _unindexed(entry: TableSegment) -> SegmentEntry:
    """A segment for reading, of whose index files nothing is known."""
    return SegmentEntry(
        name=entry.name,
        base=entry.base,
        next_offset=entry.next_offset,
        size=entry.size,
        max_timestamp=NO_TIMESTAMP,
        index_entries=0,
        time_index_entries=0,
    )
