"""A crash, a power cut or a disk that refuses, at every operation of a compaction: the old log, or the new one."""

import errno
from random import Random

import pytest

from exactlog.core.model.errors import ExactlogError
from exactlog.storage.audit_findings import Severity
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.table_reader import TableReader
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.compacted_tables import (
    COMPACT,
    committed,
    compact_at,
    everything,
    findings_of,
    newest_by_key,
)
from tests.support.generated_logs import LogWriter
from tests.support.partitions import DIRECTORY, ORDERS, ROOT, DataDirectory, copy_of, state_of

NAME = DIRECTORY.rpartition("/")[2]
KEYS_MAX = 8
"""So that it takes more than one pass."""


def written():
    """A partition with keys, producers and transactions in a few segments."""
    with DataDirectory(config=COMPACT) as disk:
        writer = LogWriter(disk, disk.make(), Random(11))
        for _ in range(14):
            writer.step(removes=False)
        assert len(writer.partition.segments) >= 4
        return copy_of(disk.filesystem)


@pytest.fixture(scope="module")
def log():
    return written()


def compact(filesystem):
    return compact_at(ROOT, NAME, filesystem=filesystem, keys_max=KEYS_MAX)


def reopened(filesystem):
    """What the next start makes of it."""
    epoch = TableReader(filesystem, DIRECTORY).snapshot().leader_epoch + 1
    with DataDirectory(filesystem, config=COMPACT, leader_epoch=epoch) as disk:
        return state_of(disk.open(ORDERS))


class Expectation:
    """What is true of a log before, during and after its compaction."""

    def __init__(self, log):
        self.before = committed(ROOT, NAME, filesystem=copy_of(log))
        self.all_before = everything(ROOT, NAME, filesystem=copy_of(log))
        self.version = TableReader(log, DIRECTORY).snapshot().version
        self.producers = reopened(copy_of(log))[1]
        done = copy_of(log)
        compact(done)
        self.after = committed(ROOT, NAME, filesystem=done)
        assert len(self.after) < len(self.before)

    def check(self, left):
        """The table is one of a whole number of passes; the next start serves it, and the next compaction ends it."""
        found = committed(ROOT, NAME, filesystem=left)
        assert newest_by_key(found) == newest_by_key(self.before)
        assert [record for record in self.before if record in found] == found
        assert everything(ROOT, NAME, filesystem=left, as_of_version=self.version) == self.all_before
        assert damage_of(left) == []
        state = reopened(left)
        assert state[1] == self.producers
        assert committed(ROOT, NAME, filesystem=left) == found
        assert not [name for name in left.list_names(DIRECTORY) if name.startswith(".")], "leftovers are swept"
        compact(left)
        assert committed(ROOT, NAME, filesystem=left) == self.after
        assert damage_of(left) == []


def damage_of(filesystem):
    """What an audit finds; index files are not synced, and harmless."""
    found = findings_of(ROOT, NAME, filesystem=filesystem)
    return [finding for finding in found if finding.is_damage and finding.severity is not Severity.HARMLESS]


@pytest.fixture(scope="module")
def expectation(log):
    return Expectation(log)


def steps_of(log):
    filesystem = FailingFilesystem(copy_of(log))
    compact(filesystem)
    return filesystem.steps


def crashed_at(log, step):
    """A compaction that ended at one of its operations."""
    filesystem = FailingFilesystem(copy_of(log), sector_bytes=16)
    filesystem.crash_at(step)
    with pytest.raises(Crashed):
        compact(filesystem)
    return filesystem


def test_a_process_killed_at_any_operation_leaves_the_old_log_or_the_new_one(log, expectation):
    steps = steps_of(log)
    assert steps > 50
    for step in range(steps):
        expectation.check(crashed_at(log, step).after_kill())


@pytest.mark.parametrize("first", range(3))
def test_a_power_cut_at_any_operation_leaves_the_old_log_or_the_new_one(log, expectation, first):
    for step in range(first, steps_of(log), 3):
        chance = None if step % 2 else Random(step)
        expectation.check(crashed_at(log, step).after_power_cut(chance))


def refusal_of(filesystem):
    """Why a compaction could not be done; None where it could."""
    try:
        compact(filesystem)
    except (ExactlogError, OSError) as error:
        return error
    return None


def test_a_full_disk_at_any_moment_leaves_the_old_log_or_the_new_one(log, expectation):
    needed = 0
    for room in range(0, 5_000, 490):
        filesystem = FailingFilesystem(copy_of(log))
        filesystem.capacity_bytes = filesystem.used_bytes + room
        refusal = refusal_of(filesystem)
        if refusal is not None:
            is_at_opening = isinstance(refusal, OSError) and refusal.errno == errno.ENOSPC
            assert is_at_opening or (refusal.hint and refusal.retryable)
            needed = room
        filesystem.capacity_bytes = None
        expectation.check(filesystem.after_kill())
    assert needed > 500


@pytest.mark.parametrize("operation", ["sync", "sync_data", "sync_directory"])
def test_a_sync_that_fails_leaves_the_old_log_or_the_new_one(log, expectation, operation):
    for number in range(100):
        filesystem = FailingFilesystem(copy_of(log))
        filesystem.fail(operation, after=number, times=1)
        if refusal_of(filesystem) is None:
            break
        expectation.check(filesystem.after_power_cut())
    assert 3 < number < 99


def test_what_a_crash_left_is_no_part_of_a_compaction_that_comes_after(log, expectation):
    filesystem = crashed_at(log, steps_of(log) // 2).after_kill()
    assert isinstance(filesystem, MemoryFilesystem)
    compact(filesystem)
    assert committed(ROOT, NAME, filesystem=filesystem) == expectation.after
