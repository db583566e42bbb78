"""OffsetDelete (key 47), version 0 (KIP-496).

Does: lets a group forget how far it has read in partitions that none of its members subscribes to.
Errors: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP,
GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS.
"""

from exactlog.broker.asking import Later, RequestWaiter, ask
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import DeleteOffsetsAnswer, DeleteOffsetsRequest
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse | Later:
    """Takes them away."""
    if not context.allows(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    refusals = {
        TopicPartition(topic.name, part.partition_index): _refusal(topic.name, part.partition_index, context)
        for topic in request.topics
        for part in topic.partitions
    }
    wanted = tuple(key for key, refusal in refusals.items() if refusal is ErrorCode.NONE)

    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.delete_offsets(DeleteOffsetsRequest(request.group_id, wanted), waiter, now_ms=now_ms)

    def respond(answer: DeleteOffsetsAnswer) -> OffsetDeleteResponse:
        if answer.error_code is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=answer.error_code)
        errors = refusals | dict(zip(wanted, answer.partitions, strict=True))
        return OffsetDeleteResponse(
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=part.partition_index,
                            error_code=errors[TopicPartition(topic.name, part.partition_index)],
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
                if topic.partitions
            )
        )

    waiter = RequestWaiter(context, respond, lambda error: OffsetDeleteResponse(error_code=error))
    return ask(request.group_id, context, decide, waiter)


def _refusal(name: str, index: int, context: RequestContext) -> ErrorCode:
    if not context.allows(Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.broker.topics.by_name(name)
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
