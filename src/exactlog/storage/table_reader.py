"""Reading a partition's directory as a versioned table: no broker, no lock, nothing changed.

A reader sees what had been published when it opened the table, or when it was last refreshed, also beside a running
broker. As of a version it reads what that version could: offsets from its log start on, below its end, or with
READ_COMMITTED below its last stable offset and without aborted transactions. What retention or vacuum took since is a
typed error that names the oldest version that can still be read, never a short read.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.commit_format import DeltaCommit, TableMetadata
from exactlog.core.deltalog.log_path import parse_partition_directory_name
from exactlog.core.deltalog.table_state import TableSegment, TableSnapshot, TableState
from exactlog.core.model.errors import DamageError, OffsetOutOfRangeError, VersionExpiredError
from exactlog.core.model.ids import DeltaVersion, Offset, TimestampMs
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.record_format import Record, decode_records
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import Filesystem, OsFilesystem
from exactlog.storage.log_reading import segment_of
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.past_segments import PastSegments
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.table_versions import AddingVersions, TableVersions, VersionBounds
from exactlog.storage.transaction_fates import StoredBatch, TransactionFates

_OPEN_FILES_MAX = 16


class TableBatch(Struct, frozen=True):
    """A batch of which a reader sees records: those with offsets from `start_offset` to below `end_offset`.

    Attributes:
        header: as stored.
        content: the whole batch, its checksum checked.
    """

    header: BatchHeader
    content: bytes
    start_offset: int
    end_offset: int


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
        self._directory = directory.rstrip("/")
        self.name = self._directory.rpartition("/")[2]
        self._delta_log = DeltaLogFiles(filesystem, self._directory)
        open_files = OpenFiles(filesystem, files_max=_OPEN_FILES_MAX, read_only=True)
        self._files = SegmentFiles(filesystem, open_files, is_read_only=True)
        self._past = PastSegments(self._files, self._directory, self._delta_log, table=self.name)
        self._known_rows: Mapping[str, SegmentEntry] = {}
        self._segments: list[Segment] = []
        self._state: TableState | None = self._load()
        self._snapshot = self._state.freeze()
        self._versions = TableVersions(self._delta_log, table=self.name, newest=self._snapshot.version)
        self._attach_segments()

    @property
    def metadata(self) -> TableMetadata:
        """What the table is: topic, partition, topic id, configuration."""
        return self._snapshot.metadata

    @property
    def oldest_version(self) -> DeltaVersion:
        """The oldest version that can still be read."""
        return self._versions.oldest

    def snapshot(self) -> TableSnapshot:
        """The table as of the newest version."""
        return self._snapshot

    def refresh(self) -> None:
        """Goes on to the newest version that is published by now; reads what is new of the delta log, nothing else.

        Records that are being read stay those of the version they are read as of.

        Raises:
            DamageError: a new version is damaged; the table stays as it was.
        """
        state, self._state = self._state, None  # until all is well: a state that met damage is not to be used any more
        if state is None or not self._follow(state):
            self._delta_log.list_names()
            state = self._load()
        self._state = state
        if state.version != self._snapshot.version:
            self._snapshot = state.freeze()
            self._versions.newest = state.version
            self._attach_segments()

    def versions(self, *, limit: int | None = None, newest_first: bool = False) -> Iterator[DeltaCommit]:
        """The delta commits that are still there, each read when it is asked for; with `limit` the newest so many."""
        return self._versions.commits(limit=limit, newest_first=newest_first)

    def version_at(self, timestamp_ms: int) -> DeltaVersion:
        """The version that was the newest at a time, in milliseconds since the epoch.

        Raises:
            VersionExpiredError: the time is before the oldest version that can be read.
        """
        return self._versions.at(timestamp_ms)

    def version_of(self, offset: int) -> DeltaCommit | None:
        """The delta commit that added an offset; None when it is no longer there. Reads O(log n) commits."""
        return AddingVersions(self._versions).of(offset)

    def read(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        as_of_timestamp: int | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        include_control: bool = False,
    ) -> Iterator[Record]:
        """The records from an offset up to another (exclusive), as of a version or a time; the newest by default.

        Args:
            as_of_timestamp: in milliseconds since the epoch.
            isolation: with READ_COMMITTED, records of transactions that were aborted are left out, and so is all from
                the first one on that was open as of that version: whatever became of it since, it is never seen there.
            include_control: whether the markers of transactions come too.

        Raises:
            VersionExpiredError, VersionUnknownError: that version cannot be read.
            OffsetOutOfRangeError: records that the version had have been removed since.
            DamageError: the bytes are not what was committed.
        """
        bounds = self.bounds(as_of_version, as_of_timestamp)
        extent = self._extent(bounds, from_offset, to_offset, isolation, include_control=include_control)
        return (record for record, _ in self._records(extent))

    def read_stored(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        as_of_timestamp: int | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        include_control: bool = False,
    ) -> Iterator["StoredRecord"]:
        """As `read`, with what is known of each record besides; to name its version, each delta commit is read too."""
        bounds = self.bounds(as_of_version, as_of_timestamp)
        extent = self._extent(bounds, from_offset, to_offset, isolation, include_control=include_control)
        found = self._records(extent)
        adding = AddingVersions(self._versions)
        return (
            StoredRecord(record, batch, commit.version if (commit := adding.of(record.offset)) else None)
            for record, batch in found
        )

    # --- batches ------------------------------------------------------------------------------------------------

    def read_batches(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        include_control: bool = False,
    ) -> Iterator[TableBatch]:
        """The batches that `read` takes those records from, whole and as stored; errors as there."""
        bounds = self.bounds(as_of_version)
        extent = self._extent(bounds, from_offset, to_offset, isolation, include_control=include_control)
        return self._read(extent)

    def count_records(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        include_control: bool = False,
    ) -> int:
        """How many records `read` gives, from the headers of batches; a batch is read only where a range cuts it.

        Raises:
            DecodeError: such a batch is malformed; the rest as `read`.
        """
        bounds = self.bounds(as_of_version)
        extent = self._extent(bounds, from_offset, to_offset, isolation, include_control=include_control)
        count, start = 0, extent.start
        try:
            for batch in _visible(extent):
                header = batch.header
                if extent.start <= header.base_offset and header.next_offset <= extent.end:
                    count += header.record_count
                else:
                    records = decode_records(batch.read())
                    count += sum(extent.start <= record.offset < extent.end for record in records)
                start = header.next_offset
        except FileNotFoundError as error:
            raise self._missing(error, start) from None
        return count

    def bounds(self, as_of_version: int | None = None, as_of_timestamp: int | None = None) -> VersionBounds:
        """What a version could see; the newest one by default.

        Raises:
            VersionExpiredError, VersionUnknownError: that version cannot be read.
        """
        if as_of_timestamp is not None:
            as_of_version = self.version_at(as_of_timestamp)
        if as_of_version is not None:
            return self._versions.bounds(as_of_version)
        newest = self._snapshot
        return VersionBounds(
            newest.version, newest.timestamp, newest.log_start_offset, newest.last_stable_offset, newest.next_offset
        )

    def first_added(self, version: int) -> Offset:
        """The first offset that a version or a later one added.

        Raises:
            VersionExpiredError, VersionUnknownError: that is not known, or not yet.
        """
        return self._versions.first_added(version)

    def adding_versions(self) -> AddingVersions:
        """Finds the delta commits that added offsets, which it is asked for in rising order."""
        return AddingVersions(self._versions)

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """How many bytes the batches take from the one that holds an offset up to another offset, exclusive.

        Raises:
            OffsetOutOfRangeError: they have been removed.
            DamageError: the bytes are not batches.
        """
        self._refuse_removed(start_offset)
        size = 0
        for segment, entry in self._overlapping(start_offset, end_offset):
            start = _locate(segment, entry, start_offset)[0] if start_offset > entry.base else 0
            size += (_locate(segment, entry, end_offset)[0] if end_offset < entry.next_offset else entry.size) - start
        return size

    def batch_bounds(self, offset: int) -> tuple[Offset, Offset]:
        """The first offset, and the exclusive end, of the batch that holds an offset, or of the next one behind a gap.

        Behind the last batch it is the end of the table, twice.

        Raises:
            DamageError: the bytes are not batches.
        """
        for segment, entry in self._overlapping(offset, self._snapshot.next_offset):
            header = _locate(segment, entry, offset)[1]
            return header.base_offset, header.next_offset
        return self._snapshot.next_offset, self._snapshot.next_offset

    def first_not_older(
        self, timestamp_ms: int, start_offset: int, end_offset: int, *, as_of_version: int | None = None
    ) -> int:
        """The first offset of a range whose batch has a record that is not older than a time; its end where none has.

        Segments that a checkpoint knows whole are passed over by what it says; of the next one headers are read.

        Raises:
            DamageError: the bytes are not batches.
        """
        version = self._snapshot.version if as_of_version is None else DeltaVersion(as_of_version)
        for segment, entry in zip(*self._past.of(version, self._snapshot, self._segments), strict=True):
            known = self._known_rows.get(entry.name)
            if known is not None and known.size == entry.size and known.max_timestamp < timestamp_ms:
                continue
            start, end = max(start_offset, entry.base), min(end_offset, entry.next_offset)
            for batch in _batches([segment], [entry], start, end):
                if batch.header.max_timestamp >= timestamp_ms:
                    return max(start_offset, batch.header.base_offset)
        return end_offset

    def _extent(
        self,
        bounds: VersionBounds,
        from_offset: int,
        to_offset: int | None,
        isolation: IsolationLevel,
        *,
        include_control: bool,
    ) -> "_Extent":
        """What to read; all of it is still there."""
        is_committed_only = isolation is IsolationLevel.READ_COMMITTED
        end = bounds.last_stable_offset if is_committed_only else bounds.end_offset
        segments, entries = self._past.of(bounds.version, self._snapshot, self._segments)
        extent = _Extent(
            segments=segments,
            entries=entries,
            start=max(from_offset, bounds.log_start_offset),
            end=end if to_offset is None else min(end, to_offset),
            version_end=bounds.end_offset,
            is_committed_only=is_committed_only,
            include_control=include_control,
        )
        if extent.start < extent.end:
            self._refuse_removed(extent.start)
        return extent

    def _follow(self, state: TableState) -> bool:
        """Replays what is new; false where it takes a newer checkpoint: what comes next is vacuumed, or damaged."""
        try:
            while (found := self._delta_log.read_next(DeltaVersion(state.version + 1))) is not None:
                state.replay(found)
        except DamageError:
            return False
        return state.version == self._delta_log.newest_version

    def _load(self) -> TableState:
        """The table as of the newest version, from the newest checkpoint on."""
        checkpoint = self._delta_log.newest_checkpoint()
        if checkpoint is None:
            state = TableState(table=self.name)
        else:
            state = TableState.from_checkpoint(checkpoint, table=self.name)
            self._known_rows = {entry.name: entry for entry in checkpoint.segments}
        for decoded in self._delta_log.commits_after(state.version):
            state.replay(decoded)
        return state

    def _attach_segments(self) -> None:
        """Those that were there already stay as they are, and grow when they are read."""
        before = {segment.name: segment for segment in self._segments}
        self._segments = [
            before.get(segment.name)
            or self._files.attach(self._directory, _entry(segment, self._known_rows.get(segment.name)))
            for segment in self._snapshot.segments
        ]

    def _refuse_removed(self, offset: int) -> None:
        log_start = self._snapshot.log_start_offset
        if offset < log_start:
            oldest_version = self._versions.first_from(log_start)
            raise OffsetOutOfRangeError(self.name, oldest=log_start, oldest_version=oldest_version)

    def _overlapping(self, start_offset: int, end_offset: int) -> Iterator[tuple[Segment, TableSegment]]:
        """The segments with offsets of a range."""
        for segment, entry in zip(self._segments, self._snapshot.segments, strict=True):
            if start_offset < entry.next_offset and entry.base < end_offset:
                yield segment, entry

    def _records(self, extent: "_Extent") -> Iterator[tuple[Record, BatchHeader]]:
        """The records to read."""
        for batch in self._read(extent):
            for record in decode_records(batch.content):
                if extent.start <= record.offset < extent.end:
                    yield record, batch.header

    def _read(self, extent: "_Extent") -> Iterator[TableBatch]:
        """The batches to read, from what was there when they were asked for: a refresh changes that."""
        start = extent.start
        try:
            for batch in _visible(extent):
                yield TableBatch(batch.header, batch.read(), extent.start, extent.end)
                start = batch.header.next_offset
        except FileNotFoundError as error:
            raise self._missing(error, start) from None

    def _missing(self, error: FileNotFoundError, offset: int) -> DamageError:
        """What it means that the file of an offset is not there: its records have been removed, or it is damage.

        Raises:
            OffsetOutOfRangeError: they have been removed.
            VersionExpiredError: the segment was compacted since, and its file is gone.
        """
        now = TableReader(self._files.filesystem, self._directory)
        now._refuse_removed(offset)
        if error.filename.rpartition("/")[2] not in {segment.name for segment in now.snapshot().segments}:
            raise VersionExpiredError(self.name, oldest=now.snapshot().version)  # compacted since
        return DamageError(f"{error.filename} is missing", hint="restore the file from a copy")


class _Extent(Struct, frozen=True):
    """What is to be read.

    Attributes:
        segments, entries: where it is; see `Layout`.
        start: the first offset.
        end: the exclusive end.
        version_end: that of the version: below it stands the marker of every transaction that it knew to be decided.
        is_committed_only: whether records of aborted transactions are left out.
        include_control: whether markers are read too.
    """

    segments: Sequence[Segment]
    entries: Sequence[TableSegment]
    start: int
    end: int
    version_end: int
    is_committed_only: bool
    include_control: bool


def _visible(extent: _Extent) -> Iterator[StoredBatch]:
    """The batches of which a reader sees records."""
    segments, entries = extent.segments, extent.entries
    fates = TransactionFates(_batches(segments, entries, extent.start, extent.version_end))
    for batch in _batches(segments, entries, extent.start, extent.end):
        header = batch.header
        if header.is_control:
            if not extent.include_control:
                continue
        elif extent.is_committed_only and header.is_transactional and fates.is_aborted(batch):
            continue
        yield batch


def _batches(
    segments: Sequence[Segment], entries: Sequence[TableSegment], start: int, end: int
) -> Iterator[StoredBatch]:
    """The batches with offsets from `start` to below `end`; of what lies behind them nothing is looked at."""
    if start >= end or not segments:
        return
    first = segment_of(segments, start)
    for segment, entry in zip(segments[first:], entries[first:], strict=True):
        if segment.base_offset >= end:
            return
        if segment.next_offset < end:
            _grow(segment, entry, end)
        if start >= segment.next_offset:
            continue
        position = segment.locate(start)[0] if start > segment.base_offset else 0
        for at, header in segment.headers_from(position):
            if header.base_offset >= end:
                return
            yield StoredBatch(segment, at, header)
            if header.next_offset >= end:
                return


def _locate(segment: Segment, entry: TableSegment, offset: int) -> tuple[int, BatchHeader]:
    """The position and header of the batch that holds an offset of a segment, or of the next one behind a gap."""
    if segment.next_offset <= offset:
        _grow(segment, entry, offset + 1)
    return segment.locate(offset)


def _grow(segment: Segment, entry: TableSegment, end: int) -> None:
    """Takes in what has been committed behind the end of a segment since it was last read, up to an offset."""
    if segment.size >= entry.size:
        return
    size, next_offset = segment.size, segment.next_offset
    segment.size, segment.next_offset = entry.size, entry.next_offset
    found = []
    try:
        for position, header in segment.headers_from(size):
            found.append((position, header))
            if header.next_offset >= end:
                break
    finally:
        segment.size, segment.next_offset = size, next_offset
    for position, header in found:
        segment.on_appended(header, position)


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
