import pytest

from exactlog.testing.history_format import Done, End
from tests.unit.testing.story import FAILED, UNKNOWN, Story, abort, commit, data, plain


def offsets(outcome="done", *, is_commit=True, offset=5):
    """A transaction that commits an offset, and nothing else."""
    return Story().init().begin("a").send_offsets(offset, within="a").end("a", is_commit=is_commit, outcome=outcome)


def test_the_offset_of_a_committed_transaction_holds():
    assert offsets().read_offsets(5).kinds == set()


@pytest.mark.parametrize("found", [-1, 5])
def test_the_offset_of_a_transaction_whose_end_is_unknown_may_hold_or_not(found):
    assert offsets(UNKNOWN).read_offsets(found).kinds == set()


def test_an_offset_of_an_aborted_transaction_that_holds_is_found():
    assert offsets(is_commit=False).read_offsets(5).kinds == {"aborted-offset"}
    assert offsets(FAILED).read_offsets(5).kinds == {"aborted-offset"}


def test_an_offset_that_holds_before_its_commit_was_asked_for_is_found():
    story = Story().begin("a").send_offsets(5, within="a").read_offsets(5).end("a")

    assert story.kinds == {"aborted-offset"}


def test_an_offset_may_hold_while_its_commit_is_under_way():
    story = Story().begin("a").send_offsets(5, within="a")
    op = story.ask(End, transaction="a", is_commit=True)

    assert story.read_offsets(5).answer(Done, op).kinds == set()


def test_an_offset_of_a_committed_transaction_that_does_not_hold_is_found():
    assert offsets().read_offsets(-1).kinds == {"lost-offset"}
    assert Story().send_offsets(3).begin("a").send_offsets(5, within="a").end("a").read_offsets(3).kinds == {
        "lost-offset"
    }


def test_whoever_does_not_ask_for_stable_offsets_may_be_told_the_one_before():
    assert offsets().read_offsets(-1, is_stable=False).kinds == set()


def test_an_offset_that_nobody_committed_is_found():
    assert offsets().read_offsets(6).kinds == {"phantom-offset"}


def test_an_older_offset_after_a_newer_one_is_found():
    assert Story().send_offsets(3).send_offsets(4).read_offsets(3).kinds == {"stale-offset"}
    assert Story().send_offsets(4).send_offsets(3).read_offsets(3).kinds == set()


def test_a_refused_offset_does_not_hold():
    assert Story().send_offsets(3).send_offsets(4, outcome=FAILED).read_offsets(3).kinds == set()
    assert Story().send_offsets(4, outcome=FAILED).read_offsets(4).kinds == {"aborted-offset"}


@pytest.mark.parametrize("found", [3, 4])
def test_an_offset_whose_outcome_is_unknown_may_hold_or_not(found):
    assert Story().send_offsets(3).send_offsets(4, outcome=UNKNOWN).read_offsets(found).kinds == set()


@pytest.mark.parametrize("found", [4, 5])
def test_of_an_offset_committed_at_once_within_a_transaction_of_another_either_may_hold(found):
    story = Story().begin("a").send_offsets(5, within="a").send_offsets(4).end("a")

    assert story.read_offsets(found).kinds == set()


def test_an_unknown_commit_is_decided_once_the_successor_has_begun():
    story = offsets(UNKNOWN).init(epoch=2).begin("b", epoch=2).send_offsets(6, within="b").end("b")

    assert story.read_offsets(5).kinds == {"lost-offset"}


def test_offsets_are_part_of_a_transaction_whose_end_is_unknown():
    story = Story().init().begin("a").send("x", at=0, within="a").send_offsets(5, within="a").end("a", outcome=UNKNOWN)
    story.init(epoch=2)
    committed, aborted = (data(0, "x"), commit(1)), (data(0, "x"), abort(1))

    assert Story.log(copy(story), *committed).read_offsets(5).kinds == set()
    assert Story.log(copy(story), *committed).read_offsets(-1).kinds == {"lost-offset"}
    assert Story.log(copy(story), *aborted).read_offsets(-1).kinds == set()
    assert Story.log(copy(story), *aborted).read_offsets(5).kinds == {"aborted-offset"}


