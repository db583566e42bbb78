"""A coordinator's runtime for tests: a log in a list, timers on virtual time, rounds that commit or fail."""

from itertools import count

from msgspec import Struct

from exactlog.core.group.group_record import decode_record
from exactlog.core.group.requests import (
    Client,
    CommitRequest,
    DeleteOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    NewOffset,
    SyncRequest,
    TransactionalCommitRequest,
)
from exactlog.core.group.shard import GroupLimits, GroupShard
from exactlog.core.model.decisions import ProducerIdentity, SetTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition

SESSION_MS = 10_000
REBALANCE_MS = 30_000
RANGE = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x03cal"),)
"""A subscription to the topic "cal", version 1."""
START_MS = 1_700_000_000_000


class Waiting:
    """Who waits for an answer, and takes only one."""

    def __init__(self, label=""):
        self.label = label
        self.outcome = None
        self.failure = None

    def answer(self, outcome):
        assert not self.is_done, f"{self.label} was answered twice: {outcome}"
        self.outcome = outcome

    def fail(self, error_code):
        assert not self.is_done, f"{self.label} was answered twice: {error_code}"
        self.failure = error_code

    @property
    def is_done(self):
        return self.outcome is not None or self.failure is not None

    @property
    def error_code(self):
        return self.failure if self.outcome is None else self.outcome.error_code


class PendingRecord(Struct, frozen=True):
    """A record in a producer's transaction, decided or in the log."""

    record: object
    producer_id: int


class Marker(Struct, frozen=True):
    """The end of a producer's transaction, decided or in the log."""

    producer_id: int
    is_commit: bool


