"""Long lives of several partitions over one commit journal: crash after crash, whatever each one leaves.

Rounds of some or all of the partitions, short runs of bytes and long ones, versions that come later or at once, removed
records, topics that are deleted and made again, files of the journal that end and go, writes that the disk refuses,
syncs that fail, starts on the other engine. The process is killed, or the power fails, at any step of the file system,
also while it starts. After each stop all that was acknowledged is there once and in order, and the round that was under
way is there for all of its partitions or for none.
"""

import errno
from collections import Counter
from random import Random
from uuid import UUID

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.storage import journal_engine
from exactlog.storage.journal_engine import JournalEngine
from exactlog.storage.round import StorageRefused, Stored, SyncFailed
from exactlog.storage.whole_files import SyncFailedError
from exactlog.testing.failing_filesystem import FailingFilesystem
from exactlog.testing.operation_log import STEPS
from tests.support.partitions import ROOT, DataDirectory, batch_of, copy_of, values_of

CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0)
SETTINGS = {"checkpoint_interval": 4, "versions_keep": 3, "pack_versions": 4}
KEYS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("others", 0)]
REMADE = KEYS[2]
ACTIONS = 150


@pytest.fixture(autouse=True)
def some_runs_are_long(monkeypatch):
    monkeypatch.setattr(journal_engine, "DIRECT_BYTES_MIN", 250)
    monkeypatch.setattr(journal_engine, "SYNCED_ONE_BY_ONE_MAX", 6)


class Stopped(BaseException):
    """The process is gone, in the middle of whatever it was at."""


class Model:
    """What must be in a partition, and what may be."""

    def __init__(self):
        self.acknowledged = []
        self.under_way = []  # of the round that may or may not be there
        self.start = 0
        self.start_under_way = None