def copy(story):
    other = Story()
    other.events, other.op = list(story.events), story.op
    return other


def test_groups_and_partitions_have_offsets_of_their_own():
    story = Story().send_offsets(3).send_offsets(4, to=1).send_offsets(5, group="h")

    assert story.read_offsets(3).read_offsets(4, of=1).read_offsets(5, group="h").kinds == set()


# --- copies ---------------------------------------------------------------------------------------------------------


def copied(*sources, reached, written=3, at=0, is_commit=True):
    """Records of t-0, some of which a transaction copies to c-0."""
    story = Story()
    for offset in range(written):
        story.send(f"s{offset}", at=offset, worker="source")
    return round_of(story, sources, reached=reached, at=at, is_commit=is_commit)


def round_of(story, sources, *, reached, at=0, name="a", epoch=0, is_commit=True):
    story.init(epoch=epoch).begin(name, epoch=epoch)
    values = [f"{name}{number}" for number in range(len(sources))]
    if sources:
        places = [("t", 0, offset) for offset in sources]
        story.send(*values, topic="c", at=at, within=name, sources=places)
    return story.send_offsets(reached, within=name).end(name, is_commit=is_commit)


def read_all(story, *copies, written=3, found):
    source = [plain(offset, f"s{offset}") for offset in range(written)]
    return story.read_offsets(found).log(*source).log(*copies, topic="c")


def test_a_copy_of_everything_up_to_the_offset_is_exact():
    story = copied(0, 1, reached=2)

    assert read_all(story, data(0, "a0", "a1"), commit(2), found=2).kinds == set()


def test_a_record_that_was_passed_over_is_missing_in_the_copy():
    story = copied(0, reached=2)

    assert read_all(story, data(0, "a0"), commit(1), found=2).kinds == {"copy-missing"}


def test_a_record_that_was_copied_by_two_transactions_is_found():
    story = round_of(copied(0, reached=1), [0, 1], reached=2, at=2, name="b", epoch=1)

    batches = data(0, "a0"), commit(1), data(2, "b0", "b1", epoch=1), commit(4, epoch=2)
    assert read_all(story, *batches, found=2).kinds == {"copy-twice"}


def test_a_record_that_was_copied_and_not_counted_is_found():
    story = copied(0, 1, reached=1)

    assert read_all(story, data(0, "a0", "a1"), commit(2), found=1).kinds == {"copy-uncounted"}


def test_a_copy_of_what_is_not_there_is_found():
    story = Story().begin("s").send("x", at=0, within="s").end("s", is_commit=False)
    story = round_of(story, [0], reached=2, epoch=1).read_offsets(2)

    story.log(data(0, "x"), abort(1)).log(data(0, "a0", epoch=1), commit(1, epoch=2), topic="c")
    assert story.kinds == {"copy-of-nothing"}


def test_copies_of_an_aborted_transaction_do_not_count():
    story = round_of(copied(0, reached=1, is_commit=False), [0], reached=1, at=2, name="b", epoch=1)

    batches = data(0, "a0"), abort(1), data(2, "b0", epoch=1), commit(3, epoch=2)
    assert read_all(story, *batches, found=1).kinds == set()


def test_aborted_records_of_the_source_need_no_copy():
    story = Story().begin("s", pid=8).send("x", at=0, within="s").end("s", is_commit=False).send("s0", at=2)
    story = round_of(story, [2], reached=3).read_offsets(3)

    story.log(data(0, "x", pid=8), abort(1, pid=8), plain(2, "s0")).log(data(0, "a0"), commit(1), topic="c")
    assert story.kinds == set()


def test_a_group_that_began_in_the_middle_copies_from_there():
    story = Story().send_offsets(1)
    for offset in range(2):
        story.send(f"s{offset}", at=offset, worker="source")
    story = round_of(story, [1], reached=2)

    assert read_all(story, data(0, "a0"), commit(1), written=2, found=2).kinds == set()


def test_copies_are_not_judged_while_a_commit_may_still_come():
    story = copied(0, reached=1).begin("b", epoch=1).send_offsets(2, within="b").end("b", outcome=UNKNOWN)

    assert read_all(story, data(0, "a0"), commit(1), found=2).kinds == set()
