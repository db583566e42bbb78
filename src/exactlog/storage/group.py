"""A group: the appends of one partition that become visible together, as one delta version.

A group is open while appends join it, then closed when a round takes it. It stays within one segment.
"""

import crc32c

from exactlog.core.log.producer_state import ProducerEntry
from exactlog.core.record.batch_format import BatchHeader
from exactlog.storage.filesystem import Buffer
from exactlog.storage.round import SegmentWrite
from exactlog.storage.segment import Segment


class Group:
    """Batches that follow each other in one segment; offsets and positions are fixed when they join."""

    __slots__ = ("base_offset", "batches", "buffers", "end_offset", "position", "segment", "size")

    def __init__(self, segment: Segment, *, position: int, base_offset: int) -> None:
        self.segment = segment
        self.position = position
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.buffers: list[Buffer] = []
        self.batches: list[tuple[BatchHeader, int, ProducerEntry | None]] = []
        """Each batch's header with its final offsets, its position in the segment, and what it made of its producer."""

    @property
    def is_new_segment(self) -> bool:
        """Whether the segment begins with this group."""
        return self.position == 0

    def add(self, header: BatchHeader, batch: Buffer, producer: ProducerEntry | None) -> None:
        """Lets one batch join; its header and bytes carry their final offsets already."""
        self.batches.append((header, self.position + self.size, producer))
        self.buffers.append(batch)
        self.size += len(batch)
        self.end_offset = header.next_offset

    def segment_write(self) -> SegmentWrite:
        """What a round must write for it."""
        return SegmentWrite(self.segment.path, self.position, self.buffers, self.is_new_segment)

    def data_crc(self, crc: int = 0) -> int:
        """CRC-32C of its bytes, going on from that of the bytes before."""
        for buffer in self.buffers:
            crc = crc32c.crc32c(buffer, crc)
        return crc
