"""The rules of one journal, a test a cell of their table; and what a writer may expect and ask for."""

import pytest

from exactlog.core.journal import state as states
from exactlog.core.journal.action_fold import apply_action
from exactlog.core.journal.conflict import Conflict
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation, expectation_of
from exactlog.core.journal.keys import (
    SEQ_NR_MAX,
    JournalKey,
    SeqRange,
    check_range,
    check_seq_nr,
    record_id_of,
)
from exactlog.core.journal.state import JournalState
from exactlog.core.model.ids import TopicPartition
from tests.support.event_journals import append, life_at, mark, seq

OLD, NEW = life_at(1), life_at(99)
RESET = JournalState(7, 7, is_reset=True, record_id=OLD)
JOURNAL = JournalState(5, 2, record_id=OLD)


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "first", "last", "after"),
    [
        (None, 1, 2, JournalState(2, 0, record_id=NEW)),
        (None, 5, 7, JournalState(7, 4, record_id=NEW)),
        (RESET, 8, 8, JournalState(8, 7, record_id=OLD)),
        (RESET, 1, 2, JournalState(2, 0, record_id=OLD)),
        (JOURNAL, 6, 7, JournalState(7, 2, record_id=OLD)),
        (JOURNAL, 9, 9, JournalState(9, 2, record_id=OLD)),
        (JOURNAL, 4, 6, JournalState(6, 2, record_id=OLD)),
        (JOURNAL, 4, 5, JOURNAL),
    ],
)
def test_an_append_moves_the_last_number_and_never_back(before, first, last, after):
    assert states.append(before, first=first, last=last, record_id=NEW) == after


@pytest.mark.parametrize(
    ("before", "to", "after"),
    [
        (None, 3, JournalState(3, 3, is_reset=True, record_id=NEW)),
        (RESET, 9, JournalState(9, 9, is_reset=True, record_id=OLD)),
        (RESET, 3, RESET),
        (JOURNAL, 1, JOURNAL),
        (JOURNAL, 4, JournalState(5, 4, record_id=OLD)),
        (JOURNAL, 5, JournalState(5, 5, record_id=OLD)),
        (JOURNAL, SEQ_NR_MAX, JournalState(5, 5, record_id=OLD)),
    ],
)
def test_a_delete_takes_events_that_there_are_and_never_gives_back(before, to, after):
    assert states.delete(before, to=to, record_id=NEW) == after


def test_the_next_number_is_free_where_there_is_no_event():
    assert [states.taken_from(state) for state in (None, RESET, JOURNAL)] == [1, 1, 6]


def test_what_changes_nothing_gives_the_same_state_back():
    assert apply_action(JOURNAL, mark(3)) is JOURNAL
    assert apply_action(JOURNAL, append(3, 4, 5)) is JOURNAL
    assert apply_action(JOURNAL, append(3, 6, expect=seq(4))) is JOURNAL


# --- expectations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expect", "of_none", "of_reset", "of_journal"),
    [
        (ANY, True, True, True),
        (NO_STREAM, True, False, False),
        (EXISTS, False, True, True),
        (seq(7), False, True, False),
        (seq(5), False, False, True),
        (Expectation(record_id=OLD), False, True, True),
        (Expectation(record_id=NEW), False, False, False),
        (Expectation(seq_nr=5, record_id=OLD), False, False, True),
        (Expectation(seq_nr=5, record_id=NEW), False, False, False),
    ],
)
def test_an_expectation_is_judged_by_the_state(expect, of_none, of_reset, of_journal):
    assert [expect.holds(state) for state in (None, RESET, JOURNAL)] == [of_none, of_reset, of_journal]


def test_a_number_is_the_last_event():
    assert expectation_of(5) == seq(5)
    assert expectation_of(NO_STREAM) is NO_STREAM


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_that_no_event_has_cannot_be_expected(number):
    with pytest.raises(JournalInputError, match="the expected last event is from 1 to"):
        expectation_of(number)


def test_zero_is_not_expected_but_no_journal():
    with pytest.raises(JournalInputError) as told:
        expectation_of(0)

    assert "NO_STREAM" in told.value.hint


def test_a_conflict_says_what_was_expected_and_what_there_was():
    key = JournalKey("orders", "7")
    told = Conflict(key, expected=seq(4), actual=5, events=["e5"])

    assert str(told) == "journal orders/7: expected its last event to be 4, but its last event is 5"
    assert (told.code, told.expected, told.actual, told.events, told.retryable) == (
        "version-conflict",
        seq(4),
        5,
        ("e5",),
        False,
    )
    assert "no such journal" in str(Conflict(key, expected=EXISTS, actual=None))
    assert [str(expect) for expect in (ANY, NO_STREAM, EXISTS)] == ["anything", "no journal", "a journal"]
    assert str(Expectation(record_id=OLD)) == f"a journal in life {OLD}"


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_numbers_go_from_one_to_the_greatest_that_can_be_written():
    assert [check_seq_nr(1), check_seq_nr(2**63 - 1)] == [1, SEQ_NR_MAX]
    for number in (0, -5, 2**63):
        with pytest.raises(JournalInputError, match=f"not {number}"):
            check_seq_nr(number)


def test_a_range_does_not_end_before_it_begins():
    assert check_range(2, 2) == SeqRange(2, 2)
    assert [number in check_range(2, 4) for number in (1, 2, 4, 5)] == [False, True, True, False]
    with pytest.raises(JournalInputError, match="the range 3 to 2 ends before it begins"):
        check_range(3, 2)
    with pytest.raises(JournalInputError):
        check_range(0, 2)


def test_a_life_is_named_by_the_place_of_the_action_that_began_it():
    here = record_id_of(TopicPartition("orders", 0), 12)

    assert here == record_id_of(TopicPartition("orders", 0), 12)
    assert str(here) == "01e20c9a-2bc6-5a0a-a30b-5c4b2acc43b1"  # in stores: it may never change
    others = [("orders", 1, 12), ("orders", 0, 13), ("other", 0, 12), ("12:orders", 0, 1)]
    assert here not in {record_id_of(TopicPartition(topic, partition), offset) for topic, partition, offset in others}