class Life:
    """Processes that follow each other on one data directory."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.filesystem = FailingFilesystem(sector_bytes=64)
        self.models = {key: Model() for key in KEYS}
        self.ids = dict.fromkeys(KEYS)
        self.states = dict.fromkeys(KEYS, "creating")  # as the catalog has them
        self.topics = self.values = 0
        self.disk = None
        self.seen = Counter()

    def live(self):
        """So many actions, with stops among them."""
        left = ACTIONS
        self.stop_in(None)
        self.start()
        while left > 0:
            self.stop_in(self.chance.randrange(1, 250) if self.chance.random() < 0.7 else None)
            try:
                while left > 0:
                    left -= 1
                    self.act()
            except Stopped:
                self.go_on_after(self.leave())
            except SyncFailedError:
                self.seen["failed sync"] += 1
                self.go_on_after(self.leave())
        self.stop_in(None)
        self.start()
        self.check_all({key: self.disk.opened[key] for key in KEYS})
        self.disk.settle()
        self.disk.settle()
        self.disk.close()

    # --- stopping and starting --------------------------------------------------------------------------------------

    def stop_in(self, steps):
        """Lets the process die before it does the step after so many; None: not at all."""
        self.is_stopped = False

        def before(operation):
            nonlocal steps
            if operation.name in STEPS and steps is not None:
                self.is_stopped = self.is_stopped or steps <= 0
                steps -= 1
            if self.is_stopped:
                raise Stopped

        self.filesystem.before = before

    def leave(self):
        """What is left when the process has stopped."""
        if self.disk is not None:
            self.disk.close()
        self.stop_in(None)
        self.disk = None
        kind = self.chance.choice(("kill", "kill", "least", "some", "some"))
        self.seen[kind] += 1
        if kind == "kill":
            return self.filesystem
        content = self.filesystem.after_power_cut(None if kind == "least" else self.chance)
        return FailingFilesystem(content, sector_bytes=64)

    def go_on_after(self, filesystem):
        """Looks at what is left, and starts on it, which may be stopped too."""
        self.filesystem = filesystem
        self.check_copy()
        while True:
            self.stop_in(self.chance.randrange(60) if self.chance.random() < 0.3 else None)
            try:
                self.start()
            except Stopped:
                self.seen["stopped start"] += 1
                self.filesystem = self.leave()
            else:
                break
        self.check_all(self.disk.opened)

    def start(self):
        is_journaled = self.chance.random() < 0.85
        self.seen["journal" if is_journaled else "files"] += 1
        if self.disk is not None:
            self.disk.close()
        self.disk = DataDirectory(self.filesystem, config=CONFIG, is_journaled=is_journaled, **SETTINGS)
        for deleted in self.disk.store.prepare():
            self.disk.store.remove_deleted(deleted)
        for key in KEYS:
            self.finish_topic(key)
        keys = list(KEYS)
        self.chance.shuffle(keys)
        for key in keys:
            self.disk.open(key, self.ids[key])

    def finish_topic(self, key):
        """Ends what a topic was in the middle of."""
        if self.states[key] == "deleting":
            self.disk.remove(key, self.ids[key])
            self.states[key], self.ids[key] = "creating", None
        if self.states[key] == "creating":
            if self.ids[key] is None:
                self.topics += 1
                self.ids[key], self.models[key] = UUID(int=self.topics), Model()
            self.disk.remove(key, self.ids[key])
            self.disk.create(key, self.ids[key])
            self.states[key] = "live"

    # --- checking -----------------------------------------------------------------------------------------------------

    def check_copy(self):
        """A start on what is left, now, finds all of it, whichever engine it has; and one after that the same."""
        is_journaled = self.chance.random() < 0.5
        content = copy_of(self.filesystem.after_kill())
        for _ in range(2):
            with DataDirectory(content, config=CONFIG, is_journaled=is_journaled, **SETTINGS) as disk:
                live = [key for key in KEYS if self.states[key] == "live"]
                found = {key: disk.open(key, self.ids[key]) for key in live}
                self.look_at_all(found)

    def look_at_all(self, partitions):
        """Whether the round under way is there, which must be so of all partitions or of none."""
        there = set()
        for key, partition in partitions.items():
            model = self.models[key]
            assert partition.failure is None
            assert partition.log_start_offset in {model.start, model.start_under_way}
            values = values_of(partition, partition.log_start_offset)
            whole = model.acknowledged + model.under_way
            is_there = partition.high_watermark == len(whole)
            assert values == (whole if is_there else model.acknowledged)[partition.log_start_offset :]
            assert is_there or partition.high_watermark == len(model.acknowledged)
            if model.under_way:
                there.add(is_there)
        assert len(there) <= 1 or not self.was_atomic, "a part of a round is there"
        return there

    def check_all(self, partitions):
        """The same, of the process that goes on: what is there now stays."""
        self.look_at_all(partitions)
        for key, partition in partitions.items():
            model = self.models[key]
            if partition.high_watermark > len(model.acknowledged):
                model.acknowledged += model.under_way
                self.seen["was there"] += 1
            model.under_way = []
            model.start, model.start_under_way = partition.log_start_offset, None

    # --- actions ------------------------------------------------------------------------------------------------------

    was_atomic = True

    def act(self):
        actions = {
            self.round: 10,
            self.publish: 5,
            self.refused_round: 2,
            self.round_on_a_full_disk: 2,
            self.round_of_failed_sync: 0.5,
            self.settle: 2,
            self.end_file: 1,
            self.on_terms: 2,
            self.remove_records: 1,
            self.sweep: 2,
            self.make_anew: 0.7,
            self.restart: 0.7,
        }
        (action,) = self.chance.choices(list(actions), list(actions.values()))
        action()
        self.seen[action.__name__] += 1

    def append(self):
        """Batches for some of the partitions, which are under way."""
        self.was_atomic = isinstance(self.disk.engine, JournalEngine)
        for key in self.chance.sample(KEYS, self.chance.randint(1, len(KEYS))):
            for _ in range(self.chance.randint(1, 3)):
                self.values += 1
                value = b"%06d" % self.values * self.chance.choice((1, 1, 5, 40))
                self.models[key].under_way.append(value)
                self.disk.append(self.disk.opened[key], batch_of(value))

    def complete(self, outcomes):
        for partition, outcome in outcomes:
            model = self.models[partition.topic_partition]
            if isinstance(outcome, SyncFailed):
                raise SyncFailedError(outcome.reason)
            if outcome == Stored():
                model.acknowledged += model.under_way
            assert isinstance(outcome, (Stored, StorageRefused))
            model.under_way = []
            assert partition.high_watermark == len(model.acknowledged)

    def run_round(self):
        taken = self.disk.take_round()
        outcomes = self.disk.engine.commit([write for _, write in taken])
        self.disk.complete_round(taken, outcomes)
        self.complete([(partition, outcome) for (partition, _), outcome in zip(taken, outcomes, strict=True)])

    def round(self, *, is_refused_in_part=False):
        self.append()
        # What its own files refuse, a partition is refused alone: these rounds are of no transaction.
        self.was_atomic = self.was_atomic and not is_refused_in_part
        self.run_round()

    def refused_round(self):
        """The disk has no room for something of it."""
        name = self.chance.choice(("write_at", "write_at", "create", "link"))
        pattern = self.chance.choice((f"{ROOT}/journal/*", "*.log", "*.tmp", "*"))
        with self.filesystem.fail(name, path_pattern=pattern, error=errno.ENOSPC, after=self.chance.randrange(4)):
            self.round(is_refused_in_part=True)

    def round_on_a_full_disk(self):
        """What there is room for is written, and no more."""
        self.filesystem.capacity_bytes = self.filesystem.used_bytes + self.chance.randrange(1_500)
        try:
            self.round(is_refused_in_part=True)
        finally:
            self.filesystem.capacity_bytes = None

    def round_of_failed_sync(self):
        with self.filesystem.fail("sync", "sync_data", after=self.chance.randrange(3)):
            self.round()

    def publish(self):
        for key in self.chance.sample(KEYS, self.chance.randint(1, len(KEYS))):
            if isinstance(self.disk.publish(self.disk.opened[key]), SyncFailed):
                raise SyncFailedError

    def settle(self):
        self.disk.settle()

    def end_file(self):
        if isinstance(self.disk.engine, JournalEngine):
            part = self.disk.engine.end_file()
            if part is not None:
                self.disk.ended.append(part)

    def on_terms(self):
        key = self.chance.choice(KEYS)
        self.values += 1
        self.was_atomic = False  # of one partition
        self.models[key].under_way = [b"%06d" % self.values]
        asked = self.disk.append_on_terms(
            self.disk.opened[key], batch_of(*self.models[key].under_way), txn_id=f"id-{self.values}"
        )
        self.run_round()
        assert asked.told is ErrorCode.NONE

    def remove_records(self):
        key = self.chance.choice(KEYS)
        model = self.models[key]
        model.start_under_way = self.chance.randint(model.start, len(model.acknowledged))
        self.disk.move_log_start(self.disk.opened[key], model.start_under_way)
        model.start, model.start_under_way = model.start_under_way, None

    def sweep(self):
        for key in KEYS:
            self.disk.opened[key].sweep_removed(now_ms=self.disk.clock.time_ms)
        self.run_round()
        for key in KEYS:
            self.disk.publish(self.disk.opened[key])

    def make_anew(self):
        """A topic is deleted, and another one of its name is made."""
        self.states[REMADE] = "deleting"
        self.models[REMADE] = Model()
        self.finish_topic(REMADE)
        self.disk.open(REMADE, self.ids[REMADE])

    def restart(self):
        self.start()


@pytest.mark.parametrize("seed", range(60))
def test_whatever_stops_it_nothing_acknowledged_is_lost_and_no_round_is_there_in_part(seed):
    Life(seed).live()


def test_these_lives_meet_all_that_matters():
    seen = Counter()
    for seed in range(12):
        life = Life(seed)
        life.live()
        seen += life.seen

    assert all(seen[each] > 3 for each in ("kill", "least", "some", "stopped start", "journal", "files", "was there"))
    assert all(
        seen[each] > 3
        for each in ("round", "publish", "refused_round", "round_on_a_full_disk", "settle", "end_file", "on_terms")
    )
    assert all(seen[each] > 3 for each in ("remove_records", "sweep", "make_anew", "restart", "failed sync"))


@pytest.mark.long
@pytest.mark.parametrize("part", range(48))
def test_many_more_lives(part):
    for seed in range(60 + part, 1_500, 48):
        Life(seed).live()
