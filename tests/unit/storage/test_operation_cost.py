"""What opening a partition and reading from it cost, in operations and bytes: it must not grow with the log's age."""

import math

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import DIRECTORY, FIRST_MS, DataDirectory, batch_of

DIGITS = 100  # bytes: numbers in the documents of a longer log have a digit more


def grown(*, versions, batches_per_version=1, config=None, flush_mode=FlushMode.COMMIT):
    """A data directory whose partition has so many versions behind it; the newest ones have no checkpoint yet."""
    disk = DataDirectory(
        CountingFilesystem(MemoryFilesystem()),
        config=config or TopicConfig(),
        flush_mode=flush_mode,
        boot_epoch=0,
    )
    partition = disk.make()
    for version in range(versions):
        for index in range(batches_per_version):
            number = version * batches_per_version + index
            disk.append(partition, batch_of(b"%020d" % number, timestamp_ms=FIRST_MS + number))
        disk.run_round()
        disk.publish(partition)
    return disk


def cost_of(disk, work):
    """The names of the operations that some work takes, and the bytes it reads."""
    disk.filesystem.clear()
    work()
    return disk.filesystem.names(), disk.filesystem.bytes_read


# --- opening -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_opening_costs_the_same_with_ten_times_the_versions_behind_the_checkpoint(flush_mode):
    costs = []
    for versions in (203, 2_003):
        disk = grown(versions=versions, flush_mode=flush_mode)
        disk.restart()
        costs.append(cost_of(disk, disk.open))

    (operations, bytes_read), (operations_of_more, bytes_read_of_more) = costs
    assert operations_of_more == operations
    assert operations.count("read_file") == 5, "the checkpoint, its commit, and the three behind it"
    assert abs(bytes_read_of_more - bytes_read) <= DIGITS


def test_opening_after_a_kill_costs_the_same_too_when_versions_were_still_to_be_published():
    costs = []
    for versions in (203, 2_003):
        disk = grown(versions=versions, flush_mode=FlushMode.NONE)
        partition = disk.open()
        disk.commit(partition, batch_of(b"not published"))
        disk.restart()
        costs.append(cost_of(disk, disk.open))

    assert costs[0][0] == costs[1][0]
    assert abs(costs[1][1] - costs[0][1]) <= DIGITS


def test_opening_a_table_to_read_costs_the_same_with_ten_times_the_versions():
    costs = []
    for versions in (203, 2_003):
        disk = grown(versions=versions)
        costs.append(cost_of(disk, lambda disk=disk: TableReader(disk.filesystem, DIRECTORY)))

    assert costs[0][0] == costs[1][0]
    assert abs(costs[1][1] - costs[0][1]) <= DIGITS


def test_the_time_of_a_version_is_found_by_reading_about_log2_of_them():
    costs = []
    for versions in (128, 2_048):
        disk = grown(versions=versions)
        table = TableReader(disk.filesystem, DIRECTORY)
        operations, _ = cost_of(disk, lambda table=table: table.version_at(FIRST_MS))
        costs.append(len(operations))

    assert costs[0] <= 2 + math.log2(128)
    assert costs[1] - costs[0] <= 4


# --- reading -----------------------------------------------------------------------------------------------------


def worst_read(disk, partition):
    """The most operations and bytes that a fetch of one batch at some offset takes, the bytes returned not counted."""
    end = partition.high_watermark
    offsets = {0, 1, end // 3, end // 2, end - 2, end - 1, *range(0, end, max(1, end // 50))}
    return _worst(
        disk,
        lambda offset: partition.committed.read(offset, end_offset=end, bytes_max=1, at_least_one_batch=True),
        sorted(offsets),
    )


def worst_time_look_up(disk, partition):
    end = partition.high_watermark
    return _worst(
        disk,
        lambda offset: partition.committed.find_by_time(FIRST_MS + offset, end_offset=end),
        range(0, end, max(1, end // 50)),
    )


def _worst(disk, read, offsets):
    costs = [cost_of(disk, lambda offset=offset: read(offset)) for offset in offsets]
    return max(len(operations) for operations, _ in costs), max(bytes_read for _, bytes_read in costs)


SIZES = (1_000, 16_000)


def logs_of_both_sizes(*, reopen, config=None):
    for batches in SIZES:
        disk = grown(versions=10, batches_per_version=batches // 10, config=config)
        if reopen:
            disk.restart()
        yield disk, (disk.open())


@pytest.mark.parametrize("worst", [worst_read, worst_time_look_up])
def test_a_look_up_in_sixteen_times_the_batches_reads_at_most_four_rows_more(worst, caplog):
    """The rows are in a file, as after a restart: one is read for each halving."""
    (operations, bytes_read), (operations_of_more, bytes_read_of_more) = (
        worst(disk, partition) for disk, partition in logs_of_both_sizes(reopen=True)
    )

    assert operations_of_more - operations <= 2 * math.log2(SIZES[1] / SIZES[0])
    assert bytes_read_of_more - bytes_read <= 200
    assert bytes_read < 4 * 4_096
    assert "rebuilt" not in caplog.text


def test_a_look_up_reads_about_log2_of_the_rows():
    for disk, partition in logs_of_both_sizes(reopen=True):
        rows = partition.segments[0].index.row_counts[0]
        operations, _ = worst_read(disk, partition)
        assert operations <= math.log2(rows) + 6


@pytest.mark.parametrize("worst", [worst_read, worst_time_look_up])
def test_a_look_up_costs_the_same_in_any_number_of_batches_while_rows_are_in_memory(worst):
    costs = []
    for batches in SIZES:
        disk = DataDirectory(CountingFilesystem(MemoryFilesystem()), checkpoint_interval=1_000)
        partition = disk.make()
        for number in range(batches):
            disk.append(partition, batch_of(b"%020d" % number, timestamp_ms=FIRST_MS + number))
        disk.run_round()
        costs.append(worst(disk, partition))

    assert costs[0] == pytest.approx(costs[1], abs=100)
    assert abs(costs[0][0] - costs[1][0]) <= 1


@pytest.mark.parametrize("worst", [worst_read, worst_time_look_up])
def test_a_look_up_costs_no_more_in_many_segments_than_in_one(worst, caplog):
    costs = []
    for segment_bytes in (1 << 30, 20_000):
        _, (disk, partition) = logs_of_both_sizes(reopen=True, config=TopicConfig(segment_bytes=segment_bytes))
        costs.append(worst(disk, partition))

    of_one, of_many = costs
    assert len(partition.segments) > 50

    assert of_many[0] <= of_one[0] + 1  # a segment's file may have to be opened
    assert of_many[1] <= of_one[1]
    assert "rebuilt" not in caplog.text


def test_a_fetch_reads_what_it_returns_and_little_more():
    for disk, partition in logs_of_both_sizes(reopen=True):
        end = partition.high_watermark
        wanted = 40_000
        for offset in range(0, end - 600, max(1, end // 20)):
            disk.filesystem.clear()
            content = partition.committed.read(offset, end_offset=end, bytes_max=wanted, at_least_one_batch=True)
            assert wanted - 200 < len(content) <= wanted
            assert disk.filesystem.bytes_read <= wanted + 3 * 4_096


def test_an_append_costs_no_more_in_a_log_of_any_age():
    costs = []
    for versions in (203, 2_003):
        disk = grown(versions=versions)
        disk.restart()
        partition = disk.open()
        costs.append(cost_of(disk, lambda disk=disk, partition=partition: disk.commit(partition, batch_of(b"x")))[0])

    assert costs[0] == costs[1]
    assert len(costs[0]) < 15
