"""Offsets, plain and in transactions, over a real log that writes itself anew all the time, beside a naive model of it.

The model knows the order of what was decided, and nothing of batches, rounds, rewrites and loads. Whatever fails or is
started again in between: the shard has the same offsets committed and the same ones pending, in the same order.
"""

import asyncio
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.broker.coordinator import shard_runner
from exactlog.broker.coordinator.loading import load_shard
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.timers import Timers
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.group.requests import (
    CommitRequest,
    DeleteOffsetsRequest,
    NewOffset,
    TransactionalCommitRequest,
)
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from tests.support.group_runtime import Waiting
from tests.support.partitions import DataDirectory
from tests.support.rounds_by_hand import RoundsByHand

GROUPS = st.sampled_from(["g", "h"])
PLACES = st.sampled_from([TopicPartition("cal", 0), TopicPartition("cal", 1)])
PRODUCERS = st.sampled_from([1, 2, 3])
CONFIG = TopicConfig(segment_bytes=700, file_delete_delay_ms=0)
OUTCOMES = st.booleans()


class Model:
    """What a list of decisions comes to: the number of each is its place in the list."""

    def __init__(self):
        self.stored = {}  # (group, place) -> (number of the decision, offset)
        self.pending = {}  # (group, place) -> {producer: (number, offset)}

    def replay(self, decisions):
        for number, (kind, *parts) in enumerate(decisions):
            getattr(self, kind)(number, *parts)
        return self

    def commit(self, number, key, offset):
        self.stored[key] = number, offset

    def commit_pending(self, number, key, offset, producer):
        self.pending.setdefault(key, {})[producer] = number, offset

    def delete(self, number, group_id):
        for found in (self.stored, self.pending):
            for key in [key for key in found if key[0] == group_id]:
                del found[key]

    def end(self, number, producer, is_commit):
        for key, of_key in self.pending.items():
            ended = of_key.pop(producer, None)
            if ended is not None and is_commit and ended > self.stored.get(key, (-1,)):
                self.stored[key] = ended

    @property
    def offsets(self):
        return {key: offset for key, (_, offset) in self.stored.items()}

    @property
    def in_transactions(self):
        """By key, in the order of the decisions: producer, offset, whether a later one is stored."""
        return {
            key: [
                (producer, offset, number < self.stored.get(key, (-1,))[0])
                for producer, (number, offset) in sorted(of_key.items(), key=lambda item: item[1])
            ]
            for key, of_key in self.pending.items()
            if of_key
        }


def offsets_of(table):
    return {
        (group_id, place): committed.offset
        for group_id in table.groups_with_offsets()
        for place, committed in table.offsets(group_id).items()
    }


def pending_of(table):
    return {
        (group_id, place): [
            (producer, pending.committed.offset, pending.is_superseded) for producer, pending in of_place.items()
        ]
        for group_id in table.pending.groups()
        for place, of_place in table.pending.of_group(group_id).items()
    }


