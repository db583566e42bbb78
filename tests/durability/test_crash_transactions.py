"""Transactions over a crash at every step of the file system: what is open, what is stable, what was aborted.

Whatever is left of the log, all that a start says of transactions is what that much of the log says by a naive reading.
In each flush mode, and through a commit journal.
"""

from random import Random

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage import journal_engine
from exactlog.storage.audit_findings import Kind
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from exactlog.testing.failing_filesystem import FailingFilesystem
from exactlog.testing.ordered_failures import Crashed
from tests.support.partitions import (
    DIRECTORY,
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    sequenced,
    state_of,
)
from tests.support.transaction_model import (
    Entry,
    aborted_transactions,
    end_of,
    open_transactions,
    producer_entries,
    producer_entry,
    stable_offset,
)

CONFIG = TopicConfig(segment_bytes=500, index_interval_bytes=150, file_delete_delay_ms=0)
SETTINGS = {"checkpoint_interval": 3, "versions_keep": 4, "pack_versions": 3}

FILES = {"flush_mode": FlushMode.COMMIT}
JOURNAL = {"flush_mode": FlushMode.COMMIT, "is_journaled": True}
UNSYNCED = [{"flush_mode": FlushMode.INTERVAL}, {"flush_mode": FlushMode.NONE}]
NAMES = ["files", "journal", "interval", "none"]
in_each_mode = pytest.mark.parametrize("mode", [FILES, JOURNAL, *UNSYNCED], ids=NAMES)

BEGIN, COMMIT, ABORT, PLAIN = "begin", "commit", "abort", "plain"
SCRIPT = (
    ("round", (BEGIN, 1), (PLAIN, None)),
    ("round", (BEGIN, 2), (BEGIN, 1)),
    ("round", (ABORT, 1)),
    ("settle",),
    ("round", (BEGIN, 3), (COMMIT, 2), (BEGIN, 2), (ABORT, 2)),
    ("round", (BEGIN, 1), (PLAIN, None), (PLAIN, None)),
    ("publish",),
    ("round", (ABORT, 3)),
    ("restart",),
    ("round", (BEGIN, 2), (ABORT, 1)),
    ("settle",),
    ("round", (BEGIN, 3), (COMMIT, 3)),
    ("remove", 7),
    ("round", (ABORT, 2), (ABORT, 2)),
    ("publish",),
    ("sweep",),
    ("round", (BEGIN, 1), (BEGIN, 2)),
    ("sweep",),
    ("round", (PLAIN, None), (ABORT, 2), (BEGIN, 2), (PLAIN, None)),
    ("sweep",),
    ("restart",),
    ("round", (COMMIT, 1), (PLAIN, None)),
    ("publish",),
)


@pytest.fixture(autouse=True)
def some_runs_are_long(monkeypatch):
    """Of these a journal says only where they are; the others are in it."""
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 250)


class Life:
    """The script on a disk, until it ends or the machine stops; and the log that was decided by then.

    `acknowledged` says how much of it is promised.
    """

    def __init__(self, mode):
        self.filesystem = FailingFilesystem(sector_bytes=64)
        self.mode = mode
        self.disk = None
        self.log = []
        self.acknowledged = 0
        self.log_start = self.log_start_to_come = 0

    def run(self, *, crash_at=None):
        if crash_at is not None:
            self.filesystem.crash_at(crash_at)
        try:
            self.disk = DataDirectory(self.filesystem, config=CONFIG, **self.mode, **SETTINGS)
            self.partition = self.disk.make()
            for step, *arguments in SCRIPT:
                getattr(self, step)(*arguments)
        except Crashed:
            return False
        finally:
            if self.disk is not None:
                self.disk.close()
        return True

    def round(self, *appends):
        asks = [self.append(*append) for append in appends]
        self.disk.run_round()
        assert [ask.offset for ask in asks] == [entry.offset for entry in self.log[-len(asks) :]]
        self.acknowledged = len(self.log)

    def append(self, what, producer):
        offset = end_of(self.log)
        if what == PLAIN:
            self.log.append(Entry(offset, 1))
            return self.disk.append(self.partition, batch_of(b"p" * 20))
        known = producer_entry(self.log, producer)
        if what == BEGIN:
            sequence = 0 if known is None else known.last_sequence + 1
            self.log.append(Entry(offset, 2, producer, 0, sequence, is_transactional=True))
            batch = sequenced(producer, sequence, b"a" * 20, b"b" * 20, is_transactional=True)
            return self.disk.append(self.partition, batch, is_verified=True)
        self.log.append(Entry(offset, 1, producer, is_commit=what == COMMIT, coordinator_epoch=0))
        return self.disk.append_marker(self.partition, producer, is_commit=what == COMMIT)

    def publish(self):
        self.disk.publish(self.partition)

    def remove(self, offset):
        self.log_start_to_come = offset
        assert self.disk.move_log_start(self.partition, offset) is ErrorCode.NONE
        self.log_start = offset

    def sweep(self):
        for _ in range(3):
            self.partition.sweep_removed(now_ms=self.disk.clock.time_ms)
            self.disk.run_round()
            self.disk.publish(self.partition)

    def settle(self):
        self.disk.settle()

    def restart(self):
        self.disk.restart()
        self.partition = self.disk.open()


