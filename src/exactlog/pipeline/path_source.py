"""Reading from the directories of partitions, as of any version: beside a running broker, or when it has stopped.

No lock is taken and nothing is written. What a reader sees of a table is decided by `storage.table_reader` alone.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from exactlog.core.codec.compression import decompress
from exactlog.core.config.definition import nearest_name_hint
from exactlog.core.deltalog.commit_format import DeltaCommit
from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    parse_partition_directory_name,
    print_partition_directory_name,
)
from exactlog.core.model.errors import (
    DamageError,
    DecodeError,
    NotFoundError,
    OffsetOutOfRangeError,
    VersionExpiredError,
    VersionUnknownError,
)
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.model.topic_name import is_internal
from exactlog.core.record.batch_format import BATCH_OVERHEAD, BatchHeader
from exactlog.pipeline.read_damage import damage_at
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.schema import COLUMN_NAMES, COLUMNS, VERSION_COLUMNS
from exactlog.pipeline.source import Extent, Slice, VisibleBatch
from exactlog.storage.catalog import CATALOG_NAME
from exactlog.storage.table_reader import TableReader, find_tables, open_table

_IN_RECORDS: Final = frozenset(column.name for column in COLUMNS if column.is_in_records)


class PathSource:
    """The partitions of a data directory, or one alone, as a `Source`.

    Each table is opened when it is first needed, and goes on to its newest version with each call of `extents`.

    Attributes:
        topic_ids: of the topics that `extents` found: another topic of the same name has another one.

    Args:
        options: what to read. For a stream without `starting_version`: it would say where every partition begins.
        columns: those that are wanted. Without any that only records hold, batches come without their records, unless
            these are needed to know which offsets there are.
    """

    def __init__(self, options: ReadOptions, columns: Collection[str] = COLUMN_NAMES) -> None:
        self._options = options
        self._path = Path(options.path or "")
        self._needs_records = not _IN_RECORDS.isdisjoint(columns)
        self._needs_versions = not VERSION_COLUMNS.isdisjoint(columns)
        self._tables: dict[TopicPartition, TableReader] = {}
        self._places: dict[Path, TopicPartition] = {}  # of the directories that are in `_tables`
        self.topic_ids: dict[str, str] = {}

    def extents(self) -> Mapping[TopicPartition, Extent]:
        """See `Source`.

        Raises:
            NotFoundError: there is no log, or a topic that was asked for is not in it.
            VersionExpiredError, VersionUnknownError: a version that was asked for cannot be read; names the partition.
            DamageError: a table cannot be opened; names the file, the version and what to do.
        """
        self._find_tables()
        found = {place: self._extent(place, self._tables[place]) for place in sorted(self._tables)}
        extents = {place: extent for place, extent in found.items() if extent is not None}
        if found and not extents:
            place, created = min(((place, self._created(place)) for place in found), key=lambda item: item[1])
            error = VersionExpiredError(f"{_named(place)} at the time of timestampAsOf", oldest=0)
            error.hint = f"ask for {created}, when it was made, or a later time"
            raise error
        return extents

    def split(self, piece: Slice, *, bytes_max: int) -> list[Slice]:
        """See `Source`; halved until it is small enough, or one batch."""
        table = self._table(piece)
        with _naming(piece):
            return list(_halve(table, piece, bytes_max))

    def count_rows(self, piece: Slice) -> int:
        """See `Source`."""
        with _naming(piece):
            return self._table(piece).count_records(
                piece.start_offset,
                piece.end_offset,
                as_of_version=piece.version,
                isolation=self._options.isolation,
                include_control=self._options.include_control,
            )

    def batches(self, piece: Slice) -> Iterator[VisibleBatch]:
        """See `Source`."""
        table = self._table(piece)
        adds = _Adds(table) if self._needs_versions else None
        with _naming(piece) as place:
            found = table.read_batches(
                piece.start_offset,
                piece.end_offset,
                as_of_version=piece.version,
                isolation=self._options.isolation,
                include_control=self._options.include_control,
            )
            for batch in found:
                header = batch.header
                place.offset = max(piece.start_offset, header.base_offset)
                version, origin_id = adds.of(header.base_offset) if adds else (None, None)
                records = self._records(header, batch.content)
                yield VisibleBatch(header, records, batch.start_offset, batch.end_offset, version, origin_id)
                place.offset = header.next_offset

    def skip_older(self, piece: Slice, timestamp_ms: int) -> int:
        """The first offset of a piece whose batch has a record that is not older than a time, in ms; its end, if none.

        Raises:
            DamageError: the bytes are not batches.
        """
        with _naming(piece):
            return self._table(piece).first_not_older(
                timestamp_ms, piece.start_offset, piece.end_offset, as_of_version=piece.version
            )

    def first_added(self, place: TopicPartition, version: int) -> int:
        """The first offset that a version or a later one added to a partition.

        Raises:
            VersionExpiredError, VersionUnknownError: that version is not there any more, or not yet.
        """
        with _naming_version(place, version):
            return self._open(place).first_added(version)

    def close(self) -> None:
        """See `Source`."""
        self._tables.clear()  # its files are closed when the last reader lets go of them
        self._places.clear()

    # -----------------------------------------------------------------------------------------------------------

    def _find_tables(self) -> None:
        """Opens what is new, takes in what has been published since, and lets go of what is gone."""
        directories = self._directories()
        for gone in self._places.keys() - directories:
            self._tables.pop(self._places.pop(gone))
        for directory in directories:
            if directory in self._places:
                self._tables[self._places[directory]].refresh()
                continue
            table = _open_if_there(directory)
            if table is None:
                continue
            place = TopicPartition(table.metadata.topic, table.metadata.partition)
            if self._is_wanted(place.topic):
                self._tables[place] = table
                self._places[directory] = place
        self.topic_ids = {place.topic: str(table.metadata.topic_id) for place, table in self._tables.items()}
        there = {place.topic for place in self._tables}
        for topic in self._options.topics:
            if topic not in there:
                raise NotFoundError(
                    f"{self._path} holds no topic {topic}", hint=nearest_name_hint(topic, self._all_topics())
                )

    def _directories(self) -> list[Path]:
        """The directories of partitions whose topics may be wanted.

        Raises:
            NotFoundError: there is no log.
        """
        if _is_partition(self._path):
            return [self._path]
        try:
            found = find_tables(self._path)
        except OSError as error:
            raise NotFoundError(
                f"{self._path} cannot be read: {error.strerror}",
                hint="path is a data directory, or one partition in it",
            ) from error
        if not found and not (self._path / CATALOG_NAME).exists():
            raise NotFoundError(
                f"{self._path} is no partition and no data directory",
                hint="a partition's directory is named topic=NAME-part=N; a data directory holds some of them",
            )
        return [path for path in found if self._may_be_wanted(path)]

    def _may_be_wanted(self, directory: Path) -> bool:
        """Whether it can be the directory of a wanted topic; long names do not tell."""
        name = parse_partition_directory_name(directory.name)
        return name is not None and (name.topic is None or self._is_wanted(name.topic))

    def _is_wanted(self, topic: str) -> bool:
        if self._options.topics:
            return topic in self._options.topics
        return not is_internal(topic) or _is_partition(self._path)

    def _all_topics(self) -> set[str]:
        """The names of topics as far as the names of directories tell."""
        if _is_partition(self._path):
            return {place.topic for place in self._tables}
        parsed = (parse_partition_directory_name(path.name) for path in find_tables(self._path))
        return {name.topic for name in parsed if name is not None and name.topic is not None}

    def _table(self, piece: Slice) -> TableReader:
        return self._open(TopicPartition(piece.topic, piece.partition))

    def _open(self, place: TopicPartition) -> TableReader:
        table = self._tables.get(place)
        if table is None:
            directory = self._path
            if not _is_partition(directory):
                directory /= print_partition_directory_name(place.topic, place.partition)
            table = _open_if_there(directory)
            if table is None:
                raise NotFoundError(
                    f"{_named(place)} is not to be read: there is no directory {directory} here",
                    hint="all machines of a cluster must have the data directory mounted; the topic may be deleted",
                )
            self._tables[place] = table
        return table

    def _extent(self, place: TopicPartition, table: TableReader) -> Extent | None:
        """What of a table is to be read; None where it was not there at the time that was asked for."""
        options = self._options
        version: int = table.snapshot().version
        start = 0
        if options.timestamp_as_of_ms is not None:
            try:
                version = table.version_at(options.timestamp_as_of_ms)
            except VersionExpiredError as error:
                if table.oldest_version == 0:
                    return None
                raise VersionExpiredError(
                    f"{_named(place)} at the time of timestampAsOf", oldest=error.oldest
                ) from error
        asked = options.version_as_of if options.ending_version is None else options.ending_version
        with _naming_version(place, asked, is_one_of_many=len(self._tables) > 1):
            version = version if asked is None else asked
            bounds = table.bounds(None if version == table.snapshot().version else version)
        if isinstance(options.starting_version, int):
            with _naming_version(place, options.starting_version, is_one_of_many=len(self._tables) > 1):
                start = table.first_added(options.starting_version)
        is_committed_only = options.isolation is IsolationLevel.READ_COMMITTED
        end = bounds.last_stable_offset if is_committed_only else bounds.end_offset
        start = min(max(start, bounds.log_start_offset), end)
        size = table.size_between(
            max(start, table.snapshot().log_start_offset), end
        )  # what is gone may not be asked for
        return Extent(start, end, version, size)

    def _created(self, place: TopicPartition) -> str:
        return self._tables[place].bounds(0).timestamp

    def _records(self, header: BatchHeader, content: bytes) -> bytes:
        """The records of a batch, decompressed; empty where nobody needs them."""
        has_gaps = header.record_count != header.last_offset_delta + 1
        if not (self._needs_records or has_gaps):
            return b""
        stored = memoryview(content)[BATCH_OVERHEAD:]
        return decompress(header.compression, stored) if stored else b""


class _Reached:
    """How far a piece has been read."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