class OffsetsMachine(RuleBasedStateMachine):
    """One shard, its clients, its disk."""

    @initialize(
        flush_mode=st.sampled_from([FlushMode.COMMIT, FlushMode.NONE]), log_bytes=st.sampled_from([1, 500, 2_000])
    )
    def begin(self, flush_mode, log_bytes):
        self.patch = mock.patch.object(shard_runner, "COORDINATOR_LOG_BYTES_MAX", log_bytes)
        self.patch.start()
        self.loop = asyncio.new_event_loop()
        self.directory = DataDirectory(config=CONFIG, flush_mode=flush_mode)
        self.flush_mode = flush_mode
        self.decided, self.committed = [], 0
        self.offsets = iter(range(10**9))
        self.load(self.directory.make())

    def teardown(self):
        if hasattr(self, "loop"):
            self.patch.stop()
            self.loop.close()
            self.directory.close()

    def load(self, partition):
        self.partition = partition
        self.taken = None
        self.rounds = RoundsByHand(self.directory)
        self.shard = GroupShard(GroupLimits(), new_id=lambda: "id")
        clock = self.directory.clock
        timers = Timers(self.loop, clock)
        self.runner = ShardRunner(partition, self.shard, rounds=self.rounds, timers=timers, clock=clock)
        size_bytes = self.loop.run_until_complete(load_shard(partition, self.shard, is_wanted=lambda: True))
        self.runner.start(loaded_bytes=size_bytes)

    def decide(self, work, *decision):
        """Notes a decision; once it is told, it is committed, with all before it."""
        self.directory.clock.time_ms += 1
        waiting = Waiting()
        self.decided.append(decision)
        self.runner.decide(lambda shard, now_ms: work(shard, waiting, now_ms))
        if waiting.is_done:
            assert waiting.failure is None, "nothing refuses it"

    # --- clients ------------------------------------------------------------------------------------------------

    @rule(group_id=GROUPS, place=PLACES)
    def commit(self, group_id, place):
        offset = next(self.offsets)
        request = CommitRequest(
            group_id=group_id,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            offsets=(NewOffset(place, offset, -1, ""),),
        )
        self.decide(
            lambda shard, waiter, now_ms: shard.commit_offsets(request, waiter, now_ms=now_ms),
            *("commit", (group_id, place), offset),
        )

    @rule(group_id=GROUPS, place=PLACES, producer=PRODUCERS)
    def commit_in_transaction(self, group_id, place, producer):
        offset = next(self.offsets)
        request = TransactionalCommitRequest(
            group_id=group_id,
            producer=ProducerIdentity(producer, 0),
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            offsets=(NewOffset(place, offset, -1, ""),),
        )
        self.decide(
            lambda shard, waiter, now_ms: shard.commit_transactional_offsets(request, waiter, now_ms=now_ms),
            *("commit_pending", (group_id, place), offset, producer),
        )

    @rule(group_id=GROUPS)
    def delete_offsets(self, group_id):
        if self.shard.describe(group_id) is not None:
            request = DeleteOffsetsRequest(group_id, (TopicPartition("cal", 0), TopicPartition("cal", 1)))
            self.decide(
                lambda shard, waiter, now_ms: shard.delete_offsets(request, waiter, now_ms=now_ms),
                *("delete", group_id),
            )

    @rule(group_id=GROUPS)
    def delete_group(self, group_id):
        if self.shard.describe(group_id) is not None:
            self.decide(
                lambda shard, waiter, now_ms: shard.delete_group(group_id, waiter, now_ms=now_ms),
                *("delete", group_id),
            )

    @rule(producer=PRODUCERS, is_commit=OUTCOMES)
    def end(self, producer, is_commit):
        self.directory.clock.time_ms += 1
        told = []
        self.decided.append(("end", producer, is_commit))
        marker = TransactionMarker(is_commit=is_commit, coordinator_epoch=0)
        self.runner.write_marker(marker, ProducerIdentity(producer, 0), transaction_version=1, then=told.append)
        assert told in ([], [ErrorCode.NONE])

    # --- the world ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.taken is None)
    @rule()
    def begin_round(self):
        self.taken = self.rounds.take()
        self.in_round = len(self.decided)

    @precondition(lambda self: self.taken is not None)
    @rule()
    def commit_round(self):
        self.committed = max(self.committed, self.in_round)
        taken, self.taken = self.taken, None
        self.rounds.finish(taken)
        if self.flush_mode is FlushMode.NONE:
            self.directory.publish(self.partition)
        self.partition.sweep_removed(now_ms=self.directory.clock.now_ms())

    @precondition(lambda self: self.taken)
    @rule()
    def refuse_round(self):
        taken, self.taken = self.taken, None
        self.rounds.finish(taken, [StorageRefused("no space left", 0)] * len(taken))
        del self.decided[self.committed :]

    @rule()
    def settle(self):
        for _ in range(2):
            if self.taken is None:
                self.begin_round()
            self.commit_round()

    @rule()
    def crash(self):
        del self.decided[self.committed :]
        self.directory.restart()
        self.load(self.directory.open())

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def head_is_what_was_decided(self):
        model = Model().replay(self.decided)
        assert offsets_of(self.shard._head) == model.offsets
        assert pending_of(self.shard._head) == model.in_transactions

    @invariant()
    def committed_is_what_rounds_made_good(self):
        model = Model().replay(self.decided[: self.committed])
        assert offsets_of(self.shard._committed) == model.offsets
        assert pending_of(self.shard._committed) == model.in_transactions
        for group_id in ("g", "h"):
            unstable = {place for group, place in model.in_transactions if group == group_id}
            assert self.shard.unstable_partitions(group_id) == unstable

    @invariant()
    def the_log_starts_at_no_undecided_offset(self):
        assert self.partition.log_start_offset <= self.partition.last_stable_offset


OffsetsMachine.TestCase.settings = settings(stateful_step_count=40)
TestOffsets = OffsetsMachine.TestCase
