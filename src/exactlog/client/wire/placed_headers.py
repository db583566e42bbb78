"""Headers of fetched batches, each at an offset where it can lie; and where to read on behind one that is damaged."""

import struct
from collections.abc import Iterator

from exactlog.client.ports import DamagedBatchError
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.record.batch_format import HEADER, BatchHeader, iter_headers

Placed = tuple[int, BatchHeader]


def placed_headers(
    records: Buffer, *, place: TopicPartition, from_offset: Offset, end: Offset | None, is_end_newer: bool = True
) -> Iterator[Placed]:
    """Position and header of each batch of an answer; the last one may be cut short.

    The checksum covers neither the offset nor the length of a batch. But what was asked for begins with the batch that
    has that offset or the next one behind it, and offsets rise.

    Args:
        records: as fetched.
        place: for messages.
        from_offset: what was asked for.
        end: no batch reaches beyond; None: not known.
        is_end_newer: whether that is certain for the first batch, which was there before `end` was told. Apache Kafka
            looks at its high watermark before it reads: what was committed in between lies beyond it. Where it is not
            certain, the answer ends before such a batch.

    Raises:
        DamagedBatchError: one lies where it cannot lie, or is none; or not one is whole.
    """
    headers = _headers_until_damage(records)
    behind, is_first, position = int(from_offset), True, 0
    found = next(headers)
    while isinstance(found, tuple):
        position, header = found
        following = next(headers)
        reaches = header.next_offset > behind if is_first else header.base_offset >= behind
        overlaps = (
            header.base_offset > behind
            and isinstance(following, tuple)
            and following[1].base_offset < header.next_offset
        )
        is_beyond = end is not None and header.next_offset > end
        is_possible = reaches and not overlaps and header.base_offset >= 0 and header.last_offset_delta >= 0
        if is_possible and is_beyond and not (is_first and is_end_newer):
            return
        if is_beyond or not is_possible:
            raise _damaged(
                f"{place}: the batch at offset {behind} says that it is that of the offsets from {header.base_offset} "
                f"to {header.last_offset}",
                records,
                position,
                begin=behind,
            )
        yield found
        behind, is_first, found, position = header.next_offset, False, following, position + header.size_bytes
    if found is not None:
        raise _damaged(f"{place}: the batch at offset {behind}: {found}", records, position, begin=behind) from found
    if is_first and len(records):
        told = f"{place}: {len(records)} bytes were fetched from offset {from_offset}, and no whole batch"
        raise _damaged(told, records, 0, begin=behind)


def offset_behind(records: Buffer, position: int, *, begin: int) -> int:
    """Where to read on behind a damaged batch: where the next one begins, as far as one or the other still tells.

    Args:
        records: as fetched.
        position: of the damaged batch.
        begin: the first of its offsets that is asked about; the answer is higher.
    """
    size_bytes, count = _claims(records, position)
    claimed = None if count is None else begin + count
    following = _offset_at(records, position + size_bytes)
    if following is not None and begin < following and (claimed is None or following <= claimed):
        return following
    return begin + 1 if claimed is None else claimed


def _headers_until_damage(records: Buffer) -> Iterator[Placed | DecodeError | None]:
    """Each header, and at the end what was wrong with the next one, or None."""
    try:
        yield from iter_headers(records, may_be_cut=True)
    except DecodeError as error:
        yield error
    else:
        yield None


def _damaged(message: str, records: Buffer, position: int, *, begin: int) -> DamagedBatchError:
    return DamagedBatchError(message, offset=begin, next_offset=offset_behind(records, position, begin=begin))


def _claims(records: Buffer, position: int) -> tuple[int, int | None]:
    """The size that a damaged batch says it has; and how many offsets, where it says so twice alike."""
    try:
        header = BatchHeader(*HEADER.unpack_from(records, position))
    except struct.error:
        return 0, None
    count = header.last_offset_delta + 1
    return header.size_bytes, count if count == header.record_count and count > 0 else None


def _offset_at(records: Buffer, position: int) -> int | None:
    if not 0 < position < len(records):
        return None
    try:
        found = next(iter_headers(memoryview(records)[position:], may_be_cut=True), None)
    except DecodeError:
        return None
    return None if found is None else found[1].base_offset
