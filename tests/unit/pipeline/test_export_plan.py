"""An export goes by offsets: whatever happens between runs, each decided offset is gone over exactly once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.export_plan import (
    ExportedUpTo,
    LogPart,
    LogReplacedError,
    RecordsLostError,
    cut_into_rounds,
    pack_into_tasks,
    remaining_part,
)
from exactlog.pipeline.source import Extent, Slice

PLACE = TopicPartition("orders", 1)


def remaining(extent, done, *, is_newest=True, fail_on_data_loss=True):
    return remaining_part(PLACE, "id", extent, done, is_newest=is_newest, fail_on_data_loss=fail_on_data_loss)


def part(start, end, *, partition=0, version=3):
    return LogPart("orders", partition, "id", start, end, version, end - start)


def cut(whole, *, step):
    """The slices of a part, each of so many offsets and as many bytes."""
    return [
        Slice(whole.topic, whole.partition, at, min(at + step, whole.end_offset), whole.version, size_bytes=step)
        for at in range(whole.start_offset, whole.end_offset, step)
    ]


# --- what is left to do ----------------------------------------------------------------------------------------------


def test_a_first_run_begins_at_the_log_start():
    assert remaining(Extent(5, 20, version=4, size_bytes=150), None) == LogPart("orders", 1, "id", 5, 20, 4, 150)


def test_a_later_run_begins_where_the_one_before_ended():
    found = remaining(Extent(5, 20, version=4, size_bytes=150), ExportedUpTo(10, 2))

    assert (found.start_offset, found.end_offset, found.version, found.size_bytes) == (10, 20, 4, 100)


@pytest.mark.parametrize("done", [ExportedUpTo(20, 4), ExportedUpTo(20, 3), ExportedUpTo(20)])
def test_nothing_is_left_at_the_last_stable_offset(done):
    assert remaining(Extent(5, 20, version=4), done) is None


def test_an_empty_partition_has_nothing_to_export():
    assert remaining(Extent(0, 0, version=0), None) is None


@pytest.mark.parametrize("extent", [Extent(0, 9, version=7), Extent(0, 30, version=3)], ids=["shorter", "older"])
def test_a_log_that_ends_before_what_was_exported_is_refused(extent):
    with pytest.raises(LogReplacedError, match=r"topic orders, partition 1: the log ends at offset \d+ at version \d,"):
        remaining(extent, ExportedUpTo(10, 4))


def test_a_broker_without_versions_is_judged_by_offsets_alone():
    assert remaining(Extent(0, 12), ExportedUpTo(10, 4)).version is None
    with pytest.raises(LogReplacedError):
        remaining(Extent(0, 9), ExportedUpTo(10, 4))


def test_an_older_version_that_was_asked_for_has_been_exported_already():
    assert remaining(Extent(0, 9, version=3), ExportedUpTo(10, 4), is_newest=False) is None


def test_records_that_went_before_they_were_exported_are_an_error_that_names_them():
    with pytest.raises(RecordsLostError, match="partition 1: offsets 10 to 14 were removed before"):
        remaining(Extent(15, 20), ExportedUpTo(10))


def test_on_demand_an_export_goes_on_behind_what_is_lost():
    assert remaining(Extent(15, 20), ExportedUpTo(10), fail_on_data_loss=False).start_offset == 15


def test_a_log_emptied_by_retention_behind_the_export_is_no_loss_yet():
    assert remaining(Extent(10, 10), ExportedUpTo(10)) is None


# --- rounds and tasks ------------------------------------------------------------------------------------------------


@given(
    ends=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    step=st.integers(1, 25),
    bytes_max=st.integers(1, 100),
)
def test_rounds_go_over_every_offset_once_and_in_order(ends, step, bytes_max):
    parts = [part(0, end, partition=number) for number, end in enumerate(ends)]
    slices = {each.place: cut(each, step=step) for each in parts}

    rounds = list(cut_into_rounds(parts, slices, bytes_max=bytes_max))

    done = dict.fromkeys(slices, 0)
    versions = {}
    for each in rounds:
        assert len(each.slices) == 1 or sum(piece.size_bytes for piece in each.slices) <= bytes_max
        for piece in each.slices:
            place = TopicPartition(piece.topic, piece.partition)
            assert piece.start_offset == done[place]
            done[place] = piece.end_offset
        assert {place: upto.offset for place, upto in each.reached.items()} == {
            place: done[place] for place in each.reached
        }
        versions |= {place: upto.version for place, upto in each.reached.items()}
    assert done == {each.place: each.end_offset for each in parts}
    assert versions == {each.place: 3 for each in parts if each.end_offset}  # told with the last piece


def test_a_version_is_not_told_before_all_of_it_is_exported():
    whole = part(0, 30)

    rounds = cut_into_rounds([whole], {whole.place: cut(whole, step=10)}, bytes_max=10)

    assert [each.reached[whole.place] for each in rounds] == [
        ExportedUpTo(10, None),
        ExportedUpTo(20, None),
        ExportedUpTo(30, 3),
    ]


@given(sizes=st.lists(st.integers(0, 50), max_size=30), bytes_max=st.integers(1, 100), cores=st.integers(1, 8))
def test_tasks_share_the_slices_and_stay_small(sizes, bytes_max, cores):
    slices = [Slice("orders", number, 0, 1, size_bytes=size) for number, size in enumerate(sizes)]

    tasks = pack_into_tasks(slices, bytes_max=bytes_max, tasks_min=cores)

    assert [piece for task in tasks for piece in task] == slices
    assert all(len(task) == 1 or sum(piece.size_bytes for piece in task) <= bytes_max for task in tasks)


def test_small_slices_go_together_but_leave_no_core_idle():
    slices = [Slice("orders", number, 0, 1, size_bytes=10) for number in range(8)]

    assert [len(task) for task in pack_into_tasks(slices, bytes_max=1_000, tasks_min=4)] == [2, 2, 2, 2]
    assert len(pack_into_tasks(slices, bytes_max=1_000, tasks_min=1)) == 1
    assert len(pack_into_tasks(slices, bytes_max=10, tasks_min=1)) == 8


def test_slices_of_unknown_size_have_a_task_each():
    slices = [Slice("orders", number, 0, 1) for number in range(3)]

    assert len(pack_into_tasks(slices, bytes_max=1_000, tasks_min=1)) == 3


# --- many runs -------------------------------------------------------------------------------------------------------


@given(
    steps=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.booleans()), max_size=20),
    bytes_max=st.integers(1, 30),
)
def test_whatever_happens_between_runs_each_offset_is_exported_once(steps, bytes_max):
    """Of each step: how much is decided anew, how much retention takes of what is exported, whether the run dies."""
    start, end, version, done, exported = 0, 0, 0, None, []
    for decided, removed, dies in steps:
        end, version = end + decided, version + 1
        start = min(start + removed, 0 if done is None else done.offset)
        whole = remaining_part(PLACE, "id", Extent(start, end, version), done, is_newest=True)
        if whole is None:
            continue
        rounds = list(cut_into_rounds([whole], {PLACE: cut(whole, step=7)}, bytes_max=bytes_max))
        for each in rounds[: len(rounds) // 2] if dies else rounds:  # a round is committed whole or not at all
            exported += [offset for piece in each.slices for offset in range(piece.start_offset, piece.end_offset)]
            upto = each.reached[PLACE]
            done = ExportedUpTo(upto.offset, upto.version if upto.version is not None else done and done.version)
    assert exported == list(range(len(exported)))
    assert len(exported) == (0 if done is None else done.offset)
