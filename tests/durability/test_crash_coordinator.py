"""A coordinator's shard over a real log, stopped at every step of the file system, also while it writes itself anew.

What was answered is there after the next load, in the order in which it was decided; what was not may be there too, but
never without what was decided before it. A shard that goes on from there ends up where it would have been. Offsets in
transactions are no exception: they count once their marker is there. On plain files and through a commit journal.
"""

import asyncio
from functools import partial
from random import Random

import pytest

from exactlog.broker.coordinator import shard_runner
from exactlog.broker.coordinator.loading import load_shard
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.timers import Timers
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.group.requests import CommitRequest, ErrorAnswer, NewOffset, TransactionalCommitRequest
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.storage.settings import FlushMode
from exactlog.testing.failing_filesystem import FailingFilesystem
from exactlog.testing.ordered_failures import Crashed
from tests.support.group_runtime import Marker, Waiting
from tests.support.partitions import DataDirectory
from tests.support.rounds_by_hand import RoundsByHand

CONFIG = TopicConfig(segment_bytes=900, file_delete_delay_ms=0)
SETTINGS = {"checkpoint_interval": 3, "versions_keep": 2, "pack_versions": 3}
GROUPS = tuple(f"group-{number}" for number in range(3))
PLACE = TopicPartition("cal", 0)
FILES = {"flush_mode": FlushMode.COMMIT}
JOURNAL = {"flush_mode": FlushMode.COMMIT, "is_journaled": True}
UNSYNCED = {"flush_mode": FlushMode.NONE}
NAMES = ["files", "journal", "none"]
ROUNDS = 9
DECISIONS_A_ROUND = 2


@pytest.fixture(autouse=True)
def log_is_rewritten_often(monkeypatch):
    monkeypatch.setattr(shard_runner, "COORDINATOR_LOG_BYTES_MAX", 400)


def plain_script():
    """A group and the offset that it commits; None: the group is deleted."""
    for number in range(ROUNDS * DECISIONS_A_ROUND):
        group_id = GROUPS[number % len(GROUPS)]
        yield group_id, None if number % 11 == 9 else number


def transactions_script():
    """The same beside transactions of two producers, one after the other, that overlap; and what ends them."""
    decisions = list(plain_script())[:10]
    decisions.insert(1, (GROUPS[0], 100, 1))
    decisions.insert(4, (GROUPS[0], 101, 2))
    decisions.insert(5, (GROUPS[1], 102, 1))
    decisions.insert(8, Marker(1, is_commit=True))
    decisions.insert(10, (GROUPS[2], 103, 1))
    decisions.insert(12, Marker(2, is_commit=True))
    decisions.insert(14, Marker(1, is_commit=False))
    decisions += [(GROUPS[1], 104, 2), Marker(2, is_commit=True), (GROUPS[0], 105, 1)]
    return decisions


SCRIPTS = {"plain": list(plain_script()), "transactions": transactions_script()}


def states(script):
    """The offsets by group, and those that are pending by group and producer, before the first decision and after each.

    An offset has the number of its decision with it: of two the later one counts.
    """
    offsets, pending = {}, {}
    found = [({}, {})]
    for number, decision in enumerate(script):
        match decision:
            case Marker(producer_id, is_commit):
                for key in [key for key in pending if key[1] == producer_id]:
                    ended = pending.pop(key)
                    if is_commit and ended > offsets.get(key[0], (-1,)):
                        offsets[key[0]] = ended
            case group_id, offset, producer_id:
                pending[group_id, producer_id] = number, offset
            case group_id, None:
                offsets.pop(group_id, None)
                pending = {key: each for key, each in pending.items() if key[0] != group_id}
            case group_id, offset:
                offsets[group_id] = number, offset
        found.append(({key: each[1] for key, each in offsets.items()}, {key: each[1] for key, each in pending.items()}))
    return found


