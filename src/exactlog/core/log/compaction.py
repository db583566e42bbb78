"""Compaction of a topic by key: what stays of each batch, and until when.

Apache Kafka's rules (``Cleaner``, KIP-58, KIP-98, KIP-534; trunk of August 2026):

    what                                          stays
    the newest record of a key                    always; a newer one in the part that is not compacted does not count
    an older record, one without a key            never
    a tombstone that is the newest of its key     until its delete horizon, which is set when it is first compacted: now
                                                  + `delete.retention.ms`. It stands in the header of its batch
    a record of an aborted transaction            never; none is ever the newest of its key
    the marker of a transaction                   while a batch of it is left, then until its delete horizon
    the last batch of a producer                  always, though without records if none of them stays, so that its
                                                  sequence can be found in the log; a marker that has only the epoch to
                                                  tell stays whole (in Kafka without its record, and tells nothing)

Keys are told apart by 16 bytes of BLAKE2b, and only so many are known at a time (`COMPACTION_KEYS_MAX`). Where there
are more, the log is compacted in several passes: each knows the keys of one part of it, behind that of the pass before,
and removes older records of these keys from the start of the log on.

All of it goes through the log once, batch by batch, from its start.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.producer_state import ProducerEntry
from exactlog.core.model.ids import Offset, ProducerEpoch, ProducerId
from exactlog.core.model.limits import COMPACTION_KEYS_MAX
from exactlog.core.record.batch_format import DELETE_HORIZON_BIT, BatchHeader
from exactlog.core.record.batch_rewriting import RecordSpan, StoredRecords

_DIGEST_BYTES: Final = 16


class KeyOffsets:
    """The newest offset of each key in a part of the log.

    Attributes:
        end_offset: the end of that part, exclusive; of what lies behind it nothing is known.
    """

    def __init__(self, start_offset: int, *, keys_max: int = COMPACTION_KEYS_MAX) -> None:
        self.end_offset = Offset(start_offset)
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, header: BatchHeader) -> bool:
        """Whether the records of a batch may be taken in; the first ones always."""
        return not self._offsets or len(self._offsets) + header.record_count <= self._keys_max

    def take(self, header: BatchHeader, spans: Iterable[RecordSpan]) -> None:
        """Takes in the next batch; of one whose records do not count, a marker or an aborted one, without spans."""
        for span in spans:
            if span.key is not None:
                self._offsets[_digest(span.key)] = span.offset
        self.end_offset = header.next_offset

    def has_newer(self, key: bytes, offset: int) -> bool:
        """Whether the part has a record of the key behind an offset."""
        return self._offsets.get(_digest(key), -1) > offset


class AbortedRanges:
    """Which batches were aborted; to be asked in rising order of offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        ranges: defaultdict[ProducerId, list[tuple[int, int]]] = defaultdict(list)
        for transaction in aborted:
            ranges[transaction.producer_id].append((transaction.first_offset, transaction.last_offset))
        self._ranges = {producer_id: sorted(found, reverse=True) for producer_id, found in ranges.items()}

    def has(self, header: BatchHeader) -> bool:
        """Whether a batch of data is of a transaction that was aborted."""
        ranges = self._ranges.get(header.producer_id) if header.is_transactional else None
        while ranges and ranges[-1][1] < header.base_offset:
            ranges.pop()
        return bool(ranges) and ranges[-1][0] <= header.base_offset  # type: ignore[index]  # bool() says so


class LastOfProducer(msgspec.Struct, frozen=True):
    """The end of what a producer has written: its last data, or where its epoch has none, only the epoch."""

    last_offset: Offset | None
    producer_epoch: ProducerEpoch


def last_of_producers(entries: Iterable[ProducerEntry]) -> dict[ProducerId, LastOfProducer]:
    """The last batches that have to stay, by their producers."""
    return {
        entry.producer_id: LastOfProducer(entry.batches[-1].offset_end if entry.batches else None, entry.producer_epoch)
        for entry in entries
    }


