"""Which checkpoint a partition is opened from, and when the bytes behind it are looked at first."""

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError
from exactlog.core.record.batch_format import iter_headers
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.settings import FlushMode
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    DataDirectory,
    copy_of,
    replace_file,
    sequenced,
    state_of,
    values_of,
)

LOOSE_MODES = [FlushMode.INTERVAL, FlushMode.NONE]
SEGMENT = f"{DIRECTORY}/{0:020d}.log"
VALUES = [b"%04d" % number for number in range(7)]
SETTINGS = {"checkpoint_interval": 3}  # the newest one is of version 6; version 7 comes behind it


def filled(flush_mode, filesystem=None, **settings):
    """A data directory whose partition has a version for each of the values."""
    disk = DataDirectory(filesystem, flush_mode=flush_mode, **SETTINGS, **settings)
    partition = disk.make()
    for number, value in enumerate(VALUES):
        disk.commit(partition, sequenced(7, number, value))
        disk.publish(partition)
    return disk


def spoil(filesystem, position, content):
    filesystem.open(SEGMENT).write_at((content,), position)


def content_of_segment(filesystem):
    return filesystem.read_file(SEGMENT) if filesystem.exists(SEGMENT) else b""


def sizes_of_batches(filesystem):
    return [header.size_bytes for _, header in iter_headers(content_of_segment(filesystem))]


def bytes_read_of_segment(filesystem):
    return sum(operation.size for operation in filesystem.operations if operation.path == SEGMENT)


# --- bytes that a power cut took behind a checkpoint -----------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
@pytest.mark.parametrize("batch", [0, 3, 5])
def test_after_a_power_cut_a_checkpoint_with_torn_bytes_behind_it_is_passed_over(flush_mode, batch, caplog):
    disk = filled(flush_mode)
    sizes = sizes_of_batches(disk.filesystem)
    spoil(disk.filesystem, sum(sizes[:batch]) + 20, bytes(16))
    disk.restart(leader_epoch=1, boot_epoch=1)

    partition = disk.open()

    assert values_of(partition) == VALUES[:batch]
    assert "checkpoint 6 is passed over" in caplog.text
    assert SEGMENT in caplog.text
    assert f"versions {batch + 1} to 7 are dropped" in caplog.text
    assert disk.commit(partition, sequenced(7, batch, VALUES[batch])) == batch


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_no_byte_that_a_power_cut_changed_is_ever_served(flush_mode):
    """Of the offsets and the leader epochs, which no CRC covers, neither."""
    written = filled(flush_mode)
    sizes = sizes_of_batches(written.filesystem)
    whole = state_of(written.open())
    for position in range(sum(sizes)):
        for bit in (0x01, 0x80):
            files = copy_of(written.filesystem)
            (before,) = files.open(SEGMENT).read_at(1, position)
            spoil(files, position, bytes([before ^ bit]))
            with DataDirectory(files, flush_mode=flush_mode, **SETTINGS) as disk:
                partition = disk.open()
                found = values_of(partition)
                headers = [header for _, header in iter_headers(content_of_segment(files))]
                assert [header.leader_epoch for header in headers] == [0] * len(found)
                batch = next(number for number in range(len(sizes)) if position < sum(sizes[: number + 1]))
                assert found == VALUES[:batch], (position, bit)
                assert state_of(partition) != whole


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_once_a_killed_broker_is_started_again_nothing_is_read_that_a_checkpoint_counts(flush_mode):
    read = {}
    for boot_epoch in (0, 1, None):
        filesystem = CountingFilesystem(MemoryFilesystem())
        disk = filled(flush_mode, filesystem)
        disk.restart(leader_epoch=1, boot_epoch=boot_epoch)
        filesystem.clear()
        assert values_of(disk.open()) == VALUES
        read[boot_epoch] = filesystem.bytes_read

    size = sum(sizes_of_batches(filesystem))
    assert read[1] == read[None]
    assert read[1] - read[0] >= size * 6 // 7


