"""Faults of kafka-journal that were reported or found, as inputs: what comes of them here. The pure part of them."""

from itertools import pairwise, product

import pytest

from exactlog.core.journal.action_fold import apply_actions
from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.errors import JournalInputError, Repartitioned
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.head_summary import join, summarize
from exactlog.core.journal.key_journal import plan_batches
from exactlog.core.journal.key_plan import Fork, Terms
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, Place, SeqRange
from exactlog.core.journal.new_actions import NewEvent, new_append, new_purge_of_due
from exactlog.core.journal.partition_cache import Found, PartitionCache, Unknown
from exactlog.core.journal.payload import JsonPayload, TextPayload
from exactlog.core.journal.read_plan import plan_read
from exactlog.core.journal.rows import DueJournal, HeadRow
from exactlog.core.model.ids import TopicPartition
from tests.support.event_journals import KEY, TOPIC_PARTITION, StepStore, append, delete, life_at, mark, purge, record

TERMS = Terms(topic_partition=TOPIC_PARTITION, now_ms=7, segment_size=3)
EVERYTHING = SeqRange(1, SEQ_NR_MAX)


def replicate(store, *records):
    plan = plan_batches(store.head, optimize_actions(records), TERMS)
    store.do_all(plan)
    return plan


def all_cuts(records):
    """Every way to read these records in several polls."""
    for cuts in product([False, True], repeat=len(records) - 1):
        bounds = [0, *(at for at, is_cut in enumerate(cuts, start=1) if is_cut), len(records)]
        yield [records[start:end] for start, end in pairwise(bounds)]


def test_922_one_record_that_cannot_be_read_does_not_blind_the_cache():
    cache = PartitionCache(TOPIC_PARTITION, start=0)
    cache.add([append(0, 1), append(1, 1, key=JournalKey("orders", "other"))], end=2)
    cache.add_unreadable(KEY.id, offset=2)
    cache.add([append(3, 2, key=JournalKey("orders", "other"))], end=4)

    assert cache.get(KEY.id, end=4) == Unknown("unreadable")
    assert cache.get("other", end=4).summary.state_after(None).seq_nr == 2
    assert isinstance(cache.get("third", end=4), Found)


def test_924_one_event_that_cannot_be_written_refuses_its_own_append_alone():
    with pytest.raises(JournalInputError):
        new_append([NewEvent(TextPayload("fine")), NewEvent(JsonPayload("NaN"))], last_seq_nr=0)

    assert new_append([NewEvent(TextPayload("fine"))], last_seq_nr=0).range == SeqRange(1, 1)


def test_676_a_delete_tells_the_head_of_the_last_event_in_whatever_polls_it_comes():
    records = [append(1_797_039, 574), append(1_801_629, 575), mark(1_801_632), delete(1_801_642, 575)]
    before = HeadRow(
        place=Place(0, 1), segment_size=3, seq_nr=573, delete_to=384, created_ms=1, updated_ms=1, record_id=life_at(0)
    )
    for polls in all_cuts(records):
        store = StepStore()
        store.head = before
        for poll in polls:
            replicate(store, *poll)

        assert (store.head.seq_nr, store.head.delete_to, store.rows) == (575, 575, {})


def test_687_no_row_is_left_that_no_reader_gets():
    for polls in all_cuts([delete(0, 2), append(1, 1), append(2, 2)]):
        store = StepStore()
        for poll in polls:
            replicate(store, *poll)

        assert len(store.visible()) == len(store.rows)
        replicate(store, purge(3))
        assert (store.head, store.rows) == (None, {})


def test_656_events_of_a_purged_journal_do_not_come_back_in_the_next_one():
    """Even where a purge was cut short: its rows are of another life."""
    store = StepStore()
    replicate(store, append(0, 1, 7))
    store.head = None  # as a purge leaves it that dies in the middle

    replicate(store, append(2, 1, 2))

    assert store.visible() == {1: "1@2", 2: "2@2"}


