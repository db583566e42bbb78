"""CreateTopics (key 19), versions 0 to 7.

Does: creates topics one by one, or only checks them (`validate_only`). A topic is durable and usable when the answer
names it without an error.
Errors: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST (a topic named twice), POLICY_VIOLATION (too many
partitions in one request), KAFKA_STORAGE_ERROR. A topic with several faults is told the first in Kafka's order: name,
configuration, replicas, partitions.
Versions: 4 defaults for partitions and replicas; 5 the settings of the new topic; 7 its id.
"""

from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_creation import check_new_name, config_of_new_topic, create_topic
from exactlog.core.config.topic_configs import TopicConfig, describe_topic_config
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
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is named {len(topics)} times.")
            results.append(await _create(topics[0], context, validate_only=request.validate_only))
        except KafkaError as error:
            results.append(
                CreatableTopicResult(name=name, error_code=error.error_code, error_message=str(error), configs=None)
            )
    return CreateTopicsResponse(topics=tuple(results))


async def _create(topic: CreatableTopic, context: RequestContext, *, validate_only: bool) -> CreatableTopicResult:
    broker = context.broker
    check_new_name(broker, topic.name)
    config = config_of_new_topic(broker, _overrides(topic))
    count = _partition_count(topic, context)
    topic_id = ZERO_UUID
    if not validate_only:
        topic_id = (await create_topic(broker, topic.name, partition_count=count, config=config)).topic_id
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=_REPLICATION_FACTOR,
        configs=_describe(config, context),
    )


def _partition_count(topic: CreatableTopic, context: RequestContext) -> int:
    """How many partitions are asked for.

    Raises:
        KafkaError: replicas, partitions or an assignment that a single broker cannot give.
    """
    count = _assigned_count(topic, context) if topic.assignments else _number_asked_for(topic, context)
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to {count}; it can be 1 to {PARTITIONS_PER_TOPIC_MAX}.",
        )
    return count


def _assigned_count(topic: CreatableTopic, context: RequestContext) -> int:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "An assignment excludes numbers of partitions and replicas: both must be -1."
        )
    indexes = sorted(assignment.partition_index for assignment in topic.assignments)
    if indexes != list(range(len(indexes))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be assigned from 0 on, without gaps.")
    if any(assignment.broker_ids != (context.broker.node_id,) for assignment in topic.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Every partition must be assigned to broker {context.broker.node_id}, the only one.",
        )
    return len(indexes)


def _number_asked_for(topic: CreatableTopic, context: RequestContext) -> int:
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
        for entry in describe_topic_config(config, defaults=context.broker.config.topic_defaults)
    )
