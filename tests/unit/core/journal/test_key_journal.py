"""What batches make of a journal in the store: steps, in an order that a crash may cut anywhere."""

from datetime import date

import pytest
from msgspec.structs import replace

from exactlog.core.journal.batch_optimizer import optimize_actions
from exactlog.core.journal.errors import Repartitioned
from exactlog.core.journal.expectation import EXISTS, NO_STREAM, Expectation
from exactlog.core.journal.expiry import ExpireAfter, Expiry
from exactlog.core.journal.key_journal import ROWS_PER_STEP_MAX, plan_batches
from exactlog.core.journal.key_plan import Fork, Terms
from exactlog.core.journal.keys import Place, SeqRange
from exactlog.core.journal.rows import DeleteRows, DropHead, DropSnapshots, HeadRow, PutHead, WriteRows
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import TopicPartition
from tests.support.event_journals import StepStore, append, delete, life_at, mark, purge, record, seq

NOON_MS = 1_576_145_410_000  # 2019-12-12T10:10:10Z
MINUTE, DAY = ExpireAfter.of_ms(60_000), ExpireAfter.of_ms(86_400_000)
HEAD = HeadRow(
    place=Place(0, 10), segment_size=3, seq_nr=5, delete_to=2, created_ms=1, updated_ms=1, record_id=life_at(4)
)


def plan(head, *records, now_ms=7, partition=0, segment_size=3):
    terms = Terms(topic_partition=TopicPartition("orders", partition), now_ms=now_ms, segment_size=segment_size)
    return plan_batches(head, optimize_actions(records), terms)


def kinds(planned):
    return [type(step).__name__ for step in planned.steps]


# --- append -----------------------------------------------------------------------------------------------------------


def test_a_first_append_writes_rows_and_then_a_head():
    planned = plan(None, append(3, 1, 2, origin="host"))

    rows, head = planned.steps
    assert isinstance(rows, WriteRows)
    assert [(row.seq_nr, row.place, row.record_id) for row in rows.rows] == [
        (1, Place(0, 3), life_at(3)),
        (2, Place(0, 3), life_at(3)),
    ]
    assert head == PutHead(planned.head)
    assert planned.head == HeadRow(
        place=Place(0, 3), segment_size=3, seq_nr=2, created_ms=7, updated_ms=7, record_id=life_at(3), origin="host"
    )


def test_a_journal_that_begins_later_is_deleted_to_there():
    """kafka-journal's readers walk the segments from there: without it they would stop in an empty one."""
    assert plan(None, append(3, 5, 7)).head.delete_to == 4


def test_appends_that_follow_each_other_share_their_steps():
    planned = plan(HEAD, append(11, 6), append(12, 7, expect=seq(6)), append(13, 8), append(14, 9, expect=seq(8)))

    assert kinds(planned) == ["WriteRows", "PutHead"]
    assert [row.seq_nr for row in planned.steps[0].rows] == [6, 7, 8, 9]
    assert (planned.head.seq_nr, planned.head.offset, planned.head.created_ms, planned.head.updated_ms) == (9, 14, 1, 7)


def test_many_rows_are_written_by_and_by():
    planned = plan(None, append(0, 1, ROWS_PER_STEP_MAX + 1))

    assert [len(step.rows) for step in planned.steps[:-1]] == [ROWS_PER_STEP_MAX, 1]


def test_of_a_batch_that_was_applied_in_part_the_rest_is_applied():
    planned = plan(HEAD, append(9, 4), append(10, 5), append(11, 6))

    assert [row.seq_nr for row in planned.steps[0].rows] == [6]
    assert (planned.head.seq_nr, planned.forks) == (6, ())


def test_rows_of_a_journal_from_before_record_ids_have_none_either():
    planned = plan(replace(HEAD, record_id=None), append(11, 6))

    assert planned.head.record_id is None
    assert [row.record_id for row in planned.steps[0].rows] == [None]