def test_a_purge_that_dies_in_the_middle_is_carried_to_its_end():
    for steps_done in range(4):
        store = StepStore()
        replicate(store, append(0, 1, 7))
        for step in plan_batches(store.head, optimize_actions([purge(1)]), TERMS).steps[:steps_done]:
            store.do(step)

        replicate(store, purge(1))

        assert (store.head, store.rows) == (None, {})


def test_purged_events_do_not_come_back_while_the_purge_is_not_replicated():
    store = StepStore()
    replicate(store, append(0, 1, 7))

    summary = summarize(TOPIC_PARTITION, [purge(1), append(2, 1)], start=1, end=4)
    plan = plan_read(KEY, EVERYTHING, head=store.head, summary=summary)

    assert (plan.store, plan.wanted) == (None, SeqRange(1, 1))


def test_30_a_journal_whose_partition_changed_is_refused_by_name():
    store = StepStore()
    replicate(store, append(0, 1))
    elsewhere = Terms(topic_partition=TopicPartition("orders", 4), now_ms=7)

    with pytest.raises(Repartitioned, match="partition 0 has actions in orders-4"):
        plan_batches(store.head, optimize_actions([append(0, 2, partition=4)]), elsewhere)


def test_963_two_writers_of_the_same_numbers_are_told_apart_and_reported():
    store = StepStore()
    replicate(store, append(0, 1, 3))

    plan = replicate(store, append(1, 2, 4), append(2, 4))

    assert plan.forks == (Fork(1, SeqRange(2, 4), 3), Fork(2, SeqRange(4, 4), 4))
    assert store.visible() == {1: "1@0", 2: "2@0", 3: "3@0", 4: "4@1"}


@pytest.mark.parametrize("to", [2**63 - 1, 10])
def test_40_a_delete_beyond_the_last_event_is_no_dead_end(to):
    for polls in all_cuts([append(0, 1, 2), delete(1, to), append(2, 3)]):
        store = StepStore()
        for poll in polls:
            replicate(store, *poll)

        assert store.visible() == {3: "3@2"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([delete(0, 10), append(1, 1, 2)], (2, 0)),  # the new events are seen
        ([append(0, 1, 2), delete(1, 10), append(2, 3)], (3, 2)),
        ([append(0, 1, 5), delete(1, 4), delete(2, 2)], (5, 4)),  # a delete never goes back
    ],
)
def test_the_head_is_the_same_in_whatever_polls_it_is_read(records, expected):
    for polls in all_cuts(records):
        summary = None
        for poll in polls:
            end = poll[-1].offset + 1
            piece = summarize(TOPIC_PARTITION, poll, start=poll[0].offset, end=end)
            summary = piece if summary is None else join(summary, piece)

        state = summary.state_after(None)
        assert (state.seq_nr, state.delete_to) == expected


def test_a_purge_for_time_does_not_take_what_was_appended_before_it():
    """The job saw the journal as due; the client wrote once more; then the purge came into the log."""
    day = ExpireAfter.of_ms(86_400_000)
    store = StepStore()
    replicate(store, append(0, 1, expire_after=day))
    due = DueJournal(key=KEY, expire_on=store.head.expiry.on, seq_nr=1, record_id=store.head.record_id)
    too_late = record(2, new_purge_of_due(due))

    plan = replicate(store, append(1, 2, expire_after=day), too_late)

    assert plan.refused == (2,)
    assert store.visible() == {1: "1@0", 2: "2@1"}
    assert apply_actions(None, [append(0, 1), too_late]) is None


def test_a_day_is_a_day_in_utc_wherever_the_replicator_runs():
    just_before_midnight = 1_576_108_799_000  # 2019-12-11T23:59:59Z
    store = StepStore()

    replicate(store, append(0, 1, expire_after=ExpireAfter.of_ms(2_000), timestamp_ms=just_before_midnight))

    assert store.head.expiry.on.isoformat() == "2019-12-12"
