"""CreatePartitions (key 37), versions 0 to 3.

Does: gives topics more partitions, or only checks that it could (`validate_only`). They are durable and usable when the
answer names their topic without an error; a crash in between leaves none of them.
Errors: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (a topic named
twice), INVALID_TOPIC_EXCEPTION (a coordinator's topic: its number of partitions says where groups are),
POLICY_VIOLATION (too many partitions in one request), KAFKA_STORAGE_ERROR, TOPIC_AUTHORIZATION_FAILED.
Versions: 2 flexible.
"""

from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_creation import check_is_not_internal, check_replicas
from exactlog.broker.topic_registry import Topic
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.limits import PARTITIONS_CREATED_PER_REQUEST_MAX, PARTITIONS_PER_TOPIC_MAX
from exactlog.core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Lets the topics grow in the order of the request."""
    named: dict[str, list[CreatePartitionsTopic]] = {}
    for asked in request.topics:
        named.setdefault(asked.name, []).append(asked)
    additional = sum(max(_additional(asked, context), 0) for asked in request.topics)
    results = []
    for name, asked_topics in named.items():
        error_code, message = ErrorCode.NONE, None
        try:
            if len(asked_topics) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if additional > PARTITIONS_CREATED_PER_REQUEST_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request."
                )
            await _grow(asked_topics[0], context, validate_only=request.validate_only)
        except KafkaError as error:
            error_code, message = error.error_code, str(error)
        results.append(CreatePartitionsTopicResult(name=name, error_code=error_code, error_message=message))
    return CreatePartitionsResponse(results=tuple(results))


def _additional(asked: CreatePartitionsTopic, context: RequestContext) -> int:
    topic = context.broker.topics.by_name(asked.name)
    return 0 if topic is None else asked.count - topic.partition_count


async def _grow(asked: CreatePartitionsTopic, context: RequestContext, *, validate_only: bool) -> None:
    if not context.allows(Operation.ALTER, ResourceType.TOPIC, asked.name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = context.broker.topics.by_name(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{asked.name}'.")
    check_is_not_internal(asked.name)
    _check_count(asked, topic)
    if asked.assignments is not None:
        additional = asked.count - topic.partition_count
        if len(asked.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} "
                "assignment(s) were specified.",
            )
        for assignment in asked.assignments:
            check_replicas(assignment.broker_ids, node_id=context.broker.node_id)
    if not validate_only:
        await context.broker.topics.grow(topic, asked.count)


def _check_count(asked: CreatePartitionsTopic, topic: Topic) -> None:
    if asked.count == topic.partition_count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partition_count} partition(s).")
    if asked.count < topic.partition_count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partition_count} partition(s); {asked.count} would not be an "
            "increase.",
        )
    if asked.count > PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"A topic can have 1 to {PARTITIONS_PER_TOPIC_MAX} partitions, not more."
        )