def test_the_segment_size_is_that_of_the_journal():
    planned = plan(HEAD, append(11, 6), segment_size=100)

    assert (planned.steps[0].segment_size, planned.head.segment_size) == (3, 3)


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_the_last_append_says_when_a_journal_expires():
    first = plan(
        None,
        append(0, 1, expire_after=DAY, timestamp_ms=NOON_MS),
        append(1, 2, expire_after=MINUTE, timestamp_ms=NOON_MS),
    )
    later = plan(first.head, append(2, 3, expire_after=DAY, timestamp_ms=NOON_MS))
    never = plan(later.head, append(3, 4, timestamp_ms=NOON_MS))

    assert first.head.expiry == Expiry(MINUTE, date(2019, 12, 12))
    assert later.head.expiry == Expiry(DAY, date(2019, 12, 13))
    assert never.head.expiry is None


def test_a_delete_leaves_the_expiry_as_it_is():
    head = replace(HEAD, expiry=Expiry(DAY, date(2019, 12, 13)))

    assert plan(head, delete(11, 3)).head.expiry == head.expiry


# --- delete -----------------------------------------------------------------------------------------------------------


def test_a_delete_without_a_journal_resets_it():
    planned = plan(None, delete(3, 4))

    assert kinds(planned) == ["PutHead"]
    assert (planned.head.seq_nr, planned.head.delete_to, planned.head.is_reset) == (4, 4, True)
    assert planned.head.record_id == life_at(3)


def test_a_delete_drops_rows_and_then_moves_the_head():
    planned = plan(HEAD, delete(11, 4, origin="host"))

    assert planned.steps == (DeleteRows(SeqRange(3, 4), 3), PutHead(planned.head))
    assert (planned.head.seq_nr, planned.head.delete_to, planned.head.offset, planned.head.origin) == (5, 4, 11, "host")


@pytest.mark.parametrize(("to", "delete_to"), [(1, 2), (2, 2), (5, 5), (6, 5), (2**63 - 1, 5)])
def test_a_delete_goes_neither_back_nor_beyond_the_last_event(to, delete_to):
    assert plan(HEAD, delete(11, to)).head.delete_to == delete_to


def test_a_second_delete_moves_the_offset_alone():
    planned = plan(HEAD, delete(11, 2))

    assert planned.steps == (PutHead(replace(HEAD, place=Place(0, 11), updated_ms=7)),)


def test_appends_before_a_delete_are_written_before_it():
    assert kinds(plan(HEAD, append(11, 6), delete(12, 3), append(13, 7))) == [
        "WriteRows",
        "PutHead",
        "DeleteRows",
        "WriteRows",
        "PutHead",
    ]


def test_a_row_deleted_beyond_its_last_event_takes_the_next_ones_all_the_same():
    """Others have written such rows: last event 300, deleted to 400."""
    head = replace(HEAD, seq_nr=300, delete_to=400)

    state = plan(head, append(11, 301)).head.state
    assert state.delete_to < state.seq_nr
    assert (plan(head, delete(11, 200)).head.seq_nr, plan(head, delete(11, 200)).head.delete_to) == (300, 300)
    assert plan(head, purge(11)).steps[0] == DeleteRows(SeqRange(301, 400), 3)


# --- purge ------------------------------------------------------------------------------------------------------------


def test_a_purge_takes_rows_snapshots_and_head_in_this_order():
    planned = plan(HEAD, purge(11))

    assert planned.steps == (DeleteRows(SeqRange(3, 5), 3), DropSnapshots(Place(0, 11)), DropHead())
    assert planned.head is None


def test_a_purge_without_a_journal_does_nothing():
    assert not plan(None, purge(3)).is_changed


def test_a_purge_takes_what_a_crash_may_have_left_of_appends_before_it():
    assert plan(None, append(1, 1, 7), purge(3)).steps == (DeleteRows(SeqRange(1, 7), 3), DropSnapshots(Place(0, 3)))
    assert plan(HEAD, append(11, 6, 9), purge(12)).steps[0] == DeleteRows(SeqRange(1, 9), 3)


