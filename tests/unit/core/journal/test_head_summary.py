"""What a stretch of the log makes of a journal; the cases of kafka-journal's head, and what it gets wrong."""

import pytest

from exactlog.core.journal.head_summary import Run, add_action, empty_summary, join, settle, summarize
from exactlog.core.journal.state import JournalState
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import TopicPartition
from tests.support.event_journals import TOPIC_PARTITION, append, delete, life_at, mark, purge, seq


def summary_of(*records, start=0, end=None):
    return summarize(TOPIC_PARTITION, records, start=start, end=records[-1].offset + 1 if end is None else end)


def after(*records, before=None):
    state = summary_of(*records).state_after(before)
    return state and (state.seq_nr, state.delete_to)


# --- the cases of kafka-journal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([append(0, 1, 2)], (2, 0)),
        ([append(0, 1, 2), append(1, 3)], (3, 0)),
        ([append(0, 1, 2), delete(1, 3)], (2, 2)),
        ([append(0, 1, 2), delete(1, 1)], (2, 1)),
        ([append(0, 1, 2), delete(1, 1), delete(2, 3)], (2, 2)),
        ([append(0, 1, 2), delete(1, 2), delete(2, 1)], (2, 2)),
        ([delete(0, 1), append(1, 1, 2)], (2, 0)),
        ([delete(0, 10), append(1, 1, 2)], (2, 0)),
        ([delete(0, 10), append(1, 2, 3)], (3, 1)),
        ([delete(0, 1), delete(1, 2)], (2, 2)),
        ([delete(0, 2), delete(1, 1)], (2, 2)),
        ([append(0, 1, 2), purge(1)], None),
        ([delete(0, 1), purge(1)], None),
        ([append(0, 1, 2), mark(1)], (2, 0)),
        ([purge(0), append(1, 1)], (1, 0)),
    ],
)
def test_a_head_without_a_store_behind_it(records, expected):
    assert after(*records) == expected


def test_only_a_mark_is_an_empty_head():
    summary = summary_of(mark(0), mark(5))

    assert summary.is_empty
    assert (summary.start, summary.end, summary.last_offset, summary.begins_at) == (0, 6, None, None)


# --- over a journal that is in the store ------------------------------------------------------------------------------

STORED = JournalState(5, 2, record_id=life_at(99))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([append(0, 6)], (6, 2)),
        ([delete(0, 9), append(1, 6, 7)], (7, 5)),
        ([append(0, 6, 7), delete(1, 9), append(2, 8)], (8, 7)),
        ([delete(0, 1)], (5, 2)),
        ([append(0, 6), delete(1, 3), delete(2, 9), append(3, 7, 9), delete(4, 4)], (9, 6)),
        ([append(0, 4, 5)], (5, 2)),
    ],
)
def test_a_head_over_a_stored_journal(records, expected):
    assert after(*records, before=STORED) == expected


def test_what_is_behind_a_purge_is_another_life():
    state = summary_of(append(0, 6), purge(1), append(2, 1)).state_after(STORED)

    assert state == JournalState(1, 0, record_id=life_at(2))


# --- what may be told of it -------------------------------------------------------------------------------------------


def test_appends_and_deletes_without_expectations_are_one_step_however_many():
    summary = summary_of(*(record for at in range(0, 200, 2) for record in (append(at, at + 1), delete(at + 1, at))))

    assert summary.size == 1
    assert isinstance(summary.steps[0], Run)


def test_an_expectation_stays_undecided_until_the_state_before_it_is_told():
    summary = summary_of(append(0, 6, expect=seq(5)), append(1, 7, expect=seq(6)), append(2, 8, expect=seq(5)))

    assert summary.size == 3
    assert summary.state_after(STORED).seq_nr == 7
    assert summary.state_after(None) is None
    settled = settle(summary, STORED)
    assert (settled.size, settled.state_after(None)) == (1, summary.state_after(STORED))
    assert settle(settled, None) is settled


def test_where_the_state_before_is_told_first_each_expectation_is_decided_as_it_comes():
    summary = settle(empty_summary(TOPIC_PARTITION, 0), STORED)
    for offset in range(100):
        summary = add_action(summary, append(offset, 6 + offset, expect=seq(5 + offset)))
        assert summary.size == 1

    assert summary.state_after(None).seq_nr == 105


