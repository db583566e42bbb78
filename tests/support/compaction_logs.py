"""Logs with keys, producers and transactions, as lists of batches; what readers make of them; compaction of them."""

from typing import NamedTuple

from hypothesis import strategies as st

from exactlog.core.codec.compression import Compression
from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.compaction import (
    AbortedRanges,
    BatchJudge,
    Fate,
    KeyOffsets,
    last_of_producers,
)
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import crc_is_valid, decode_header
from exactlog.core.record.batch_rewriting import empty_batch, index_records, keep_records
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch, decode_marker_batch
from exactlog.core.record.record_format import decode_records

FIRST_MS = 1_762_539_302_883
KEYS = [b"a", b"b", b"c", b"d", b"", b"a key of more bytes than a digest has"]
PRODUCERS = (1, 2, 3)


class Write(NamedTuple):
    """A batch of somebody (0: of nobody), in a transaction or not."""

    producer_id: int
    is_transactional: bool
    records: list
    compression: Compression


class End(NamedTuple):
    """The end of a producer's transaction; with `bumps_epoch` as of transaction version 2."""

    producer_id: int
    is_commit: bool
    bumps_epoch: bool


values = st.one_of(st.none(), st.binary(max_size=6))
records = st.lists(st.tuples(st.sampled_from([*KEYS, None]), values), min_size=1, max_size=4)
writes = st.builds(
    Write,
    st.sampled_from((0, *PRODUCERS)),
    st.booleans(),
    records,
    st.sampled_from((Compression.NONE, Compression.LZ4)),
)
ends = st.builds(End, st.sampled_from(PRODUCERS), st.booleans(), st.booleans())
scripts = st.lists(st.one_of(writes, writes, writes, ends), min_size=1, max_size=40)


class LogBuilder:
    """Makes the batches of a script: what cannot be, a transaction of nobody, say, is written another way."""

    def __init__(self):
        self.batches = []
        self.offset = 0
        self.open = set()
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.number = 0

    def run(self, script):
        for step in script:
            self.write(step) if isinstance(step, Write) else self.end(step)
        return self

    def write(self, step):
        producer = {}
        if step.producer_id:
            is_transactional = step.is_transactional or step.producer_id in self.open
            if is_transactional:
                self.open.add(step.producer_id)
            producer = {
                "producer_id": step.producer_id,
                "producer_epoch": self.epochs[step.producer_id],
                "base_sequence": self.sequences[step.producer_id],
                "is_transactional": is_transactional,
            }
            self.sequences[step.producer_id] += len(step.records)
        made = []
        for key, value in step.records:
            self.number += 1
            made.append(
                NewRecord(value, key, headers=(("n", b"%d" % self.number),), timestamp_ms=FIRST_MS + self.number)
            )
        self.add(build_batch(made, compression=step.compression, base_offset=self.offset, leader_epoch=3, **producer))

    def end(self, step):
        if step.producer_id not in self.open:
            return
        self.open.remove(step.producer_id)
        if step.bumps_epoch:
            self.epochs[step.producer_id] += 1
            self.sequences[step.producer_id] = 0
        self.number += 1
        self.add(
            build_marker_batch(
                TransactionMarker(is_commit=step.is_commit, coordinator_epoch=1),
                producer_id=step.producer_id,
                producer_epoch=self.epochs[step.producer_id],
                timestamp_ms=FIRST_MS + self.number,
                base_offset=self.offset,
                leader_epoch=3,
            )
        )

    def add(self, batch):
        self.batches.append(bytes(batch))
        self.offset = decode_header(batch).next_offset


def log_of(script):
    """The batches of a script."""
    return LogBuilder().run(script).batches


def producers_of(batches):
    """What replaying all batches makes of producers, and the transactions that were aborted."""
    states, aborted = ProducerStates(), []
    for batch in batches:
        header = decode_header(batch)
        if not header.is_control:
            states.replay(header)
        elif (marker := decode_marker_batch(batch)) is not None:
            found = states.replay_marker(header, marker)[1]
            aborted += [found] if found else []
    return states, aborted


