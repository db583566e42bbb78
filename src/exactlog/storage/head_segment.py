"""The segment that appends go to next, as decided: bytes may still wait for their round."""

from exactlog.core.log.index_format import POSITION_MAX, RELATIVE_OFFSET_MAX
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import NO_TIMESTAMP
from exactlog.core.record.batch_format import LENGTH_OVERHEAD, BatchHeader
from exactlog.storage.segment import Segment
from exactlog.storage.settings import LogSettings


class HeadSegment:
    """A segment, and how far it is filled by what is decided.

    Attributes:
        position: where the next batch goes.
    """

    __slots__ = ("_first_timestamp", "position", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.position = segment.size
        self._first_timestamp: int | None = None

    def has_room_for(self, header: BatchHeader, settings: LogSettings) -> bool:
        """Whether a batch may still go here: by `segment.bytes`, by its offset, and by the age of the first batch.

        As in Kafka, `segment.ms` compares the batches' own timestamps: a segment rolls when a batch comes that is so
        much younger than its first one. Without timestamps it does not.
        """
        end = self.position + header.batch_length + LENGTH_OVERHEAD
        if end > settings.segment_bytes or end > POSITION_MAX:
            return self.position == 0
        if header.base_offset + header.last_offset_delta - self.segment.base_offset > RELATIVE_OFFSET_MAX:
            return False
        if self.position == 0:
            return True
        if self._first_timestamp is None:
            self._first_timestamp = self._read_first_timestamp()
        return self._first_timestamp < 0 or header.max_timestamp - self._first_timestamp <= settings.segment_ms

    def append(self, header: BatchHeader) -> None:
        """A batch has its place here."""
        if self.position == 0:
            self._first_timestamp = header.max_timestamp
        self.position += header.batch_length + LENGTH_OVERHEAD

    def _read_first_timestamp(self) -> int:
        """Of the first batch, which an earlier life has written."""
        try:
            _, first = next(self.segment.headers_from(0))
        except DamageError:  # it is in nobody's way here: who reads it is told
            return NO_TIMESTAMP
        return first.max_timestamp
