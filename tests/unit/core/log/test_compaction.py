"""What stays of single batches: the corners that scripts of whole logs do not come to."""

import pytest

from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.compaction import (
    AbortedRanges,
    BatchJudge,
    Fate,
    KeyOffsets,
    LastOfProducer,
    last_of_producers,
)
from exactlog.core.log.producer_state import ProducerEntry, RememberedBatch
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.core.record.batch_rewriting import empty_batch, index_records, keep_records
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch

NOW_MS = 1_762_539_302_883
RETENTION_MS = 1_000


def batch(*keys, base_offset=0, value=b"v", **fields):
    return build_batch([NewRecord(value, key, timestamp_ms=NOW_MS) for key in keys], base_offset=base_offset, **fields)


def transactional(*keys, base_offset=0, producer_id=1, sequence=0):
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
    return batch(*keys, base_offset=base_offset, **producer)


def marker(*, base_offset, producer_id=1, is_commit=True):
    decided = TransactionMarker(is_commit=is_commit, coordinator_epoch=0)
    return build_marker_batch(
        decided, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=base_offset
    )


def keys_of(*batches, keys_max=100):
    keys = KeyOffsets(0, keys_max=keys_max)
    for each in batches:
        header = decode_header(each)
        keys.take(header, () if header.is_control else index_records(each, header).spans)
    return keys


def judge_of(keys, *, aborted=(), last_batches=None, now_ms=NOW_MS):
    return BatchJudge(keys, AbortedRanges(aborted), last_batches or {}, now_ms=now_ms, delete_retention_ms=RETENTION_MS)


def fate(judge, each, **options):
    header = decode_header(each)
    return judge.judge(header, lambda: index_records(each, header), **options).fate


def test_the_first_records_are_taken_in_however_many_they_are_and_then_only_as_many_as_fit():
    keys = KeyOffsets(0, keys_max=2)
    many = batch(b"a", b"b", b"c")
    assert keys.has_room_for(decode_header(many))
    keys.take(decode_header(many), index_records(many, decode_header(many)).spans)
    assert len(keys) == 3
    assert not keys.has_room_for(decode_header(batch(b"d", base_offset=3)))
    assert keys.end_offset == 3


def test_records_of_one_batch_supersede_each_other():
    each = batch(b"a", b"b", b"a")
    header = decode_header(each)
    judgement = judge_of(keys_of(each)).judge(header, lambda: index_records(each, header))
    assert judgement.fate is Fate.WITH_RECORDS
    assert [span.offset for span in judgement.kept] == [1, 2]
    assert judgement.delete_horizon_ms is None


def test_what_lies_behind_the_part_whose_keys_are_known_is_not_looked_into():
    def unread():
        pytest.fail("it was read")

    judge = judge_of(keys_of(batch(b"a")))
    assert judge.judge(decode_header(batch(b"a", base_offset=1)), unread).fate is Fate.AS_IS


def test_an_aborted_batch_behind_that_part_goes_all_the_same():
    aborted = [AbortedTransaction(producer_id=1, first_offset=5, last_offset=7, last_stable_offset=8)]
    judge = judge_of(keys_of(batch(b"a")), aborted=aborted)
    assert fate(judge, transactional(b"a", base_offset=5)) is Fate.GONE
    assert fate(judge, transactional(b"a", base_offset=6, producer_id=2)) is Fate.AS_IS
    assert fate(judge, transactional(b"a", base_offset=8)) is Fate.AS_IS, "it is of the next transaction"


def test_of_control_batches_only_the_ends_of_transactions_ever_go():
    judge = judge_of(keys_of())
    assert fate(judge, marker(base_offset=3), is_end_of_transaction=False) is Fate.AS_IS
    emptied = empty_batch(decode_header(marker(base_offset=4)))
    assert fate(judge, emptied) is Fate.GONE
    kept = judge_of(keys_of(), last_batches={1: LastOfProducer(None, 0)})
    assert fate(kept, emptied) is Fate.AS_IS


def test_a_marker_of_nothing_gets_a_horizon_and_goes_behind_it():
    each = marker(base_offset=3)
    header = decode_header(each)
    judgement = judge_of(keys_of()).judge(header, lambda: index_records(each, header), is_end_of_transaction=True)
    assert (judgement.fate, judgement.delete_horizon_ms) == (Fate.WITH_RECORDS, NOW_MS + RETENTION_MS)
    content = judgement.stored.content
    later = keep_records(header, content, judgement.kept, delete_horizon_ms=judgement.delete_horizon_ms)
    before, behind = NOW_MS + RETENTION_MS - 1, NOW_MS + RETENTION_MS
    assert fate(judge_of(keys_of(), now_ms=before), later, is_end_of_transaction=True) is Fate.AS_IS
    assert fate(judge_of(keys_of(), now_ms=behind), later, is_end_of_transaction=True) is Fate.GONE


def test_the_last_batch_of_a_producer_is_emptied_once_and_stays_empty():
    each = transactional(b"a")
    newer = batch(b"a", base_offset=1)
    last = {1: LastOfProducer(0, 0)}
    assert fate(judge_of(keys_of(each, newer), last_batches=last), each) is Fate.EMPTY
    emptied = empty_batch(decode_header(each))
    assert fate(judge_of(keys_of(each, newer), last_batches=last), emptied) is Fate.AS_IS
    assert fate(judge_of(keys_of(each, newer)), emptied) is Fate.GONE


def test_the_last_of_each_producer_is_its_last_data_or_its_epoch():
    remembered = RememberedBatch(0, 3, 10, 13, NOW_MS)
    entries = [ProducerEntry(1, 4, batches=(remembered,)), ProducerEntry(2, 9)]
    assert last_of_producers(entries) == {1: LastOfProducer(13, 4), 2: LastOfProducer(None, 9)}
