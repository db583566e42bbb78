"""A crash, or a power cut, at every single operation on files: what was acknowledged is there, and nothing half.

The scenario goes through everything that writes: rounds of one and of several groups, new segments, checkpoints, index
files, versions that follow later, syncs. It is run again and again, ended one operation later each time, and what is
left is opened as the next start would.
"""

from random import Random

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.storage.settings import FlushMode
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.partitions import (
    DataDirectory,
    copy_of,
    remove_checkpoints,
    sequenced,
    state_of,
    values_of,
)

CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=150)
SETTINGS = {"checkpoint_interval": 4}
PRODUCERS = 3
ROUNDS = [1, 2, 1, 3, 1, 1, 7, 1, 2, 1, 1, 4, 1]  # how many batches each brings


def failing_filesystem():
    """One that has a data directory, and tears what is written in small pieces, as the batches here are small."""
    filesystem = FailingFilesystem(sector_bytes=16)
    filesystem.make_directories("/data")
    filesystem.sync_directory("/")
    return filesystem


class Life:
    """One run of the scenario, up to its end or to its crash."""

    def __init__(self, flush_mode):
        self.flush_mode = flush_mode
        self.filesystem = failing_filesystem()
        self.disk = DataDirectory(self.filesystem, config=CONFIG, flush_mode=flush_mode, **SETTINGS)
        self.partition = self.disk.make()
        self.filesystem.clear()
        self.sent = []
        self.synced = 0  # how many of the records a finished sync covers

    def crash_at(self, step):
        self.filesystem.crash_at(step)
        try:
            self.run()
        except Crashed:
            return True
        return False

    def run(self):
        for number, batches in enumerate(ROUNDS):
            for _ in range(batches):
                self.send()
            self.disk.run_round()
            if number % 2:
                self.disk.publish(self.partition)
            if number % 3 == 2:
                self.sync()

    def send(self):
        number = len(self.sent)
        batch = sequenced(number % PRODUCERS, number // PRODUCERS, b"%06d" % number)
        self.sent.append((b"%06d" % number, self.disk.append(self.partition, batch)))

    def sync(self):
        write = self.partition.take_sync()
        if write is not None:
            covered = self.partition.high_watermark
            self.disk.engine.commit([write])
            self.partition.complete_sync()
            self.synced = covered

    @property
    def acknowledged(self):
        return sum(ask.offset is not None for _, ask in self.sent)


def steps_of(flush_mode):
    life = Life(flush_mode)
    life.run()
    assert len(life.partition.segments) >= 4
    return life.filesystem.steps


def check_reopened(life, filesystem, *, at_least, is_replay_whole=True):
    """What is there now is a run of what was sent, as long as it must be; a full replay agrees; it can go on.

    A power cut may take unsynced commits behind a checkpoint, which is synced: then a full replay is not whole.
    """
    replayed = copy_of(filesystem)
    disk = DataDirectory(filesystem, config=CONFIG, flush_mode=life.flush_mode, **SETTINGS)
    partition = disk.open()
    found = values_of(partition)

    assert found == [value for value, _ in life.sent][: len(found)]
    assert len(found) >= at_least
    for offset, (_, ask) in enumerate(life.sent):
        assert ask.offset in (None, offset)
    if is_replay_whole:
        remove_checkpoints(replayed)
        with DataDirectory(replayed, config=CONFIG, flush_mode=life.flush_mode, **SETTINGS) as other:
            assert state_of(other.open()) == state_of(partition)

    # Each producer sends again what it has no answer for, as if the answers of the last five were lost.
    first = max(0, len(found) - 5)
    for number in range(first, len(life.sent)):
        value = b"%06d" % number
        ask = disk.append(partition, sequenced(number % PRODUCERS, number // PRODUCERS, value))
        disk.run_round()
        assert ask.offset == number
    assert values_of(partition) == [value for value, _ in life.sent]
    disk.close()
    return found


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_after_a_crash_at_any_operation_all_that_was_acknowledged_is_there_once(flush_mode):
    for step in range(steps_of(flush_mode)):
        life = Life(flush_mode)
        assert life.crash_at(step)
        found = check_reopened(life, life.filesystem.after_kill(), at_least=life.acknowledged)
        if flush_mode is FlushMode.COMMIT:
            assert is_between_groups(found, life), "a group is there whole or not at all"
        life.disk.close()


def is_between_groups(found, life):
    """Batches of one round in one segment are one group."""
    after_round, ends = 0, {0}
    for batches in ROUNDS:
        after_round += batches
        ends.add(after_round)
    bases = {segment.base_offset for segment in life.partition.segments} | {
        group.base_offset for carried in life.partition._in_flight for group in carried.groups
    }
    return len(found) in ends | bases


def test_after_a_power_cut_at_any_operation_all_that_was_acknowledged_is_there_once():
    """Flush mode `commit`: with nothing more than what was synced, and with any part of what was not."""
    for step in range(steps_of(FlushMode.COMMIT)):
        life = Life(FlushMode.COMMIT)
        assert life.crash_at(step)
        for random in (None, Random(step), Random(-step)):
            check_reopened(life, life.filesystem.after_power_cut(random), at_least=life.acknowledged)
        life.disk.close()


def test_interval_keeps_over_a_power_cut_all_that_its_last_sync_covered():
    for step in range(steps_of(FlushMode.INTERVAL)):
        life = Life(FlushMode.INTERVAL)
        assert life.crash_at(step)
        for random in (None, Random(step), Random(-step)):
            left = life.filesystem.after_power_cut(random)
            check_reopened(life, left, at_least=life.synced, is_replay_whole=False)
        life.disk.close()


def test_none_keeps_over_a_power_cut_a_run_of_what_was_sent_and_opens():
    for step in range(steps_of(FlushMode.NONE)):
        life = Life(FlushMode.NONE)
        assert life.crash_at(step)
        for random in (None, Random(step), Random(-step)):
            check_reopened(life, life.filesystem.after_power_cut(random), at_least=0, is_replay_whole=False)
        life.disk.close()


@pytest.mark.parametrize("before", [FlushMode.INTERVAL, FlushMode.NONE])
def test_what_was_written_without_syncs_is_durable_once_the_mode_promises_that(before):
    life = Life(before)
    life.run()
    life.disk.restart(flush_mode=FlushMode.COMMIT)
    reopened = life.disk.open()
    assert values_of(reopened) == [value for value, _ in life.sent]

    with DataDirectory(life.filesystem.after_power_cut(), config=CONFIG, **SETTINGS) as after:
        assert state_of(after.open()) == state_of(reopened)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_a_crash_at_any_operation_of_a_recovery_changes_nothing_for_the_next(flush_mode):
    crashes = 0
    for step in range(20, steps_of(flush_mode), 7):
        life = Life(flush_mode)
        assert life.crash_at(step)
        left = life.filesystem.after_kill()
        for recovery_step in range(1_000):
            filesystem = FailingFilesystem(left)
            disk = DataDirectory(filesystem, config=CONFIG, flush_mode=flush_mode, **SETTINGS)
            filesystem.crash_at(recovery_step)
            try:
                disk.open()
            except Crashed:
                pass
            else:
                break
            finally:
                disk.close()
            check_reopened(life, filesystem.after_kill(), at_least=life.acknowledged)
            crashes += 1
        life.disk.close()
    assert crashes > 20


def test_a_crash_at_any_operation_of_a_creation_leaves_a_whole_partition_or_none():
    for step in range(1_000):
        filesystem = failing_filesystem()
        disk = DataDirectory(filesystem)
        filesystem.crash_at(step)
        try:
            disk.create()
        except Crashed:
            is_whole = False
        else:
            is_whole = True
        for left in (
            filesystem.after_kill(),
            filesystem.after_power_cut(),
            *(filesystem.after_power_cut(Random(seed)) for seed in range(10)),
        ):
            again = DataDirectory(left)
            names = again.filesystem.list_names("/data")
            if "topic=orders-part=0" in names:
                assert values_of(again.open()) == []
            else:
                assert not is_whole
                assert again.filesystem.list_names("/data/.creating") == []
                again.make()
            again.close()
        disk.close()
        if is_whole:
            break
    assert step > 5
