import pytest

from exactlog.testing.history_format import End, EndOffset, EndOffsetRead, Poll, Polled
from tests.unit.testing.story import FAILED, UNKNOWN, Story, abort, commit, data, plain, transaction

ALL = {"high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0}

# --- aborted reads --------------------------------------------------------------------------------------------------


def test_a_committed_reader_that_is_given_an_aborted_record_is_found():
    assert transaction("x", is_commit=False).poll((0, "x")).kinds == {"aborted-read"}


def test_a_reader_of_all_records_is_given_aborted_ones():
    story = transaction("x", is_commit=False).poll((0, "x"), is_committed=False)

    assert story.log(data(0, "x"), abort(1)).kinds == set()


@pytest.mark.parametrize("outcome", [FAILED, None])
def test_a_record_of_a_transaction_that_was_not_committed_is_not_read(outcome):
    story = Story().begin("a").send("x", at=0, within="a")
    if outcome:
        story.end("a", outcome=outcome)

    assert story.poll((0, "x")).kinds == {"aborted-read"}


def test_a_refused_record_is_not_read():
    assert Story().send("x", outcome=FAILED).poll((0, "x")).kinds == {"aborted-read"}


def test_a_record_that_is_read_before_its_commit_is_asked_for_is_found():
    story = Story().begin("a").send("x", at=0, within="a").poll((0, "x")).end("a")

    assert story.kinds == {"early-read"}


def test_a_record_may_be_read_while_the_commit_is_under_way():
    story = Story().begin("a").send("x", at=0, within="a")
    story.ask(End, transaction="a", is_commit=True)

    assert story.poll((0, "x")).kinds == set()


def test_a_record_whose_commit_is_unknown_may_be_read_but_then_is_committed():
    story = Story().begin("a").send("x", at=0, within="a").end("a", outcome=UNKNOWN).poll((0, "x"))

    assert story.kinds == set()
    assert "aborted-read" in story.log(data(0, "x"), abort(1)).kinds


def test_a_transaction_of_which_something_was_read_is_not_lost():
    story = Story().begin("a").send("x", at=0, within="a").send("y", to=1, at=0, within="a").end("a", outcome=UNKNOWN)

    assert "lost-write" in story.poll((0, "x")).log(of=1).kinds


def test_a_record_at_the_last_stable_offset_is_not_given_to_a_committed_reader():
    told = {"high_watermark": 1, "last_stable_offset": 0}

    assert Story().send("x", at=0).poll((0, "x"), **told).kinds == {"unstable-read"}
    assert Story().send("x", at=0).poll((0, "x"), is_committed=False, **told).kinds == set()


# --- skipped and repeated -------------------------------------------------------------------------------------------


def test_a_record_that_a_reader_passes_over_is_found():
    story = Story().send("x", at=0).send("y", at=1).log(plain(0, "x"), plain(1, "y"))

    assert story.poll((1, "y"), start=0, end=2).kinds == {"skipped-record"}


def test_a_record_that_a_reader_passes_over_is_found_without_a_log_by_its_acknowledgement():
    assert Story().send("x", at=0).send("y", at=1).poll((1, "y"), start=0, end=2).kinds == {"skipped-record"}


def test_a_reader_passes_over_aborted_records_and_markers():
    story = transaction("x", is_commit=False).send("y", at=2).log(data(0, "x"), abort(1), plain(2, "y"))

    assert story.poll((2, "y"), start=0, end=3, aborted=((7, 0),)).kinds == set()
    assert story.poll((2, "y"), start=0, end=3, is_committed=False, session="all").kinds == {"skipped-record"}


def test_a_committed_reader_that_passes_over_an_open_record_will_not_see_it():
    story = Story().begin("a").send("x", at=0, within="a").send("y", at=1).poll((1, "y"), start=0, end=2).end("a")

    assert "skipped-record" in story.kinds


def test_a_reader_whose_position_is_not_told_goes_on_where_its_last_record_was():
    story = Story().send("x", at=0).send("y", at=1).send("z", at=2).poll((0, "x"), start=-1)

    assert story.poll((2, "z"), start=-1).kinds == {"skipped-record"}


def test_records_that_the_log_start_has_passed_are_not_skipped():
    story = Story().send("x", at=0).send("y", at=1)

    assert story.poll((1, "y"), start=0, end=2, log_start_offset=1).kinds == set()


def test_a_reader_that_goes_back_within_a_session_is_found():
    story = Story().send("x", at=0).poll((0, "x"), start=0, end=1).poll((0, "x"), start=-1)

    assert story.kinds == {"nonmonotonic-read"}


def test_a_reader_that_is_given_what_is_below_its_position_is_found():
    assert Story().send("x", at=0).send("y", at=1).poll((0, "x"), start=1).kinds == {"nonmonotonic-read"}


def test_records_of_a_poll_that_are_out_of_order_are_found():
    story = Story().send("x", at=0).send("y", at=1).poll((1, "y"), (0, "x"), start=0, end=2)

    assert story.kinds == {"nonmonotonic-read"}


def test_a_new_session_begins_where_it_likes():
    story = Story().send("x", at=0).poll((0, "x"), start=0, end=1)

    assert story.poll((0, "x"), start=0, end=1, session="other").kinds == set()


def test_two_values_at_one_offset_are_found():
    story = Story().send("x", at=0).send("y", at=0, outcome=UNKNOWN).poll((0, "x")).poll((0, "y"), session="other")

    assert "replay-differs" in story.kinds


def test_a_reader_that_sees_another_value_than_the_log_holds_is_found():
    story = Story().send("x", at=0).send("y", outcome=UNKNOWN).poll((0, "y")).log(plain(0, "x"))

    assert "replay-differs" in story.kinds


@pytest.mark.parametrize("partition", [0, 1])
def test_a_record_that_was_not_sent_there_is_a_phantom(partition):
    story = Story().send("x", to=1 - partition) if partition else Story()

    assert story.poll((0, "x"), of=partition).kinds == {"phantom-record"}


# --- offsets of a partition -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("last_stable_offset", "stable-offset-back"),
        ("high_watermark", "high-watermark-back"),
        ("log_start_offset", "log-start-back"),
    ],
)
def test_an_offset_of_a_partition_that_goes_back_is_found(told, kind):
    assert Story().poll(**{told: 5}).poll(**{told: 4}).kinds == {kind}
    assert Story().poll(**{told: 5}).poll(**{told: 5}).kinds == set()