def test_what_was_synced_is_not_read_either():
    read = {}
    for boot_epoch in (0, None):
        filesystem = CountingFilesystem(MemoryFilesystem())
        disk = filled(FlushMode.COMMIT, filesystem)
        disk.restart(leader_epoch=1, boot_epoch=boot_epoch)
        filesystem.clear()
        disk.open()
        read[boot_epoch] = filesystem.bytes_read

    assert read[0] == read[None]


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_partition_that_nobody_opened_since_the_power_cut_is_checked_at_a_later_start_too(flush_mode, caplog):
    """The machine has run on since the last start, and yet its bytes are those that the power cut left."""
    disk = filled(flush_mode)
    spoil(disk.filesystem, 20, bytes(16))
    disk.restart(leader_epoch=1, boot_epoch=1)
    disk.restart(leader_epoch=2, boot_epoch=1)

    assert values_of(disk.open()) == []
    assert "checkpoint 6 is passed over" in caplog.text


@pytest.mark.parametrize("flush_mode", LOOSE_MODES)
def test_a_checkpoint_of_this_run_of_the_machine_is_taken_as_it_is(flush_mode):
    """Whoever wrote it had looked at what was there before."""
    filesystem = CountingFilesystem(MemoryFilesystem())
    disk = filled(flush_mode, filesystem)
    disk.restart(leader_epoch=1, boot_epoch=1)
    partition = disk.open()
    for number in range(len(VALUES), len(VALUES) + 3):
        disk.commit(partition, sequenced(7, number, b"%04d" % number))
        disk.publish(partition)
    disk.restart(leader_epoch=2, boot_epoch=1)
    filesystem.clear()
    disk.open()

    assert bytes_read_of_segment(filesystem) < sum(sizes_of_batches(filesystem)) // 2


def test_the_bytes_of_a_large_segment_are_read_a_bounded_piece_at_a_time():
    filesystem = CountingFilesystem(MemoryFilesystem())
    disk = DataDirectory(filesystem, flush_mode=FlushMode.NONE, checkpoint_interval=1)
    partition = disk.make()
    for number in range(5):
        disk.commit(partition, sequenced(7, number, bytes(700_000)))
        disk.publish(partition)
    disk.restart()
    filesystem.clear()
    disk.open()

    pieces = [operation.size for operation in filesystem.operations if operation.name == "read_at"]
    assert sum(pieces) >= 5 * 700_000
    assert max(pieces) <= 1024 * 1024


# --- checkpoints that do not belong here ---------------------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_a_checkpoint_of_another_history_is_passed_over(flush_mode, caplog):
    disk, other = filled(flush_mode), filled(flush_mode, node_id=2)
    before = state_of(disk.open())
    name = f"{DELTA_LOG}/{6:020d}.checkpoint.json"
    replace_file(disk.filesystem, name, other.filesystem.read_file(name))
    disk.restart()

    assert state_of(disk.open()) == before
    assert "checkpoint 6 is passed over: it is of another history" in caplog.text


def test_it_is_told_by_the_commit_behind_it_where_its_own_is_gone(caplog):
    disk, other = filled(FlushMode.COMMIT), filled(FlushMode.COMMIT, node_id=2)
    name = f"{DELTA_LOG}/{6:020d}.checkpoint.json"
    replace_file(disk.filesystem, name, other.filesystem.read_file(name))
    disk.filesystem.remove(f"{DELTA_LOG}/{6:020d}.json")
    disk.restart()

    with pytest.raises(DamageError, match="delta version 6") as caught:
        disk.open()
    assert "checkpoint 6 is passed over: it is of another history" in caplog.text
    assert caught.value.hint


def test_segments_that_were_removed_behind_a_checkpoint_need_not_be_there():
    config = TopicConfig(segment_bytes=100, file_delete_delay_ms=0)
    disk = DataDirectory(config=config, checkpoint_interval=3, flush_mode=FlushMode.NONE)
    partition = disk.make()
    for number, value in enumerate(VALUES):
        disk.commit(partition, sequenced(7, number, value))
        disk.publish(partition)
    disk.move_log_start(partition, 4)
    before = state_of(partition)
    disk.filesystem.remove(SEGMENT)
    disk.restart()

    assert state_of(disk.open()) == before