@contextmanager
def _naming(piece: Slice) -> Iterator[_Reached]:
    """Errors of a table name topic, partition, offset and version."""
    reached = _Reached(piece.start_offset)
    try:
        yield reached
    except (DamageError, DecodeError) as error:
        raise damage_at(piece, reached.offset, error, hint=error.hint) from error
    except OSError as error:
        raise damage_at(piece, reached.offset, error, hint="see to the file, or to the disk") from error
    except OffsetOutOfRangeError as error:
        named = f"{_named(piece)}, offset {reached.offset}{_as_of(piece)}"
        raise OffsetOutOfRangeError(named, oldest=error.oldest, oldest_version=error.oldest_version) from error
    except VersionExpiredError as error:
        named = f"{_named(piece)}, offset {reached.offset}{_as_of(piece)}"
        raise VersionExpiredError(named, oldest=error.oldest) from error
    except VersionUnknownError as error:
        named = f"{_named(piece)}, offset {reached.offset}{_as_of(piece)}"
        raise VersionUnknownError(named, newest=error.newest) from error


@contextmanager
def _naming_version(place: TopicPartition, version: int | None, *, is_one_of_many: bool = False) -> Iterator[None]:
    """Errors of a table name the partition, and the version that was asked for."""
    named = f"{_named(place)}, version {version}"
    try:
        yield
    except VersionExpiredError as error:
        raise VersionExpiredError(named, oldest=error.oldest) from error
    except VersionUnknownError as error:
        unknown = VersionUnknownError(named, newest=error.newest)
        unknown.hint = "each partition counts its versions alone: timestampAsOf goes for all" if is_one_of_many else ""
        raise unknown from error


