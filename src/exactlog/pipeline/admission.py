"""How much of what waits a micro-batch takes: limits, shared fairly between partitions."""

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from exactlog.pipeline.source import Slice


class Sizes(Protocol):
    """How many bytes are in which offsets; as exactly as the source knows."""

    def size(self, piece: Slice) -> int:
        """How many bytes a piece takes."""

    def end_within(self, piece: Slice, bytes_max: int) -> int:
        """The offset up to which a piece has no more than so many bytes; its start if even its first part has more."""

    def first_end(self, piece: Slice) -> int:
        """The end of the smallest part that can be read for itself, from the start of a piece that has offsets."""


def admit(
    pieces: Sequence[Slice], sizes: Sizes, *, rows_max: int | None = None, bytes_max: int | None = None, turn: int = 0
) -> list[int]:
    """Up to which offset each piece goes into the next micro-batch.

    A limit in rows is kept in offsets: a row has an offset of its own, and some offsets have none (markers, aborted
    records), so there are never more rows. A limit in bytes may be overstepped by one batch of one partition: where its
    batches are larger than its share, it would be stuck for ever.

    Args:
        pieces: what waits, one of each partition; some may be without offsets.
        sizes: asked only where there is a limit in bytes.
        rows_max: of all together; None: no limit.
        bytes_max: of all together, of the log; None: no limit.
        turn: as for `fair_shares`.
    """
    ends = [piece.end_offset for piece in pieces]
    if rows_max is not None:
        shares = fair_shares([piece.end_offset - piece.start_offset for piece in pieces], rows_max, turn=turn)
        ends = [piece.start_offset + share for piece, share in zip(pieces, shares, strict=True)]
    if bytes_max is not None:
        cut = [replace(piece, end_offset=end) for piece, end in zip(pieces, ends, strict=True)]
        ends = _within_bytes(cut, sizes, bytes_max, turn=turn)
    return ends


def fair_shares(waiting: Sequence[int], limit: int, *, turn: int = 0) -> list[int]:
    """What of each partition is taken: all, while there is room, and no partition stands behind another.

    The shares are those of max-min fairness, in whole numbers: who has less than its share leaves the rest to the
    others, and of those that have more none gets over one more than another. They add up to the limit, or to all.

    Args:
        waiting: of each partition, in any unit.
        limit: of all together.
        turn: who gets one more where the limit cannot be divided: those from this position on, in a circle. It goes up
            by one from batch to batch, so that a limit below the number of partitions comes to each of them.
    """
    shares = [0] * len(waiting)
    room = max(0, limit)
    places = sorted((index for index, amount in enumerate(waiting) if amount > 0), key=waiting.__getitem__)
    for position, index in enumerate(places):
        level, odd = divmod(room, len(places) - position)
        if waiting[index] > level:
            left = sorted(places[position:])
            for nth, other in enumerate(left):
                shares[other] = level + ((nth - turn) % len(left) < odd)
            break
        shares[index] = waiting[index]
        room -= waiting[index]
    return shares


def _within_bytes(pieces: Sequence[Slice], sizes: Sizes, limit: int, *, turn: int) -> list[int]:
    ends = [piece.start_offset for piece in pieces]
    waiting = [sizes.size(piece) if piece.start_offset < piece.end_offset else 0 for piece in pieces]
    left = limit
    for index, share in enumerate(fair_shares(waiting, limit, turn=turn)):
        if waiting[index] <= share:
            ends[index] = pieces[index].end_offset
            left -= waiting[index]
        elif share:
            ends[index] = sizes.end_within(pieces[index], share)
            left -= sizes.size(replace(pieces[index], end_offset=ends[index]))
    # A batch may be larger than the share, for ever: whose turn it is gives one whatever it takes.
    places = [index for index, amount in enumerate(waiting) if amount > 0]
    for nth in range(len(places)):
        index = places[(nth + turn) % len(places)]
        if ends[index] == pieces[index].start_offset:
            end = sizes.first_end(pieces[index])
            size = sizes.size(replace(pieces[index], end_offset=end))
            if size <= left or nth == 0:
                ends[index] = end
                left -= size
    return ends
