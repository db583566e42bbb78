"""OffsetCommit, TxnOffsetCommit, OffsetDelete and DeleteGroups, and what becomes of offsets that nobody needs."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from exactlog.core.group.classic_group import NO_TIMESTAMP, ClassicGroup, GroupState
from exactlog.core.group.draft import Draft
from exactlog.core.group.group_record import GroupMetadataRecord, OffsetCommitRecord
from exactlog.core.group.pending_offsets import pending_bytes
from exactlog.core.group.rebalancing import restart_session
from exactlog.core.group.requests import (
    NO_EXPIRY,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    NewOffset,
    TransactionalCommitRequest,
)
from exactlog.core.group.timer_keys import SessionTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID, TopicPartition
from exactlog.core.model.limits import PENDING_OFFSETS_BYTES_MAX

Offsets = Mapping[TopicPartition, CommittedOffset]

_TIMESTAMP_MS_MAX: Final = 2**63 - 1
_NO_LEADER_EPOCH: Final = -1


def commit_offsets(group: ClassicGroup | None, request: CommitRequest, draft: Draft) -> tuple[ErrorCode, ...]:
    """Writes the offsets of a member of this generation, or of somebody outside while the group is empty (KIP-211)."""
    refusal = _check_committer(group, request)
    if refusal is not ErrorCode.NONE:
        return (refusal,) * len(request.offsets)
    if group is not None and group.state in {GroupState.STABLE, GroupState.PREPARING_REBALANCE}:
        restart_session(group, group.members[request.member_id], draft)
    retention_ms = request.retention_ms
    return tuple(_commit_one(request.group_id, new, draft, retention_ms=retention_ms) for new in request.offsets)


def commit_transactional_offsets(
    group: ClassicGroup | None, request: TransactionalCommitRequest, draft: Draft, *, pending_bytes_now: int
) -> tuple[ErrorCode, ...]:
    """Writes offsets that count once the producer's transaction commits (KIP-98, KIP-447).

    Where too many are pending in all, clients are told to come again later.
    """
    refusal = _check_transactional_committer(group, request)
    size_bytes = pending_bytes_now + sum(pending_bytes(new.metadata) for new in request.offsets)
    if refusal is ErrorCode.NONE and size_bytes > PENDING_OFFSETS_BYTES_MAX:
        refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if refusal is not ErrorCode.NONE:
        return (refusal,) * len(request.offsets)
    return tuple(_commit_one(request.group_id, new, draft) for new in request.offsets)


def delete_offsets(
    group: ClassicGroup | None, known: Collection[TopicPartition], request: DeleteOffsetsRequest, draft: Draft
) -> DeleteOffsetsAnswer:
    """Takes offsets away (KIP-496), also pending ones, unless a member reads their topic."""
    if group is None:
        return DeleteOffsetsAnswer(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        return DeleteOffsetsAnswer(error_code=ErrorCode.NON_EMPTY_GROUP)
    in_use = group.topics_in_use(topic for topic, _ in request.partitions)
    for topic_partition in request.partitions:
        if topic_partition.topic not in in_use and topic_partition in known:
            draft.record(OffsetCommitRecord(group.group_id, topic_partition, None))
    return DeleteOffsetsAnswer(
        partitions=tuple(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in in_use else ErrorCode.NONE
            for topic, _ in request.partitions
        )
    )


def delete_group(group: ClassicGroup | None, known: Iterable[TopicPartition], draft: Draft) -> ErrorCode:
    """Takes an empty group away, with its offsets, also pending ones: whoever asks for that means all of it."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    for topic_partition in known:
        draft.record(OffsetCommitRecord(group.group_id, topic_partition, None))
    draft.record(GroupMetadataRecord(group.group_id, None))
    for member_id in group.pending:
        draft.cancel_timer(SessionTimer(group.group_id, member_id))
    return ErrorCode.NONE