def test_a_purge_may_come_again_and_an_older_one_may_not():
    assert kinds(plan(HEAD, purge(10))) == ["DeleteRows", "DropSnapshots", "DropHead"]
    assert not plan(HEAD, purge(9)).is_changed


def test_the_next_append_begins_another_life():
    planned = plan(HEAD, purge(11), append(12, 1))

    assert kinds(planned) == ["DeleteRows", "DropSnapshots", "DropHead", "WriteRows", "PutHead"]
    assert (planned.head.seq_nr, planned.head.record_id, planned.head.created_ms) == (1, life_at(12), 7)


# --- whatever comes again, comes second, is not as expected -----------------------------------------------------------


@pytest.mark.parametrize("again", [append(10, 6), append(9, 6), delete(10, 4), delete(3, 4), purge(9), mark(11)])
def test_what_was_applied_changes_nothing(again):
    assert plan(HEAD, again) == plan_batches(HEAD, (), Terms(topic_partition=TopicPartition("orders", 0), now_ms=7))


def test_a_second_append_of_the_same_numbers_is_a_fork():
    planned = plan(HEAD, append(11, 5, 6), append(12, 4, 6))

    assert planned.forks == (Fork(11, SeqRange(5, 6), 5), Fork(12, SeqRange(4, 6), 6))
    assert [(row.seq_nr, row.event.payload.content) for row in planned.steps[0].rows] == [(6, "6@11")]
    assert (planned.head.seq_nr, planned.head.offset) == (6, 12)


def test_of_two_that_expect_the_same_the_first_one_wins():
    planned = plan(HEAD, append(11, 6, expect=seq(5)), append(12, 6, 7, expect=seq(5)), append(13, 7, expect=seq(6)))

    assert planned.refused == (12,)
    assert [row.event.payload.content for row in planned.steps[0].rows] == ["6@11", "7@13"]
    assert planned.forks == ()


def test_an_action_that_is_not_as_expected_leaves_no_trace():
    other_life = Expectation(seq_nr=5, record_id=life_at(99))
    planned = plan(
        HEAD, append(11, 6, expect=NO_STREAM), delete(12, 5, expect=seq(4)), purge(13, expect=other_life), mark(14)
    )

    assert (planned.steps, planned.head, planned.refused) == ((), HEAD, (11, 12, 13))
    assert plan(None, append(0, 1, expect=EXISTS)).head is None


def test_an_append_that_cannot_be_read_stops_its_journal_and_names_the_place():
    broken = record(11, replace(append(11, 6).action, payload=b"{"))

    with pytest.raises(DecodeError, match="orders-0 offset 11, journal order-7"):
        plan(HEAD, broken)


def test_an_append_that_does_not_count_need_not_be_readable():
    broken = record(11, replace(append(11, 6).action, payload=b"{", expect=seq(99)))

    assert plan(HEAD, broken).refused == (11,)
    assert plan(HEAD, broken, purge(12)).head is None


def test_actions_in_another_partition_are_refused():
    with pytest.raises(Repartitioned, match="was in partition 0 has actions in orders-1"):
        plan(HEAD, append(3, 6, partition=1), partition=1)


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "records",
    [
        [append(0, 1, 3), delete(1, 2), append(2, 4), purge(3), append(4, 1, 2), delete(5, 2)],
        [append(0, 1, 3), append(1, 4), delete(2, 4)],
        [append(0, 1, 7), purge(1)],
        [purge(0), append(1, 1), purge(2, expect=Expectation(seq_nr=1, record_id=life_at(1)))],
    ],
)
def test_after_a_crash_between_any_two_steps_the_same_batches_make_it_good(records):
    whole = StepStore()
    whole.do_all(plan(None, *records))
    for steps_done in range(len(plan(None, *records).steps)):
        store = StepStore()
        for step in plan(None, *records).steps[:steps_done]:
            store.do(step)

        store.do_all(plan(store.head, *records))

        assert (store.head, store.rows) == (whole.head, whole.rows)
