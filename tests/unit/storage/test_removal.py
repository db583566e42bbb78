"""Records leave from the front: by DeleteRecords, by retention; files go once two checkpoints can do without them."""

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.removal import Retention, find_retained_start
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    batch_of,
    batches_of,
    sequenced,
    state_of,
    values_of,
)

CONFIG = TopicConfig(segment_bytes=250, file_delete_delay_ms=1_000)  # two batches to a segment


@pytest.fixture(params=FlushMode)
def disk(request):
    with DataDirectory(flush_mode=request.param, config=CONFIG) as disk:
        yield disk


@pytest.fixture
def partition(disk):
    partition = disk.make()
    for number, batch in enumerate(batches_of(7, size=40)):
        disk.commit(partition, batch)
        if number % 2:
            disk.publish(partition)
    return partition


def logs_of(disk):
    return sorted(name for name in disk.filesystem.list_names(DIRECTORY) if name.endswith(".log"))


def segment_names(partition):
    return [segment.name for segment in partition.segments]


def last_commit(disk, partition):
    path = f"{DELTA_LOG}/{partition.table.version:020d}.json"
    return decode_commit(disk.filesystem.read_file(path), path_hint=path).commit


def check_reopens(disk, partition):
    before = state_of(partition)
    disk.restart()
    again = disk.open()
    assert state_of(again) == before
    return again


# --- moving the log start ----------------------------------------------------------------------------------------


def test_the_log_start_moves_within_a_segment_and_no_segment_goes(disk, partition):
    assert disk.move_log_start(partition, 1) is ErrorCode.NONE

    assert partition.log_start_offset == 1
    assert last_commit(disk, partition).operations == ()
    assert values_of(partition, 1) == [b"%040d" % n for n in range(1, 7)]
    check_reopens(disk, partition)


def test_whole_segments_below_the_log_start_are_removed_by_the_same_version(disk, partition):
    assert disk.move_log_start(partition, 5) is ErrorCode.NONE

    commit = last_commit(disk, partition)
    assert [(op.type, op.segment, op.offset_start, op.offset_end) for op in commit.operations] == [
        ("remove", f"{0:020d}.log", 0, 1),
        ("remove", f"{2:020d}.log", 2, 3),
    ]
    assert commit.log_start_offset == partition.log_start_offset == 5
    assert segment_names(partition) == [f"{4:020d}.log", f"{6:020d}.log"]
    assert len(logs_of(disk)) == 4, "files stay for readers that are at them"
    again = check_reopens(disk, partition)
    assert disk.commit(again, batch_of(b"next")) == 7


def test_everything_can_be_removed_and_the_log_goes_on_in_a_new_segment(disk, partition):
    assert disk.move_log_start(partition, -1) is ErrorCode.NONE

    assert (partition.log_start_offset, partition.high_watermark, partition.segments) == (7, 7, [])
    partition = check_reopens(disk, partition)
    assert disk.commit(partition, batch_of(b"next")) == 7
    disk.publish(partition)
    assert segment_names(partition) == [f"{7:020d}.log"]
    assert values_of(partition, 7) == [b"next"]
    check_reopens(disk, partition)


def test_what_is_appended_while_everything_is_being_removed_stays(disk, partition):
    partition.move_log_start(-1)
    late = disk.append(partition, batch_of(b"late"))
    disk.run_round()
    disk.publish(partition)
    disk.publish(partition)

    assert late.offset == 7
    assert (partition.log_start_offset, values_of(partition, 7)) == (7, [b"late"])
    assert segment_names(partition) == [f"{7:020d}.log"]
    check_reopens(disk, partition)


def test_with_a_batch_on_its_way_the_active_segment_stays(disk, partition):
    ask = disk.append(partition, batch_of(b"on its way"))
    assert disk.move_log_start(partition, 7) is ErrorCode.NONE

    assert ask.offset == 7
    assert segment_names(partition) == [f"{6:020d}.log"]
    check_reopens(disk, partition)


@pytest.mark.parametrize("offset", [8, 100, -2])
def test_an_offset_that_is_not_there_changes_nothing(disk, partition, offset):
    version = partition.table.version
    assert disk.move_log_start(partition, offset) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.log_start_offset == 0
    if disk.settings["flush_mode"] is FlushMode.COMMIT:
        assert partition.table.version == version


def test_what_is_gone_already_takes_no_version(disk, partition):
    disk.move_log_start(partition, 3)
    version = partition.table.version
    for offset in (0, 2, 3):
        assert disk.move_log_start(partition, offset) is ErrorCode.NONE
    assert (partition.table.version, partition.log_start_offset) == (version, 3)


def test_several_removals_on_their_way_take_each_segment_once(disk, partition):
    for offset in (2, 3, 4, 7):
        assert partition.move_log_start(offset) is ErrorCode.NONE
    told = []
    partition.when_published(told.append)
    disk.run_round()

    assert told == [ErrorCode.NONE]
    assert (partition.log_start_offset, partition.segments) == (7, [])
    check_reopens(disk, partition)


def test_a_removal_that_the_disk_refuses_has_not_happened(disk, partition):
    disk.publish(partition)
    told = []
    partition.move_log_start(-1)
    partition.when_published(told.append)
    round_ = disk.take_round()
    disk.complete_round(round_, [StorageRefused("the disk is full", 0)])

    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partition.log_start_offset == 0
    assert disk.commit(partition, batch_of(b"next")) == 7
    assert disk.move_log_start(partition, 2) is ErrorCode.NONE
    assert segment_names(partition)[0] == f"{2:020d}.log"
    check_reopens(disk, partition)


