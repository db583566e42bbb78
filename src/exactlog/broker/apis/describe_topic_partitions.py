"""DescribeTopicPartitions (key 75), version 0.

Does: describes topics in the order of their names, page by page: at most `response_partition_limit` partitions, and a
cursor to where the next page begins. No topics named means all of them. Topics in front of the cursor are left out.
Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST (a cursor of a
topic that is not asked for, or of a negative partition).
"""

from msgspec import Struct

from exactlog.broker.authorized_operations import NOT_ASKED, authorized_operations
from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_registry import Topic
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import PARTITIONS_DESCRIBED_PER_REQUEST_MAX
from exactlog.core.model.topic_name import is_internal, reason_name_is_invalid
from exactlog.core.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class _Page(Struct, frozen=True):
    """Topics of an answer, and where the next one begins, if there is more."""

    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None


def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> DescribeTopicPartitionsResponse:
    """Answers with one page."""
    asked = {topic.name for topic in request.topics}
    cursor = request.cursor or Cursor()
    if cursor.partition_index < 0 or (asked and request.cursor is not None and cursor.topic_name not in asked):
        return _refuse(request)
    names = sorted(name for name in asked or _all_names(context) if name >= cursor.topic_name)
    hidden = {name for name in names if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    page = _page([name for name in names if name not in hidden], cursor, request.response_partition_limit, context)
    refused = [_failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in sorted(hidden)] if asked else []
    return DescribeTopicPartitionsResponse(topics=(*page.topics, *refused), next_cursor=page.next_cursor)


def _all_names(context: RequestContext) -> set[str]:
    return {topic.name for topic in context.broker.topics.topics()}


def _refuse(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple([_failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics])
    )


def _page(names: list[str], cursor: Cursor, limit: int, context: RequestContext) -> _Page:
    """At least one partition, so that whoever follows the cursors gets to the end."""
    left = max(1, min(limit, PARTITIONS_DESCRIBED_PER_REQUEST_MAX))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return _Page(described, Cursor(topic_name=name, partition_index=0))
        topic = context.broker.topics.by_name(name)
        operations = authorized_operations(context, ResourceType.TOPIC, name)
        if topic is None:
            is_valid = reason_name_is_invalid(name) is None
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            described.append(_failed(name, error, operations))
            continue
        start = cursor.partition_index if name == cursor.topic_name else 0
        end = min(topic.partition_count, start + left)
        described.append(_describe(topic, range(start, end), operations, context))
        if end < topic.partition_count:
            return _Page(described, Cursor(topic_name=name, partition_index=end))
        left -= max(0, end - start)
    return _Page(described, None)


def _describe(
    topic: Topic, indexes: range, operations: int, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    broker = context.broker
    nodes = (broker.node_id,)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=tuple(
            [
                DescribeTopicPartitionsResponsePartition(
                    partition_index=index,
                    leader_id=broker.node_id,
                    leader_epoch=broker.leader_epoch,
                    replica_nodes=nodes,
                    isr_nodes=nodes,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )
                for index in indexes
            ]
        ),
        topic_authorized_operations=operations,
    )


def _failed(name: str, error: ErrorCode, operations: int = NOT_ASKED) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_internal(name),
        topic_authorized_operations=operations,
    )
