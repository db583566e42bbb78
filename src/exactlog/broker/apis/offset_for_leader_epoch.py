"""OffsetForLeaderEpoch (key 23), versions 0 to 4.

Does: tells where a leader epoch ends, so that a reader finds out whether its records are still those of the log
(KIP-320): the greatest known epoch up to the one asked for, and its end. An epoch newer than all that are known is
answered with -1 and -1.
Errors: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE.
Versions: 2 the leader epoch the reader knows; 3 who asks, which changes nothing here: there is one replica.
"""

from collections.abc import Coroutine

from exactlog.broker.leader_epochs import leader_epoch_error
from exactlog.broker.partition_lookup import closed_partitions, find_partition, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import LeaderEpoch, TopicPartition
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)


def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Coroutine[None, None, OffsetForLeaderEpochResponse]:
    """Answers from the partitions' tables."""
    closed = closed_partitions(
        context.broker.topics,
        (TopicPartition(topic.topic, part.partition) for topic in request.topics for part in topic.partitions),
    )
    return _answer_when_open(request, context, closed) if closed else _answer(request, context)


async def _answer_when_open(
    request: OffsetForLeaderEpochRequest, context: RequestContext, closed: list[TopicPartition]
) -> OffsetForLeaderEpochResponse:
    await open_partitions(context.broker.topics, closed)
    return _answer(request, context)


def _answer(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    sees_all = context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple([_find_end(context, topic, part, is_allowed=is_allowed) for part in topic.partitions]),
            )
            for topic in request.topics
            for is_allowed in (sees_all or context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic),)
        )
    )


def _find_end(
    context: RequestContext, topic: OffsetForLeaderTopic, part: OffsetForLeaderPartition, *, is_allowed: bool
) -> EpochEndOffset:
    if not is_allowed:
        return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=part.partition)
    partition = find_partition(context.broker.topics, topic.topic, part.partition)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(error_code=partition, partition=part.partition)
    refused = leader_epoch_error(context, part.current_leader_epoch)
    if refused is not None:
        return EpochEndOffset(error_code=refused, partition=part.partition)
    end = partition.table.end_offset_for_epoch(
        part.leader_epoch,
        leader_epoch=LeaderEpoch(context.broker.leader_epoch),
        log_end_offset=partition.high_watermark,
    )
    return EpochEndOffset(partition=part.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
