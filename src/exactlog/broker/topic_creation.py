"""Making a topic: what must hold before one is created, however it is asked for."""

from collections.abc import Mapping

from exactlog.broker.services import BrokerServices
from exactlog.broker.topic_registry import Topic
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.limits import PARTITIONS_PER_TOPIC_MAX
from exactlog.core.model.topic_name import collision_key, reason_name_is_invalid


def check_new_topic(
    broker: BrokerServices, name: str, *, partition_count: int, overrides: Mapping[str, str]
) -> TopicConfig:
    """The configuration a new topic would run with.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS or INVALID_CONFIG, and why.
    """
    fault = reason_name_is_invalid(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
    if broker.topics.by_name(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    rival = next(
        (topic.name for topic in broker.topics.topics() if collision_key(topic.name) == collision_key(name)), None
    )
    if rival is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {rival}")
    if not 1 <= partition_count <= PARTITIONS_PER_TOPIC_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to {partition_count}; it can be 1 to {PARTITIONS_PER_TOPIC_MAX}.",
        )
    config = validate_topic_config(overrides, defaults=broker.config.topic_defaults)
    if isinstance(config, InvalidConfig):
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(config))
    return config


async def create_topic(
    broker: BrokerServices,
    name: str,
    *,
    partition_count: int | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Topic:
    """Creates a topic; it is durable and usable when this returns.

    Raises:
        KafkaError: as `check_new_topic`, or KAFKA_STORAGE_ERROR.
    """
    count = broker.config.num_partitions if partition_count is None else partition_count
    config = check_new_topic(broker, name, partition_count=count, overrides=overrides or {})
    return await broker.topics.create(name, partition_count=count, config=config, topic_id=broker.new_topic_id())