def test_an_end_that_is_asked_for_does_not_go_back_either():
    assert Story().end_offset(5).end_offset(4).kinds == {"stable-offset-back"}
    assert Story().end_offset(5).end_offset(4, is_committed=False).kinds == set()
    assert Story().poll(high_watermark=5).end_offset(4, is_committed=False).kinds == {"high-watermark-back"}


def test_of_two_answers_that_were_under_way_together_either_may_be_older():
    story = Story()
    first = story.ask(EndOffset, topic="t", partition=0, is_committed=True)
    story.end_offset(5).answer(EndOffsetRead, first, offset=4)

    assert story.kinds == set()


def test_partitions_have_offsets_of_their_own():
    assert Story().poll(high_watermark=5).poll(high_watermark=4, of=1).kinds == set()


def test_a_last_stable_offset_above_the_high_watermark_is_found():
    assert Story().poll(high_watermark=3, last_stable_offset=4).kinds == {"stable-offset-too-high"}


@pytest.mark.parametrize(("stable", "kinds"), [(0, set()), (1, {"stable-offset-too-high"})])
def test_a_last_stable_offset_behind_an_open_record_is_found(stable, kinds):
    story = Story().begin("a").send("x", at=0, within="a").poll(high_watermark=1, last_stable_offset=stable).end("a")

    assert story.log(data(0, "x"), commit(1)).kinds == kinds


def test_the_last_stable_offset_is_judged_by_what_the_log_held_then():
    story = Story().begin("a").send("x", at=0, within="a").send("y", at=1, worker="v").end("a")
    story.poll((0, "x"), (1, "y"), start=0, end=3, high_watermark=3, last_stable_offset=3)

    assert story.log(data(0, "x"), plain(1, "y"), commit(2)).kinds == set()


