"""Looking things up in the segments of a partition: bytes by offset, offsets by time."""

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from exactlog.core.model.ids import NO_TIMESTAMP
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.record_format import decode_records
from exactlog.storage.filesystem import Buffer
from exactlog.storage.segment import Segment


class FoundRecord(Struct, frozen=True):
    """Where a record is, and how old it is."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def segment_of(segments: Sequence[Segment], offset: int) -> int:
    """The index of the segment that holds an offset: the last one that does not begin behind it."""
    return max(0, bisect_right(segments, offset, key=_base_offset) - 1)


def read_batches(
    segments: Sequence[Segment], offset: int, *, end_offset: int, bytes_max: int, at_least_one_batch: bool
) -> Buffer:
    """Whole batches from the one that holds `offset` on, as many as fit; of one segment, so that the next call goes on.

    Batches that compaction has emptied are passed over where they would come first, unless nothing else is left: there
    are clients that never get on from an answer without a record.

    Args:
        end_offset: what is read ends before it; the boundary of a batch.
        at_least_one_batch: whether the first batch is returned whatever its size.

    Raises:
        DamageError: the segment's bytes are not batches.
        OSError: they could not be read.
    """
    if offset >= end_offset:
        return b""
    index = segment_of(segments, offset)
    if offset >= segments[index].next_offset:  # what stood between has been compacted away
        index += 1
    if segments[index].is_rewritten:
        index, offset = _pass_over_emptied(segments, index, offset, end_offset)
    segment = segments[index]
    end_position = segment.size if end_offset >= segment.next_offset else segment.locate(end_offset)[0]
    return segment.read(offset, bytes_max=bytes_max, end_position=end_position, at_least_one_batch=at_least_one_batch)


def find_by_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, end_offset: int
) -> FoundRecord | None:
    """The first data record from `start_offset` to below `end_offset` that is not older than a time, in ms."""
    for segment in segments:
        for position, header in segment.first_at_or_after(timestamp_ms):
            if header.base_offset >= end_offset:
                return None
            if header.is_control or header.last_offset < start_offset:
                continue
            for record in decode_records(segment.read_batch(position, header)):
                if record.timestamp_ms >= timestamp_ms and start_offset <= record.offset < end_offset:
                    return FoundRecord(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def find_latest_in_time(segments: Sequence[Segment], *, start_offset: int, end_offset: int) -> FoundRecord | None:
    """The record in that range with the greatest timestamp; the first of several (KIP-734)."""
    if start_offset >= end_offset:
        return None
    latest: int = NO_TIMESTAMP
    for segment in sorted(segments, key=lambda segment: segment.max_timestamp, reverse=True):
        if segment.max_timestamp <= latest:
            break
        if segment.base_offset < end_offset and segment.next_offset > start_offset:
            latest = max(latest, segment.latest_time(start_offset=start_offset, end_offset=end_offset))
    if latest < 0:
        return None
    return find_by_time(segments, latest, start_offset=start_offset, end_offset=end_offset)


def bytes_between(segments: Sequence[Segment], start_offset: int, end_offset: int) -> int:
    """How many bytes the batches take from the one that holds an offset up to another offset.

    Raises:
        DamageError, OSError: as `read_batches`.
    """
    size = 0
    for segment in segments if start_offset < end_offset else ():
        if segment.next_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        end = segment.size if end_offset >= segment.next_offset else segment.locate(end_offset)[0]
        start = segment.locate(start_offset)[0] if start_offset > segment.base_offset else 0
        size += end - start
    return size


def end_of_batches(segments: Sequence[Segment], offset: int, content: Buffer) -> int:
    """The offset behind the batches that `read_batches` has just read from an offset on."""
    if not len(content):
        return offset
    first_offset = decode_header(content).base_offset
    segment = segments[segment_of(segments, first_offset)]
    return segment.offset_at(segment.locate(first_offset)[0] + len(content))


def _pass_over_emptied(segments: Sequence[Segment], index: int, offset: int, end_offset: int) -> tuple[int, int]:
    """The segment and the offset to read from: of the next batch with a record, or as asked where there is none."""
    for number in range(index, len(segments)):
        segment = segments[number]
        start = max(offset, segment.base_offset)
        if start >= end_offset:
            break
        if not segment.is_rewritten:
            return number, start
        for _, header in segment.headers_from(segment.locate(start)[0]):
            if header.base_offset >= end_offset:
                return index, offset
            if header.record_count:
                return number, max(start, header.base_offset)
    return index, offset


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