class GroupRuntime:
    """Carries decisions out. Every round commits at once, unless `commits_at_once` is taken away."""

    def __init__(self, *, commits_at_once=True, **limits):
        self.limits = GroupLimits(**limits)
        self.commits_at_once = commits_at_once
        self.now_ms = START_MS
        self.log = []
        self.undecided = []
        self.unsent = []
        self.due = {}
        self._ids = count(1)
        self.shard = self._empty_shard()

    def _empty_shard(self):
        return GroupShard(self.limits, new_id=lambda: f"id{next(self._ids)}")

    # --- carrying out -------------------------------------------------------------------------------------------

    def carry_out(self, decision):
        for record in decision.records:
            key, value = record.encode_key(), record.encode_value()
            assert decode_record(key, value) == record
            if decision.producer is None:
                self.shard.replay(record)
                self.undecided.append(record)
            else:
                self.shard.replay(record, producer_id=decision.producer.producer_id)
                self.undecided.append(PendingRecord(record, decision.producer.producer_id))
        for change in decision.timers:
            if isinstance(change, SetTimer):
                self.due[change.key] = self.now_ms + change.delay_ms
            else:
                self.due.pop(change.key, None)
        self.unsent += decision.answers
        if self.commits_at_once:
            self.commit()
        return decision

    def decide(self, work, label=""):
        waiting = Waiting(label)
        self.carry_out(work(waiting))
        return waiting

    def commit(self):
        """The round is good: what was decided stands in the log, and is told."""
        for decided in self.undecided:
            match decided:
                case PendingRecord(record, producer_id):
                    self.log.append(decided)
                    self.shard.replay_committed(record, producer_id=producer_id)
                case Marker(producer_id, is_commit):
                    self.log.append(decided)
                    self.shard.replay_marker_committed(producer_id, is_commit=is_commit)
                case record:
                    self.log.append((record.encode_key(), record.encode_value()))
                    self.shard.replay_committed(record)
        self.undecided = []
        unsent, self.unsent = self.unsent, []
        for answer in unsent:
            answer.waiter.answer(answer.outcome)

    def fail_round(self):
        """The log took nothing: what was decided is forgotten."""
        self.undecided = []
        unsent, self.unsent = self.unsent, []
        for answer in unsent:
            answer.waiter.fail(ErrorCode.NOT_COORDINATOR)
        self.carry_out(self.shard.reset(now_ms=self.now_ms))

    def crash(self):
        """The process dies; another one loads what is committed. Who waited hears nothing any more."""
        self.undecided, self.unsent, self.due = [], [], {}
        self.shard = self.replayed(self.log)
        self.carry_out(self.shard.loaded(now_ms=self.now_ms))

    def replayed(self, log):
        """A shard that has read a log."""
        shard = self._empty_shard()
        for entry in log:
            match entry:
                case PendingRecord(record, producer_id):
                    shard.restore(record.encode_key(), record.encode_value(), producer_id=producer_id)
                case Marker(producer_id, is_commit):
                    shard.restore_marker(producer_id, is_commit=is_commit)
                case key, value:
                    shard.restore(key, value)
        return shard

    def end_transaction(self, producer_id=1, *, is_commit=True):
        """A marker, carried out like a decision."""
        self.shard.replay_marker(producer_id, is_commit=is_commit)
        self.undecided.append(Marker(producer_id, is_commit))
        if self.commits_at_once:
            self.commit()

    def advance(self, duration_ms):
        """Time passes, and timers go off in their order."""
        end_ms = self.now_ms + duration_ms
        while self.due and min(self.due.values()) <= end_ms:
            key = min(self.due, key=self.due.get)
            self.now_ms = max(self.now_ms, self.due.pop(key))
            self.carry_out(self.shard.time_out(key, now_ms=self.now_ms))
        self.now_ms = end_ms

    # --- requests -----------------------------------------------------------------------------------------------

    def join(self, group_id="g", member_id="", *, client_id="c", instance_id=None, protocols=RANGE, **fields):
        request = JoinRequest(
            **{
                "group_id": group_id,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "client": Client(client_id, "/127.0.0.1"),
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": protocols,
                "needs_member_id": False,
                "may_skip_assignment": True,
                **fields,
            }
        )
        return self.decide(lambda waiter: self.shard.join(request, waiter, now_ms=self.now_ms), f"join {member_id}")

    def sync(self, member_id, generation_id, assignments=None, *, group_id="g", instance_id=None, **fields):
        request = SyncRequest(
            **{
                "group_id": group_id,
                "generation_id": generation_id,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "protocol_type": None,
                "protocol_name": None,
                "assignments": assignments or {},
                **fields,
            }
        )
        return self.decide(lambda waiter: self.shard.sync(request, waiter, now_ms=self.now_ms), f"sync {member_id}")

    def heartbeat(self, member_id, generation_id, **fields):
        return self.ask_heartbeat(member_id, generation_id, **fields).error_code

    def ask_heartbeat(self, member_id, generation_id, *, group_id="g", instance_id=None):
        """As `heartbeat`, for who can wait for the answer."""
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        return self.decide(lambda waiter: self.shard.heartbeat(request, waiter, now_ms=self.now_ms), "heartbeat")

    def leave(self, *members, group_id="g"):
        """Members by id, or by (id, instance id)."""
        named = tuple(member if isinstance(member, tuple) else (member, None) for member in members)
        request = LeaveRequest(group_id=group_id, members=named)
        return self.decide(lambda waiter: self.shard.leave(request, waiter, now_ms=self.now_ms), "leave").outcome

    def commit_offset(self, offset, *, member_id="", generation_id=-1, topic="cal", group_id="g", **fields):
        """One offset in partition 0, or a whole tuple of `NewOffset`."""
        offsets = offset
        if isinstance(offset, int):
            offsets = (NewOffset(TopicPartition(topic, 0), offset, -1, ""),)
        request = CommitRequest(
            **{
                "group_id": group_id,
                "generation_id": generation_id,
                "member_id": member_id,
                "group_instance_id": None,
                "offsets": offsets,
                **fields,
            }
        )
        return self.decide(lambda waiter: self.shard.commit_offsets(request, waiter, now_ms=self.now_ms), "commit")

    def commit_in_transaction(
        self, offset, *, producer_id=1, member_id="", generation_id=-1, topic="cal", group_id="g", **fields
    ):
        """As `commit_offset`, in a producer's transaction."""
        offsets = offset
        if isinstance(offset, int):
            offsets = (NewOffset(TopicPartition(topic, 0), offset, -1, ""),)
        request = TransactionalCommitRequest(
            **{
                "group_id": group_id,
                "producer": ProducerIdentity(producer_id, 0),
                "generation_id": generation_id,
                "member_id": member_id,
                "group_instance_id": None,
                "offsets": offsets,
                **fields,
            }
        )
        return self.decide(
            lambda waiter: self.shard.commit_transactional_offsets(request, waiter, now_ms=self.now_ms), "commit"
        )

    def delete_offsets(self, *topics, group_id="g"):
        request = DeleteOffsetsRequest(group_id, tuple(TopicPartition(topic, 0) for topic in topics))
        return self.decide(lambda waiter: self.shard.delete_offsets(request, waiter, now_ms=self.now_ms)).outcome

    def delete_group(self, group_id="g"):
        return self.decide(lambda waiter: self.shard.delete_group(group_id, waiter, now_ms=self.now_ms)).error_code

    def expire_offsets(self):
        return self.carry_out(self.shard.expire_offsets(now_ms=self.now_ms))

    # --- whole stories ------------------------------------------------------------------------------------------

    def state(self, group_id="g"):
        described = self.shard.describe(group_id)
        return None if described is None else described.state

    def offset(self, topic="cal", *, group_id="g"):
        """What is committed for partition 0; None for nothing."""
        committed = self.shard.offsets(group_id).get(TopicPartition(topic, 0))
        return None if committed is None else committed.offset

    def unstable(self, group_id="g"):
        """The topics of which an open transaction has an offset in partition 0."""
        return {topic for topic, partition in self.shard.unstable_partitions(group_id) if partition == 0}

    def stable_group(self, size=2, **fields):
        """A group of so many members, each with its id for an assignment; gives their ids, the leader first."""
        leader = self.join(**fields)
        self.advance(self.limits.initial_rebalance_delay_ms)
        leader_id = leader.outcome.member_id
        others = [self.join(**fields) for _ in range(size - 1)]
        if others:
            leader = self.join(member_id=leader_id, **fields)
        member_ids = [leader_id, *(other.outcome.member_id for other in others)]
        assert leader.outcome.leader == leader_id
        generation_id = leader.outcome.generation_id
        for member_id in reversed(member_ids):
            self.sync(member_id, generation_id, {member_id: member_id.encode() for member_id in member_ids})
        assert self.state() == "Stable"
        return member_ids

    @property
    def generation_id(self):
        """Of group "g", as the rules have it."""
        return self.shard._groups["g"].generation_id