def test_a_last_stable_offset_that_stays_behind_at_the_end_is_found():
    assert transaction("x").log(data(0, "x"), commit(1), stable=0).kinds == {"stable-offset-behind"}
    assert transaction("x").log(data(0, "x"), commit(1), stable=0, is_final=False).kinds == set()


# --- aborted lists --------------------------------------------------------------------------------------------------


def aborted_twice():
    """x of producer 7 at 0, y of producer 8 at 1; y ends first."""
    story = Story().begin("a").begin("b", transactional_id="other", pid=8)
    story.send("x", at=0, within="a").send("y", at=1, within="b", worker="v")
    story.end("b", is_commit=False).end("a", is_commit=False).send("z", at=4, worker="u")
    return story.log(data(0, "x"), data(1, "y", pid=8), abort(2, pid=8), abort(3), plain(4, "z"))


@pytest.mark.parametrize(
    ("start", "aborted"),
    [(0, ((7, 0), (8, 1))), (1, ((7, 0), (8, 1))), (2, ((7, 0), (8, 1))), (3, ((7, 0),)), (4, ())],
)
def test_an_aborted_list_names_what_reaches_into_the_fetch(start, aborted):
    assert aborted_twice().poll((4, "z"), start=start, end=5, aborted=aborted).kinds == set()
    for missing in aborted:
        rest = tuple(entry for entry in aborted if entry != missing)
        assert aborted_twice().poll((4, "z"), start=start, end=5, aborted=rest).kinds == {"aborted-list-wrong"}


def test_an_aborted_list_that_names_what_was_over_is_found():
    story = aborted_twice().poll((4, "z"), start=4, end=5, aborted=((7, 0),))

    assert story.kinds == {"aborted-list-wrong"}


def test_an_aborted_list_that_names_what_was_committed_is_found():
    story = transaction("x").log(data(0, "x"), commit(1)).poll((0, "x"), start=0, end=2, aborted=((7, 0),))

    assert story.kinds == {"aborted-list-wrong"}


def test_an_aborted_list_may_name_what_begins_behind_the_fetch():
    assert aborted_twice().poll(start=0, end=1, aborted=((7, 0), (8, 1))).kinds == set()
    assert aborted_twice().poll(start=0, end=1, aborted=((7, 0),)).kinds == set()


def test_an_aborted_list_of_a_fetch_without_records_may_be_empty():
    assert aborted_twice().poll(start=2, end=2, aborted=()).kinds == set()


def test_an_aborted_list_out_of_order_is_found_unless_it_is_allowed():
    story = aborted_twice().poll((4, "z"), start=0, end=5, aborted=((8, 1), (7, 0)))

    assert story.kinds == {"aborted-list-unsorted"}


def test_an_aborted_list_that_names_one_twice_is_found():
    story = aborted_twice().poll((4, "z"), start=3, end=5, aborted=((7, 0), (7, 0)))

    assert story.kinds == {"aborted-list-wrong"}


@pytest.mark.parametrize(("aborted", "kinds"), [(None, set()), ((), set()), (((7, 0),), {"aborted-list-wrong"})])
def test_who_reads_all_records_is_sent_no_aborted_list(aborted, kinds):
    story = transaction("x", is_commit=False).log(data(0, "x"), abort(1))

    assert story.poll((0, "x"), start=0, end=2, is_committed=False, aborted=aborted).kinds == kinds


def test_where_an_aborted_transaction_began_below_the_log_start_nobody_can_tell():
    story = transaction("x", "y", is_commit=False).log(data(1, "y"), abort(2), start=1)

    assert story.poll(start=2, end=3, aborted=((7, 0), (7, 1))).kinds == set()


def test_a_poll_that_has_no_answer_says_nothing():
    story = Story().send("x", at=0)
    op = story.ask(Poll, session="s", topic="t", partition=0, is_committed=True, position=0)

    assert story.end_as(UNKNOWN, op, Polled).kinds == set()
