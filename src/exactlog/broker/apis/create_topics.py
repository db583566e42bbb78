"""CreateTopics (key 19), versions 0 to 7.

Does: creates topics one by one, or only checks them (`validate_only`). A topic is durable and usable when the answer
names it without an error.
Errors: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST (a topic named twice), POLICY_VIOLATION (too many
partitions in one request), KAFKA_STORAGE_ERROR, TOPIC_AUTHORIZATION_FAILED. A topic with several faults is told the
first in Kafka's order: name, configuration, replicas, partitions.
Versions: 4 defaults for partitions and replicas; 5 the settings of the new topic, unless who asks may not see them;
7 its id.
"""

from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_creation import (
    check_is_not_internal,
    check_new_name,
    check_replicas,
    config_of_new_topic,
    create_topic,
)
from exactlog.core.config.broker_configs import describe_broker_config
from exactlog.core.config.topic_configs import TopicConfig, describe_topic_config
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.model.limits import PARTITIONS_CREATED_PER_REQUEST_MAX, PARTITIONS_PER_TOPIC_MAX
from exactlog.core.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_REPLICATION_FACTOR = 1
_DEFAULT = -1


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Creates the topics in the order of the request."""
    named: dict[str, list[CreatableTopic]] = {}
    for topic in request.topics:
        named.setdefault(topic.name, []).append(topic)
    partitions = sum(max(topic.num_partitions, len(topic.assignments), 1) for topic in request.topics)
    results = []
    for name, topics in named.items():
        try:
            if partitions > PARTITIONS_CREATED_PER_REQUEST_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Excessively large number of partitions per request: {partitions} are asked for, "
                    f"{PARTITIONS_CREATED_PER_REQUEST_MAX} is the most.",
                )
            if len(topics) > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append(await _create(topics[0], context, validate_only=request.validate_only))
        except KafkaError as error:
            results.append(CreatableTopicResult(name=name, error_code=error.error_code, error_message=str(error)))
    return CreateTopicsResponse(topics=tuple(results))


async def _create(topic: CreatableTopic, context: RequestContext, *, validate_only: bool) -> CreatableTopicResult:
    broker = context.broker
    if not _may_create(topic.name, context):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    check_new_name(broker, topic.name)
    check_is_not_internal(topic.name)
    config = config_of_new_topic(broker, _overrides(topic))
    count = _partition_count(topic, context)
    topic_id = ZERO_UUID
    if not validate_only:
        topic_id = (await create_topic(broker, topic.name, partition_count=count, config=config)).topic_id
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=_REPLICATION_FACTOR,
        configs=_describe(config, context),
    )


def _may_create(name: str, context: RequestContext) -> bool:
    return context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or context.allows(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _partition_count(topic: CreatableTopic, context: RequestContext) -> int:
    """How many partitions are asked for.

    Raises:
        KafkaError: replicas, partitions or an assignment that a single broker cannot give.
    """
    count = _assigned_count(topic, context) if topic.assignments else _number_asked_for(topic, context)
    if count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to {count}; it can be 1 to {PARTITIONS_PER_TOPIC_MAX}.",
        )
    return count


def _assigned_count(topic: CreatableTopic, context: RequestContext) -> int:
    for name, number in (("replication factor", topic.replication_factor), ("numPartitions", topic.num_partitions)):
        if number != _DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"A manual partition assignment was specified, but {name} was not set to -1."
            )
    assigned: set[int] = set()
    for assignment in topic.assignments:
        if assignment.partition_index in assigned:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        check_replicas(assignment.broker_ids, node_id=context.broker.node_id)
        assigned.add(assignment.partition_index)
    if assigned != set(range(len(assigned))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return len(assigned)


def _number_asked_for(topic: CreatableTopic, context: RequestContext) -> int:
    if topic.replication_factor < 1 and topic.replication_factor != _DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.replication_factor not in (_DEFAULT, _REPLICATION_FACTOR):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {topic.replication_factor} time(s): this broker is the only one.",
        )
    return context.broker.config.num_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions


def _overrides(topic: CreatableTopic) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        overrides[config.name] = config.value
    return overrides


def _describe(config: TopicConfig, context: RequestContext) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic_config(config, broker=describe_broker_config(context.broker.running.layers))
    )
