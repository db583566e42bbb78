"""What a reader sees, against a log that is built transaction by transaction."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.ports import IsolationLevel
from exactlog.client.wire.fetched_batches import visible_batches
from exactlog.core.codec.compression import Compression
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.fetch import AbortedTransaction
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import iter_headers
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch

PLACE = TopicPartition("orders", 0)


@dataclass
class WrittenLog:
    """A partition, and what is known of it by construction."""

    batches: bytearray = field(default_factory=bytearray)
    next_offset: int = 0
    committed: set[int] = field(default_factory=set)  # offsets of data that a read_committed reader sees
    markers: set[int] = field(default_factory=set)
    open: dict[int, list[int]] = field(default_factory=dict)  # producer id: offsets of its open transaction
    aborted: list[tuple[AbortedTransaction, int]] = field(default_factory=list)  # with the offset of the marker

    def append(self, producer_id: int, count: int, *, is_transactional: bool) -> None:
        offsets = list(range(self.next_offset, self.next_offset + count))
        self.batches += build_batch(
            [NewRecord(b"%d" % offset, timestamp_ms=0) for offset in offsets],
            base_offset=self.next_offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=is_transactional,
            compression=Compression.GZIP if count > 2 else Compression.NONE,
        )
        self.next_offset += count
        if is_transactional:
            self.open.setdefault(producer_id, []).extend(offsets)
        else:
            self.committed.update(offsets)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        offsets = self.open.pop(producer_id, [])
        self.batches += build_marker_batch(
            TransactionMarker(is_commit, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=self.next_offset,
        )
        if is_commit:
            self.committed.update(offsets)
        elif offsets:
            aborted = AbortedTransaction(producer_id=producer_id, first_offset=offsets[0])
            self.aborted.append((aborted, self.next_offset))
        self.markers.add(self.next_offset)
        self.next_offset += 1

    @property
    def last_stable_offset(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.next_offset)

    def fetch(self, offset: int, *, end: int) -> tuple[bytes, list[AbortedTransaction]]:
        """As a broker answers: from the batch of that offset on, and the aborted transactions that reach into it."""
        batches = b"".join(
            bytes(self.batches[position : position + header.size_bytes])
            for position, header in iter_headers(self.batches)
            if header.last_offset >= offset and header.base_offset < end
        )
        return batches, [row for row, marker in self.aborted if marker >= offset and row.first_offset < end]


STEPS = st.lists(
    st.tuples(st.sampled_from(["data", "data", "commit", "abort", "plain", "idempotent"]), st.integers(1, 3)),
    max_size=25,
)


def write(steps) -> WrittenLog:
    log = WrittenLog()
    for step, number in steps:
        match step:
            case "data":
                log.append(number, number + 1, is_transactional=True)
            case "commit" | "abort":
                log.end(number, is_commit=step == "commit")
            case "plain":
                log.append(-1, number, is_transactional=False)
            case "idempotent":  # the producer of a transaction may also write outside of one
                log.append(number + 10, 1, is_transactional=False)
    return log


def seen(log: WrittenLog, offset: int, end: int, isolation: IsolationLevel, **options) -> list[int]:
    batches, aborted = log.fetch(offset, end=end)
    found = visible_batches(batches, aborted, place=PLACE, from_offset=offset, isolation=isolation, **options)
    return [record.offset for _, records in found for record in records]


@given(STEPS, st.data())
def test_a_committed_reader_sees_what_was_committed_wherever_it_begins_and_stops(steps, data):
    log = write(steps)
    stable = log.last_stable_offset
    offset = data.draw(st.integers(0, stable))
    end = data.draw(st.integers(offset, stable))
    last = max((h.next_offset for _, h in iter_headers(log.batches) if h.base_offset < end), default=0)
    expected = [found for found in range(offset, last) if found in log.committed]
    assert seen(log, offset, end, IsolationLevel.READ_COMMITTED) == expected


@given(STEPS, st.data())
def test_an_uncommitted_reader_sees_all_data(steps, data):
    log = write(steps)
    offset = data.draw(st.integers(0, log.next_offset))
    expected = [found for found in range(offset, log.next_offset) if found not in log.markers]
    assert seen(log, offset, log.next_offset, IsolationLevel.READ_UNCOMMITTED) == expected


@given(STEPS)
def test_control_records_are_seen_when_asked_for(steps):
    log = write(steps)
    expected = list(range(log.next_offset))
    found = seen(log, 0, log.next_offset, IsolationLevel.READ_UNCOMMITTED, include_control=True)
    assert found == expected


@given(STEPS, st.integers(min_value=0))
def test_a_last_batch_that_is_cut_short_is_left_for_the_next_fetch(steps, cut):
    log = write(steps)
    bounds = [0, *(position + header.size_bytes for position, header in iter_headers(log.batches))]
    size = cut % (len(log.batches) + 1)
    whole = max(bound for bound in bounds if bound <= size)
    found = visible_batches(
        log.batches[:size], (), place=PLACE, from_offset=0, isolation=IsolationLevel.READ_UNCOMMITTED
    )
    if size and not whole:
        with pytest.raises(DecodeError, match=r"orders-0: .* fetched from offset 0, and no whole batch"):
            list(found)
    else:
        assert sum(header.size_bytes for header, _ in found) == whole


def test_a_damaged_batch_is_told_with_its_place():
    log = write([("plain", 1), ("plain", 2)])
    log.batches[-1] ^= 1
    found = visible_batches(log.batches, (), place=PLACE, from_offset=0, isolation=IsolationLevel.READ_UNCOMMITTED)
    header, _ = next(found)
    assert header.base_offset == 0
    with pytest.raises(DecodeError, match="orders-0: the batch at offset 1 fails its checksum"):
        next(found)
