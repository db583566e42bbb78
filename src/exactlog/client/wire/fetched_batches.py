"""What a reader sees of fetched batches: from where it stands, and under its isolation level (KIP-98)."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from exactlog.client.ports import DamagedBatchError, IsolationLevel
from exactlog.client.wire.placed_headers import offset_behind, placed_headers
from exactlog.core.codec.compression import decompress
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.protocol.messages.fetch import AbortedTransaction
from exactlog.core.record.batch_format import BATCH_OVERHEAD, BatchHeader, crc_is_valid
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import Record, decode_records

_NOTHING: Final[tuple[Record, ...]] = ()


class FetchedBatch(msgspec.Struct, frozen=True, gc=False):
    """A whole batch of an answer, still as it was stored; its checksum is good.

    Attributes:
        place: where it is from.
        header: its header.
        is_visible: whether the reader sees its records. It passes the others by.
    """

    place: TopicPartition
    header: BatchHeader
    is_visible: bool
    _answer: Buffer
    _position: int

    def records(self) -> Iterator[Record]:
        """Its records, one by one; raises as `decode_records`."""
        return decode_records(self._answer, self._position, header=self.header)

    def decompressed(self) -> bytes:
        """Its records as bytes (`core.record.record_format`), without the header.

        Raises:
            DecodeError: they are malformed, or too large; names the place and the offset.
        """
        stored = memoryview(self._answer)[self._position + BATCH_OVERHEAD : self._position + self.header.size_bytes]
        try:
            return decompress(self.header.compression, stored) if stored else b""
        except DecodeError as error:
            raise DecodeError(f"{self.place}: the batch at offset {self.header.base_offset}: {error}") from error


def visible_batches(
    records: Buffer,
    aborted_transactions: Iterable[AbortedTransaction],
    *,
    place: TopicPartition,
    from_offset: Offset,
    isolation: IsolationLevel,
    include_control: bool = False,
    end: Offset | None = None,
    is_end_newer: bool = True,
) -> Iterator[tuple[BatchHeader, Iterable[Record]]]:
    """Every batch of an answer with those of its records that the reader sees, perhaps none.

    Arguments and errors are those of `judged_batches`; records below `from_offset` are left out.
    """
    for batch in judged_batches(
        records,
        aborted_transactions,
        place=place,
        from_offset=from_offset,
        isolation=isolation,
        include_control=include_control,
        end=end,
        is_end_newer=is_end_newer,
    ):
        yield batch.header, _records_from(batch, from_offset) if batch.is_visible else _NOTHING


def judged_batches(
    records: Buffer,
    aborted_transactions: Iterable[AbortedTransaction],
    *,
    place: TopicPartition,
    from_offset: Offset,
    isolation: IsolationLevel,
    include_control: bool = False,
    end: Offset | None = None,
    is_end_newer: bool = True,
) -> Iterator[FetchedBatch]:
    """Every batch of an answer, and whether the reader sees what is in it.

    A broker names the aborted transactions that reach into the answer, by producer and first offset. Such a producer's
    batches are left out from that offset on until its abort marker, as Kafka's consumer does it; markers of commits in
    between change nothing.

    Args:
        records: whole batches, as fetched; the first may begin below `from_offset`, the last may be cut short.
        aborted_transactions: as fetched with them; looked at with READ_COMMITTED alone.
        place: for messages.
        from_offset: where the reader stands, for messages.
        isolation: of the reader.
        include_control: whether control records are seen.
        end: the high watermark, as fetched with them; None: not known.
        is_end_newer: whether no batch can lie beyond it; see `placed_headers`.

    Raises:
        DamagedBatchError: a batch is damaged, or not one is whole.
    """
    to_come = deque(sorted(aborted_transactions, key=lambda aborted: aborted.first_offset))
    aborted_producers: set[int] = set()
    placed = placed_headers(records, place=place, from_offset=from_offset, end=end, is_end_newer=is_end_newer)
    for position, header in placed:
        if not crc_is_valid(records, position):
            raise DamagedBatchError(
                f"{place}: the batch at offset {header.base_offset} fails its checksum",
                offset=header.base_offset,
                next_offset=offset_behind(records, position, begin=header.base_offset),
            )
        is_visible = include_control or not header.is_control
        if isolation is IsolationLevel.READ_COMMITTED and header.has_producer_id:
            while to_come and to_come[0].first_offset <= header.last_offset:
                aborted_producers.add(to_come.popleft().producer_id)
            if header.is_control:
                if _is_abort(records, position, header):
                    aborted_producers.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborted_producers:
                is_visible = False
        yield FetchedBatch(place, header, is_visible, records, position)


def _is_abort(records: Buffer, position: int, header: BatchHeader) -> bool:
    marker = next((decode_marker(record) for record in decode_records(records, position, header=header)), None)
    return marker is not None and not marker.is_commit


def _records_from(batch: FetchedBatch, from_offset: Offset) -> Iterator[Record]:
    return (record for record in batch.records() if record.offset >= from_offset)
