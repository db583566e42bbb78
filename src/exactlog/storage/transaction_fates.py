"""How the transactions in a range of a log ended, for who reads the log without its broker.

A marker ends all that its producer has written in the partition since the one before, so the next marker of its
producer behind a batch tells the batch's fate. It is looked for in the log itself: an index of aborted transactions may
lag behind beside a running broker, and a reader that trusted it would show what was aborted.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.ids import Offset, ProducerId
from exactlog.core.record.batch_format import BatchHeader, crc_is_valid
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.storage.segment import Segment

_HINT: Final = "look what is wrong with `exactlog log verify`"


class StoredBatch(NamedTuple):
    """A batch that a walk has come to: where it is, and its header."""

    segment: Segment
    position: int
    header: BatchHeader

    def read(self) -> bytes:
        """Its bytes.

        Raises:
            DamageError: they are not what was written.
        """
        batch = self.segment.read_batch(self.position, self.header)
        if len(batch) < self.header.size_bytes:
            raise DamageError(f"{self.segment.path} ends inside the batch at byte {self.position}")
        if not crc_is_valid(batch):
            raise DamageError(f"{self.segment.path}: the batch at byte {self.position} does not match its checksum")
        return batch


class TransactionFates:
    """Finds the marker behind each batch that it is asked about, in rising order of offsets.

    It walks ahead of its reader, once over the log in all, and only as far as there is somebody to ask about. Of what
    lies between it keeps the markers, one number each.

    Args:
        batches: all batches from the first that will be asked about to where every transaction is decided.
    """

    def __init__(self, batches: Iterator[StoredBatch]) -> None:
        self._batches = batches
        self._markers: dict[ProducerId, deque[int]] = {}  # of each the offset, doubled; and one more for a commit

    def is_aborted(self, batch: StoredBatch) -> bool:
        """Whether a transactional batch is of a transaction that was aborted.

        Raises:
            DamageError: no marker follows, or the bytes on the way to it are not what was written.
        """
        producer_id, offset = batch.header.producer_id, batch.header.base_offset
        markers = self._markers.setdefault(producer_id, deque())
        while markers and markers[0] // 2 < offset:
            markers.popleft()
        while not markers:
            self._walk_on(batch)
        return markers[0] % 2 == 0

    def _walk_on(self, asked: StoredBatch) -> None:
        """Takes in the next marker of anybody behind the batch that is asked about."""
        for batch in self._batches:
            if batch.header.is_control and batch.header.base_offset > asked.header.base_offset:
                for offset, is_commit in _markers_of(batch):
                    self._markers.setdefault(batch.header.producer_id, deque()).append(2 * offset + is_commit)
                return
        raise DamageError(
            f"{asked.segment.path}: the transaction of producer {asked.header.producer_id} at offset "
            f"{asked.header.base_offset} has no marker, though the last stable offset lies behind it",
            hint=_HINT,
        )


def _markers_of(batch: StoredBatch) -> list[tuple[Offset, bool]]:
    try:
        return [
            (record.offset, marker.is_commit)
            for record in decode_records(batch.read())
            if (marker := decode_marker(record)) is not None
        ]
    except DecodeError as error:
        raise DamageError(f"{batch.segment.path}, byte {batch.position}: {error}", hint=_HINT) from error
