"""Public faults of other delta logs, as inputs to ours: each with its source, and what comes of it here.

Those of recovery, packing and vacuum stand with the tests of these; those of retries and conflicts with seed 000.
"""

import json
import shutil
import threading

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.log import Committed, Conflicted, open_partition
from exactlog.storage import fault_points
from exactlog.storage.settings import FlushMode
from exactlog.testing import FailingFilesystem
from tests.support.partitions import DIRECTORY, DataDirectory, batches_of, state_of

IN_MEMORY = "/data/topic=orders-part=0"


class StoppedError(Exception):
    """Stands for the end of the process."""


def stop():
    raise StoppedError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topic=orders-part=0"


@pytest.fixture(autouse=True)
def nothing_stays_armed():
    yield
    fault_points.disarm_all()


def values(partition, **options):
    return [record.value for record in partition.read(0, **options)]


@pytest.mark.parametrize("point", ["storage.publish.after_write", "storage.publish.before_link"])
def test_a_crash_while_a_commit_is_written_leaves_no_half_commit_under_its_name(path, point):
    """delta-rs #94: a commit written in place is left empty or cut, and blocks its version for ever."""
    with open_partition(path) as orders:
        orders.append([b"a"])
        fault_points.arm(point, stop)
        with pytest.raises(StoppedError):
            orders.append([b"b"])
    assert not (path / "_delta_log" / f"{2:020d}.json").exists()

    with open_partition(path) as again:
        assert again.append([b"c"]) == Committed(2, 1, 1)


def test_a_crash_between_link_and_unlink_leaves_a_file_that_is_ignored_and_swept(path):
    """delta-rs PR #621, in review: link and unlink are two steps."""
    with open_partition(path) as orders:
        fault_points.arm("storage.publish.after_link", stop)
        with pytest.raises(StoppedError):
            orders.append([b"a"])
    left = [entry.name for entry in (path / "_delta_log").iterdir() if entry.name.startswith(".")]
    assert left == [f".{1:020d}.json.tmp"]
    with open_partition(path, read_only=True) as reader:
        assert values(reader) == [b"a"]

    with open_partition(path) as again:
        assert values(again) == [b"a"]
        assert not [entry for entry in (path / "_delta_log").iterdir() if entry.name.startswith(".")]


def test_twenty_writers_that_retry_on_conflict_all_come_through(path):
    """delta-rs #3066: a blind retry with the next number gives up after fifteen tries."""
    with open_partition(path):  # held open, so that the data directory is not closed in between

        def write(number):
            with open_partition(path) as mine:
                expected = mine.current_version()
                while isinstance(outcome := mine.append([b"%d" % number], expected_version=expected), Conflicted):
                    expected = outcome.actual

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with open_partition(path, read_only=True) as reader:
            assert sorted(values(reader)) == sorted(b"%d" % number for number in range(20))
            assert reader.current_version() == 20


def test_two_removals_of_the_same_records_take_them_once(path):
    """delta PR #7163: two transactions that removed the same file both passed."""
    with open_partition(path) as orders:
        orders.append([b"a", b"b"])
        first, second = orders.delete_records_before(1), orders.delete_records_before(1)
        assert (first.version, second.version) == (2, 2)
        assert values(orders) == [b"b"]


def test_a_segment_of_a_name_that_was_removed_before_is_a_new_one():
    """delta-rs #2507: a path that was removed and added again stayed invisible."""
    with DataDirectory(config=TopicConfig(segment_bytes=250, file_delete_delay_ms=0)) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(4, size=40))
        disk.move_log_start(partition, -1)
        disk.commit(partition, *batches_of(2, size=40))

        assert [segment.name for segment in partition.segments] == [f"{4:020d}.log"]
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before


def test_a_copied_directory_keeps_its_times(path, tmp_path):
    """delta #2532, #1293: times were those of the files, and a copy changed the past."""
    with open_partition(path) as orders:
        orders.append([b"a"])
        orders.append([b"b"])
    log = path / "_delta_log"
    times = [json.loads((log / f"{version:020d}.json").read_text())["timestamp"] for version in range(3)]
    copy = tmp_path / "copy" / path.name
    shutil.copytree(path, copy, copy_function=shutil.copy)

    with open_partition(copy, read_only=True) as reader:
        assert reader.load_state().timestamp == times[2]
        assert values(reader, as_of_version=1) == [b"a"]


def test_a_table_of_few_versions_opens_without_any_checkpoint_or_hint(path):
    """DeltaLakeReader #41: a table of fewer than ten commits could not be opened without `_last_checkpoint`."""
    with open_partition(path) as orders:
        for number in range(3):
            orders.append([b"%d" % number])
    assert not list((path / "_delta_log").glob("*checkpoint*"))

    with open_partition(path, read_only=True) as reader:
        assert values(reader) == [b"0", b"1", b"2"]


def test_what_was_acknowledged_keeps_its_name_over_a_power_cut():
    """ClickHouse #111348: renamed, not synced, acknowledged, gone."""
    files = FailingFilesystem()
    with open_partition(IN_MEMORY, filesystem=files) as orders:
        orders.append([b"a"], txn_id="t")
        survivors = FailingFilesystem(files.after_power_cut())

    with open_partition(IN_MEMORY, filesystem=survivors) as again:
        assert values(again) == [b"a"]
        assert again.append([b"a"], txn_id="t") == Committed(1, 0, 0)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_every_commit_that_is_due_gets_its_checkpoint(flush_mode):
    """Seed 000's own test: at an interval of 1 there is a checkpoint after the first commit, of next offset 1."""
    with DataDirectory(flush_mode=flush_mode, checkpoint_interval=1) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(1))
        disk.publish(partition)

        checkpoint = json.loads(disk.filesystem.read_file(f"{DIRECTORY}/_delta_log/{1:020d}.checkpoint.json"))
        assert (checkpoint["version"], checkpoint["next_offset"]) == (1, 1)
