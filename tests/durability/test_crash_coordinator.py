"""A coordinator's shard over a real log, stopped at every step of the file system, also while it writes itself anew.

What was answered is there after the next load, in the order in which it was decided; what was not may be there too, but
never without what was decided before it. A shard that goes on from there ends up where it would have been.
"""

import asyncio
from random import Random

import pytest

from exactlog.broker.coordinator import shard_runner
from exactlog.broker.coordinator.loading import load_shard
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.timers import Timers
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.group.requests import CommitRequest, NewOffset
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.settings import FlushMode
from exactlog.testing.failing_filesystem import FailingFilesystem
from exactlog.testing.ordered_failures import Crashed
from tests.support.group_runtime import Waiting
from tests.support.partitions import DataDirectory
from tests.support.rounds_by_hand import RoundsByHand

CONFIG = TopicConfig(segment_bytes=900, file_delete_delay_ms=0)
SETTINGS = {"checkpoint_interval": 3, "versions_keep": 2, "pack_versions": 3}
GROUPS = tuple(f"group-{number}" for number in range(3))
PLACE = TopicPartition("cal", 0)
ROUNDS = 9
DECISIONS_A_ROUND = 2


@pytest.fixture(autouse=True)
def log_is_rewritten_often(monkeypatch):
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 400)


def script():
    """What is decided: a group and the offset that it commits; None: the group is deleted."""
    for number in range(ROUNDS * DECISIONS_A_ROUND):
        group_id = GROUPS[number % len(GROUPS)]
        yield group_id, None if number % 11 == 9 else number


def states():
    """The offsets by group, before the first decision and after each."""
    offsets = {}
    found = [{}]
    for group_id, offset in script():
        if offset is None:
            offsets.pop(group_id, None)
        else:
            offsets[group_id] = offset
        found.append(dict(offsets))
    return found


class Life:
    """One run of a shard from wherever its log is."""

    def __init__(self, content, flush_mode):
        self.filesystem = FailingFilesystem(content, sector_bytes=64)
        self.flush_mode = flush_mode
        self.waiting = []
        self.was_rewritten = False

    def start(self, *, is_first):
        """Opens the log; the directory itself is made before the first crash."""
        self.disk = DataDirectory(self.filesystem, config=CONFIG, flush_mode=self.flush_mode, **SETTINGS)
        self.partition = self.disk.make() if is_first else self.disk.open()

    async def load(self):
        self.rounds = RoundsByHand(self.disk)
        self.shard = GroupShard(GroupLimits(), new_id=lambda: "id")
        timers = Timers(asyncio.get_running_loop(), self.disk.clock)
        self.runner = ShardRunner(self.partition, self.shard, rounds=self.rounds, timers=timers, clock=self.disk.clock)
        size_bytes = await load_shard(self.partition, self.shard, is_wanted=lambda: True)
        self.runner.start(loaded_bytes=size_bytes)

    @property
    def answered(self):
        """How many of its decisions were answered."""
        return sum(waiter.is_done for waiter in self.waiting)

    def offsets(self):
        """By group, as a reader sees them."""
        found = {group_id: self.shard.offsets(group_id).get(PLACE) for group_id in GROUPS}
        return {group_id: committed.offset for group_id, committed in found.items() if committed is not None}

    def decide(self, group_id, offset):
        waiter = Waiting(group_id)

        def work(shard, now_ms):
            if offset is None:
                return shard.delete_group(group_id, waiter, now_ms=now_ms)
            request = CommitRequest(
                group_id=group_id,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                offsets=(NewOffset(PLACE, offset, -1, ""),),
            )
            return shard.commit_offsets(request, waiter, now_ms=now_ms)

        self.runner.decide(work, asker=waiter)
        return waiter

    async def run(self, *, since=0):
        """Carries out the script from a decision on, the next ones always while a round is under way."""
        left = list(script())[since:]
        while left or self.rounds.gathering or self.disk.dirty:
            taken = self.rounds.take()
            self.waiting += [self.decide(*decision) for decision in left[:DECISIONS_A_ROUND]]
            del left[:DECISIONS_A_ROUND]
            self.rounds.finish(taken)
            if self.flush_mode is not FlushMode.COMMIT:
                self.disk.publish(self.partition)
            self.partition.sweep_removed(now_ms=self.disk.clock.now_ms())
            self.was_rewritten |= self.partition.log_start_offset > 0
        assert all(waiter.outcome is not None for waiter in self.waiting)


async def finished(content, flush_mode, *, crash_at=None):
    """A life from an empty disk to its end, or to its crash."""
    life = Life(content, flush_mode)
    life.start(is_first=True)
    await life.load()
    if crash_at is not None:
        life.filesystem.crash_at(crash_at)
    try:
        await life.run()
    except Crashed:
        assert crash_at is not None
        return life, False
    return life, True


async def check_what_is_left(content, flush_mode, *, answered):
    """The next life begins with at least what was answered, and comes to the same end."""
    life = Life(content, flush_mode)
    life.start(is_first=False)
    await life.load()
    found = life.offsets()
    possible = [count for count, state in enumerate(states()) if state == found and count >= answered]
    assert possible, f"after {answered} answers: {found}"
    await life.run(since=possible[0])
    assert life.offsets() == states()[-1]
    life.disk.restart()
    life.partition = life.disk.open()
    await life.load()
    assert life.offsets() == states()[-1]


@pytest.mark.parametrize("flush_mode", [FlushMode.COMMIT, FlushMode.NONE])
async def test_what_was_answered_is_there_wherever_the_process_dies(flush_mode):
    step = 0
    while True:
        life, is_done = await finished(None, flush_mode, crash_at=step)
        if is_done:
            break
        await check_what_is_left(life.filesystem.after_kill(), flush_mode, answered=life.answered)
        step += 1
    assert life.was_rewritten
    assert step > 100


@pytest.mark.parametrize("chance", [None, 1])
async def test_what_was_answered_is_there_wherever_the_power_goes(chance):
    step = 0
    while True:
        life, is_done = await finished(None, FlushMode.COMMIT, crash_at=step)
        if is_done:
            break
        content = life.filesystem.after_power_cut(None if chance is None else Random(chance * 1_000 + step))
        await check_what_is_left(content, FlushMode.COMMIT, answered=life.answered)
        step += 1
    assert step > 100
