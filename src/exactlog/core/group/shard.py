"""The groups of one partition of `__consumer_offsets`: a coordinator as pure rules.

What a request does to a group's members takes effect at once and is forgotten by a restart, up to what is written: a
generation with its assignments, an empty group, offsets. Those are decided as records. Whoever runs the shard replays
the records of a decision before it asks for another one, and replays them as committed once they are; the answers leave
then. Where a round fails, `reset` goes back to what is committed.

Offsets in a producer's transaction are pending until the marker that ends it: nobody sees them until then, but that
their partitions are unstable.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from uuid import UUID

from exactlog.core.group.classic_group import ClassicGroup, GroupState
from exactlog.core.group.committed_offsets import (
    commit_offsets,
    commit_transactional_offsets,
    delete_group,
    delete_offsets,
    expire_offsets,
)
from exactlog.core.group.draft import Draft
from exactlog.core.group.group_record import GroupMetadataRecord, GroupRecord, OffsetCommitRecord, decode_record
from exactlog.core.group.group_table import GroupTable
from exactlog.core.group.joining import join
from exactlog.core.group.limits import GroupLimits
from exactlog.core.group.membership import heartbeat, leave, sync
from exactlog.core.group.rebalancing import (
    join_timed_out,
    restart_session,
    session_timed_out,
    start_rebalance,
    sync_timed_out,
)
from exactlog.core.group.requests import (
    CommitAnswer,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsRequest,
    ErrorAnswer,
    GroupDescription,
    GroupOverview,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    SyncAnswer,
    SyncRequest,
    TransactionalCommitRequest,
)
from exactlog.core.group.timer_keys import JoinTimer, SessionTimer, SyncTimer
from exactlog.core.model.decisions import CoordinatorRecord, Decision, UnknownRecord, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import ZERO_UUID, ProducerId, TopicPartition

__all__ = ["GroupLimits", "GroupShard"]


class GroupShard:
    """Decides about groups by head, what was decided; shows offsets by committed, what a round made good."""

    def __init__(self, limits: GroupLimits, *, new_id: Callable[[], str]) -> None:
        self._limits = limits
        self._new_id = new_id
        self._head = GroupTable()
        self._committed = GroupTable()
        self._groups: dict[str, ClassicGroup] = {}

    # --- what members ask ---------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """JoinGroup: a `JoinAnswer`, now or when the rebalance is done."""
        draft = Draft(self._limits, now_ms=now_ms)
        join(self._groups, request, waiter, new_id=self._new_id, draft=draft)
        return draft.decision()

    def sync(self, request: SyncRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """SyncGroup: a `SyncAnswer`, now or when the leader has assigned."""
        draft = Draft(self._limits, now_ms=now_ms)
        group, missing = self._member_group(request.group_id)
        if group is None:
            draft.answer(waiter, SyncAnswer(error_code=missing))
        else:
            sync(group, request, waiter, draft)
        return draft.decision()

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """Heartbeat: an `ErrorAnswer`."""
        draft = Draft(self._limits, now_ms=now_ms)
        group, missing = self._member_group(request.group_id)
        draft.answer(waiter, ErrorAnswer(missing if group is None else heartbeat(group, request, draft)))
        return draft.decision()

    def leave(self, request: LeaveRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """LeaveGroup: a `LeaveAnswer`."""
        draft = Draft(self._limits, now_ms=now_ms)
        group, missing = self._member_group(request.group_id)
        if missing is ErrorCode.INVALID_GROUP_ID:
            draft.answer(waiter, LeaveAnswer(error_code=missing))
        elif group is None:
            draft.answer(waiter, LeaveAnswer(members=(missing,) * len(request.members)))
        else:
            draft.answer(waiter, LeaveAnswer(members=leave(group, request, draft)))
        return draft.decision()

    def commit_offsets(self, request: CommitRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """OffsetCommit: a `CommitAnswer`."""
        draft = Draft(self._limits, now_ms=now_ms)
        errors = commit_offsets(self._groups.get(request.group_id), request, draft)
        draft.answer(waiter, CommitAnswer(errors))
        return draft.decision()

    def commit_transactional_offsets(
        self, request: TransactionalCommitRequest, waiter: Waiter, *, now_ms: int
    ) -> Decision:
        """TxnOffsetCommit: a `CommitAnswer`."""
        draft = Draft(self._limits, now_ms=now_ms, producer=request.producer)
        pending_bytes = self._head.pending.size_bytes
        group = self._groups.get(request.group_id)
        errors = commit_transactional_offsets(group, request, draft, pending_bytes_now=pending_bytes)
        draft.answer(waiter, CommitAnswer(errors))
        return draft.decision()

    # --- what operators ask -------------------------------------------------------------------------------------

    def delete_offsets(self, request: DeleteOffsetsRequest, waiter: Waiter, *, now_ms: int) -> Decision:
        """OffsetDelete: a `DeleteOffsetsAnswer`."""
        draft = Draft(self._limits, now_ms=now_ms)
        known = self._head.partitions(request.group_id)
        draft.answer(waiter, delete_offsets(self._groups.get(request.group_id), known, request, draft))
        return draft.decision()

    def delete_group(self, group_id: str, waiter: Waiter, *, now_ms: int) -> Decision:
        """DeleteGroups, of one group: an `ErrorAnswer`."""
        draft = Draft(self._limits, now_ms=now_ms)
        error = delete_group(self._groups.get(group_id), self._head.partitions(group_id), draft)
        draft.answer(waiter, ErrorAnswer(error))
        return draft.decision()

    def force_rebalance(self, group_id: str, *, now_ms: int) -> Decision:
        """Has the members of a group join again, as if something had changed. One without members is left alone."""
        draft = Draft(self._limits, now_ms=now_ms)
        group = self._groups.get(group_id)
        if group is not None and group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            start_rebalance(group, draft)
        return draft.decision()

    # --- what time asks -----------------------------------------------------------------------------------------

    def time_out(self, key: Hashable, *, now_ms: int) -> Decision:
        """A timer that was set has gone off."""
        draft = Draft(self._limits, now_ms=now_ms)
        match key:
            case SessionTimer(group_id, member_id) if group_id in self._groups:
                session_timed_out(self._groups[group_id], member_id, draft)
            case JoinTimer(group_id) if group_id in self._groups:
                join_timed_out(self._groups[group_id], draft)
            case SyncTimer(group_id) if group_id in self._groups:
                sync_timed_out(self._groups[group_id], draft)
        return draft.decision()

    def expire_offsets(self, *, now_ms: int) -> Decision:
        """Lets go of offsets that have been kept for long enough, and of groups that have nothing left."""
        draft = Draft(self._limits, now_ms=now_ms)
        for group in self._groups.values():
            group_id = group.group_id
            expire_offsets(group, self._head.offsets(group_id), self._head.pending.of_group(group_id), draft)
        return draft.decision()

    def delete_topic(self, topic: str, *, topic_id: UUID = ZERO_UUID, now_ms: int) -> Decision:
        """Lets go of all offsets in a topic that is no more, not of those in a new one of its name, where ids tell."""
        draft = Draft(self._limits, now_ms=now_ms)
        for group_id in self._head.groups_with_offsets():
            for topic_partition in self._head.partitions(group_id):
                if topic_partition.topic == topic and not self._is_of_another(group_id, topic_partition, topic_id):
                    draft.record(OffsetCommitRecord(group_id, topic_partition, None))
        return draft.decision()

    def _is_of_another(self, group_id: str, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether an offset there, be it pending, is one in a topic with another id."""
        if topic_id == ZERO_UUID:
            return False
        stored = self._head.offsets(group_id).get(topic_partition)
        pending = self._head.pending.of_group(group_id).get(topic_partition, {}).values()
        known = [of_producer.committed for of_producer in pending] + ([stored] if stored is not None else [])
        return any(committed.topic_id not in {topic_id, ZERO_UUID} for committed in known)

    # --- what can be seen ---------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """A group by head; None where there is none."""
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def groups(self) -> list[GroupOverview]:
        """All groups by head."""
        return [group.overview() for group in self._groups.values()]

    @property
    def group_count(self) -> int:
        """How many groups there are by head."""
        return len(self._groups)

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's offsets by committed; none for one that is not known."""
        return self._committed.offsets(group_id)

    def unstable_partitions(self, group_id: str) -> frozenset[TopicPartition]:
        """Where a group may soon have another offset, by committed: a transaction with one is open (KIP-447)."""
        return frozenset(self._committed.pending.of_group(group_id))

    # --- the log ------------------------------------------------------------------------------------------------

    def restore(self, key: bytes, value: bytes | None, *, producer_id: ProducerId | None = None) -> None:
        """Takes in one record of the log while it is loaded: it is committed, so onto both.

        Raises:
            DecodeError: the bytes are not such a record.
        """
        record = decode_record(key, value)
        self.replay(record, producer_id=producer_id)
        self.replay_committed(record, producer_id=producer_id)

    def restore_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Takes in the end of a transaction while the log is loaded, onto both."""
        self.replay_marker(producer_id, is_commit=is_commit)
        self.replay_marker_committed(producer_id, is_commit=is_commit)

    def replay(self, record: CoordinatorRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes a decided record in, onto head; with a producer id, as part of that producer's transaction."""
        decided = _group_record(record)
        self._head.replay(decided, producer_id=producer_id)
        self._replay_group(decided)

    def replay_committed(self, record: CoordinatorRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes the same record in, onto committed."""
        self._committed.replay(_group_record(record), producer_id=producer_id)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The producer's transaction ends, at head: its offsets are the groups' now, or never will be."""
        for group_id in self._head.end_transaction(producer_id, is_commit=is_commit):
            self._group(group_id)

    def replay_marker_committed(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Takes the same end in, onto committed."""
        self._committed.end_transaction(producer_id, is_commit=is_commit)

    def live_records(self) -> Iterator[CoordinatorRecord]:
        """Head's live values: written anew, they make everything before them superfluous, but for open transactions."""
        return self._head.live_records()

    def pending_records(self) -> Iterator[tuple[ProducerId, CoordinatorRecord]]:
        """What is pending at head and later than the live values: to be said again behind them."""
        return self._head.pending.records()

    def loaded(self, *, now_ms: int) -> Decision:
        """All of the log has been restored: its members have a session to show that they still live.

        A group that is larger than is allowed now rebalances, so that the last to join find no room.
        """
        draft = Draft(self._limits, now_ms=now_ms)
        for group in self._groups.values():
            for member in group.members.values():
                restart_session(group, member, draft)
            if len(group.members) > self._limits.members_max:
                start_rebalance(group, draft)
        return draft.decision()

    def reset(self, *, now_ms: int) -> Decision:
        """What was decided and is not committed never happened. Who waits is sent to look for the coordinator again."""
        draft = Draft(self._limits, now_ms=now_ms)
        for group in self._groups.values():
            _abandon(group, draft)
        self._head, self._groups = self._committed.copy(), {}
        for record in self._head.live_records():
            self._replay_group(record)
        for group_id in self._head.groups_with_offsets():
            self._group(group_id)
        for group in self._groups.values():
            for member in group.members.values():
                restart_session(group, member, draft)
        return draft.decision()

    def resign(self) -> list[Waiter]:
        """The shard is given up: everybody who still waits for something."""
        waiting = [
            waiter for group in self._groups.values() for waiter in (*group.joins.values(), *group.syncs.values())
        ]
        for group in self._groups.values():
            group.joins.clear()
            group.syncs.clear()
        return waiting

    # --- groups -------------------------------------------------------------------------------------------------

    def _replay_group(self, record: GroupRecord) -> None:
        """What a record says of a group itself: it may come to be by that, or end."""
        match record:
            case GroupMetadataRecord(group_id, metadata):
                if metadata is None:
                    self._groups.pop(group_id, None)
                else:
                    self._group(group_id).replay(metadata)
            case OffsetCommitRecord(group_id, _, committed):
                if committed is not None:
                    self._group(group_id)
            case UnknownRecord():
                pass

    def _group(self, group_id: str) -> ClassicGroup:
        return self._groups.setdefault(group_id, ClassicGroup(group_id))

    def _member_group(self, group_id: str) -> tuple[ClassicGroup | None, ErrorCode]:
        """The group that a member speaks to, or what to tell one that there is not."""
        if not group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        return self._groups.get(group_id), ErrorCode.UNKNOWN_MEMBER_ID


def _group_record(record: CoordinatorRecord) -> GroupRecord:
    if not isinstance(record, OffsetCommitRecord | GroupMetadataRecord | UnknownRecord):
        raise InvariantError(f"no record of a group coordinator: {record!r}")
    return record


def _abandon(group: ClassicGroup, draft: Draft) -> None:
    for member_id, waiter in group.joins.items():
        draft.answer(waiter, JoinAnswer(error_code=ErrorCode.NOT_COORDINATOR, member_id=member_id))
    for waiter in group.syncs.values():
        draft.answer(waiter, SyncAnswer(error_code=ErrorCode.NOT_COORDINATOR))
    for member_id in (*group.members, *group.pending):
        draft.cancel_timer(SessionTimer(group.group_id, member_id))
    draft.cancel_timer(JoinTimer(group.group_id))
    draft.cancel_timer(SyncTimer(group.group_id))
