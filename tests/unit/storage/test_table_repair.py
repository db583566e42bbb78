"""What a repair does, what it leaves alone, and that no record is lost by it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.deltalog.checkpoint_format import decode_checkpoint, encode_checkpoint
from exactlog.core.deltalog.version_cleanup import PackPlan
from exactlog.storage.audit_findings import make_finding, summarise
from exactlog.storage.packing import pack
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_repair import repair
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.audits import (
    BATCHES,
    CONFIG,
    SEGMENTS,
    audit,
    checkpoint_name,
    commit_name,
    content_of,
    damage,
    flip,
    pack_name,
    path_of,
    put,
    remove,
    respell_commit,
    written,
)
from tests.support.file_trees import files_below
from tests.support.partitions import DIRECTORY, DataDirectory, copy_of, remove_checkpoints, state_of, values_of

INDEX = SEGMENTS[0].replace(".log", ".index")
TIME_INDEX = SEGMENTS[1].replace(".log", ".timeindex")
ACTIVE_INDEX = SEGMENTS[2].replace(".log", ".index")


@pytest.fixture
def files():
    return written()


def repaired(filesystem, *, dry_run=False):
    """The repair of the only partition."""
    report = repair(filesystem, summarise((audit(filesystem),)), dry_run=dry_run)
    (table,) = report.tables
    assert report.steps == len(table.steps)
    assert report.damage == len(table.remaining)
    return table


def steps_of(filesystem, *, dry_run=False):
    return [(str(step.kind), step.file) for step in repaired(filesystem, dry_run=dry_run).steps]


def opened(filesystem, *, flush_mode=FlushMode.COMMIT, is_full_replay=False):
    """The state a start finds, in a copy; with the records."""
    copy = copy_of(filesystem)
    if is_full_replay:
        remove_checkpoints(copy)
    with DataDirectory(copy, config=CONFIG, flush_mode=flush_mode) as disk:
        partition = disk.open()
        return state_of(partition), values_of(partition)


def damage_checkpoint(filesystem):
    put(filesystem, checkpoint_name(20), content_of(filesystem, checkpoint_name(20))[:-9])


def falsify_checkpoint(filesystem):
    name = checkpoint_name(30)
    checkpoint = decode_checkpoint(content_of(filesystem, name), path_hint=name)
    wrong = replace(checkpoint, origins=(replace(checkpoint.origins[0], last_seq=999),))
    put(filesystem, name, encode_checkpoint(wrong))


def damage_index(filesystem):
    flip(filesystem, INDEX, 3)


def damage_time_index(filesystem):
    put(filesystem, TIME_INDEX, content_of(filesystem, TIME_INDEX)[:-16] + bytes(40))


def damage_active_index(filesystem):
    flip(filesystem, ACTIVE_INDEX, 5)


def leave_torn_bytes(filesystem):
    put(filesystem, SEGMENTS[2], content_of(filesystem, SEGMENTS[2]) + b"torn")


def leave_segment(filesystem):
    put(filesystem, f"{BATCHES:020d}.log", b"unacknowledged")
    put(filesystem, f"{BATCHES:020d}.index", b"")


def leave_temporary_files(filesystem):
    put(filesystem, f"_delta_log/.{BATCHES + 1:020d}.json.tmp", b"{")
    put(filesystem, ".x.tmp", b"")


def break_packing_off(filesystem):
    loose = copy_of(filesystem)
    pack(filesystem, DIRECTORY, PackPlan(first_version=0, last_version=9))
    for version in range(4, 10):
        put(filesystem, commit_name(version), content_of(loose, commit_name(version)))


def damage_pack(filesystem):
    loose = copy_of(filesystem)
    pack(filesystem, DIRECTORY, PackPlan(first_version=0, last_version=9))
    for version in range(10):
        put(filesystem, commit_name(version), content_of(loose, commit_name(version)))
    flip(filesystem, pack_name(0, 9), 2000)


def damage_packed_commit(filesystem):
    break_packing_off(filesystem)
    flip(filesystem, commit_name(6), 40)


REPAIRABLE = {
    damage_checkpoint: [("remove-checkpoint", checkpoint_name(20))],
    falsify_checkpoint: [("remove-checkpoint", checkpoint_name(30))],
    damage_index: [("rebuild-index", SEGMENTS[0])],
    damage_time_index: [("rebuild-index", SEGMENTS[1])],
    damage_active_index: [("rebuild-index", SEGMENTS[2])],
    leave_torn_bytes: [("cut-segment", SEGMENTS[2])],
    leave_segment: [("remove-segment", f"{BATCHES:020d}.log")],
    leave_temporary_files: [
        ("remove-temporary-file", f"_delta_log/.{BATCHES + 1:020d}.json.tmp"),
        ("remove-temporary-file", ".x.tmp"),
    ],
    break_packing_off: [("finish-packing", "_delta_log")],
    damage_pack: [("remove-copy", pack_name(0, 9))],
    damage_packed_commit: [("remove-copy", commit_name(6)), ("finish-packing", "_delta_log")],
}


def test_there_is_nothing_to_do_where_all_is_well(files):
    before = files_below(files)

    table = repaired(files)

    assert (table.steps, table.remaining) == ((), ())
    assert files_below(files) == before


@pytest.mark.parametrize("break_it", REPAIRABLE, ids=lambda action: action.__name__)
def test_what_can_be_put_right_is_and_the_state_is_what_it_was(files, break_it):
    state = opened(files)
    break_it(files)

    assert steps_of(files) == REPAIRABLE[break_it]
    assert [finding for finding in audit(files).findings if finding.kind != "segment-unnamed"] == []
    assert opened(files) == state
    assert opened(files, is_full_replay=True) == state
    assert repaired(files).steps == () or break_it is leave_segment


@pytest.mark.parametrize("break_it", REPAIRABLE, ids=lambda action: action.__name__)
def test_a_dry_run_plans_the_same_and_changes_no_byte(files, break_it):
    break_it(files)
    before = files_below(files)

    assert steps_of(files, dry_run=True) == REPAIRABLE[break_it]
    assert files_below(files) == before


@given(broken=st.lists(st.sampled_from(list(REPAIRABLE)), min_size=1, max_size=4, unique=True))
def test_several_things_at_once_are_put_right_together(broken):
    packings = {break_packing_off, damage_pack, damage_packed_commit}
    broken = [action for action in broken if action not in packings] + [
        action for action in broken if action in packings
    ][:1]
    files = written()
    state = opened(files)
    for break_it in broken:
        break_it(files)

    assert repaired(files).remaining == ()
    assert damage(files) == []
    assert opened(files) == opened(files, is_full_replay=True) == state


@pytest.mark.parametrize(
    ("break_it", "name"), [(damage_index, INDEX), (damage_time_index, TIME_INDEX), (damage_active_index, ACTIVE_INDEX)]
)
def test_a_rebuilt_index_is_the_one_there_was(files, break_it, name):
    before = content_of(files, name)
    break_it(files)
    repaired(files)

    # The active segment's has the rows since the last checkpoint, too: those were in memory.
    assert content_of(files, name).startswith(before)
    assert len(content_of(files, name)) == len(before) or name == ACTIVE_INDEX


def test_an_index_rebuilt_with_another_interval_than_a_checkpoint_counted_is_fit_for_use(files):
    state = opened(files)
    respelled = decode_checkpoint(content_of(files, checkpoint_name(30)), path_hint=checkpoint_name(30))
    remove(files, *map(commit_name, range(30)), checkpoint_name(10), checkpoint_name(20))
    config = {**respelled.metadata.config, "index.interval.bytes": "300"}
    respelled = replace(respelled, metadata=replace(respelled.metadata, config=config))
    put(files, checkpoint_name(30), encode_checkpoint(respelled))
    damage_index(files)
    damage_active_index(files)

    assert repaired(files).remaining == ()
    assert {str(finding.kind) for finding in audit(files).findings} == {"index-incomplete"}
    assert opened(files)[1] == state[1]


# --- what stays ------------------------------------------------------------------------------------------------


def lose_commit(filesystem):
    remove(filesystem, commit_name(15))


def lose_bytes(filesystem):
    put(filesystem, SEGMENTS[1], content_of(filesystem, SEGMENTS[1])[:200])


def change_batch(filesystem):
    flip(filesystem, SEGMENTS[0], 70)


def break_chain(filesystem):
    respell_commit(filesystem, 15, txn_id="broker-9:0:0")


@pytest.mark.parametrize("break_it", [lose_commit, lose_bytes, change_batch, break_chain])
def test_while_records_are_damaged_nothing_is_touched_and_all_damage_is_listed(files, break_it):
    break_it(files)
    for leave in (damage_checkpoint, damage_index, leave_torn_bytes, leave_temporary_files):
        leave(files)
    before, found = files_below(files), damage(files)

    table = repaired(files)

    assert table.steps == ()
    assert [(str(finding.kind), finding.file) for finding in table.remaining] == found
    assert all(finding.next_step for finding in table.remaining)
    assert files_below(files) == before


def test_a_pack_stays_while_a_version_is_nowhere_else(files):
    damage_pack(files)
    remove(files, commit_name(0))

    assert "remove-copy" not in dict(steps_of(files))
    assert files.exists(path_of(pack_name(0, 9)))


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_without_syncs_leftovers_are_left_to_the_next_start(flush_mode):
    files = written(flush_mode)
    for leave in (leave_torn_bytes, leave_segment, leave_temporary_files):
        leave(files)
    before = files_below(files)

    assert repaired(files).steps == ()
    assert files_below(files) == before


def test_damage_beside_the_partitions_remains(files):
    missing = make_finding("catalog-damaged", "catalog.db", "not a database")
    note = make_finding("foreign-file", "notes.txt", "")

    report = repair(files, summarise((audit(files),), (missing, note)), dry_run=False)

    assert (report.remaining, report.damage) == ((missing,), 1)


# --- crashes ---------------------------------------------------------------------------------------------------


def test_a_repair_may_be_broken_off_anywhere_and_begun_again():
    files = written()
    state = opened(files)
    for break_it in (damage_checkpoint, damage_index, damage_time_index, leave_torn_bytes, leave_segment, damage_pack):
        break_it(files)
    for step in range(1000):
        failing = FailingFilesystem(files)
        failing.crash_at(step)
        try:
            repaired(failing)
        except Crashed:
            pass
        else:
            break
        for left in (failing.after_kill(), failing.after_power_cut()):
            assert opened(left) == state
            assert repaired(left).remaining == ()
            assert damage(left) == []
            assert opened(left) == opened(left, is_full_replay=True) == state
    assert step > 10


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_copy_that_a_power_cut_took_is_removed(flush_mode):
    files = written(flush_mode)
    state = opened(files, flush_mode=flush_mode)
    break_packing_off(files)
    put(files, commit_name(6), b"")
    assert damage(files) == []

    assert steps_of(files) == [("remove-copy", commit_name(6)), ("finish-packing", "_delta_log")]
    assert audit(files).findings == ()
    assert opened(files, flush_mode=flush_mode) == opened(files, flush_mode=flush_mode, is_full_replay=True) == state