class _Adds:
    """Which version and which origin added a batch; asked in rising order of offsets."""

    def __init__(self, table: TableReader) -> None:
        self._versions = table.adding_versions()
        self._commit: DeltaCommit | None = None
        self._starts: list[int] = []
        self._origin_ids: list[str] = []

    def of(self, offset: int) -> tuple[int | None, str | None]:
        commit = self._versions.of(offset)
        if commit is None:
            return None, None
        if commit is not self._commit:
            adds = [operation for operation in commit.operations if operation.type == "add"]
            self._commit = commit
            self._starts = [operation.offset_start for operation in adds]
            self._origin_ids = [str(operation.origin_id) for operation in adds]
        return commit.version, self._origin_ids[bisect_right(self._starts, offset) - 1]


def _halve(table: TableReader, piece: Slice, bytes_max: int) -> Iterator[Slice]:
    """The piece in halves, and these again, until each is small enough or one batch."""
    size = table.size_between(piece.start_offset, piece.end_offset)
    if size > bytes_max:
        cut, behind = table.batch_bounds((piece.start_offset + piece.end_offset) // 2)
        if cut <= piece.start_offset:
            cut = behind
        if cut < piece.end_offset:
            yield from _halve(table, replace(piece, end_offset=cut), bytes_max)
            yield from _halve(table, replace(piece, start_offset=cut, first_row=None), bytes_max)
            return
    yield replace(piece, size_bytes=size)


def _is_partition(path: Path) -> bool:
    return (path / DELTA_LOG_DIRECTORY).is_dir()


def _open_if_there(directory: Path) -> TableReader | None:
    """The table of a directory; None where there is none, or none any more: a topic may be deleted meanwhile."""
    try:
        return open_table(directory)
    except DamageError:
        if directory.is_dir():
            raise
        return None


def _named(place: TopicPartition | Slice) -> str:
    return f"topic {place.topic}, partition {place.partition}"


def _as_of(piece: Slice) -> str:
    return "" if piece.version is None else f" as of version {piece.version}"
