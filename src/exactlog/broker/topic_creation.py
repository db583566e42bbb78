"""Making a topic: what must hold before one is created, however it is asked for."""

from collections.abc import Mapping, Sequence

from exactlog.broker.services import BrokerServices
from exactlog.broker.topic_registry import Topic
from exactlog.core.config.definition import InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.topic_name import CLUSTER_METADATA, CONSUMER_OFFSETS, is_internal, reason_name_is_invalid


def check_is_not_internal(name: str) -> None:
    """Sees to it that clients leave the coordinators' topics alone.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for the one that Kafka refuses, too.
    """
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if is_internal(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' is internal: only the broker creates it, and it cannot grow or be deleted.",
        )


def check_replicas(broker_ids: Sequence[int], *, node_id: int) -> None:
    """Sees to it that a partition is assigned to this broker, and to it alone.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, and why.
    """
    reason = None
    strangers = [broker_id for broker_id in broker_ids if broker_id != node_id]
    if not broker_ids:
        reason = "includes an empty replica list."
    elif strangers:
        reason = f"includes broker {strangers[0]}, but no such broker is registered."
    elif len(broker_ids) > 1:
        reason = f"includes the broker {node_id} more than once."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {reason}")


def check_new_name(broker: BrokerServices, name: str) -> None:
    """Sees to it that a topic may be created by this name.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION or TOPIC_ALREADY_EXISTS, and why.
    """
    fault = reason_name_is_invalid(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
    broker.topics.check_is_free(name)


def config_of_new_topic(broker: BrokerServices, overrides: Mapping[str, str]) -> TopicConfig:
    """The configuration a new topic would run with.

    Raises:
        KafkaError: INVALID_CONFIG, and why.
    """
    config = validate_topic_config(overrides, defaults=broker.config.topic_defaults)
    if isinstance(config, InvalidConfig):
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(config))
    return config


async def create_topic(
    broker: BrokerServices, name: str, *, partition_count: int | None = None, config: TopicConfig | None = None
) -> Topic:
    """Creates a topic, with the broker's defaults for what is not given; durable and usable when this returns.

    Raises:
        KafkaError: as `check_new_name`, or KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION for an internal topic that
            its coordinator has not made yet.
    """
    if name == CONSUMER_OFFSETS:
        return await broker.groups.ensure_topic()  # by its own settings; to name it is enough, as in Kafka
    if is_internal(name) or name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}' yet.")
    check_new_name(broker, name)
    return await broker.topics.create(
        name,
        partition_count=broker.config.num_partitions if partition_count is None else partition_count,
        config=config_of_new_topic(broker, {}) if config is None else config,
        topic_id=broker.new_topic_id(),
    )