def expire_offsets(group: ClassicGroup, offsets: Offsets, pending: Collection[TopicPartition], draft: Draft) -> None:
    """Lets go of offsets whose time is over (KIP-211), and of a group that has neither members nor offsets.

    The time begins when the group was left, where that is known, otherwise with the commit. It does not pass while the
    group rebalances, nor for topics that a member reads, nor for partitions with an offset in an open transaction.
    """
    if not _may_expire(group):
        return
    in_use = group.topics_in_use(topic for topic, _ in offsets)
    expired = [
        topic_partition
        for topic_partition, committed in offsets.items()
        if topic_partition.topic not in in_use and topic_partition not in pending and _is_over(group, committed, draft)
    ]
    for topic_partition in expired:
        draft.record(OffsetCommitRecord(group.group_id, topic_partition, None))
    has_nothing_left = len(expired) == len(offsets) and not pending and not group.pending
    if group.state is GroupState.EMPTY and has_nothing_left:
        draft.record(GroupMetadataRecord(group.group_id, None))


def _check_committer(group: ClassicGroup | None, request: CommitRequest) -> ErrorCode:
    is_of_generation = request.generation_id >= 0
    if group is None:
        return _check_simple_committer(request)
    if not is_of_generation and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if not is_of_generation and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = group.check_member(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    is_completing = group.state is GroupState.COMPLETING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if is_completing else ErrorCode.NONE


def _check_simple_committer(request: CommitRequest | TransactionalCommitRequest) -> ErrorCode:
    """Of no group that there is: only who is no member may make one that has just offsets."""
    if request.generation_id < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if request.understands_missing_group else ErrorCode.ILLEGAL_GENERATION


def _check_transactional_committer(group: ClassicGroup | None, request: TransactionalCommitRequest) -> ErrorCode:
    """As of an OffsetCommit; but a rebalance is no obstacle, nor are members to who does not say that it is one."""
    is_of_generation = request.generation_id >= 0
    if group is None:
        return _check_simple_committer(request)
    names_member = bool(request.member_id) or request.group_instance_id is not None
    if not is_of_generation and (group.state is GroupState.EMPTY or not names_member):
        return ErrorCode.NONE
    refusal = group.check_member(request.member_id, request.group_instance_id)
    if refusal is ErrorCode.NONE and request.generation_id != group.generation_id:
        refusal = ErrorCode.ILLEGAL_GENERATION
    return refusal


def _commit_one(group_id: str, new: NewOffset, draft: Draft, *, retention_ms: int | None = None) -> ErrorCode:
    if len(new.metadata) > draft.limits.offset_metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = CommittedOffset(
        offset=new.offset,
        leader_epoch=new.leader_epoch,
        metadata=new.metadata,
        commit_timestamp_ms=draft.now_ms,
        topic_id=new.topic_id,
    )
    if retention_ms is not None:  # its record, which is an old one, has room for nothing else
        expires_ms = min(draft.now_ms + retention_ms, _TIMESTAMP_MS_MAX)
        committed = replace(
            committed, expire_timestamp_ms=expires_ms, leader_epoch=_NO_LEADER_EPOCH, topic_id=ZERO_UUID
        )
    draft.record(OffsetCommitRecord(group_id, new.topic_partition, committed))
    return ErrorCode.NONE


def _may_expire(group: ClassicGroup) -> bool:
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return group.state is GroupState.STABLE and group.subscribed_topics() is not None


def _is_over(group: ClassicGroup, committed: CommittedOffset, draft: Draft) -> bool:
    if committed.expire_timestamp_ms != NO_EXPIRY:
        return draft.now_ms >= committed.expire_timestamp_ms
    was_left = group.protocol_type is not None and group.state is GroupState.EMPTY
    is_known = was_left and group.state_timestamp_ms != NO_TIMESTAMP
    begin_ms = group.state_timestamp_ms if is_known else committed.commit_timestamp_ms
    return draft.now_ms - begin_ms >= draft.limits.offsets_retention_ms