def test_a_stopped_partition_removes_nothing(disk, partition):
    partition.fail("for a test")
    assert partition.move_log_start(3) is ErrorCode.KAFKA_STORAGE_ERROR


def test_times_are_looked_up_from_the_log_start_on(disk):
    partition = disk.make()
    for number in range(4):
        disk.commit(partition, batch_of(b"a", b"b", timestamp_ms=FIRST_MS + 10 - number))
    disk.move_log_start(partition, 3)

    assert partition.committed.find_by_time(0, end_offset=8).offset == 3
    found = partition.committed.find_latest_in_time(end_offset=8)
    assert (found.offset, found.timestamp_ms) == (3, FIRST_MS + 9)
    disk.move_log_start(partition, 8)
    assert partition.committed.find_latest_in_time(end_offset=8) is None


# --- retention ---------------------------------------------------------------------------------------------------


class FakeSegment:
    def __init__(self, next_offset, size, max_timestamp):
        self.next_offset = next_offset
        self.size = size
        self.max_timestamp = max_timestamp


SEGMENTS = [FakeSegment(10, 100, 1_000), FakeSegment(20, 100, 2_000), FakeSegment(30, 100, 3_000)]


@pytest.mark.parametrize(
    ("retention", "now_ms", "start"),
    [
        (Retention(), 10**12, None),
        (Retention(ms=500), 1_500, None),
        (Retention(ms=500), 1_501, 10),
        (Retention(ms=500), 2_501, 20),
        (Retention(ms=500), 10**12, 30),
        (Retention(bytes_max=300), 0, None),
        (Retention(bytes_max=201), 0, None),
        (Retention(bytes_max=200), 0, 10),
        (Retention(bytes_max=0), 0, 30),
        (Retention(ms=500, bytes_max=100), 1_501, 20),
    ],
)
def test_retention_takes_whole_segments_from_the_front(retention, now_ms, start):
    assert find_retained_start(SEGMENTS, retention, now_ms=now_ms) == start


def test_a_segment_without_times_is_never_too_old_and_keeps_those_behind_it():
    segments = [FakeSegment(10, 100, -1), *SEGMENTS[1:]]

    assert find_retained_start(segments, Retention(ms=0), now_ms=10**12) is None


def test_retention_moves_the_log_start_to_a_segment(disk, partition):
    partition.apply_retention(Retention(bytes_max=partition.segments[-1].size + 1), now_ms=FIRST_MS)
    disk.run_round()
    disk.publish(partition)

    assert partition.log_start_offset == 4
    assert segment_names(partition) == [f"{4:020d}.log", f"{6:020d}.log"]
    check_reopens(disk, partition)


def test_retention_of_all_empties_the_log(disk, partition):
    for _ in range(2):
        partition.apply_retention(Retention(ms=0), now_ms=FIRST_MS + 1)
        disk.run_round()
        disk.publish(partition)

    assert partition.segments == []
    check_reopens(disk, partition)


# --- files -------------------------------------------------------------------------------------------------------


def sweep(disk, partition, *, times=1):
    for _ in range(times):
        partition.sweep_removed(now_ms=disk.clock.time_ms)
        disk.run_round()
        disk.publish(partition)


def test_files_go_after_their_delay_and_behind_two_checkpoints(disk, partition):
    disk.move_log_start(partition, 4)
    sweep(disk, partition, times=5)
    assert len(logs_of(disk)) == 4
    disk.clock.time_ms += 1_000
    sweep(disk, partition, times=5)

    assert logs_of(disk) == segment_names(partition)
    left = {name.partition(".")[0] for name in disk.filesystem.list_names(DIRECTORY) if name[0] == "0"}
    assert left == {name.partition(".")[0] for name in segment_names(partition)}, "their indexes too"
    check_reopens(disk, partition)


def test_until_two_checkpoints_stand_the_older_one_still_gives_the_same(disk, partition):
    disk.commit(partition, sequenced(1, 0, b"of a producer"))
    disk.publish(partition)
    disk.move_log_start(partition, -1)
    disk.clock.time_ms += 1_000
    sweep(disk, partition, times=2)
    before = state_of(partition)
    newest = max(name for name in disk.filesystem.list_names(DELTA_LOG) if "checkpoint" in name)
    disk.filesystem.remove(f"{DELTA_LOG}/{newest}")
    disk.restart()

    assert state_of(disk.open()) == before


def test_files_whose_time_had_not_come_go_after_the_next_start(disk, partition):
    disk.move_log_start(partition, 4)
    disk.restart()
    partition = disk.open()
    assert len(logs_of(disk)) == 4
    disk.clock.time_ms += 1_000
    sweep(disk, partition, times=5)

    assert logs_of(disk) == segment_names(partition)


def test_a_sweep_leaves_a_busy_partition_alone():
    with DataDirectory(config=CONFIG, checkpoint_interval=1_000) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(5, size=40))
        disk.move_log_start(partition, 4)
        disk.clock.time_ms += 1_000
        disk.append(partition, batch_of(b"on its way"))
        partition.sweep_removed(now_ms=disk.clock.time_ms)

        assert not any("checkpoint" in name for name in disk.filesystem.list_names(DELTA_LOG))
