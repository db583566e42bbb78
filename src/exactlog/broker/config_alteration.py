"""Changing configurations, however it is asked for (AlterConfigs, IncrementalAlterConfigs).

Each resource is changed whole or not at all, and answered for itself. Checks and words are those of Apache Kafka 4.4.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_registry import Topic
from exactlog.core.config.config_changes import ConfigChange, change_broker_config, change_topic_config, check_changes
from exactlog.core.config.definition import ConfigResourceType, InvalidConfig
from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.topic_name import reason_name_is_invalid
from exactlog.storage.catalog import BrokerScope


class Alteration(Struct, frozen=True, kw_only=True):
    """What is asked for of one resource.

    Attributes:
        is_replacing: whether what the changes do not name is to be dropped.
    """

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    is_replacing: bool

    @property
    def resource(self) -> tuple[int, str]:
        """What is to be changed."""
        return self.resource_type, self.resource_name


async def alter_all(
    alterations: Sequence[Alteration], context: RequestContext, *, validate_only: bool
) -> list[KafkaError | None]:
    """Changes resources in the order of a request; the refusal of each, None where it was changed."""
    times = Counter(alteration.resource for alteration in alterations)
    refusals: list[KafkaError | None] = []
    for alteration in alterations:
        try:
            if times[alteration.resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_changes(alteration.changes)
            await _alter(alteration, context, validate_only=validate_only)
        except KafkaError as error:
            refusals.append(error)
        else:
            refusals.append(None)
    return refusals


async def _alter(alteration: Alteration, context: RequestContext, *, validate_only: bool) -> None:
    match alteration.resource_type:
        case ConfigResourceType.TOPIC:
            await _alter_topic(alteration, context, validate_only=validate_only)
        case ConfigResourceType.BROKER:
            await _alter_broker(alteration, context, validate_only=validate_only)
        case ConfigResourceType.BROKER_LOGGER | ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP as known:
            name = ConfigResourceType(known).name
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {name} have no configuration here.")
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown}")


async def _alter_topic(alteration: Alteration, context: RequestContext, *, validate_only: bool) -> None:
    name, topics = alteration.resource_name, context.broker.topics
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if not context.allows(Operation.ALTER_CONFIGS, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    fault = reason_name_is_invalid(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")

    def change(overrides: Mapping[str, str]) -> TopicConfig:
        defaults = context.broker.config.topic_defaults
        before = {} if alteration.is_replacing else overrides
        changed = change_topic_config(before, alteration.changes, defaults=defaults)
        config = validate_topic_config(changed, defaults=defaults)
        if isinstance(config, InvalidConfig):
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(config))
        return config

    def change_topic(topic: Topic) -> TopicConfig:
        return change(topic.overrides)

    topic = topics.by_name(name)
    change({} if topic is None else topic.overrides)  # as in Kafka, what cannot be is told before what is not there
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if not validate_only:
        await topics.alter_config(topic, change_topic)


async def _alter_broker(alteration: Alteration, context: RequestContext, *, validate_only: bool) -> None:
    scope = _scope_of(alteration.resource_name, node_id=context.broker.node_id)
    if not context.allows(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        return change_broker_config(before, alteration.changes, is_replacing=alteration.is_replacing)

    if validate_only:
        context.broker.running.check(scope, change)
    else:
        await context.broker.running.alter(scope, change)


def _scope_of(name: str, *, node_id: int) -> BrokerScope:
    if not name:
        return BrokerScope.CLUSTER
    if not (name.isascii() and name.removeprefix("-").isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    return BrokerScope.NODE
