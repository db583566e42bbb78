"""Seed 003, the rules that need no store and no log: a test a sentence or row."""

import pytest
from msgspec.structs import replace

from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.action_fold import apply_actions
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.head_summary import summarize
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import Terms
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, Place, SeqRange
from exactlog.core.journal.partition_cache import Ahead, Found, PartitionCache
from exactlog.core.journal.read_plan import LogReader, ReadPath, Stretch, needed_stretch, plan_read
from exactlog.core.journal.segments import event_segment, head_segment, java_hash
from tests.support.event_journals import (
    KEY,
    TOPIC_PARTITION,
    StepStore,
    append,
    delete,
    life_at,
    mark,
    naive,
    purge,
)

EVERYTHING = SeqRange(1, SEQ_NR_MAX)


def a_store(*records, segment_size=5):
    """A store after these actions, one poll each."""
    store = StepStore()
    for record in records:
        terms = Terms(topic_partition=TOPIC_PARTITION, now_ms=7, segment_size=segment_size)
        store.do_all(plan_batches(store.head, optimize_actions([record]), terms))
    return store


def rows(store):
    """E(seq_nr, segment) of the table."""
    return sorted((number, segment) for segment, number in store.rows)


def head(store):
    """A(seq_nr, delete_to, segment_size) of the table."""
    return store.head and (store.head.seq_nr, store.head.delete_to, store.head.segment_size)


# --- Cases on how records can be stored -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "segment_size", "a", "events"),
    [
        ([append(0, 1, 3)], 5, (3, None, 5), [(1, 0), (2, 0), (3, 0)]),
        ([append(0, 1, 5)], 3, (5, None, 3), [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]),
        ([append(0, 1, 5), delete(1, 2)], 3, (5, 2, 3), [(3, 0), (4, 1), (5, 1)]),
        ([append(0, 1, 5), delete(1, 5)], 3, (5, 5, 3), []),
        ([append(0, 1, 5), purge(1)], 3, None, []),
    ],
)
def test_an_aggregate_can_be_stored_so(records, segment_size, a, events):
    store = a_store(*records, segment_size=segment_size)

    assert (head(store), rows(store)) == (a, events)


# --- Expected action behaviour ----------------------------------------------------------------------------------------


def test_mark_is_no_op_for_changes_in_storage():
    assert a_store(mark(0)).head is None
    before, after = a_store(append(0, 1)), a_store(append(0, 1), mark(1))
    assert (after.head, after.rows) == (before.head, before.rows)


def test_append_without_an_entry_creates_one_with_the_number_of_the_last_event():
    store = a_store(append(0, 1, 3))

    assert (head(store), [number for number, _ in rows(store)]) == ((3, None, 5), [1, 2, 3])


def test_append_with_an_entry_updates_the_number_and_appends():
    store = a_store(append(0, 1, 3), append(1, 4))

    assert (head(store), [number for number, _ in rows(store)]) == ((4, None, 5), [1, 2, 3, 4])


def test_delete_without_an_entry_creates_one_with_both_numbers_set_to_it():
    """(allows to "reset" journal)"""
    store = a_store(delete(0, 7))
    assert (head(store), rows(store)) == ((7, 7, 5), [])

    assert (head(a_store(delete(0, 7), append(1, 8))), naive([delete(0, 7), append(1, 8)]).events) == (
        (8, 7, 5),
        {8: "8@1"},
    )


def test_delete_with_an_entry_updates_delete_to_and_deletes_the_events_up_to_it():
    store = a_store(append(0, 1, 5), delete(1, 2), delete(2, 4))

    assert (head(store), [number for number, _ in rows(store)]) == ((5, 4, 5), [5])


def test_purge_without_an_entry_does_nothing():
    assert not plan_batches(None, optimize_actions([purge(0)]), Terms(topic_partition=TOPIC_PARTITION, now_ms=7)).steps


def test_purge_with_an_entry_deletes_all_events_and_the_entry():
    store = a_store(append(0, 1, 5), delete(1, 2), purge(2))

    assert (store.head, store.rows, store.dropped_snapshots) == (None, {}, [2])


def test_append_and_delete_update_partition_and_offset():
    assert a_store(append(3, 1)).head.place == Place(0, 3)
    assert a_store(append(3, 1), delete(8, 1)).head.place == Place(0, 8)


# --- Actions ----------------------------------------------------------------------------------------------------------


def test_delete_does_not_delete_future_events():
    """Indicates attempt to delete all existing events up to passed seqNr. It will not delete future events."""
    records = [append(0, 1, 2), delete(1, 9), append(2, 3)]

    assert a_store(*records).visible() == {3: "3@2"}
    assert naive(records).events == {3: "3@2"}


def test_purge_leaves_no_data_behind_and_the_next_append_creates_a_new_journal():
    store = a_store(append(0, 1, 7), purge(1), append(2, 1))

    assert (store.visible(), len(store.rows)) == ({1: "1@2"}, 1)
    assert store.head.record_id == life_at(2)


def test_a_list_of_events_is_saved_atomically():
    """All events of an append, or none: one record, one place, one judgement."""
    made = append(0, 1, 3)

    assert a_store(made).visible() == {1: "1@0", 2: "2@0", 3: "3@0"}
    assert {row.place for row in a_store(made).rows.values()} == {made.place}


# --- Most important aspects -------------------------------------------------------------------------------------------


def test_numbering_begins_at_one():
    assert SEQ_NR_MIN == 1


def test_a_journal_that_is_deleted_below_its_last_number_recovers_from_what_is_left():
    assert a_store(append(0, 1, 5), delete(1, 3)).visible() == {4: "4@0", 5: "5@0"}


