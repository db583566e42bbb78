"""Consumer groups against a naive model, on virtual time, with rounds that fail and crashes.

Clients behave as real ones do: they join, sync, beat, commit, rejoin when told to; some fall silent, some leave. After
every step the shard must be what its log says, and whatever was answered must hold.
"""

import itertools
import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from exactlog.core.group.requests import (
    Client,
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    NewOffset,
    SyncRequest,
)
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.decisions import SetTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import Offset, TopicPartition

SESSION_MS = 10_000
REBALANCE_MS = 20_000
BEAT_MS = 1_000
PARTITIONS = 6
GROUP = "readers"
PROTOCOLS = (("range", b"metadata"),)


class Waiter:
    """Gets one answer, and hands it to whoever asked; an answer to one that crashed with its broker is ignored."""

    def __init__(self, then):
        self._then = then
        self.told = 0
        self.is_gone = False

    def answer(self, outcome):
        self.told += 1
        assert self.told == 1, "answered twice"
        if not self.is_gone:
            self._then(outcome)

    def fail(self, error_code):
        self.answer(Refusal(error_code))


class Refusal:
    def __init__(self, error_code):
        self.error_code = error_code


class Runtime:
    """Runs one shard: a log, rounds that commit or fail when told to, timers on virtual time."""

    def __init__(self):
        self.now_ms = 1_000_000
        self.log = []
        self.ids = itertools.count(1)
        self.waiters = []
        self._begin(GroupShard(self._limits(), new_id=self._new_id))

    def _limits(self):
        return GroupLimits(session_timeout_ms_min=1)

    def _new_id(self):
        return f"{next(self.ids):06d}"

    def _begin(self, shard):
        self.shard = shard
        self.timers = {}
        self.undecided = []
        self.answers = []

    def waiter(self, then):
        self.waiters.append(Waiter(then))
        return self.waiters[-1]

    def run(self, decision):
        for record in decision.records:
            self.shard.replay(record)
            self.undecided.append(record)
        for change in decision.timers:
            if isinstance(change, SetTimer):
                self.timers[change.key] = self.now_ms + change.delay_ms
            else:
                self.timers.pop(change.key, None)
        self.answers += decision.answers
        if not self.undecided:
            self._give()

    def _give(self):
        answers, self.answers = self.answers, []
        for answer in answers:
            answer.waiter.answer(answer.outcome)

    def commit(self):
        """The round is carried out."""
        records, self.undecided = self.undecided, []
        for record in records:
            self.log.append((record.encode_key(), record.encode_value()))
            self.shard.replay_committed(record)
        self._give()

    def fail(self):
        """The disk refuses the round."""
        answers, self.answers, self.undecided = self.answers, [], []
        for answer in answers:
            answer.waiter.fail(ErrorCode.NOT_COORDINATOR)
        self.run(self.shard.reset(now_ms=self.now_ms))

    def crash(self):
        """Nobody is told anything; what was committed is read again."""
        for waiter in self.waiters:
            waiter.is_gone = True
        self._begin(self.restored())
        self.run(self.shard.loaded(now_ms=self.now_ms))

    def restored(self):
        """A new shard that has read the log."""
        shard = GroupShard(self._limits(), new_id=self._new_id)
        for key, value in self.log:
            shard.restore(key, value)
        return shard

    def advance(self, duration_ms):
        """Lets time pass, and what is due go off in order."""
        end_ms = self.now_ms + duration_ms
        while self.timers:
            key = min(self.timers, key=self.timers.get)
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.run(self.shard.time_out(key, now_ms=self.now_ms))
        self.now_ms = end_ms