class Life:
    """One run of a shard from wherever its log is."""

    def __init__(self, content, mode):
        self.filesystem = FailingFilesystem(content, sector_bytes=64)
        self.mode = mode
        self.rounds_done = 0
        self.waiting = []
        self.was_rewritten = False

    def start(self, *, is_first):
        """Opens the log; the directory itself is made before the first crash."""
        self.disk = DataDirectory(self.filesystem, config=CONFIG, **self.mode, **SETTINGS)
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

    def state(self):
        """The offsets by group, as a reader sees them, and those that are pending."""
        found = {group_id: self.shard.offsets(group_id).get(PLACE) for group_id in GROUPS}
        offsets = {group_id: committed.offset for group_id, committed in found.items() if committed is not None}
        pending = {
            (group_id, producer_id): each.committed.offset
            for group_id in GROUPS
            for producer_id, each in self.shard._committed.pending.of_group(group_id).get(PLACE, {}).items()
        }
        return offsets, pending

    def decide(self, decision):
        self.disk.clock.time_ms += 1
        waiter = Waiting(str(decision))
        match decision:
            case Marker(producer_id, is_commit):
                marker = TransactionMarker(is_commit=is_commit, coordinator_epoch=0)
                identity = ProducerIdentity(producer_id, 0)
                then = partial(_tell, waiter)
                self.runner.write_marker(marker, identity, transaction_version=1, then=then)
            case group_id, None:
                self.runner.decide(
                    lambda shard, now_ms: shard.delete_group(group_id, waiter, now_ms=now_ms), asker=waiter
                )
            case group_id, offset, *producer:
                fields = {
                    "group_id": group_id,
                    "generation_id": -1,
                    "member_id": "",
                    "group_instance_id": None,
                    "offsets": (NewOffset(PLACE, offset, -1, ""),),
                }
                self.runner.decide(partial(_commit, fields, producer, waiter), asker=waiter)
        return waiter

    async def run(self, script, *, since=0):
        """Carries out the script from a decision on, the next ones always while a round is under way."""
        left = script[since:]
        while left or self.rounds.gathering or self.disk.dirty:
            taken = self.rounds.take()
            self.waiting += [self.decide(decision) for decision in left[:DECISIONS_A_ROUND]]
            del left[:DECISIONS_A_ROUND]
            self.rounds.finish(taken)
            self.rounds_done += 1
            if self.mode is UNSYNCED or (self.mode is JOURNAL and self.rounds_done % 2 == 0):
                self.disk.publish(self.partition)
            if self.rounds_done % 5 == 3:
                self.disk.settle()
            self.partition.sweep_removed(now_ms=self.disk.clock.now_ms())
            self.was_rewritten |= self.partition.log_start_offset > 0
        assert all(waiter.outcome is not None for waiter in self.waiting)


def _tell(waiter, error):
    if error is ErrorCode.NONE:
        waiter.answer(ErrorAnswer())
    else:
        waiter.fail(error)


def _commit(fields, producer, waiter, shard, now_ms):
    if not producer:
        return shard.commit_offsets(CommitRequest(**fields), waiter, now_ms=now_ms)
    request = TransactionalCommitRequest(producer=ProducerIdentity(producer[0], 0), **fields)
    return shard.commit_transactional_offsets(request, waiter, now_ms=now_ms)


async def finished(content, mode, script, *, crash_at=None):
    """A life from an empty disk to its end, or to its crash."""
    life = Life(content, mode)
    life.start(is_first=True)
    await life.load()
    if crash_at is not None:
        life.filesystem.crash_at(crash_at)
    try:
        await life.run(script)
    except Crashed:
        assert crash_at is not None
        return life, False
    return life, True


async def check_what_is_left(content, mode, script, *, answered):
    """The next life begins with at least what was answered, and comes to the same end."""
    life = Life(content, mode)
    life.start(is_first=False)
    await life.load()
    found, expected = life.state(), states(script)
    possible = [count for count, state in enumerate(expected) if state == found and count >= answered]
    assert possible, f"after {answered} answers: {found}"
    await life.run(script, since=possible[0])
    assert life.state() == expected[-1]
    life.disk.restart()
    life.partition = life.disk.open()
    await life.load()
    assert life.state() == expected[-1]


@pytest.mark.parametrize("mode", [FILES, JOURNAL, UNSYNCED], ids=NAMES)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_what_was_answered_is_there_wherever_the_process_dies(mode, script):
    step = 0
    while True:
        life, is_done = await finished(None, mode, script, crash_at=step)
        if is_done:
            break
        await check_what_is_left(life.filesystem.after_kill(), mode, script, answered=life.answered)
        step += 1
    assert life.was_rewritten
    assert step > 100


@pytest.mark.parametrize("mode", [FILES, JOURNAL], ids=NAMES[:2])
@pytest.mark.parametrize("chance", [None, 1])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_what_was_answered_is_there_wherever_the_power_goes(chance, mode, script):
    step = 0
    while True:
        life, is_done = await finished(None, mode, script, crash_at=step)
        if is_done:
            break
        content = life.filesystem.after_power_cut(None if chance is None else Random(chance * 1_000 + step))
        await check_what_is_left(content, mode, script, answered=life.answered)
        step += 1
    assert step > 100