def stable_end(batches):
    """The first offset that is undecided, or the end."""
    undecided = producers_of(batches)[0].first_undecided_offset
    if not batches:
        return 0
    return decode_header(batches[-1]).next_offset if undecided is None else undecided


def fates_of(batches):
    """For each batch of a transaction whether it was committed, by its position; None while it is open."""
    fates, waiting = {}, {}
    for index, batch in enumerate(batches):
        header = decode_header(batch)
        if header.is_control:
            marker = decode_marker_batch(batch)
            for each in waiting.pop(header.producer_id, ()) if marker else ():
                fates[each] = marker.is_commit
        elif header.is_transactional:
            waiting.setdefault(header.producer_id, []).append(index)
    return fates


def committed_records(batches):
    """What a reader of committed records gets, below the first undecided offset."""
    end, fates, found = stable_end(batches), fates_of(batches), []
    for index, batch in enumerate(batches):
        header = decode_header(batch)
        if header.is_control or header.base_offset >= end or (header.is_transactional and not fates.get(index)):
            continue
        found += decode_records(batch)
    return found


def table_of(records_):
    """The newest value of each key; of one whose newest is a tombstone, none."""
    newest = {}
    for record in records_:
        if record.key is not None:
            newest[record.key] = record
    return {key: record for key, record in newest.items() if record.value is not None}


def compact(batches, *, limit, now_ms, retention_ms, keys_max=1_000, last_batches=None):
    """The batches below `limit` compacted, pass by pass; those behind it as they are."""
    states, aborted = producers_of(batches)
    last = last_of_producers(states.snapshot()) if last_batches is None else last_batches
    start = 0
    while True:
        sealed = [batch for batch in batches if decode_header(batch).next_offset <= limit]
        rest = batches[len(sealed) :]
        keys = KeyOffsets(start, keys_max=keys_max)
        take_keys(keys, sealed, start, AbortedRanges(aborted))
        judge = BatchJudge(keys, AbortedRanges(aborted), last, now_ms=now_ms, delete_retention_ms=retention_ms)
        batches = [left for batch in sealed if (left := one_compacted(batch, judge)) is not None] + rest
        if not sealed or keys.end_offset >= decode_header(sealed[-1]).next_offset:
            return batches
        start = keys.end_offset


def take_keys(keys, sealed, start, ranges):
    for batch in sealed:
        header = decode_header(batch)
        if header.next_offset <= start:
            continue
        if header.is_control or ranges.has(header):
            keys.take(header, ())
        elif keys.has_room_for(header):
            keys.take(header, index_records(batch, header).spans)
        else:
            return


def one_compacted(batch, judge):
    header = decode_header(batch)
    is_end = header.is_control and decode_marker_batch(batch) is not None
    judgement = judge.judge(header, lambda: index_records(batch, header), is_end_of_transaction=is_end)
    match judgement.fate:
        case Fate.AS_IS:
            return batch
        case Fate.EMPTY:
            left = empty_batch(header)
        case Fate.WITH_RECORDS:
            content = judgement.stored.content
            left = keep_records(header, content, judgement.kept, delete_horizon_ms=judgement.delete_horizon_ms)
        case Fate.GONE:
            return None
    assert crc_is_valid(left)
    after = decode_header(left)
    assert (after.base_offset, after.last_offset_delta) == (header.base_offset, header.last_offset_delta)
    assert after.leader_epoch == header.leader_epoch
    assert after.compression in {header.compression, Compression.NONE if not after.record_count else header.compression}
    return left


__all__ = [
    "AbortedTransaction",
    "End",
    "LogBuilder",
    "Write",
    "committed_records",
    "compact",
    "log_of",
    "producers_of",
    "scripts",
    "stable_end",
    "table_of",
]
