import pytest

from exactlog.testing.history_format import Init, Initialised
from tests.unit.testing.story import FAILED, UNKNOWN, Story, abort, commit, data, idempotent, transaction


def two_partitions(*, outcome="done", is_commit=True, **fields):
    """A transaction of x in partition 0 and y in partition 1."""
    story = Story().init().begin("a", **fields).send("x", at=0, within="a").send("y", to=1, at=0, within="a")
    return story.end("a", is_commit=is_commit, outcome=outcome)


# --- whole ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [commit, abort])
def test_a_commit_whose_outcome_is_unknown_may_go_either_way(end):
    story = two_partitions(outcome=UNKNOWN)

    assert story.log(data(0, "x"), end(1)).log(data(0, "y"), end(1), of=1).kinds == set()


def test_a_commit_whose_outcome_is_unknown_may_be_open_still():
    story = two_partitions(outcome=UNKNOWN)

    assert story.log(data(0, "x"), stable=0).log(data(0, "y"), of=1, stable=0).kinds == set()


@pytest.mark.parametrize("outcome", [UNKNOWN, "done"])
def test_a_transaction_that_commits_in_one_partition_alone_is_torn(outcome):
    story = two_partitions(outcome=outcome).log(data(0, "x"), commit(1)).log(data(0, "y"), abort(1), of=1)

    assert "torn-transaction" in story.kinds


def test_a_transaction_of_which_a_part_is_lost_is_torn():
    story = two_partitions(outcome=UNKNOWN).log(data(0, "x"), commit(1)).log(of=1)

    assert story.kinds == {"torn-transaction", "lost-write"}


def test_a_record_that_was_not_acknowledged_may_be_missing_in_what_is_committed():
    story = Story().begin("a").send("x", at=0, within="a").send("y", to=1, within="a", outcome=UNKNOWN).end("a")

    assert story.log(data(0, "x"), commit(1)).log(of=1).kinds == set()


def test_two_transactions_of_one_producer_may_end_differently():
    story = transaction("x").begin("b", epoch=1).send("y", at=2, within="b").end("b", is_commit=False)

    assert story.log(data(0, "x"), commit(1), data(2, "y", epoch=1), abort(3, epoch=2)).kinds == set()


def test_a_transaction_that_is_committed_and_aborted_too_is_found():
    story = transaction("x").end("a", is_commit=False).log(data(0, "x"), commit(1))

    assert story.kinds == {"contradicting-ends"}


def test_a_commit_that_is_sent_again_and_an_abort_that_is_refused_are_right():
    story = transaction("x").end("a").end("a", is_commit=False, outcome=FAILED).log(data(0, "x"), commit(1))

    assert story.kinds == set()


@pytest.mark.parametrize("outcome", [FAILED, "done"])
def test_an_empty_transaction_is_right(outcome):
    assert Story().init().begin("a").end("a", is_commit=False, outcome=outcome).log().kinds == set()


# --- fenced ---------------------------------------------------------------------------------------------------------


def test_a_write_of_a_producer_that_has_a_successor_is_found():
    story = Story().init(epoch=0).begin("a").init(epoch=1).send("x", at=0, within="a")

    assert story.kinds == {"fenced-write"}


def test_offsets_of_a_producer_that_has_a_successor_are_found():
    story = Story().init(epoch=0).begin("a").init(epoch=1).send_offsets(5, within="a")

    assert story.kinds == {"fenced-write"}


def test_a_commit_of_a_producer_that_has_a_successor_is_found():
    story = Story().init(epoch=0).begin("a").send("x", at=0, within="a").init(epoch=2).end("a")

    assert story.kinds == {"fenced-commit"}


def test_a_fenced_producer_that_is_refused_is_right():
    story = Story().init(epoch=0).begin("a").send("x", at=0, within="a").init(epoch=2)
    story.send("y", within="a", outcome=FAILED).end("a", outcome=FAILED)

    assert story.log(data(0, "x"), abort(1)).kinds == set()


def test_a_commit_that_was_asked_for_before_the_successor_came_may_be_confirmed_afterwards():
    story = (
        Story().init(epoch=0).begin("a").send("x", at=0, within="a").end("a", outcome=UNKNOWN).init(epoch=2).end("a")
    )

    assert story.log(data(0, "x"), commit(1)).kinds == set()


def test_a_producer_of_another_transactional_id_fences_nobody():
    story = Story().init(epoch=0).begin("a").init("other", pid=8, epoch=5).send("x", at=0, within="a").end("a")

    assert story.log(data(0, "x"), commit(1)).kinds == set()


def test_an_earlier_producer_whose_answer_comes_late_fences_nobody():
    story = Story()
    late = story.ask(Init, transactional_id="id")
    story.init(epoch=3).begin("a", epoch=3).answer(Initialised, late, producer_id=7, producer_epoch=2)
    story.send("x", at=0, within="a").end("a")

    assert story.log(data(0, "x", epoch=3), commit(1, epoch=4)).kinds == set()


def test_a_producer_whose_id_was_used_up_is_fenced_by_the_next_id():
    story = Story().init(epoch=32766).begin("a", epoch=32766).init(pid=8, epoch=0).send("x", at=0, within="a")

    assert story.kinds == {"fenced-write"}


# --- markers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_has_ended_and_has_no_marker_is_found(is_commit):
    story = transaction("x", is_commit=is_commit).log(data(0, "x"), stable=0)

    assert story.kinds == {"missing-marker"}


