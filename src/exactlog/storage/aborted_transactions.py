"""Which transactions were aborted, over the segments of a partition; and their indexes made anew from the log."""

import logging
from collections.abc import Collection, Sequence

from exactlog.core.log.aborted_index_format import AbortedInRange, AbortedTransaction
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.ids import Offset
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.control_record_format import decode_marker_batch
from exactlog.storage.log_reading import segment_of
from exactlog.storage.segment import Segment

_logger = logging.getLogger(__name__)


def find_aborted(
    segments: Sequence[Segment], start_offset: Offset, end_offset: Offset
) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that reach into a range of offsets, by first offset.

    Args:
        segments: of the partition.
        start_offset: the first offset of the range; a transaction may have begun before it.
        end_offset: its exclusive end, at most the last stable offset.

    Raises:
        DamageError, OSError: an index is damaged and the segments, from which it could be made anew, are too.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[segment_of(segments, start_offset) :]:
        if not len(segment.aborted):
            continue
        in_range = _ask(segments, segment, start_offset, end_offset)
        found += in_range.transactions
        if in_range.is_complete:
            break
    found.sort(key=lambda aborted: aborted.first_offset)
    return tuple(found)


def rebuild_aborted(segments: Sequence[Segment], damaged: Collection[Segment]) -> None:
    """Makes the indexes of segments anew, in memory, by a walk through all segments up to the last of them.

    Where the beginning of a transaction has been removed, its row has the first offset that is left of it.

    Raises:
        DamageError, OSError: the segments' bytes are not batches, or cannot be read.
    """
    left, producers = set(damaged), ProducerStates()
    for segment in segments:
        if not left:
            return
        transactions = []
        for position, header in segment.headers_from(0):
            aborted = _follow(producers, segment, position, header)
            if aborted is not None:
                transactions.append(aborted)
        if segment in left:
            left.remove(segment)
            segment.aborted.replace(transactions)


def _ask(segments: Sequence[Segment], segment: Segment, start_offset: Offset, end_offset: Offset) -> AbortedInRange:
    try:
        return segment.aborted.find(start_offset, end_offset)
    except (DamageError, OSError) as error:
        _logger.warning("%s: its index of aborted transactions cannot be used: %s", segment.path, error)
        rebuild_aborted(segments, [segment])
        _logger.warning("%s: the index of aborted transactions was made anew", segment.path)
        return segment.aborted.find(start_offset, end_offset)


def _follow(
    producers: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> AbortedTransaction | None:
    """One more batch; the transaction that it aborts, if it is the marker of one."""
    if header.is_control:
        try:
            marker = decode_marker_batch(segment.read_batch(position, header))
        except DecodeError as error:
            raise DamageError(f"{segment.path}, byte {position}: {error}") from error
        return None if marker is None else producers.replay_marker(header, marker)[1]
    if header.is_transactional:
        producers.replay(header)
    return None