class Fate(Enum):
    """What becomes of a batch."""

    AS_IS = "as is"
    WITH_RECORDS = "with fewer records, or with a delete horizon"
    EMPTY = "without records"
    GONE = "gone"


class Judgement(msgspec.Struct, frozen=True):
    """What becomes of a batch.

    Attributes:
        fate: in short.
        stored: the records it has, where they have been looked at.
        kept: those that stay, with `WITH_RECORDS`.
        delete_horizon_ms: the one it is to get; None where it keeps what it has.
    """

    fate: Fate
    stored: StoredRecords | None = None
    kept: Sequence[RecordSpan] = ()
    delete_horizon_ms: int | None = None


_AS_IS: Final = Judgement(Fate.AS_IS)
_EMPTY: Final = Judgement(Fate.EMPTY)
_GONE: Final = Judgement(Fate.GONE)

ReadRecords = Callable[[], StoredRecords]
"""Reads the records of the batch in question, where it has to be looked into."""


class BatchJudge:
    """One pass through the log.

    Args:
        keys: the newest offsets of the keys of this pass.
        aborted: the transactions that were aborted.
        last_batches: what has to stay of each producer that is known.
        now_ms: the time.
        delete_retention_ms: how long tombstones and markers stay from now on.
    """

    def __init__(
        self,
        keys: KeyOffsets,
        aborted: AbortedRanges,
        last_batches: Mapping[ProducerId, LastOfProducer],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._aborted = aborted
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._left: set[ProducerId] = set()  # those of whose transaction under way a batch stays

    def judge(self, header: BatchHeader, read: ReadRecords, *, is_end_of_transaction: bool = False) -> Judgement:
        """What becomes of the next batch of the log.

        Args:
            header: of the batch.
            read: gives its records.
            is_end_of_transaction: whether it is a control batch that commits or aborts; with other control records,
                or with none, it is not.
        """
        if header.is_control:
            return self._judge_control(header, read, is_end_of_transaction=is_end_of_transaction)
        judgement = self._judge_data(header, read)
        if header.is_transactional and judgement.fate is not Fate.GONE:
            self._left.add(header.producer_id)
        return judgement

    def _judge_control(self, header: BatchHeader, read: ReadRecords, *, is_end_of_transaction: bool) -> Judgement:
        if not header.record_count:
            return _AS_IS if self._is_last_of_producer(header) else _GONE
        if not is_end_of_transaction:
            return _AS_IS
        has_data = header.producer_id in self._left
        self._left.discard(header.producer_id)
        if has_data:
            return _AS_IS
        if not header.attributes & DELETE_HORIZON_BIT:
            stored = read()
            return Judgement(Fate.WITH_RECORDS, stored, stored.spans, self._horizon_ms)
        is_due = self._now_ms >= header.base_timestamp
        return _GONE if is_due and not self._is_last_of_producer(header) else _AS_IS

    def _judge_data(self, header: BatchHeader, read: ReadRecords) -> Judgement:
        if self._aborted.has(header) or not header.record_count:
            return self._without_records(header)
        if header.base_offset >= self._keys.end_offset:
            return _AS_IS
        stored = read()
        has_horizon = bool(header.attributes & DELETE_HORIZON_BIT)
        keeps_tombstones = not has_horizon or self._now_ms < header.base_timestamp
        kept = [span for span in stored.spans if self._stays(span, keeps_tombstones=keeps_tombstones)]
        if not kept:
            return self._without_records(header)
        needs_horizon = not has_horizon and any(span.is_tombstone for span in kept)
        if len(kept) == len(stored.spans) and not needs_horizon:
            return _AS_IS
        return Judgement(Fate.WITH_RECORDS, stored, kept, self._horizon_ms if needs_horizon else None)

    def _stays(self, span: RecordSpan, *, keeps_tombstones: bool) -> bool:
        if span.key is None or (span.is_tombstone and not keeps_tombstones):
            return False
        return not self._keys.has_newer(span.key, span.offset)

    def _without_records(self, header: BatchHeader) -> Judgement:
        if not self._is_last_of_producer(header):
            return _GONE
        return _EMPTY if header.record_count else _AS_IS

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_batches.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