def test_a_journal_that_is_deleted_to_its_last_number_starts_with_zero_state_there():
    store = a_store(append(0, 1, 5), delete(1, 5))

    assert (store.visible(), store.head.seq_nr) == ({}, 5)
    assert head(a_store(append(0, 1, 5), delete(1, 5), append(2, 6))) == (6, 5, 5)


def test_a_purged_journal_starts_from_the_very_beginning():
    assert head(a_store(append(0, 1, 5), purge(1), append(2, 1))) == (1, None, 5)


def test_numbers_may_be_skipped():
    store = a_store(append(0, None, numbers=(1, 4)), append(1, 9), segment_size=2)

    assert (store.visible(), rows(store)) == ({1: "1@0", 4: "4@0", 9: "9@1"}, [(1, 0), (4, 1), (9, 4)])


def test_aggregates_may_have_different_segment_sizes_and_keep_theirs():
    first = a_store(append(0, 1), segment_size=2)
    terms = Terms(topic_partition=TOPIC_PARTITION, now_ms=8, segment_size=100)
    first.do_all(plan_batches(first.head, optimize_actions([append(1, 2, 3)]), terms))

    assert (head(first), rows(first)) == ((3, None, 2), [(1, 0), (2, 0), (3, 1)])


def test_the_time_to_live_is_that_of_the_last_append():
    day = ExpireAfter.of_ms(86_400_000)

    assert a_store(append(0, 1), append(1, 2, expire_after=day)).head.expiry.after == day
    assert a_store(append(0, 1, expire_after=day), append(1, 2)).head.expiry is None


def test_segments_are_numbered_from_zero():
    """math.abs(hashCode.toLong % segments), of the id in lower case; (seqNr - 1) / segmentSize."""
    assert [head_segment(key_id, segments=100) for key_id in ("ID", "user-42")] == [55, 56]
    assert head_segment("polygenelubricants", segments=100) == abs(java_hash("polygenelubricants")) % 100 == 48
    assert [event_segment(number, 3) for number in (1, 3, 4)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("key_id", "murmur2"), [("id", -1_152_384_481), ("user-42", 1_459_644_460), ("abc", 479_470_107)]
)
def test_a_journal_is_in_the_partition_that_every_client_finds(key_id, murmur2):
    assert partition_of_key(key_id.encode(), partition_count=12) == (murmur2 & 0x7FFFFFFF) % 12


# --- Reading flow, and its optimisations ------------------------------------------------------------------------------


def test_data_is_not_streamed_before_it_is_sure_that_no_delete_is_in_the_head():
    """There is no plan without a summary of the head, and its deletes are in it."""
    store = a_store(append(0, 1, 5))
    in_the_head = [append(1, 6), delete(2, 4), mark(3)]

    summary = summarize(TOPIC_PARTITION, in_the_head, start=1, end=3)
    planned = plan_read(KEY, EVERYTHING, head=store.head, summary=summary)

    assert (planned.store, planned.path) == (SeqRange(5, 6), ReadPath.STORE_THEN_LOG)


def test_optimisation_1_a_mark_that_is_replicated_spares_the_log():
    assert needed_stretch(TOPIC_PARTITION, pointer=9, end=9, log_start=0) is None
    assert needed_stretch(TOPIC_PARTITION, pointer=8, end=9, log_start=0) is None
    assert needed_stretch(TOPIC_PARTITION, pointer=7, end=9, log_start=0) == Stretch(8, 9)


def test_optimisation_3_the_head_that_was_looked_through_for_deletes_need_not_be_read_twice():
    """What was buffered of it is taken like what is streamed."""
    store, buffered = a_store(append(0, 1, 2)), [append(1, 3), append(2, 4)]
    summary = summarize(TOPIC_PARTITION, buffered, start=1, end=4)
    planned = plan_read(KEY, EVERYTHING, head=store.head, summary=summary)
    reader = LogReader(planned, planned.log, next_seq_nr=3)

    assert [row.seq_nr for record in buffered for row in reader.take(record)] == [3, 4]


def test_optimisation_4_a_store_that_caught_up_while_it_was_read_spares_the_second_consumer():
    store, head_of_log = a_store(append(0, 1, 2)), [append(1, 3)]
    summary = summarize(TOPIC_PARTITION, head_of_log, start=1, end=3)
    planned = plan_read(KEY, EVERYTHING, head=store.head, summary=summary)

    assert planned.log_after(2) is not None
    assert planned.log_after(3) is None


def test_optimisation_5_a_cache_tells_of_the_head_without_reading_it():
    cache = PartitionCache(TOPIC_PARTITION, start=0)
    cache.add([append(0, 1), append(1, 2), delete(2, 1)], end=4)

    answer = cache.get(KEY.id, end=4)
    cache.remove(3)

    assert isinstance(answer, Found)
    assert answer.summary.state_after(None) == apply_actions(None, [append(0, 1), append(1, 2), delete(2, 1)])
    assert cache.get(KEY.id, end=4) == Ahead()


def test_optimisation_7_unrelated_records_are_not_deserialised():
    """Where a journal stands is in the headers: a payload that cannot even be read changes nothing."""
    unreadable = replace(append(0, 1, 3), action=replace(append(0, 1, 3).action, payload=b"\xff"))

    assert summarize(TOPIC_PARTITION, [unreadable], start=0, end=1).state_after(None).seq_nr == 3
    assert (
        plan_batches(
            None, optimize_actions([unreadable, purge(1)]), Terms(topic_partition=TOPIC_PARTITION, now_ms=7)
        ).head
        is None
    )