class Consumer:
    """A client that does what clients do."""

    def __init__(self, runtime, number, instance_id=None):
        self.runtime = runtime
        self.client = Client(f"client-{number}", "/127.0.0.1")
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.joined = None  # what it was told when it joined, until it has asked for its assignment
        self.owned = None  # partitions, once assigned
        self.is_waiting = False
        self.is_fenced = False

    @property
    def is_stable(self):
        return self.owned is not None and not self.is_waiting

    def ask(self, method, request, then):
        self.is_waiting = True

        def take(outcome):
            self.is_waiting = False
            then(outcome)

        shard, waiter = self.runtime.shard, self.runtime.waiter(take)
        self.runtime.run(getattr(shard, method)(request, waiter, now_ms=self.runtime.now_ms))

    def lost_connection(self):
        """The broker has crashed: whatever was asked is not answered any more."""
        if self.is_waiting:
            self.is_waiting = False
            self.joined = self.owned = None

    # --- what it does -----------------------------------------------------------------------------------------

    def act(self):
        """The next thing to do, where it waits for nothing."""
        if self.is_waiting or self.is_fenced:
            return
        if self.joined is not None:
            self.sync()
        elif self.owned is None:
            self.join()
        else:
            self.beat()

    def join(self):
        self.owned = None
        request = JoinRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client=self.client,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=PROTOCOLS,
            needs_member_id=self.instance_id is None,
            may_skip_assignment=True,
        )
        self.ask("join", request, self._joined)

    def _joined(self, answer):
        match answer.error_code:
            case ErrorCode.NONE:
                self.member_id, self.generation_id = answer.member_id, answer.generation_id
                self.joined = answer
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            case ErrorCode.FENCED_INSTANCE_ID:
                self.is_fenced = True
            case ErrorCode.NOT_COORDINATOR | ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            case unexpected:
                pytest.fail(f"a join was answered {unexpected!r}")

    def sync(self):
        joined, self.joined = self.joined, None
        assignments = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = [member_id for member_id, _, _ in joined.members]
            assignments = {
                member_id: json.dumps(list(range(PARTITIONS))[index :: len(members)]).encode()
                for index, member_id in enumerate(members)
            }
        request = SyncRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        self.ask("sync", request, self._synced)

    def _synced(self, answer):
        match answer.error_code:
            case ErrorCode.NONE:
                self.owned = frozenset(json.loads(answer.assignment or b"[]"))
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            case ErrorCode.FENCED_INSTANCE_ID:
                self.is_fenced = True
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION | ErrorCode.NOT_COORDINATOR:
                pass
            case unexpected:
                pytest.fail(f"a sync was answered {unexpected!r}")

    def beat(self):
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.ask("heartbeat", request, self._look_at)

    def _look_at(self, answer):
        match answer.error_code:
            case ErrorCode.NONE | ErrorCode.NOT_COORDINATOR:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                self.owned = None
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.owned, self.member_id = None, ""
            case ErrorCode.FENCED_INSTANCE_ID:
                self.owned, self.is_fenced = None, True
            case unexpected:
                pytest.fail(f"a heartbeat was answered {unexpected!r}")

    def leave(self):
        self.owned = None
        request = LeaveRequest(group_id=GROUP, members=((self.member_id, self.instance_id),))
        self.ask("leave", request, lambda _: None)


