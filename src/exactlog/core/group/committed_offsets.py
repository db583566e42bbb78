"""OffsetCommit, OffsetDelete and DeleteGroups, and what becomes of offsets that nobody needs any more."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from exactlog.core.group.classic_group import NO_TIMESTAMP, ClassicGroup, GroupState
from exactlog.core.group.draft import Draft
from exactlog.core.group.group_record import GroupMetadataRecord, OffsetCommitRecord
from exactlog.core.group.rebalancing import restart_session
from exactlog.core.group.requests import (
    NO_EXPIRY,
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    NewOffset,
)
from exactlog.core.group.timer_keys import SessionTimer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID, TopicPartition

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
    return tuple(_commit_one(new, request, draft) for new in request.offsets)


def delete_offsets(
    group: ClassicGroup | None, offsets: Offsets, request: DeleteOffsetsRequest, draft: Draft
) -> DeleteOffsetsAnswer:
    """Takes offsets away (KIP-496), unless a member reads their topic."""
    if group is None:
        return DeleteOffsetsAnswer(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        return DeleteOffsetsAnswer(error_code=ErrorCode.NON_EMPTY_GROUP)
    in_use = group.topics_in_use(topic for topic, _ in request.partitions)
    for topic_partition in request.partitions:
        if topic_partition.topic not in in_use and topic_partition in offsets:
            draft.record(OffsetCommitRecord(group.group_id, topic_partition, None))
    return DeleteOffsetsAnswer(
        partitions=tuple(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in in_use else ErrorCode.NONE
            for topic, _ in request.partitions
        )
    )


def delete_group(group: ClassicGroup | None, offsets: Offsets, draft: Draft) -> ErrorCode:
    """Takes an empty group away, with its offsets."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    for topic_partition in offsets:
        draft.record(OffsetCommitRecord(group.group_id, topic_partition, None))
    draft.record(GroupMetadataRecord(group.group_id, None))
    for member_id in group.pending:
        draft.cancel_timer(SessionTimer(group.group_id, member_id))
    return ErrorCode.NONE


def expire_offsets(group: ClassicGroup, offsets: Offsets, draft: Draft) -> None:
    """Lets go of offsets whose time is over (KIP-211), and of a group that has neither members nor offsets.

    The time begins when the group was left, where that is known, otherwise with the commit. It does not pass while the
    group rebalances, nor for topics that a member reads.
    """
    if not _may_expire(group):
        return
    in_use = group.topics_in_use(topic for topic, _ in offsets)
    expired = [
        topic_partition
        for topic_partition, committed in offsets.items()
        if topic_partition.topic not in in_use and _is_over(group, committed, draft)
    ]
    for topic_partition in expired:
        draft.record(OffsetCommitRecord(group.group_id, topic_partition, None))
    if group.state is GroupState.EMPTY and not group.pending and len(expired) == len(offsets):
        draft.record(GroupMetadataRecord(group.group_id, None))


def _check_committer(group: ClassicGroup | None, request: CommitRequest) -> ErrorCode:
    is_of_generation = request.generation_id >= 0
    if group is None:
        if not is_of_generation:
            return ErrorCode.NONE
        has_code = request.understands_missing_group
        return ErrorCode.GROUP_ID_NOT_FOUND if has_code else ErrorCode.ILLEGAL_GENERATION
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


def _commit_one(new: NewOffset, request: CommitRequest, draft: Draft) -> ErrorCode:
    if len(new.metadata) > draft.limits.offset_metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = CommittedOffset(
        offset=new.offset,
        leader_epoch=new.leader_epoch,
        metadata=new.metadata,
        commit_timestamp_ms=draft.now_ms,
        topic_id=new.topic_id,
    )
    if request.retention_ms is not None:  # its record, which is an old one, has room for nothing else
        expires_ms = min(draft.now_ms + request.retention_ms, _TIMESTAMP_MS_MAX)
        committed = replace(
            committed, expire_timestamp_ms=expires_ms, leader_epoch=_NO_LEADER_EPOCH, topic_id=ZERO_UUID
        )
    draft.record(OffsetCommitRecord(request.group_id, new.topic_partition, committed))
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