def test_behind_a_purge_an_expectation_is_decided_at_once():
    summary = summary_of(append(0, 6, expect=seq(5)), purge(1), append(2, 1), append(3, 2, expect=seq(1)))

    assert (summary.size, summary.state_after(STORED).seq_nr) == (1, 2)


def test_it_says_where_the_log_has_to_be_read_from():
    assert summary_of(mark(0), append(3, 6), delete(4, 1)).begins_at == 3
    assert summary_of(append(3, 6), purge(5), mark(6)).begins_at is None
    assert summary_of(append(3, 6), purge(5), append(9, 1), append(12, 2)).begins_at == 9
    assert summary_of(append(3, 6), purge(5), append(9, 1), append(12, 2)).last_offset == 12


# --- joining ----------------------------------------------------------------------------------------------------------


def test_stretches_that_do_not_follow_each_other_are_not_joined():
    first, third = summary_of(append(0, 1)), summary_of(append(4, 2), start=2)
    overlapping = summary_of(append(1, 2), append(2, 3), start=1)

    for pair in ((first, third), (third, first), (summary_of(append(0, 1), append(1, 2)), overlapping)):
        with pytest.raises(InvariantError, match="do not follow each other"):
            join(*pair)


def test_stretches_of_two_partitions_are_not_joined():
    with pytest.raises(InvariantError, match="orders-0 cannot be joined to orders-1"):
        join(empty_summary(TOPIC_PARTITION, 0, 4), empty_summary(TopicPartition("orders", 1), 4, 5))


def test_a_stretch_that_was_settled_can_be_joined_to_the_one_before_it():
    first, second = summary_of(append(0, 6)), summary_of(append(1, 7, expect=seq(6)), start=1)

    joined = join(first, settle(second, first.state_after(STORED)))

    assert joined.state_after(None) == join(first, second).state_after(STORED)
    assert (joined.start, joined.end, joined.begins_at, joined.last_offset) == (0, 2, 0, 1)
    quiet = join(first, settle(empty_summary(TOPIC_PARTITION, 1, 5), first.state_after(STORED)))
    assert (quiet.begins_at, quiet.last_offset, quiet.state_after(None).seq_nr) == (0, 0, 6)


# --- from the middle on -----------------------------------------------------------------------------------------------


def test_from_behind_its_last_action_on_nothing_is_left():
    summary = summary_of(append(3, 6), end=8)

    assert summary.since(3) == empty_summary(TOPIC_PARTITION, 4, 8)
    assert summary.since(20) == empty_summary(TOPIC_PARTITION, 21, 21)


def test_before_its_start_it_knows_nothing():
    assert summary_of(append(3, 6), start=2).since(0) is None
    assert summary_of(append(3, 6), start=2).since(1) is not None


def test_a_run_on_both_sides_is_applied_again_where_that_does_no_harm():
    summary = summary_of(append(3, 6), delete(4, 6), append(5, 7))

    assert summary.since(4).state_after(JournalState(6, 6)) == JournalState(7, 6)


def test_a_run_in_which_a_delete_names_events_behind_it_is_not_applied_twice():
    """Applied to a journal that holds event 6 already, the delete to 9 would take it."""
    summary = summary_of(delete(3, 9), append(4, 6), append(5, 7))

    assert summary.since(4) is None
    assert summary.since(2).state_after(STORED) == summary.state_after(STORED)


def test_steps_with_expectations_are_told_apart():
    summary = summary_of(append(3, 6, expect=seq(5)), append(4, 7, expect=seq(6)), append(5, 8, expect=seq(7)))

    rest = summary.since(4)

    assert (rest.size, rest.begins_at) == (1, 5)
    assert rest.state_after(JournalState(7, 0)).seq_nr == 8


def test_what_comes_twice_is_passed_over():
    summary = summary_of(append(3, 6), append(5, 7))

    assert add_action(summary, append(3, 6)) is summary
    assert add_action(summary, purge(5)) is summary
    assert summarize(TOPIC_PARTITION, [append(3, 6), append(3, 6)], start=0, end=4) == summary_of(append(3, 6))
