"""Reading a partition's directory as a versioned table: no broker, no lock, nothing changed.

A reader sees what has been published when it opens the table, also beside a running broker. As of a version it reads
what that version could: offsets below the version's end, from its log start on. What retention or vacuum took since is
a typed error that names the oldest version that can still be read, never a short read.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from exactlog.core.deltalog.as_of import VersionExpired, VersionFound, VersionUnknown, find_version, find_version_at
from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.commit_format import DeltaCommit, TableMetadata
from exactlog.core.deltalog.log_path import parse_partition_directory_name
from exactlog.core.deltalog.table_state import TableSegment, TableSnapshot, TableState
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.model.errors import DamageError, OffsetOutOfRangeError, VersionExpiredError, VersionUnknownError
from exactlog.core.model.ids import DeltaVersion, TimestampMs
from exactlog.core.record.batch_format import BatchHeader, crc_is_valid
from exactlog.core.record.record_format import Record, decode_records
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import Filesystem, OsFilesystem
from exactlog.storage.log_reading import segment_of
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment import Segment, SegmentFiles

_OPEN_FILES_MAX = 16


class StoredRecord(Struct, frozen=True):
    """A record, the header of the batch it came in, and the delta version that added it (None: no longer known)."""

    record: Record
    batch: BatchHeader
    delta_version: DeltaVersion | None


def find_tables(data_dir: Path) -> list[Path]:
    """The partition directories of a data directory, by name."""
    return sorted(
        path for path in data_dir.iterdir() if parse_partition_directory_name(path.name) is not None and path.is_dir()
    )


def open_table(path: Path, *, filesystem: Filesystem | None = None) -> "TableReader":
    """The table of a partition directory, as it is now.

    Raises:
        DamageError: it cannot be read; names the file, the version and what to do.
    """
    return TableReader(filesystem or OsFilesystem(), os.fspath(path))


class TableReader:
    """A table at its newest published version, and at all earlier ones that are still there."""

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        directory = directory.rstrip("/")
        self.name = directory.rpartition("/")[2]
        self._delta_log = DeltaLogFiles(filesystem, directory)
        checkpoint = self._delta_log.newest_checkpoint()
        if checkpoint is None:
            state = TableState(table=self.name)
        else:
            state = TableState.from_checkpoint(checkpoint, table=self.name)
        for decoded in self._delta_log.commits_after(state.version):
            state.replay(decoded)
        self._snapshot = state.freeze()
        known = {entry.name: entry for entry in checkpoint.segments} if checkpoint else {}
        open_files = OpenFiles(filesystem, files_max=_OPEN_FILES_MAX, read_only=True)
        files = SegmentFiles(filesystem, open_files, is_read_only=True)
        self._segments = [
            files.attach(directory, _entry(segment, known.get(segment.name))) for segment in self._snapshot.segments
        ]

    @property
    def metadata(self) -> TableMetadata:
        """What the table is: topic, partition, topic id, configuration."""
        return self._snapshot.metadata

    @property
    def oldest_version(self) -> DeltaVersion:
        """The oldest version that can still be read."""
        return self._delta_log.oldest_version

    def snapshot(self) -> TableSnapshot:
        """The table as of the newest version."""
        return self._snapshot

    def versions(self, *, limit: int | None = None, newest_first: bool = False) -> Iterator[DeltaCommit]:
        """The delta commits that are still there, each read when it is asked for; with `limit` the newest so many."""
        newest, oldest = self._snapshot.version, self.oldest_version
        if limit is not None:
            oldest = DeltaVersion(max(oldest, newest - limit + 1))
        numbers: Iterable[int] = range(oldest, newest + 1)
        for number in reversed(list(numbers)) if newest_first else numbers:
            yield self._commit(DeltaVersion(number))

    def version_at(self, timestamp_ms: int) -> DeltaVersion:
        """The version that was the newest at a time, in milliseconds since the epoch.

        Raises:
            VersionExpiredError: the time is before the oldest version that can be read.
        """
        found = find_version_at(
            TimestampMs(timestamp_ms),
            oldest=self.oldest_version,
            newest=self._snapshot.version,
            timestamp_of=lambda version: parse_timestamp(self._commit(version).timestamp),
        )
        if isinstance(found, VersionExpired):
            raise VersionExpiredError(self.name, oldest=found.oldest)
        return found.version

    def read(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        as_of_timestamp: int | None = None,
    ) -> Iterator[Record]:
        """The data records from an offset up to another (exclusive), as of a version or a time; see `read_stored`."""
        stored = self.read_stored(from_offset, to_offset, as_of_version=as_of_version, as_of_timestamp=as_of_timestamp)
        return (found.record for found in stored)

    def read_stored(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        as_of_timestamp: int | None = None,
    ) -> Iterator["StoredRecord"]:
        """The data records from an offset up to another (exclusive), as of a version or a time; the newest by default.

        Args:
            as_of_timestamp: in milliseconds since the epoch.

        Raises:
            VersionExpiredError, VersionUnknownError: that version cannot be read.
            OffsetOutOfRangeError: records that the version had have been removed since.
            DamageError: the bytes are not what was committed.
        """
        if as_of_timestamp is not None:
            as_of_version = self.version_at(as_of_timestamp)
        start, end = self._bounds(as_of_version)
        if start < self._snapshot.log_start_offset and from_offset < self._snapshot.log_start_offset:
            raise OffsetOutOfRangeError(self.name, oldest=self._snapshot.log_start_offset)
        if to_offset is not None:
            end = min(end, to_offset)
        return self._records(max(from_offset, start), end)

    def version_of(self, offset: int) -> DeltaCommit | None:
        """The delta commit that added an offset; None when it is no longer there. Reads O(log n) commits."""
        low, high = self.oldest_version, self._snapshot.version
        while low < high:
            middle = DeltaVersion((low + high) // 2)
            low, high = (low, middle) if self._commit(middle).end_offset > offset else (DeltaVersion(middle + 1), high)
        commit = self._commit(low)
        is_added = any(op.type == "add" and op.offset_start <= offset <= op.offset_end for op in commit.operations)
        return commit if is_added else None

    def _bounds(self, as_of_version: int | None) -> tuple[int, int]:
        if as_of_version is None:
            return self._snapshot.log_start_offset, self._snapshot.next_offset
        version = DeltaVersion(as_of_version)
        match find_version(version, oldest=self.oldest_version, newest=self._snapshot.version):
            case VersionExpired(oldest=oldest):
                raise VersionExpiredError(self.name, oldest=oldest)
            case VersionUnknown(newest=newest):
                raise VersionUnknownError(self.name, newest=newest)
            case VersionFound():
                commit = self._commit(version)
                return commit.log_start_offset, commit.end_offset

    def _commit(self, version: DeltaVersion) -> DeltaCommit:
        return self._delta_log.read_commit(version)[0].commit

    def _records(self, start: int, end: int) -> Iterator["StoredRecord"]:
        if start >= end or not self._segments:
            return
        commit: DeltaCommit | None = None
        for segment in self._segments[segment_of(self._segments, start) :]:
            if segment.base_offset >= end:
                return
            for record, batch in _records_of(segment, start, end):
                if commit is None or record.offset >= commit.end_offset:
                    commit = self.version_of(record.offset)
                yield StoredRecord(record, batch, commit.version if commit else None)


def _records_of(segment: Segment, start: int, end: int) -> Iterator[tuple[Record, BatchHeader]]:
    if start >= segment.next_offset:
        return
    position = segment.locate(start)[0] if start > segment.base_offset else 0
    for at, header in segment.headers_from(position):
        if header.base_offset >= end:
            return
        if header.is_control:
            continue
        batch = segment.read_batch(at, header)
        if len(batch) < header.size_bytes:
            raise DamageError(f"{segment.path} ends inside the batch at byte {at}")
        if not crc_is_valid(batch):
            raise DamageError(f"{segment.path}: the batch at byte {at} does not match its checksum")
        for record in decode_records(batch):
            if start <= record.offset < end:
                yield record, header


def _entry(segment: TableSegment, known: SegmentEntry | None) -> SegmentEntry:
    """A segment for reading, with the index rows that the checkpoint says are good."""
    return SegmentEntry(
        name=segment.name,
        base=segment.base,
        next_offset=segment.next_offset,
        size=segment.size,
        max_timestamp=known.max_timestamp if known else TimestampMs(-1),
        index_entries=known.index_entries if known else 0,
        time_index_entries=known.time_index_entries if known else 0,
    )