class Groups(RuleBasedStateMachine):
    """The rules that hypothesis puts together into stories."""

    @initialize()
    def begin(self):
        self.runtime = Runtime()
        self.numbers = itertools.count(1)
        self.offsets = itertools.count(1)
        self.consumers = []
        self.acknowledged = {}
        self.unsure = {}
        """What was asked to be committed and not answered: it may be there, or not."""

    # --- clients ------------------------------------------------------------------------------------------------

    @rule(instance_id=st.sampled_from([None, None, "one", "two"]))
    def start(self, instance_id):
        if len(self.consumers) < 5:
            consumer = Consumer(self.runtime, next(self.numbers), instance_id)
            self.consumers.append(consumer)
            consumer.join()

    @rule(index=st.integers(0, 4))
    def act(self, index):
        if index < len(self.consumers):
            self.consumers[index].act()

    @rule()
    def all_act(self):
        for consumer in self.consumers:
            consumer.act()

    @rule(index=st.integers(0, 4))
    def fall_silent(self, index):
        if index < len(self.consumers):
            self.consumers.pop(index)

    @rule(index=st.integers(0, 4))
    def leave(self, index):
        if index < len(self.consumers) and self.consumers[index].is_stable:
            self.consumers.pop(index).leave()

    @rule(index=st.integers(0, 4))
    def commit_offset(self, index):
        if index >= len(self.consumers) or not self.consumers[index].is_stable or not self.consumers[index].owned:
            return
        consumer = self.consumers[index]
        key, offset = TopicPartition("t", min(consumer.owned)), next(self.offsets)
        request = CommitRequest(
            group_id=GROUP,
            generation_id=consumer.generation_id,
            member_id=consumer.member_id,
            group_instance_id=consumer.instance_id,
            offsets=(NewOffset(key, Offset(offset), -1, ""),),
        )
        self.unsure.setdefault(key, set()).add(offset)

        def take(answer):
            if getattr(answer, "errors", None) == (ErrorCode.NONE,):
                self.acknowledged[key] = offset
                self.unsure[key] = {later for later in self.unsure[key] if later > offset}
            elif hasattr(answer, "errors"):
                self.unsure[key].discard(offset)  # refused: it was never written

        shard, waiter = self.runtime.shard, self.runtime.waiter(take)
        self.runtime.run(shard.commit_offsets(request, waiter, now_ms=self.runtime.now_ms))

    # --- the world ----------------------------------------------------------------------------------------------

    @rule()
    def commit_round(self):
        self.runtime.commit()

    @precondition(lambda self: self.runtime.undecided)
    @rule()
    def fail_round(self):
        self.runtime.fail()

    @rule()
    def crash(self):
        self.runtime.crash()
        for consumer in self.consumers:
            consumer.lost_connection()

    @rule(duration_ms=st.sampled_from([1, BEAT_MS, SESSION_MS // 2, SESSION_MS + 1, REBALANCE_MS + 1]))
    def pass_time(self, duration_ms):
        self.runtime.advance(duration_ms)

    @rule()
    def settle(self):
        """Whoever is alive converges within a session and a rebalance timeout, and every partition has one owner."""
        living = self.consumers = [consumer for consumer in self.consumers if not consumer.is_fenced]
        for _ in range((SESSION_MS + REBALANCE_MS) // BEAT_MS + 5):
            for _ in range(4):
                self.runtime.commit()
                for consumer in living:
                    consumer.act()
            self.runtime.commit()
            self.runtime.advance(BEAT_MS)
            living = self.consumers = [consumer for consumer in self.consumers if not consumer.is_fenced]
        if not living:
            return
        assert all(consumer.is_stable for consumer in living), "somebody still waits, or is not assigned"
        assert len({consumer.generation_id for consumer in living}) == 1
        owned = [partition for consumer in living for partition in consumer.owned]
        assert sorted(owned) == list(range(PARTITIONS)), "every partition has one owner"
        assert self.runtime.shard.describe(GROUP).state == "Stable"

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def live_state_is_replayed_state(self):
        shard, restored = self.runtime.shard, self.runtime.restored()
        assert shard.offsets(GROUP) == restored.offsets(GROUP)
        assert tables_of(shard._committed) == tables_of(restored._committed)

    @invariant()
    def where_nothing_is_undecided_head_is_committed(self):
        shard = self.runtime.shard
        if not self.runtime.undecided:
            assert tables_of(shard._head) == tables_of(shard._committed)

    @invariant()
    def what_is_live_is_all_there_is(self):
        shard = self.runtime.shard
        rewritten = GroupShard(GroupLimits(), new_id=lambda: "none")
        for record in shard.live_records():
            rewritten.restore(record.encode_key(), record.encode_value())
        assert tables_of(rewritten._head) == tables_of(shard._head)

    @invariant()
    def an_acknowledged_offset_is_there(self):
        committed = self.runtime.shard.offsets(GROUP)
        for key, offset in self.acknowledged.items():
            assert committed[key].offset in {offset} | self.unsure[key]

    @invariant()
    def a_partition_has_one_owner_in_a_generation(self):
        owners = {}
        for consumer in self.consumers:
            for partition in consumer.owned or ():
                rival = owners.setdefault((consumer.generation_id, partition), consumer)
                same_place = rival.instance_id is not None and rival.instance_id == consumer.instance_id
                assert rival is consumer or same_place, "two members were given the same"

    @invariant()
    def of_one_instance_one_is_let_in(self):
        """B117: who speaks for an instance that another one has taken over is fenced off."""
        for instance_id in ("one", "two"):
            accepted = []
            for consumer in self.consumers:
                if consumer.instance_id == instance_id and consumer.is_stable:
                    probe = Consumer(self.runtime, 0, instance_id)
                    probe.member_id, probe.generation_id = consumer.member_id, consumer.generation_id
                    group = self.runtime.shard._groups.get(GROUP)
                    if group and group.check_member(probe.member_id, instance_id) is ErrorCode.NONE:
                        accepted.append(consumer.member_id)
            assert len(set(accepted)) <= 1


def tables_of(table):
    """What the records of a table say, by key."""
    return {record.encode_key(): record.encode_value() for record in table.live_records()}


Groups.TestCase.settings = settings(stateful_step_count=50, deadline=None)
test_groups = Groups.TestCase
