"""Making actions of what a writer asks for, and telling it what became of them."""

from datetime import date

import pytest

from exactlog.core.journal.action_fold import apply_actions
from exactlog.core.journal.actions import Delete, Purge
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.event_rows import payload_of, rows_of
from exactlog.core.journal.events import Event, RecordMetadata
from exactlog.core.journal.expectation import ANY, NO_STREAM, Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.judgement import (
    Appended,
    NotAsExpected,
    Overtaken,
    first_answer,
    judge_append,
    judge_appends,
)
from exactlog.core.journal.keys import SEQ_NR_MAX, SeqRange
from exactlog.core.journal.new_actions import NewEvent, Writer, new_append, new_delete, new_purge_of_due
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, TextPayload
from exactlog.core.journal.rows import DueJournal
from exactlog.core.journal.state import JournalState
from exactlog.core.model.errors import InvariantError
from tests.support.event_journals import KEY, append, life_at, mark, record, seq

JOURNAL = JournalState(5, 2, record_id=life_at(1))


def texts(*contents):
    return [NewEvent(TextPayload(content)) for content in contents]


# --- append -----------------------------------------------------------------------------------------------------------


def test_events_are_numbered_behind_the_last_one():
    made = new_append(texts("a", "b"), last_seq_nr=5, writer=Writer("host", "1.2"))

    assert (made.range, made.origin, made.version, made.expect) == (SeqRange(6, 7), "host", "1.2", ANY)
    assert payload_of(record(0, made)).events == (Event(6, TextPayload("a")), Event(7, TextPayload("b")))


def test_an_event_may_leave_a_gap_before_it():
    made = new_append([NewEvent(), NewEvent(seq_nr=9), NewEvent()], last_seq_nr=5)

    assert [event.seq_nr for event in payload_of(record(0, made)).events] == [6, 9, 10]


def test_what_an_append_says_is_in_its_rows():
    events = [NewEvent(BinaryPayload(b"\x00"), frozenset({"t"}), event_id="e1")]
    metadata = RecordMetadata('{"h":1}', '{"p":2}', ExpireAfter.of_ms(1))

    made = new_append(events, last_seq_nr=0, expect=NO_STREAM, metadata=metadata, headers={"trace": "x"})
    (row,) = rows_of(record(3, made))

    assert (row.event, row.event_id) == (Event(1, BinaryPayload(b"\x00"), frozenset({"t"})), "e1")
    assert (row.metadata, row.headers) == (metadata, {"trace": "x"})


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([], "one event at least"),
        ([NewEvent(seq_nr=5)], "an event has number 5, the one before it 5"),
        ([NewEvent(seq_nr=7), NewEvent(seq_nr=7)], "an event has number 7, the one before it 7"),
        ([NewEvent(seq_nr=0)], "not 0"),
        ([NewEvent(seq_nr=SEQ_NR_MAX), NewEvent()], "last number"),
        ([NewEvent(event_id="a"), NewEvent()], "1 of 2 events have an id"),
        ([NewEvent(event_id="a"), NewEvent(event_id="a")], "the same id"),
        ([NewEvent(TextPayload("fine")), NewEvent(JsonPayload("{"))], "event 7 is not JSON"),
    ],
)
def test_an_append_that_cannot_be_is_refused_before_anything_is_written(events, what):
    with pytest.raises(JournalInputError, match=what):
        new_append(events, last_seq_nr=5)


# --- delete and purge -------------------------------------------------------------------------------------------------


def test_a_delete_asks_for_events_that_there_are():
    assert new_delete(3, state=JOURNAL, writer=Writer("host")) == Delete(to=3, origin="host")
    assert new_delete(SEQ_NR_MAX, state=JOURNAL) == Delete(to=5)


def test_of_no_journal_nothing_is_deleted():
    assert new_delete(3, state=None) is None
    with pytest.raises(JournalInputError, match="the number to delete to"):
        new_delete(0, state=None)


def test_a_purge_of_what_is_due_gives_way_to_an_append_that_came_first():
    due = DueJournal(key=KEY, expire_on=date(2019, 12, 12), seq_nr=2, record_id=life_at(0))
    on_terms = new_purge_of_due(due)
    begun = append(0, 1, 2)

    assert on_terms == Purge(expect=Expectation(exists=True, seq_nr=2, record_id=life_at(0)))
    assert apply_actions(None, [begun, record(5, on_terms)]) is None
    assert apply_actions(None, [begun, append(4, 3), record(5, on_terms)]).seq_nr == 3
    begun_anew = [begun, record(2, Purge()), append(4, 1, 2), record(5, on_terms)]
    assert apply_actions(None, begun_anew) == JournalState(2, 0, record_id=life_at(4))


# --- the answer -------------------------------------------------------------------------------------------------------


def test_an_append_that_is_as_expected_is_told_its_last_number_and_its_place():
    assert judge_append(append(9, 6, 7, expect=seq(5)), JOURNAL) == Appended(7, 0, 9)
    assert judge_append(append(9, 1, expect=NO_STREAM), None) == Appended(1, 0, 9)


def test_one_that_is_not_is_told_what_there_was():
    assert judge_append(append(9, 7, expect=seq(6)), JOURNAL) == NotAsExpected(seq(6), 5)
    assert judge_append(append(9, 7, expect=seq(6)), None) == NotAsExpected(seq(6), None)


def test_one_without_an_expectation_is_told_when_another_came_first():
    assert judge_append(append(9, 4, 5), JOURNAL) == Overtaken(5, None)
    assert judge_append(append(9, 4, 6), JOURNAL) == Overtaken(5, 6)


def test_only_an_append_is_judged():
    with pytest.raises(InvariantError):
        judge_append(mark(9), JOURNAL)


def test_appends_of_a_transaction_are_judged_one_behind_the_other():
    first, second, third = append(9, 6, expect=seq(5)), append(10, 7, expect=seq(6)), append(11, 8, expect=seq(5))

    judgements, after = judge_appends([first, second, third], JOURNAL)

    assert judgements == (Appended(6, 0, 9), Appended(7, 0, 10), NotAsExpected(seq(5), 7))
    assert after.seq_nr == 7


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("expect", [NO_STREAM, seq(5)], ids=["no stream", "a number"])
def test_an_append_that_is_repeated_gets_the_answer_of_the_first_time(count, expect):
    """Same ids, same expectation: same answer, for one event and for many."""
    first = 1 if expect is NO_STREAM else 6
    ids = tuple(f"e{number}" for number in range(count))
    done = append(9, first, first + count - 1, expect=expect, event_ids=ids)
    again = append(12, first, first + count - 1, expect=expect, event_ids=ids)
    later = append(11, first + count, event_ids=("x",))
    state = apply_actions(None if expect is NO_STREAM else JOURNAL, [done, later])

    assert isinstance(judge_append(again, state), NotAsExpected)
    assert first_answer(again.action, [*rows_of(done), *rows_of(later)]) == Appended(first + count - 1, 0, 9)


@pytest.mark.parametrize("ids", [(), ("a",), ("b", "a"), ("a", "b", "c"), ("x", "y")])
def test_other_ids_or_none_are_a_conflict(ids):
    done = rows_of(append(9, 6, 7, event_ids=("a", "b")))
    other = append(12, 6, 5 + max(len(ids), 1), event_ids=ids)

    assert first_answer(other.action, done) is None
    assert first_answer(other.action, []) is None
