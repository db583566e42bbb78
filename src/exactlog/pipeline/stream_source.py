"""What a stream needs of a source besides: which log it is, where versions lie, and how much bytes are in offsets."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from exactlog.core.deltalog.log_path import DELTA_LOG_DIRECTORY, print_commit_name
from exactlog.core.model.errors import VersionExpiredError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.admission import Sizes
from exactlog.pipeline.broker_source import BrokerSource
from exactlog.pipeline.path_source import PathSource
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Extent, Slice, Source
from exactlog.pipeline.stream_offsets import START_AGAIN, Position, StreamVersionExpiredError, told
from exactlog.storage.table_reader import TableReader


class StreamSource(Source, Sizes, Protocol):
    """A source that a stream reads.

    Attributes:
        topic_ids: of the topics that `extents` found, where they have one.
    """

    topic_ids: dict[str, str]

    @property
    def cluster_id(self) -> str | None:
        """The cluster that is read; None for a directory, and where the broker does not tell."""

    def topic_id(self, piece: Slice) -> str | None:
        """The id of a piece's topic as it is now; None where it has none."""

    def log_end(self, place: TopicPartition) -> int:
        """Where a partition ends for whoever sees everything, as of the last `extents`."""

    def begin(self, place: TopicPartition, extent: Extent, start: int | str | None, /) -> Position:
        """Where a stream begins in a partition: `earliest`, `latest`, or at what a version added."""

    def stand(self, place: TopicPartition, extent: Extent, offset: int, rows: int | None, /) -> Position:
        """The position behind what was read of a partition."""

    def check_versions(self, place: TopicPartition, position: Position, /) -> None:
        """Raises `StreamVersionExpiredError` where versions have been vacuumed that were not read yet."""


class StreamedBroker(BrokerSource):
    """A broker as the source of a stream: without versions."""

    def begin(self, _place: TopicPartition, extent: Extent, start: int | str | None) -> Position:
        """See `StreamSource`."""
        return Position(extent.end_offset if start == "latest" else extent.start_offset)

    def stand(self, _place: TopicPartition, _extent: Extent, offset: int, rows: int | None) -> Position:
        """See `StreamSource`."""
        return Position(offset, rows=rows)

    def check_versions(self, _place: TopicPartition, _position: Position) -> None:
        """See `StreamSource`: there are none."""


class _FileIdentity(NamedTuple):
    inode: int
    modified_ns: int
    size_bytes: int


class StreamedDirectory(PathSource):
    """A data directory as the source of a stream. Sizes and places are looked up in the indexes of segments."""

    cluster_id = None

    def __init__(self, options: ReadOptions, columns: Collection[str]) -> None:
        super().__init__(options, columns)
        self._newest_commits: dict[Path, _FileIdentity | None] = {}

    def extents(self) -> Mapping[TopicPartition, Extent]:
        """See `Source`."""
        # A directory that was removed and made again would look as if there was nothing new, until it has more
        # versions than before.
        for directory in self._places.keys() & self._newest_commits.keys():
            if self._newest_commit(directory) != self._newest_commits[directory]:
                del self._tables[self._places.pop(directory)]
        found = super().extents()
        self._newest_commits = {directory: self._newest_commit(directory) for directory in self._places}
        return found

    def topic_id(self, piece: Slice) -> str | None:
        """See `StreamSource`."""
        return str(self._table(piece).metadata.topic_id)

    def log_end(self, place: TopicPartition) -> int:
        """See `StreamSource`."""
        return self._open(place).snapshot().next_offset

    def begin(self, place: TopicPartition, extent: Extent, start: int | str | None) -> Position:
        """See `StreamSource`."""
        oldest = self._open(place).oldest_version
        if isinstance(start, int):
            added = max(extent.start_offset, self.first_added(place, start))
            return Position(added, max(oldest, start - 1))
        if start == "latest":
            return Position(extent.end_offset, extent.version)
        return Position(extent.start_offset, oldest)

    def stand(self, place: TopicPartition, extent: Extent, offset: int, rows: int | None) -> Position:
        """See `StreamSource`. Behind all there is, it lies in the newest version; else in that of the last offset."""
        if offset >= extent.end_offset:
            return Position(offset, extent.version, rows)
        table = self._open(place)
        commit = table.version_of(offset - 1)
        return Position(offset, table.oldest_version if commit is None else commit.version, rows)

    def check_versions(self, place: TopicPartition, position: Position) -> None:
        """See `StreamSource`."""
        table = self._open(place)
        oldest = table.oldest_version
        if position.version is None or position.version >= oldest:
            return
        try:
            known_from = table.first_added(oldest)
        except VersionExpiredError:  # a checkpoint stands in for it: what it added is not told apart
            known_from = table.bounds(oldest).end_offset
        if position.offset < known_from:
            raise StreamVersionExpiredError(
                f"the stream stands at {told(position)} in topic {place.topic}, partition {place.partition}, and of "
                f"what follows there the versions before {oldest} have been vacuumed",
                hint=f"{START_AGAIN}: startingVersion {oldest} or later, or earliest; vacuum so as to keep more "
                "versions than a stream may be behind",
            )

    def _newest_commit(self, directory: Path) -> "_FileIdentity | None":
        """Which file the newest version of a table is in, as far as this reader knows; None: not in one of its own."""
        version = self._tables[self._places[directory]].snapshot().version
        try:
            found = (directory / DELTA_LOG_DIRECTORY / print_commit_name(version)).stat()
        except FileNotFoundError:
            return None
        return _FileIdentity(found.st_ino, found.st_mtime_ns, found.st_size)

    def size(self, piece: Slice) -> int:
        """How many bytes the batches of a piece take, those that its ends cut too."""
        return _size_of(self._table(piece), piece.start_offset, piece.end_offset)

    def end_within(self, piece: Slice, bytes_max: int) -> int:
        """The end of the last batch up to which a piece has no more than so many bytes; its start if there is none."""
        table = self._table(piece)
        low, high = piece.start_offset, piece.end_offset  # what is below `low` fits; what is from `high` on does not
        while low < high:
            middle = (low + high) // 2
            first, behind = table.batch_bounds(middle)
            if table.size_between(piece.start_offset, behind) <= bytes_max:
                low = behind
            else:
                high = max(low, min(first, middle))
        return min(low, piece.end_offset)

    def first_end(self, piece: Slice) -> int:
        """The end of the first batch of a piece."""
        return min(piece.end_offset, self._table(piece).batch_bounds(piece.start_offset)[1])


def _size_of(table: TableReader, start_offset: int, end_offset: int) -> int:
    if start_offset >= end_offset:
        return 0
    return table.size_between(start_offset, max(end_offset, table.batch_bounds(end_offset - 1)[1]))


def open_stream_source(options: ReadOptions, columns: tuple[str, ...]) -> StreamSource:
    """The source that the options name. Where it begins is for the stream to say, not for it."""
    if options.path is not None:
        return StreamedDirectory(replace(options, starting_version=None), columns)
    return StreamedBroker(options)
