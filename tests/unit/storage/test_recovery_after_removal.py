"""Opening a partition whose oldest records have been removed: from any checkpoint, with or without their files."""

import pytest
from crc32c import crc32c
from msgspec import UNSET

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation, encode_commit
from exactlog.core.model.errors import DamageError
from exactlog.core.record.batch_format import decode_header, place
from exactlog.storage.log_recovery import recover
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.settings import FlushMode
from tests.support.audits import newest_commit, put_version
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    replace_file,
    sequenced,
    state_of,
    values_of,
)

CONFIG = TopicConfig(segment_bytes=250)  # two batches to a segment
LOOSE_MODES = [FlushMode.INTERVAL, FlushMode.NONE]


def segment_path(base):
    return f"{DIRECTORY}/{base:020d}.log"


def commit_path(version):
    return f"{DELTA_LOG}/{version:020d}.json"


def checkpoint_path(version):
    return f"{DELTA_LOG}/{version:020d}.checkpoint.json"


def append(disk, partition, count):
    for _ in range(count):
        number = partition.high_watermark
        disk.commit(partition, sequenced(number % 2, number // 2, b"%040d" % number))
        disk.publish(partition)


def trimmed(*, before, log_start, after, **settings):
    """A data directory with a partition that was appended to, trimmed and appended to; files of segments stay."""
    disk = DataDirectory(config=CONFIG, **settings)
    partition = disk.make()
    append(disk, partition, before)
    disk.move_log_start(partition, log_start)
    append(disk, partition, after)
    return disk, partition


def reopened(disk, filesystem):
    with DataDirectory(filesystem, config=CONFIG, flush_mode=disk.settings["flush_mode"]) as other:
        return state_of(other.open())


def recovered(filesystem):
    files = SegmentFiles(filesystem, OpenFiles(filesystem, files_max=10))
    return recover(filesystem, files, DIRECTORY, name="orders-0", boot_epoch=None)


# --- the files of removed segments are still there -----------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("log_start", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("after", [0, 1, 5, 14])
def test_after_a_removal_every_start_gives_the_same(flush_mode, log_start, after):
    disk, partition = trimmed(before=9, log_start=log_start, after=after, flush_mode=flush_mode)
    without_newest, without_any = copy_of(disk.filesystem), copy_of(disk.filesystem)
    checkpoints = sorted(name for name in disk.filesystem.list_names(DELTA_LOG) if "checkpoint" in name)
    for name in checkpoints[-1:]:
        without_newest.remove(f"{DELTA_LOG}/{name}")
    remove_checkpoints(without_any)

    assert reopened(disk, copy_of(disk.filesystem)) == state_of(partition)
    assert reopened(disk, without_newest) == state_of(partition)
    assert reopened(disk, without_any) == state_of(partition)


def test_the_files_of_removed_segments_stay_and_are_named():
    disk, _ = trimmed(before=9, log_start=5, after=3)
    files = sorted(disk.filesystem.list_names(DIRECTORY))

    log = recovered(disk.filesystem)

    assert log.removed_files == [f"{base:020d}.log" for base in (0, 2)]
    assert [segment.base_offset for segment in log.segments] == [4, 6, 8, 10]
    assert sorted(disk.filesystem.list_names(DIRECTORY)) == files


def test_once_all_is_removed_the_next_append_begins_a_segment():
    disk, partition = trimmed(before=5, log_start=5, after=0)
    assert recovered(copy_of(disk.filesystem)).segments == []
    disk.restart()

    again = disk.open()

    assert state_of(again) == state_of(partition)
    append(disk, again, 1)
    assert [segment.name for segment in again.segments] == [f"{5:020d}.log"]
    before = state_of(again)
    disk.restart()
    assert state_of(disk.open()) == before


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_tail_is_adopted_behind_a_table_without_any_segment(flush_mode):
    disk, partition = trimmed(before=5, log_start=5, after=0, flush_mode=flush_mode)
    disk.commit(partition, batch_of(b"not published"))
    disk.restart()

    again = disk.open()

    assert values_of(again, 5) == [b"not published"]
    assert [segment.base_offset for segment in again.segments] == [5]


def put_commit(filesystem, *operations, content=b"", end_offset, log_start_offset):
    """The next version, as somebody who knows the format would write it."""
    before = newest_commit(filesystem)
    commit = DeltaCommit(
        version=before.commit.version + 1,
        timestamp=before.commit.timestamp,
        txn_id="by-hand:1",
        operations=operations,
        checkpoint_hint=False,
        end_offset=end_offset,
        last_stable_offset=end_offset,
        log_start_offset=log_start_offset,
        leader_epoch=before.commit.leader_epoch,
        data_crc=print_crc(crc32c(content)),
        metadata=UNSET,
        prev_crc=before.chain_crc,
    )
    replace_file(filesystem, commit_path(commit.version), encode_commit(commit).document)


def test_a_version_may_add_to_a_segment_remove_it_and_begin_another():
    disk, partition = trimmed(before=1, log_start=0, after=0)
    size = partition.segments[0].size
    first, second = sequenced(1, 0, b"into the first"), sequenced(1, 1, b"into the second")
    place(first, decode_header(first), base_offset=1, leader_epoch=0)
    place(second, decode_header(second), base_offset=2, leader_epoch=0)
    disk.filesystem.open(segment_path(0)).write_at((first,), size)
    replace_file(disk.filesystem, segment_path(2), second)
    put_commit(
        disk.filesystem,
        operation("add", 0, size, len(first), offset=1),
        Operation(
            type="remove",
            origin_id=9,
            origin_seq=0,
            offset_start=0,
            offset_end=1,
            segment=f"{0:020d}.log",
            position=0,
            size=size + len(first),
        ),
        operation("add", 2, 0, len(second), offset=2),
        content=bytes(first + second),
        end_offset=3,
        log_start_offset=2,
    )
    disk.restart()

    again = disk.open()

    assert [segment.base_offset for segment in again.segments] == [2]
    assert values_of(again, 2) == [b"into the second"]
    assert disk.append(again, sequenced(1, 0, b"into the first")).offset == 1, "its producer is known"
    assert disk.commit(again, sequenced(1, 2, b"next")) == 3


def operation(kind, base, position, size, *, offset):
    return Operation(
        type=kind,
        origin_id=9,
        origin_seq=offset,
        offset_start=offset,
        offset_end=offset,
        segment=f"{base:020d}.log",
        position=position,
        size=size,
    )


def test_a_rewritten_segment_keeps_its_name():
    disk, _ = trimmed(before=2, log_start=0, after=0)
    put_version(disk.filesystem, batch_of(b"rewritten"), segment=f"{2:020d}.g3.log")
    disk.restart()

    again = disk.open()

    assert [segment.name for segment in again.segments] == [f"{0:020d}.log", f"{2:020d}.g3.log"]
    assert values_of(again)[2:] == [b"rewritten"]
    before = state_of(again)
    disk.restart()
    assert state_of(disk.open()) == before


def test_another_generation_of_a_segment_waits_for_its_removal():
    """What a rewriting leaves that was not committed, or has been replaced since."""
    disk, _ = trimmed(before=3, log_start=0, after=0)
    for name in (f"{0:020d}.g1.log", f"{0:020d}.g1.index"):
        replace_file(disk.filesystem, f"{DIRECTORY}/{name}", b"?")

    assert recovered(disk.filesystem).removed_files == [f"{0:020d}.g1.log"]
    assert disk.filesystem.exists(f"{DIRECTORY}/{0:020d}.g1.index")


# --- they are gone -------------------------------------------------------------------------------------------------


def without(filesystem, *bases):
    for base in bases:
        for kind in ("log", "index", "timeindex"):
            path = f"{DIRECTORY}/{base:020d}.{kind}"
            if filesystem.exists(path):
                filesystem.remove(path)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_removed_bytes_that_an_older_checkpoint_has_counted_already_are_not_missed(flush_mode):
    disk, partition = trimmed(before=13, log_start=8, after=10, flush_mode=flush_mode)
    assert disk.filesystem.exists(checkpoint_path(10)), "of before the removal by version 14"
    replace_file(disk.filesystem, checkpoint_path(20), b"")
    without(disk.filesystem, 0, 2, 4, 6)

    assert reopened(disk, disk.filesystem) == state_of(partition)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_removed_bytes_that_would_have_to_be_replayed_are_a_refusal_that_asks_for_a_checkpoint(flush_mode):
    disk, _ = trimmed(before=13, log_start=8, after=10, flush_mode=flush_mode)
    for version in (10, 20):
        replace_file(disk.filesystem, checkpoint_path(version), b"")
    without(disk.filesystem, 0, 2, 4, 6)
    before = copy_of(disk.filesystem)

    with pytest.raises(DamageError) as caught:
        reopened(disk, disk.filesystem)

    assert str(caught.value) == (
        f"orders-0: delta version 1: {segment_path(0)} is missing, since version 14 removed its records"
    )
    assert f"restore a checkpoint of {DELTA_LOG}" in caught.value.hint
    assert disk.filesystem._files.keys() == before._files.keys(), "nothing is dropped"


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_the_version_that_removed_a_file_which_is_gone_is_not_dropped(flush_mode):
    """Without it the table would name the file again."""
    disk, _ = trimmed(before=13, log_start=8, after=10, flush_mode=flush_mode)
    replace_file(disk.filesystem, checkpoint_path(20), b"")
    replace_file(disk.filesystem, commit_path(12), b"")
    without(disk.filesystem, 0, 2, 4, 6)

    with pytest.raises(DamageError, match=rf"version 12: {segment_path(0)} is missing, since version 14 removed"):
        reopened(disk, disk.filesystem)


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_removal_that_is_dropped_with_what_was_lost_before_it_brings_the_records_back(flush_mode, caplog):
    disk, _ = trimmed(before=13, log_start=8, after=3, flush_mode=flush_mode)
    replace_file(disk.filesystem, commit_path(12), b"")
    disk.restart()

    again = disk.open()

    assert again.log_start_offset == 0
    assert values_of(again) == [b"%040d" % number for number in range(16)], "all of them have their bytes"
    assert "versions 12 to 17 are dropped" in caplog.text
    before = state_of(again)
    remove_checkpoints(disk.filesystem)
    disk.restart()
    assert state_of(disk.open()) == before
