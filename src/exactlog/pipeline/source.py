"""Where rows come from: the directories of partitions, or a broker. What Spark needs of either, and no more.

Values of this module travel to Spark's workers: they hold numbers and names, no handles.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_format import BatchHeader


class Extent(Struct, frozen=True):
    """What of a partition can be read now, under the isolation level of the reader.

    Attributes:
        start_offset: the log start offset.
        end_offset: exclusive; the last stable offset for readers of committed records, else the high watermark.
        version: the delta version that this is a view of; None where the source has no versions (a broker).
        size_bytes: of the batches in between, for planning; 0 where it is not known.
    """

    start_offset: int
    end_offset: int
    version: int | None = None
    size_bytes: int = 0


class Slice(Struct, frozen=True):
    """A contiguous piece of one partition, read by one task.

    Attributes:
        start_offset: the first offset of it.
        end_offset: exclusive.
        version: the delta version as of which it is read; None: no versions, or the newest.
        first_row: `row_seq` of its first row; None where nobody asked for it.
        size_bytes: of its batches, for planning.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    version: int | None = None
    first_row: int | None = None
    size_bytes: int = 0


class VisibleBatch(Struct, frozen=True):
    """A batch of which the reader sees records: those with offsets of the slice it was asked for.

    Attributes:
        header: as stored.
        records: the batch's records, decompressed, without the header (`core.record.record_format`). They may be left
            out, as empty bytes, where no wanted column needs them and the header tells which offsets there are.
        start_offset: records below it are not seen.
        end_offset: nor those from here on.
        delta_version: the version that added it; None where it is not known.
        origin_id: the origin of the add that it came by, the writer that supplied a sequence, else the node; None where
            it is not known.
    """

    header: BatchHeader
    records: bytes
    start_offset: int
    end_offset: int
    delta_version: int | None = None
    origin_id: str | None = None


class Source(Protocol):
    """A log that is read. Errors are `ExactlogError`s whose message names topic, partition, offset and version."""

    def extents(self) -> Mapping[TopicPartition, Extent]:
        """What can be read now, of every partition that was asked for; new topics and partitions come as they do."""

    def split(self, piece: Slice, *, bytes_max: int) -> list[Slice]:
        """The same piece in several, cut between batches, each about so many bytes or less, in order of offsets."""

    def count_rows(self, piece: Slice) -> int:
        """How many rows reading it gives, from batch headers alone where that is possible."""

    def batches(self, piece: Slice) -> Iterator[VisibleBatch]:
        """The batches of it that the reader sees, in order of offsets, decompressed, their checksums checked."""

    def close(self) -> None:
        """Lets go of files and connections; the source can be used no more."""
