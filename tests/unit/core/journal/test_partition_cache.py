"""The head of a partition, kept in mind: what it can tell, what it cannot, and what it must not keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.head_summary import settle
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.partition_cache import (
    STEPS_PER_JOURNAL_MAX,
    Ahead,
    Behind,
    Found,
    PartitionCache,
    Unknown,
)
from exactlog.core.journal.state import JournalState
from tests.support.event_journals import TOPIC_PARTITION, append, delete, mark, purge, seq


def at(offset, key_id, first=None, **more):
    return append(offset, first or offset + 1, key=JournalKey("orders", key_id), **more)


def a_cache(*records, start=0, end=None, **bounds):
    cache = PartitionCache(TOPIC_PARTITION, start=start, **bounds)
    if records:
        cache.add(records, end=records[-1].offset + 1 if end is None else end)
    return cache


def told(cache, key_id, end):
    """The last number of the journal, or in a word why there is none."""
    match cache.get(key_id, end=end):
        case Found(summary):
            state = summary.state_after(None)
            return None if state is None else state.seq_nr
        case Unknown(reason):
            return reason
        case answer:
            return type(answer)


# --- how far it is ----------------------------------------------------------------------------------------------------


def test_before_anything_was_read_it_is_behind():
    assert told(a_cache(), "a", 1) is Behind


def test_where_the_store_is_as_far_the_log_is_not_needed():
    cache = a_cache()
    cache.remove(1)

    assert [told(cache, "a", end) for end in (0, 1, 2)] == [Ahead, Ahead, Ahead]
    assert told(cache, "a", 3) is Behind
    assert (cache.start, cache.end) == (2, 2)


def test_it_tells_up_to_where_it_has_read():
    cache = a_cache(at(0, "a", 1), at(1, "b", 1), at(2, "a", 2))

    assert [told(cache, key_id, 3) for key_id in ("a", "b", "c")] == [2, 1, None]
    assert told(cache, "a", 4) is Behind


def test_what_was_read_says_by_how_much_it_is_further():
    cache = a_cache()

    assert cache.add([at(0, "a")], end=2) == 2
    assert cache.add([at(1, "a")], end=2) == 0
    assert cache.add([at(1, "a"), at(2, "a")], end=4) == 2
    assert (cache.remove(1), cache.remove(1), cache.remove(0), cache.remove(3)) == (2, 0, 0, 2)


def test_what_was_read_twice_counts_once():
    once, twice = a_cache(at(0, "a"), at(1, "a")), a_cache(at(0, "a"), at(1, "a"))
    twice.add([at(0, "a"), at(1, "a")], end=2)

    assert twice.get("a", end=2) == once.get("a", end=2)


def test_marks_move_it_on_and_take_no_room():
    cache = a_cache(mark(0), mark(1), steps_max=1)

    assert (cache.steps, cache.end, told(cache, "a", 2)) == (0, 2, None)


def test_the_answer_begins_at_what_is_replicated():
    cache = a_cache(at(0, "a"), at(3, "b"), end=6)
    cache.remove(1)

    of_b, of_others = cache.get("b", end=6), cache.get("c", end=6)

    assert (of_b.summary.start, of_b.summary.end) == (0, 6)
    assert (of_others.summary.start, of_others.summary.end) == (2, 6)


def test_journals_that_are_replicated_go():
    cache = a_cache(at(0, "a"), at(1, "b"), at(2, "c"), at(3, "a"))
    assert cache.steps == 3

    cache.remove(1)
    assert (cache.steps, told(cache, "a", 4), told(cache, "b", 4)) == (2, 4, None)
    cache.remove(3)
    assert (cache.steps, told(cache, "a", 4)) == (0, Ahead)


def test_what_the_store_has_already_is_not_kept():
    cache = a_cache()
    cache.remove(5)

    assert cache.add([at(4, "a"), at(5, "b"), at(6, "c")], end=7) == 7
    assert cache.steps == 1
    assert [told(cache, key_id, 7) for key_id in ("a", "c")] == [None, 7]


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "kept"), [(0.4, ["c"]), (0.5, ["c"]), (1.0, ["c"]), (0.0, ["b", "c"])], ids=lambda value: f"{value}"
)
def test_when_there_are_too_many_the_oldest_go(share, kept):
    cache = a_cache(at(0, "a"), at(1, "b"), at(2, "c"), steps_max=2, dropped_share=share)

    assert [key_id for key_id in "abc" if isinstance(cache.get(key_id, end=3), Found)] == kept
    assert told(cache, "a", 3) == told(cache, "unheard of", 3) == "limited"


def test_what_was_dropped_is_no_matter_once_it_is_replicated():
    cache = a_cache(at(0, "a"), at(1, "b"), at(2, "c"), steps_max=2, dropped_share=0.5)
    cache.remove(1)

    assert [told(cache, key_id, 3) for key_id in "abc"] == [None, None, 3]
    assert cache.start == 2


def test_a_journal_that_was_dropped_and_comes_again_is_not_taken_for_whole():
    cache = a_cache(at(0, "a"), at(1, "b"), at(2, "c"), at(3, "a"), steps_max=2, dropped_share=0.5)

    (summary,) = [cache.get("a", end=4).summary]
    assert summary.start > 0
    assert summary.since(-1) is None, "there is an action before it that it does not know"


def test_the_newest_journal_is_kept_however_small_the_cache():
    cache = a_cache(at(0, "a"), at(1, "b"), steps_max=1, dropped_share=1.0)

    assert (told(cache, "a", 2), told(cache, "b", 2)) == ("limited", 2)


def test_too_many_undecided_actions_of_one_journal_are_not_kept():
    records = [at(offset, "a", offset + 1, expect=seq(offset or 1)) for offset in range(STEPS_PER_JOURNAL_MAX + 5)]
    cache = a_cache(*records)

    assert told(cache, "a", len(records)) == "undecided"
    assert (cache.steps, told(cache, "b", len(records))) == (1, None)
    cache.remove(len(records) - 1)
    cache.add([at(len(records), "a")], end=len(records) + 1)
    assert isinstance(cache.get("a", end=len(records) + 1), Found)


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_makes_one_journal_unknown_and_no_other():
    cache = a_cache(at(0, "a"), at(1, "b"))

    assert cache.add_unreadable("a", offset=2) == 1
    cache.add([at(3, "a"), at(4, "b")], end=5)

    assert [told(cache, key_id, 5) for key_id in "abc"] == ["unreadable", 5, None]
    assert cache.steps == 2
    assert cache.add_unreadable("b", offset=1) == 0
    cache.remove(4)
    cache.add([at(5, "a")], end=6)
    assert told(cache, "a", 6) == 6


# --- whether a journal is as it was -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_id", "after", "before", "expected"),
    [
        pytest.param("a", 2, 6, True, id="its last action is not behind"),
        pytest.param("a", 1, 6, False, id="one lies between"),
        pytest.param("a", 0, 2, True, id="the last one stands where it is looked to"),
        pytest.param("a", -1, 2, False, id="there is one before that"),
        pytest.param("b", 1, 6, True, id="it has one action, before"),
        pytest.param("b", -1, 1, True, id="it has one action, behind"),
        pytest.param("c", -1, 6, True, id="it has none"),
        pytest.param("c", -1, 7, False, id="not all of that was read"),
        pytest.param("c", -2, 3, False, id="it does not know everything from there on"),
    ],
)
def test_it_knows_that_nothing_of_a_journal_lies_between_two_offsets(key_id, after, before, expected):
    cache = a_cache(at(0, "a"), at(1, "b"), at(2, "a"), end=6)

    assert cache.is_untouched(key_id, after=after, before=before) == expected


def test_it_knows_so_of_what_is_replicated_too():
    cache = a_cache(at(0, "a"), at(1, "b"), at(2, "a"), at(3, "c"))
    cache.remove(3)

    assert [cache.is_untouched("a", after=after, before=4) for after in (-1, 0, 1, 2)] == [False, False, False, True]
    assert cache.is_untouched("b", after=1, before=4)


def test_of_what_it_has_not_read_or_has_forgotten_it_does_not_say_so():
    not_read = a_cache(at(0, "a"), at(1, "b"))
    not_read.remove(2)
    forgotten = a_cache(at(0, "a"), at(1, "b"), at(2, "c"), at(3, "d"), steps_max=2)

    assert [not_read.is_untouched("a", after=after, before=3) for after in (0, 1, 2)] == [False, False, True]
    assert [forgotten.is_untouched("a", after=after, before=4) for after in (0, 1, 2)] == [False, True, True]


@given(st.data())
def test_whatever_comes_it_never_says_so_where_there_was_an_action(data):
    cache, seen, end, pointer = a_cache(steps_max=4, dropped_share=0.5), [], 0, -1
    for _ in range(data.draw(st.integers(1, 25))):
        key_id, kind = data.draw(st.sampled_from("abcdef")), data.draw(st.integers(0, 9))
        if kind == 0 and end:
            pointer = data.draw(st.integers(pointer, end + 1))
            cache.remove(pointer)
            seen.extend((one, offset) for one in "abcdef" for offset in range(end, pointer + 1))  # whatever it was
            end = max(end, pointer + 1)
        elif kind == 1:
            cache.add_unreadable(key_id, offset=end)
            seen.append((key_id, end))
            end += 1
        elif kind == 2:
            cache.add([mark(end, key=JournalKey("orders", key_id))], end=end + 1)
            end += 1
        else:
            cache.add([at(end, key_id, end + 1)], end=end + 1)
            seen.append((key_id, end))
            end += 1
    for key_id in "abcdef":
        for after in range(-1, end):
            for before in range(after + 1, end + 1):
                is_there = any(of == key_id and after < offset < before for of, offset in seen)
                is_untouched = cache.is_untouched(key_id, after=after, before=before)
                assert not (is_there and is_untouched)
                if cache._touched_from <= after + 1 and before == end:
                    assert is_untouched == (not is_there)


# --- settled summaries ------------------------------------------------------------------------------------------------


def test_a_settled_summary_takes_the_place_of_the_undecided_one():
    cache = a_cache(at(0, "a", 6, expect=seq(5)), at(1, "a", 7, expect=seq(6)), end=4)
    before = JournalState(5)
    summary = cache.get("a", end=3).summary

    cache.put_settled("a", settle(summary, before))
    cache.add([at(4, "a", 8, expect=seq(7))], end=5)

    assert (cache.steps, told(cache, "a", 5)) == (1, 8)


def test_a_settled_summary_that_was_overtaken_is_not_taken():
    cache = a_cache(at(0, "a", 6, expect=seq(5)))
    settled = settle(cache.get("a", end=1).summary, JournalState(5))
    cache.add([at(1, "a", 7, expect=seq(6))], end=2)

    cache.put_settled("a", settled)
    cache.put_settled("b", settled)
    cache.put_settled("a", cache.get("a", end=2).summary)  # not settled

    assert cache.get("a", end=2).summary.state_after(JournalState(5)).seq_nr == 7
    assert cache.steps == 2


def test_purges_and_deletes_are_kept_like_appends():
    key = JournalKey("orders", "a")
    cache = a_cache(at(0, "a"), delete(1, 1, key=key), purge(2, key=key), purge(3, expect=Expectation(), key=key))

    assert (cache.steps, told(cache, "a", 4)) == (1, None)
