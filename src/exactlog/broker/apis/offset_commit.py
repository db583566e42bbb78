"""OffsetCommit (key 8), versions 0 to 10.

Does: keeps for a group how far it has read, with a text of its own; answered once that is committed.
Errors: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID,
REBALANCE_IN_PROGRESS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 0 is kept here too, not in ZooKeeper; 1 generations, and times of the commit, which are not looked at; 2 to 4
a retention time; 6 leader epochs; 7 static members; 10 topic ids.
"""

from collections.abc import Sequence

from exactlog.broker.asking import Later, RequestWaiter, ask
from exactlog.broker.offset_lookup import OffsetsAsked
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import CommitAnswer, CommitRequest
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

GROUP_NOT_FOUND_SINCE = 9
TOPIC_IDS_SINCE = 10


def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse | Later:
    """Commits the offsets of partitions that exist, all together; the others get their own errors."""
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _respond(request, [[ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(t.partitions) for t in request.topics])
    asked = OffsetsAsked(request.topics, context, by_id=context.api_version >= TOPIC_IDS_SINCE)

    def respond(answer: CommitAnswer) -> OffsetCommitResponse:
        return _respond(request, asked.merge(answer.errors))

    if not asked.offsets:
        return respond(CommitAnswer(()))
    commit = CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
        understands_missing_group=context.api_version >= GROUP_NOT_FOUND_SINCE,
        offsets=asked.offsets,
    )

    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.commit_offsets(commit, waiter, now_ms=now_ms)

    waiter = RequestWaiter(context, respond, lambda error: respond(CommitAnswer((error,) * len(asked.offsets))))
    return ask(request.group_id, context, decide, waiter)


def _respond(request: OffsetCommitRequest, errors: Sequence[Sequence[ErrorCode]]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                    for part, error in zip(topic.partitions, of_topic, strict=True)
                ),
            )
            for topic, of_topic in zip(request.topics, errors, strict=True)
            if topic.partitions
        )
    )