def check(content, life, *, is_promised):
    """What a start finds is what the log that is left says."""
    if not content.exists(DIRECTORY):
        assert not life.log
        return
    with DataDirectory(copy_of(content), config=CONFIG, leader_epoch=9, **life.mode, **SETTINGS) as disk:
        partition = disk.open()
        state = state_of(partition)
        end = partition.high_watermark
        log = [entry for entry in life.log if entry.end <= end]
        assert end == end_of(log)
        assert len(log) >= life.acknowledged or not is_promised
        start = partition.log_start_offset
        assert start in (life.log_start, life.log_start_to_come) or not is_promised
        assert partition.last_stable_offset == partition.table.last_stable_offset == stable_offset(log, start)
        assert partition.committed.producers.snapshot() == producer_entries(log)
        assert [entry.producer_id for entry in partition.open_transactions()] == list(open_transactions(log))
        for first in range(start, end + 1):
            found = partition.committed.aborted_transactions(first, end)
            assert found == aborted_transactions(log, first, end)
        report = audit_table(copy_of(disk.filesystem), DIRECTORY)
        assert [finding for finding in report.findings if _is_wrong(finding)] == []
        again = copy_of(disk.filesystem)
    with DataDirectory(again, config=CONFIG, leader_epoch=9, **life.mode, **SETTINGS) as disk:
        assert state_of(disk.open()) == state


def _is_wrong(finding):
    """Sparse indexes are not synced: a power cut may leave anything of them."""
    return finding.is_damage and not (finding.kind is Kind.INDEX_DAMAGED and not finding.file.endswith(".txnindex"))


def steps_of(mode):
    life = Life(mode)
    assert life.run()
    return life.filesystem.steps


@in_each_mode
def test_the_script_meets_all_that_matters(mode):
    life = Life(mode)

    assert life.run()

    assert len(life.partition.segments) > 2
    assert open_transactions(life.log)
    assert life.partition.table.segments[0].base > 0
    names = life.filesystem.list_names(DIRECTORY)
    assert sum(name.endswith(".txnindex") for name in names) > 1
    assert f"{0:020d}.log" not in names
    check(life.filesystem.after_kill(), life, is_promised=True)


@pytest.mark.parametrize("mode", [FILES, JOURNAL], ids=NAMES[:2])
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_every_step(part, mode):
    for step in range(part, steps_of(mode), 4):
        life = Life(mode)
        assert not life.run(crash_at=step)
        filesystem = life.filesystem
        for content in (
            filesystem.after_kill(),
            filesystem.after_power_cut(),
            filesystem.after_power_cut(Random(step)),
        ):
            check(content, life, is_promised=True)


@pytest.mark.parametrize("mode", UNSYNCED, ids=NAMES[2:])
def test_a_crash_at_every_step_where_nothing_is_synced(mode):
    for step in range(steps_of(mode)):
        life = Life(mode)
        assert not life.run(crash_at=step)
        check(life.filesystem.after_kill(), life, is_promised=True)
        check(life.filesystem.after_power_cut(Random(step)), life, is_promised=False)


@in_each_mode
def test_a_full_replay_says_the_same(mode):
    life = Life(mode)
    script_without_removal = [step for step in SCRIPT if step[0] not in ("remove", "sweep")]
    life.disk = DataDirectory(life.filesystem, config=CONFIG, **mode, **SETTINGS)
    life.partition = life.disk.make()
    for step, *arguments in script_without_removal:
        getattr(life, step)(*arguments)
        content = life.filesystem.after_kill()
        remove_checkpoints(content)
        check(content, life, is_promised=True)
    life.disk.close()
