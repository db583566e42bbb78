"""Leader epochs after any recovery are those that the batches themselves tell (KAFKA-10706).

Apache Kafka's epoch cache kept entries from behind the point to which the log was truncated
(https://github.com/apache/kafka/pull/9633); followers and consumers were then told of offsets that were not there.
"""

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.storage.settings import FlushMode
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    replace_file,
)

CONFIG = TopicConfig(segment_bytes=250)  # two batches to a segment
LOOSE_MODES = [FlushMode.INTERVAL, FlushMode.NONE]


def epochs_of(partition):
    return [(entry.epoch, entry.start_offset) for entry in partition.table.leader_epochs]


def rebuilt(partition):
    """The epochs of a log as its batches tell them, from the log start on."""
    found = []
    for segment in partition.segments:
        for _, header in segment.headers_from(0):
            start = max(header.base_offset, partition.log_start_offset)
            if header.next_offset > partition.log_start_offset and (not found or found[-1][0] != header.leader_epoch):
                found.append((header.leader_epoch, start))
    return found


def append(disk, partition, count):
    for _ in range(count):
        disk.commit(partition, batch_of(b"%040d" % partition.high_watermark))
        disk.publish(partition)


def start(disk, leader_epoch):
    disk.restart(leader_epoch=leader_epoch)
    return disk.open()


def grown(flush_mode, *, epochs=(0, 2, 3, 7), each=3):
    """A partition that several leaders have written to; the one of epoch 5 wrote nothing."""
    disk = DataDirectory(config=CONFIG, flush_mode=flush_mode, checkpoint_interval=4)
    disk.create()
    for epoch in epochs:
        partition = start(disk, epoch)
        append(disk, partition, each)
        if epoch == 3:
            start(disk, 5)
    return disk, partition


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("keeps_checkpoints", [True, False])
def test_after_a_start_from_a_checkpoint_and_after_a_full_replay(flush_mode, keeps_checkpoints):
    disk, _ = grown(flush_mode)
    if not keeps_checkpoints:
        remove_checkpoints(disk.filesystem)

    partition = start(disk, 9)

    assert epochs_of(partition) == rebuilt(partition) == [(0, 0), (2, 3), (3, 6), (7, 9)]
    append(disk, partition, 1)
    assert epochs_of(partition)[-1] == (9, 12)


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize("kept", range(1, 12))
def test_after_trailing_versions_have_been_dropped_with_their_bytes(flush_mode, kept):
    disk, partition = grown(flush_mode)
    segment, position = next(
        (segment, position)
        for segment in partition.segments
        for position, header in segment.headers_from(0)
        if header.base_offset == kept
    )
    disk.filesystem.open(segment.path).truncate(position)
    for behind in partition.segments[partition.segments.index(segment) + 1 :]:
        disk.filesystem.remove(behind.path)

    again = start(disk, 9)

    assert again.high_watermark == kept
    assert epochs_of(again) == rebuilt(again)
    append(disk, again, 1)
    assert epochs_of(again)[-1] == (9, kept)
    assert epochs_of(start(disk, 10)) == rebuilt(again)


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize("lost", [1, 3, 4, 5, 7, 8, 12])
def test_what_several_leaders_wrote_and_is_adopted_as_one_version_counts_as_the_newest_ones(flush_mode, lost):
    disk, _ = grown(flush_mode, epochs=(0, 2))
    append(disk, start(disk, 3), 6)
    remove_checkpoints(disk.filesystem)
    for version in range(lost, 13):
        disk.filesystem.remove(f"{DELTA_LOG}/{version:020d}.json")

    again = start(disk, 9)

    assert again.high_watermark == 12
    written = rebuilt(again)
    assert written == [(0, 0), (2, 3), (3, 6)]
    adopted_from = lost - 1
    kept = [entry for entry in written if entry[1] < adopted_from]
    assert epochs_of(again) == (kept if kept == written else [*kept, (3, adopted_from)])
    append(disk, again, 1)
    assert epochs_of(again)[-1] == (9, 12)


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_after_an_adoption_under_one_leader_the_batches_and_the_table_agree(flush_mode):
    disk, partition = grown(flush_mode, epochs=(0, 2, 3))
    disk.commit(partition, batch_of(b"not published"), batch_of(b"nor this"))
    assert partition.table.next_offset == 9

    again = start(disk, 9)

    assert again.table.next_offset == 11
    assert epochs_of(again) == rebuilt(again) == [(0, 0), (2, 3), (3, 6)]
    assert again.table.end_offset_for_epoch(3) == (3, 11), "a consumer that has read them is not told of a truncation"


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("log_start", [1, 3, 4, 8, 9, 11])
@pytest.mark.parametrize("keeps_checkpoints", [True, False])
def test_after_records_have_been_removed(flush_mode, log_start, keeps_checkpoints):
    disk, partition = grown(flush_mode)
    disk.move_log_start(partition, log_start)
    before = epochs_of(partition)
    if not keeps_checkpoints:
        remove_checkpoints(disk.filesystem)

    again = start(disk, 9)

    assert epochs_of(again) == before == rebuilt(again)
    assert before[0][1] == log_start


def test_after_all_records_have_been_removed_the_newest_is_known():
    disk, partition = grown(FlushMode.COMMIT)
    disk.move_log_start(partition, 12)

    again = start(disk, 9)

    assert epochs_of(again) == [(7, 12)]
    append(disk, again, 2)
    assert epochs_of(again) == rebuilt(again) == [(9, 12)]


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_what_an_older_leader_wrote_and_a_start_dropped_does_not_come_back(flush_mode):
    """A power cut may undo the truncation that took it away."""
    disk, partition = grown(flush_mode, epochs=(0, 2))
    disk.commit(partition, batch_of(b"%040d" % 6))
    dropped = copy_of(disk.filesystem).read_file(f"{DIRECTORY}/{6:020d}.log")
    disk.filesystem.remove(f"{DIRECTORY}/{6:020d}.log")
    again = start(disk, 4)
    disk.move_log_start(again, 1)
    replace_file(disk.filesystem, f"{DIRECTORY}/{6:020d}.log", dropped)

    once_more = start(disk, 5)

    assert once_more.high_watermark == 6
    assert not disk.filesystem.exists(f"{DIRECTORY}/{6:020d}.log")
