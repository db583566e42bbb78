"""A group: the appends of one partition that go to a round together, contiguous in one segment.

A group is open while appends join it, then closed when a round takes it. The bytes of one or several groups become
visible as one delta version.
"""

import crc32c
from msgspec import Struct

from exactlog.core.deltalog.append_terms import AppendTerms
from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.producer_state import ProducerEntry
from exactlog.core.model.ids import Offset
from exactlog.core.record.batch_format import LENGTH_OVERHEAD, BatchHeader
from exactlog.storage.filesystem import Buffer
from exactlog.storage.round import SegmentWrite
from exactlog.storage.segment import Segment


class AddRange(Struct, frozen=True, gc=False):
    """A range of a group that is one `add` of its version: all that one origin brought without a gap.

    `terms` and `origin_seq` belong to an append on terms, which is an add of its own.
    """

    offset_start: int
    offset_end: int
    position: int
    size: int
    terms: AppendTerms | None = None
    origin_seq: int | None = None


class Group:
    """Batches that follow each other in one segment; offsets and positions are fixed when they join.

    Attributes:
        is_new_segment: whether the segment begins with this group.
        first_undecided_offset: where the oldest transaction begins that is open at the end of the group; None without
            one. To be set by whoever lets batches join.
    """

    __slots__ = (
        "_own_adds",
        "aborted",
        "base_offset",
        "batches",
        "buffers",
        "end_offset",
        "first_undecided_offset",
        "is_new_segment",
        "position",
        "segment",
        "size",
    )

    def __init__(self, segment: Segment, *, position: int, base_offset: int) -> None:
        self.segment = segment
        self.position = position
        self.is_new_segment = position == 0
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.buffers: list[Buffer] = []
        self.batches: list[tuple[BatchHeader, int, ProducerEntry | None]] = []
        """Each batch's header with its final offsets, its position in the segment, and what it made of its producer."""
        self.aborted: list[AbortedTransaction] = []
        """The transactions whose abort markers are among the batches, in their order."""
        self.first_undecided_offset: Offset | None = None
        self._own_adds: list[AddRange] = []
        """The appends on terms, in order; what lies between them is the node's."""

    @property
    def stable_end_offset(self) -> int:
        """Below it every transaction is decided, as of the group's end."""
        return self.end_offset if self.first_undecided_offset is None else self.first_undecided_offset

    def add(self, header: BatchHeader, batch: Buffer, producer: ProducerEntry | None) -> None:
        """Lets one batch join; its header and bytes carry their final offsets already."""
        self.batches.append((header, self.position + self.size, producer))
        self.buffers.append(batch)
        self.size += header.batch_length + LENGTH_OVERHEAD
        self.end_offset = header.base_offset + header.last_offset_delta + 1

    def mark_last_as_own(self, terms: AppendTerms, *, origin_seq: int | None) -> None:
        """The batch that joined last was an append on terms: an add of its own."""
        header, position, _ = self.batches[-1]
        self._own_adds.append(
            AddRange(header.base_offset, header.last_offset, position, header.size_bytes, terms, origin_seq)
        )

    def adds(self) -> list[AddRange]:
        """All of the group's ranges, in order: those of appends on terms, and what lies between them."""
        ranges: list[AddRange] = []
        offset, position = self.base_offset, self.position
        end = AddRange(self.end_offset, self.end_offset, self.position + self.size, 0)
        for own in [*self._own_adds, end]:
            if own.offset_start > offset:
                ranges.append(AddRange(offset, own.offset_start - 1, position, own.position - position))
            if own is not end:
                ranges.append(own)
            offset, position = own.offset_end + 1, own.position + own.size
        return ranges

    def segment_write(self) -> SegmentWrite:
        """What a round must write for it."""
        return SegmentWrite(self.segment.path, self.position, self.buffers, self.is_new_segment)

    def data_crc(self, crc: int = 0) -> int:
        """CRC-32C of its bytes, going on from that of the bytes before."""
        for buffer in self.buffers:
            crc = crc32c.crc32c(buffer, crc)
        return crc
