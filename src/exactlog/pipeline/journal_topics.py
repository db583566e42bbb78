"""The topics of journals in a log, and whether a store can go on from where it is in them."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal.errors import HeadLost, Repartitioned
from exactlog.core.journal.read_plan import Stretch
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.record_format import Record
from exactlog.pipeline.arrow_rows import read_rows
from exactlog.pipeline.broker_source import BrokerSource
from exactlog.pipeline.journal_checkpoint import START_AGAIN, OtherQueryError, TopicIdentity
from exactlog.pipeline.journal_tasks import COLUMNS, records_of
from exactlog.pipeline.open_source import open_source
from exactlog.pipeline.path_source import PathSource
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.schema import COLUMNS as LOG_COLUMNS
from exactlog.pipeline.schema import arrow_schema
from exactlog.pipeline.source import Extent, Slice
from exactlog.pipeline.stream_offsets import OtherLogError

if TYPE_CHECKING:
    import pyarrow as pa


class LookedAt(Struct, frozen=True):
    """What a look at a log has found.

    Attributes:
        extents: what there is of each partition.
        topics: which topics these are.
    """

    extents: Mapping[TopicPartition, Extent]
    topics: Mapping[str, TopicIdentity]


class JournalTopics:
    """Topics of a log that are replicated: those that are named, or all whose names begin so.

    Used by one thread at a time.

    Args:
        options: of the log.
        prefixes: without any, and without names in the options, all but internal ones.
    """

    def __init__(self, options: ReadOptions, prefixes: Collection[str] = ()) -> None:
        self._options = options
        self._prefixes = tuple(prefixes) or ("",)
        self._source: BrokerSource | PathSource | None = None

    def found(self) -> list[str]:
        """The names of the topics that are to be replicated and are there. Raises `NotFoundError`."""
        with closing(open_source(self._options, COLUMNS)) as source:
            names = {place.topic for place in source.extents()}
        return sorted(name for name in names if name.startswith(self._prefixes))

    def narrow(self, names: Sequence[str]) -> None:
        """Look at these from now on."""
        self.close()
        self._source = open_source(replace(self._options, topics=tuple(names)), COLUMNS)

    def look(self) -> LookedAt:
        """What there is of those now."""
        assert self._source is not None, "narrowed before"
        extents = self._source.extents()
        counts = Counter(place.topic for place in extents)
        ids = self._source.topic_ids
        return LookedAt(extents, {name: TopicIdentity(ids.get(name), count) for name, count in counts.items()})

    def close(self) -> None:
        """Let go of files and connections."""
        if self._source is not None:
            self._source.close()
            self._source = None


class DirectoryLog:
    """The log in a data directory, for a replicator that lacks a part of it (`PartitionLog`)."""

    def __init__(self, options: ReadOptions) -> None:
        self._source = PathSource(options, COLUMNS)

    async def start(self, place: TopicPartition) -> int:
        """See `PartitionLog`."""
        return self._source.extents()[place].start_offset

    async def records(self, place: TopicPartition, stretch: Stretch) -> AsyncIterator[Record]:
        """See `PartitionLog`."""
        version = self._source.extents()[place].version
        piece = Slice(*place, stretch.start, stretch.end, version=version)
        for batch in read_rows(self._source, [piece], _schema()):
            for record in records_of(batch):
                yield record

    def close(self) -> None:
        """Let go of files."""
        self._source.close()


def check_places(
    extents: Mapping[TopicPartition, Extent],
    *,
    positions: Mapping[TopicPartition, int],
    pointers: Mapping[TopicPartition, int | None],
    names: Iterable[str],
) -> None:
    """Raise where a store cannot go on in a log.

    Args:
        extents: what there is of the log.
        positions: where the checkpoint stands, as next offsets.
        pointers: where the store stands, as last offsets.
        names: of the topics that are replicated.

    Raises:
        HeadLost: retention took what is not replicated.
        OtherLogError: the log ends before where it was replicated to.
        Repartitioned: a partition is not there any more.
        OtherQueryError: the store has gone on without the checkpoint, and the log does not have what lies between.
    """
    wanted = set(names)
    for place in sorted(positions.keys() | pointers.keys() | extents.keys()):
        if place.topic not in wanted:
            continue
        extent, pointer = extents.get(place), pointers.get(place)
        next_offset = 0 if pointer is None else pointer + 1
        position = positions.get(place)
        if extent is None:
            raise Repartitioned(
                f"{place} was replicated, and is not there any more",
                hint="copy the topic into one of the new number of partitions",
            )
        if max(next_offset, position or 0) > extent.end_offset:
            raise OtherLogError(
                f"{place} was replicated up to offset {max(next_offset, position or 0) - 1}, and ends before offset "
                f"{extent.end_offset}: it was deleted and made again, or belongs to another log",
                hint="replicate it into another store, or under another name, with a new checkpoint",
            )
        if next_offset < extent.start_offset and (pointer is not None or position is not None):
            raise HeadLost(
                f"{place}: offsets {next_offset} to {extent.start_offset - 1} are neither replicated nor in the log "
                "any more",
                hint="look for their events in a copy; then move the pointer of the store to go on without them",
            )
        if position is not None and position < extent.start_offset:
            raise OtherQueryError(
                f"the checkpoint stands at offset {position} of {place}, which is gone from the log; the store has it",
                hint=START_AGAIN,
            )


def columns_ddl() -> str:
    """The schema of a read of `COLUMNS` alone, as Spark's DDL: other columns would cost more."""
    types = {column.name: column.spark_type for column in LOG_COLUMNS}
    return ", ".join(f"`{name}` {types[name]}" for name in COLUMNS)


def _schema() -> "pa.Schema":
    from pyspark.sql.types import StructType  # noqa: PLC0415  an extra

    schema = StructType.fromDDL(columns_ddl())
    assert isinstance(schema, StructType), "of several columns"
    return arrow_schema(schema)
