import pytest

from tests.unit.testing.story import DONE, FAILED, UNKNOWN, Story, abort, commit, data, idempotent, plain, transaction


def test_an_acknowledged_record_that_is_not_in_the_log_is_lost():
    assert Story().send("x", at=0).log(start=0, end=0).kinds == {"lost-write"}


def test_an_acknowledged_record_of_a_committed_transaction_that_is_not_in_the_log_is_lost():
    story = transaction("x", "y").log(start=0, end=0)

    assert story.kinds == {"lost-write"}
    assert "'x' was acknowledged, and is not in the log" in str(story.report())


def test_a_committed_record_that_an_abort_marker_follows_is_lost():
    assert transaction("x").log(data(0, "x"), abort(1)).kinds == {"lost-write", "wrong-marker"}


@pytest.mark.parametrize("outcome", [UNKNOWN, FAILED])
def test_a_record_that_was_not_acknowledged_need_not_be_there(outcome):
    assert Story().send("x", outcome=outcome).log(start=0, end=0).kinds == set()


def test_a_record_acknowledged_after_the_log_was_read_need_not_be_in_it():
    assert Story().log(start=0, end=0).send("x", at=0).kinds == set()


def test_a_record_below_the_log_start_is_not_lost():
    assert Story().send("x", at=0).send("y", at=1).log(plain(1, "y"), start=1).kinds == set()


def test_a_record_that_stands_twice_is_a_duplicate():
    story = Story().send("x", at=0).log(idempotent(0, "x"), idempotent(1, "x", sequence=1))

    assert "duplicate" in story.kinds


def test_a_record_in_two_partitions_is_a_duplicate_and_one_of_them_a_phantom():
    story = Story().send("x", at=0).log(idempotent(0, "x")).log(idempotent(0, "x"), of=1)

    assert story.kinds == {"duplicate", "phantom-record"}


def test_a_producer_without_an_id_may_write_twice_when_it_tries_again():
    assert Story().send("x", at=0, is_idempotent=False).log(plain(0, "x"), plain(1, "x")).kinds == set()


def test_a_record_that_nobody_sent_is_a_phantom():
    assert Story().log(plain(0, "x")).kinds == {"phantom-record"}


def test_a_refused_record_that_stands_in_the_log_is_found():
    assert Story().send("x", outcome=FAILED).log(idempotent(0, "x")).kinds == {"refused-write"}


def test_an_offset_that_was_acknowledged_and_is_another_is_found():
    assert Story().send("x", at=0).send("y", at=0).log(plain(0, "x"), plain(1, "y")).kinds == {"wrong-offset"}


def test_a_record_whose_offset_was_not_told_may_stand_anywhere():
    assert Story().send("x", at=0).send("y").log(plain(0, "x"), plain(1, "y")).kinds == set()


def test_records_of_one_producer_that_change_places_are_reordered():
    story = Story().send("x").send("y").log(plain(0, "y"), plain(1, "x"))

    assert story.kinds == {"reordered"}


def test_records_of_one_batch_that_change_places_are_reordered():
    assert Story().send("x", "y").log(plain(0, "y", "x")).kinds == {"reordered"}


def test_records_of_two_producers_stand_in_any_order():
    assert Story().send("x", worker="a").send("y", worker="b").log(plain(0, "y"), plain(1, "x")).kinds == set()


def test_records_of_one_producer_in_two_partitions_stand_in_any_order():
    story = Story().send("x", worker="a").send("y", worker="a", to=1)

    assert story.log(plain(0, "x")).log(plain(0, "y"), of=1).kinds == set()


def test_two_readings_of_a_log_that_differ_are_found():
    story = Story().send("x", at=0).send("y", at=0, outcome=UNKNOWN)

    assert "replay-differs" in story.log(plain(0, "x")).log(plain(0, "y")).kinds


def test_a_reading_that_has_lost_the_end_of_the_log_is_found():
    story = Story().send("x").send("y", outcome=UNKNOWN).log(plain(0, "x"), plain(1, "y")).log(plain(0, "x"))

    assert story.kinds == {"high-watermark-back", "stable-offset-back"}


def test_a_marker_that_becomes_another_is_found():
    story = Story().begin("a").send("x", at=0, within="a").end("a", outcome=UNKNOWN)

    assert "replay-differs" in story.log(data(0, "x"), abort(1)).log(data(0, "x"), commit(1)).kinds


def test_a_log_that_grows_and_is_trimmed_reads_the_same_where_it_was_read_before():
    story = Story().send("x", at=0).send("y", at=1).log(plain(0, "x"), plain(1, "y"), is_final=False)

    assert story.send("z", at=2).log(plain(1, "y"), plain(2, "z"), start=1).kinds == set()


@pytest.mark.parametrize(
    "batches",
    [
        (plain(0, "x"), plain(2, "y")),
        (plain(0, "x"), plain(0, "y")),
        (plain(1, "y"), plain(0, "x")),
    ],
)
def test_batches_that_do_not_follow_each_other_are_found(batches):
    story = Story().send("x", worker="a").send("y", worker="b").log(*batches, start=0, end=3)

    assert "offsets-broken" in story.kinds


def test_a_high_watermark_behind_the_last_batch_is_found():
    assert "offsets-broken" in Story().send("x").log(plain(0, "x"), end=5).kinds


def test_a_log_start_within_the_first_batch_is_right():
    assert Story().send("x", "y", at=0).log(plain(0, "x", "y"), start=1).kinds == set()


def test_a_record_is_looked_for_in_its_own_partition():
    story = Story().send("x", at=0).send("y", to=1, at=0).log(plain(0, "x")).log(start=0, end=0, of=1)

    assert [(str(found.kind), found.where) for found in story.report().findings] == [("lost-write", "t-1@0")]


def test_a_finding_says_what_where_and_by_which_lines():
    (found,) = Story().send("x", at=0, outcome=DONE).log(start=0, end=0).report().findings

    assert str(found) == "lost-write: t-0@0: 'x' was acknowledged, and is not in the log (line 2, 3)"