def test_a_transaction_that_was_taken_over_and_has_no_marker_is_found():
    story = Story().init().begin("a").send("x", at=0, within="a").init(epoch=2).log(data(0, "x"), stable=0)

    assert story.kinds == {"missing-marker"}


def test_a_transaction_that_never_ended_needs_no_marker():
    assert Story().init().begin("a").send("x", at=0, within="a").log(data(0, "x"), stable=0).kinds == set()


def test_a_marker_may_be_missing_while_not_everything_has_had_its_time():
    assert transaction("x").log(data(0, "x"), stable=0, is_final=False).kinds == set()


def test_a_transaction_that_shows_as_committed_elsewhere_needs_its_marker_everywhere():
    story = two_partitions(outcome=UNKNOWN).log(data(0, "x"), commit(1)).log(data(0, "y"), of=1, stable=0)

    assert story.kinds == {"missing-marker"}


def test_a_marker_that_is_missing_between_two_transactions_is_found_though_the_next_one_has_the_same_end():
    story = transaction("x").begin("b", epoch=1).send("y", at=1, within="b").end("b")

    assert story.log(data(0, "x"), data(1, "y", epoch=1), commit(2, epoch=2)).kinds == {"missing-marker"}


def test_a_second_marker_is_found():
    assert transaction("x").log(data(0, "x"), commit(1), commit(2)).kinds == {"extra-marker"}


def test_a_second_marker_of_a_producer_that_the_history_does_not_know_is_found():
    story = Story().log(data(0, None), commit(1), commit(2))

    assert story.kinds == {"extra-marker"}


@pytest.mark.parametrize("later", [{"coordinator_epoch": 1}, {"leader_epoch": 1}])
def test_a_marker_that_is_written_again_after_a_restart_is_right(later):
    assert transaction("x").log(data(0, "x"), commit(1), commit(2, **later)).kinds == set()


@pytest.mark.parametrize("outcome", [FAILED, UNKNOWN])
def test_a_marker_without_records_is_right_for_a_transaction_whose_record_did_not_come(outcome):
    story = Story().init().begin("a").send("x", within="a", outcome=outcome).end("a", is_commit=False)

    assert story.log(abort(0)).kinds == set()


def test_a_marker_without_records_is_found_where_no_transaction_was():
    assert transaction("x").log(data(0, "x"), commit(1)).log(commit(0), of=1).kinds == {"extra-marker"}


def test_one_transaction_without_records_excuses_one_marker():
    story = Story().init().begin("a").send("x", within="a", outcome=UNKNOWN).end("a", is_commit=False)

    assert story.log(abort(0), abort(1)).kinds == {"extra-marker"}


@pytest.mark.parametrize(("is_commit", "wrong"), [(True, abort), (False, commit)])
def test_a_marker_that_says_the_opposite_is_found(is_commit, wrong):
    story = transaction("x", is_commit=is_commit).log(data(0, "x"), wrong(1))

    assert "wrong-marker" in story.kinds


def test_a_marker_that_commits_what_never_ended_is_found():
    assert Story().begin("a").send("x", at=0, within="a").log(data(0, "x"), commit(1)).kinds == {"wrong-marker"}


def test_a_marker_older_than_its_records_is_found():
    story = transaction("x", epoch=3).log(data(0, "x", epoch=3), commit(1, epoch=2))

    assert story.kinds == {"wrong-marker", "epoch-back"}


def test_a_marker_that_fences_is_right_in_both_versions():
    for version in (1, 2):
        story = Story().init().begin("a", version=version).send("x", at=0, within="a").init(epoch=2)
        assert story.log(data(0, "x"), abort(1, epoch=1)).kinds == set()


def test_several_transactions_of_one_epoch_have_a_marker_each():
    story = transaction("x", version=1).begin("b", version=1).send("y", at=2, within="b").end("b", is_commit=False)

    assert story.log(data(0, "x"), commit(1, epoch=0), data(2, "y"), abort(3, epoch=0)).kinds == set()


def test_the_marker_of_another_producer_does_not_end_a_transaction():
    story = transaction("x").log(data(0, "x"), commit(1, pid=8), stable=0)

    assert story.kinds == {"missing-marker"}


# --- epochs and sequences -------------------------------------------------------------------------------------------


def test_a_record_of_an_older_epoch_behind_a_newer_one_is_found():
    story = Story().send("x", worker="a").send("y", worker="b")

    assert story.log(idempotent(0, "x", epoch=1), idempotent(1, "y", epoch=0)).kinds == {"epoch-back"}


@pytest.mark.parametrize("sequence", [0, 2])
def test_a_sequence_that_is_repeated_or_left_out_is_found(sequence):
    story = Story().send("x").send("y").log(idempotent(0, "x"), idempotent(1, "y", sequence=sequence))

    assert story.kinds == {"sequence-broken"}


def test_a_new_epoch_that_does_not_begin_at_sequence_0_is_found():
    story = Story().send("x").send("y").log(idempotent(0, "x"), idempotent(1, "y", epoch=1, sequence=1))

    assert story.kinds == {"sequence-broken"}


def test_sequences_begin_anew_with_each_epoch_and_after_the_highest():
    story = Story().send("x", "y").send("z").send("u")
    batches = idempotent(0, "x", "y", sequence=2**31 - 2), idempotent(2, "z"), idempotent(3, "u", epoch=1)

    assert story.log(*batches).kinds == set()


def test_what_a_broker_writes_itself_has_any_sequence():
    batches = [data(offset, None, sequence=0) for offset in range(2)]

    assert Story().log(*batches, topic="__consumer_offsets", stable=0).kinds == set()
