"""Rewriting versions: what may stand in the place of which segments, and what is damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.deltalog.commit_format import Operation
from exactlog.core.deltalog.table_segments import TableSegment, is_rewritten, rewrite_segments
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import History, details_of, replayed


def name_of(base, generation=0):
    return f"{base:020d}.g{generation}.log" if generation else f"{base:020d}.log"


def segment(base, next_offset, size=100, generation=0):
    return TableSegment(name=name_of(base, generation), base=base, next_offset=next_offset, size=size)


def operation(kind, each, **changed):
    return Operation(
        **{
            "type": kind,
            "origin_id": 1,
            "origin_seq": 0,
            "offset_start": each.base,
            "offset_end": each.next_offset - 1,
            "segment": each.name,
            "position": 0,
            "size": each.size,
            **changed,
        }
    )


SEGMENTS = [segment(5, 10), segment(10, 20), segment(20, 30), segment(30, 35)]
FIRST, SECOND, THIRD, ACTIVE = SEGMENTS
REMOVES = [operation("remove", FIRST), operation("remove", SECOND)]
JOINED = segment(5, 20, 60, generation=1)


def test_one_segment_takes_the_place_of_another():
    smaller = segment(10, 20, 61, generation=1)
    operations = [operation("remove", SECOND), operation("add", smaller)]
    assert rewrite_segments(SEGMENTS, operations) == [FIRST, smaller, THIRD, ACTIVE]
    assert is_rewritten(smaller.name)
    assert not is_rewritten(SECOND.name)
    assert not is_rewritten("a file of somebody's")


def test_one_segment_takes_the_place_of_neighbours_and_others_of_others():
    later = segment(20, 30, 80, generation=7)
    operations = [*REMOVES, operation("add", JOINED), operation("remove", THIRD), operation("add", later)]
    assert rewrite_segments(SEGMENTS, operations) == [JOINED, later, ACTIVE]


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([operation("remove", segment(7, 9)), operation("add", JOINED)], "not in the table"),
        ([*REMOVES, *REMOVES, operation("add", JOINED)], "not in the table"),
        ([operation("remove", ACTIVE), operation("add", segment(30, 35, 9, generation=1))], "the active segment"),
        ([operation("remove", FIRST, size=99), operation("add", segment(5, 10, generation=1))], "a part of"),
        ([*REMOVES, operation("add", segment(5, 10, generation=1))], "is to follow offset 9"),
        ([*REMOVES, operation("add", segment(5, 25, generation=1))], "is to follow offset 24"),
        ([*REMOVES, operation("add", segment(6, 20, generation=1))], "is to follow offset 4"),
        ([*REMOVES, operation("add", JOINED), operation("add", JOINED)], "which is in the table"),
        ([*REMOVES, operation("add", JOINED, segment=name_of(5))], "not the name of a rewritten segment"),
        ([*REMOVES, operation("add", JOINED, segment="5.g1.log")], "not the name of a rewritten segment"),
        ([*REMOVES, operation("add", JOINED, segment=name_of(5, 1).replace(".log", ".index"))], "not the name"),
        ([*REMOVES, operation("add", JOINED, position=7)], "begins at byte 0"),
        ([*REMOVES, operation("add", JOINED, segment=name_of(6, 1))], "named after its first offset"),
        ([*REMOVES, operation("add", JOINED, offset_end=4)], "named after its first offset"),
    ],
)
def test_what_cannot_take_the_place_is_damage(operations, reason):
    with pytest.raises(DamageError, match=reason):
        rewrite_segments(SEGMENTS, operations)


def test_an_empty_table_has_nothing_to_rewrite():
    with pytest.raises(DamageError, match="not in the table"):
        rewrite_segments([], [operation("remove", FIRST), operation("add", replace(FIRST, name=name_of(5, 1)))])


def rewriting_history():
    """Three segments, and the operations that put one in the place of the first two."""
    history = History()
    history.commit()
    for number in range(3):
        history.commit(history.add(records=5, new_segment=True, txn_id=f"id-{number}"))
    first, second = (
        TableSegment(name=each["name"], base=each["base"], next_offset=each["next_offset"], size=each["size"])
        for each in history.segments[:2]
    )
    joined = segment(0, 10, 70, generation=1)
    return history, (operation("remove", first), operation("remove", second), operation("add", joined)), joined


def test_a_rewriting_version_changes_the_segments_and_nothing_else_of_the_table():
    history, operations, joined = rewriting_history()
    before = replayed(history.commits).freeze()
    commit = history.build(*operations)
    assert commit.is_rewriting
    assert commit.appends == ()

    state = replayed([*history.commits, history.commit(*operations)])

    after = state.freeze()
    assert after.segments == (joined, before.segments[2])
    for name in ("next_offset", "log_start_offset", "last_stable_offset", "origins", "txn_ids", "leader_epochs"):
        assert getattr(after, name) == getattr(before, name)
    state.replay(history.commit(history.add()))
    assert state.next_offset == before.next_offset + 1
    assert replayed(history.commits).freeze() == state.freeze()


def test_a_rewriting_version_that_does_not_fit_is_damage_and_named():
    history, operations, _ = rewriting_history()
    with pytest.raises(DamageError, match="version 4 does not follow: with it"):
        replayed([*history.commits, history.commit(operations[0], operations[2])])


def test_a_version_that_adds_and_removes_the_same_segment_is_no_rewriting_one():
    history, operations, _ = rewriting_history()
    assert not history.build(operations[0]).is_rewriting
    assert not history.build(operations[2]).is_rewriting
    assert not history.build(operations[1], operations[2]).is_rewriting
    same = operation("add", segment(0, 5), segment=operations[0].segment)
    assert not history.build(operations[0], same).is_rewriting
    assert history.build(same).appends == (same,)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=12),
    st.lists(st.sampled_from(("leave", "rewrite", "join")), min_size=12, max_size=12),
)
def test_whatever_is_rewritten_spans_the_same_offsets_and_a_checkpoint_gives_the_same_table(lengths, choices):
    history = History()
    history.commit()
    for length in lengths:
        history.commit(history.add(records=length, new_segment=True))
    state = replayed(history.commits)
    sealed, active = state.segments[:-1], state.segments[-1]
    runs = []
    for each, choice in zip(sealed, choices, strict=False):
        if choice == "join" and runs and runs[-1][-1].next_offset == each.base:
            runs[-1].append(each)
        elif choice != "leave":
            runs.append([each])
    operations = []
    for run in runs:
        operations += [operation("remove", each) for each in run]
        operations.append(operation("add", segment(run[0].base, run[-1].next_offset, 61, generation=1)))
    if not operations:
        return
    before = state.freeze()

    state.replay(history.commit(*operations))

    after = state.freeze()
    assert [each.next_offset for each in after.segments[:-1]] == [each.base for each in after.segments[1:]]
    assert (after.segments[0].base, after.segments[-1]) == (before.segments[0].base, active)
    assert len(after.segments) == len(before.segments) - sum(len(run) - 1 for run in runs)
    again = TableState.from_checkpoint(after.to_checkpoint(segment_details=details_of(after)), table="orders-0")
    following = history.commit(history.add())
    again.replay(following)
    state.replay(following)
    assert again.freeze() == state.freeze()
