"""DescribeConfigs (key 32), versions 0 to 4.

Does: shows the configuration of topics (type 2) and of this broker (type 4), with where each value comes from; the
broker without a name: what was set for every broker. No keys, and null for keys, are all of them. A key that goes by
two names is shown by the one it is asked for.
Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (another resource, another broker),
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
Versions: 0 says only whether a value is the default; 1 sources and synonyms; 3 types and documentation.
Not done: loggers, client metrics and groups have no configuration here: INVALID_REQUEST.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from exactlog.broker.request_context import RequestContext
from exactlog.core.config.broker_configs import (
    UnknownConfig,
    describe_broker_config,
    describe_cluster_config,
    find_broker_config_key,
)
from exactlog.core.config.definition import ConfigEntry, ConfigResourceType, ConfigSource
from exactlog.core.config.topic_configs import describe_topic_config
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.topic_name import reason_name_is_invalid
from exactlog.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Answers resource by resource."""
    return DescribeConfigsResponse(results=tuple(_describe(asked, request, context) for asked in request.resources))


def _describe(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    try:
        entries = _entries(asked, context)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.error_code,
            error_message=str(error),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    return DescribeConfigsResult(
        error_message="",  # as Kafka: none is an empty text here
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(_result(entry, request, context) for entry in _asked_for(entries, asked)),
    )


def _asked_for(entries: Sequence[ConfigEntry], asked: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    """Those of the entries that the request names, by the names it gives them."""
    if not asked.configuration_keys:
        return entries
    if asked.resource_type == ConfigResourceType.TOPIC:
        return [entry for entry in entries if entry.name in asked.configuration_keys]
    found = {name: find_broker_config_key(name) for name in asked.configuration_keys}
    by_name = {entry.name: entry for entry in entries}
    return [
        replace(by_name[key.name], name=name)
        for name, key in found.items()
        if not isinstance(key, UnknownConfig) and key.name in by_name
    ]


def _entries(asked: DescribeConfigsResource, context: RequestContext) -> Sequence[ConfigEntry]:
    """The configuration of a resource.

    Raises:
        KafkaError: there is no such resource here, or who asks may not see it.
    """
    match asked.resource_type:
        case ConfigResourceType.TOPIC:
            return _topic_entries(asked.resource_name, context)
        case ConfigResourceType.BROKER:
            return _broker_entries(asked.resource_name, context)
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Resources of type {asked.resource_type} have no configuration here."
            )


def _topic_entries(name: str, context: RequestContext) -> Sequence[ConfigEntry]:
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = context.broker.topics.by_name(name)
    if topic is None:
        fault = reason_name_is_invalid(name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return describe_topic_config(topic.config, broker=describe_broker_config(context.broker.running.layers))


def _broker_entries(name: str, context: RequestContext) -> Sequence[ConfigEntry]:
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker = context.broker
    if not name:
        return describe_cluster_config(broker.running.layers)
    if name != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )
    return describe_broker_config(broker.running.layers)


def _result(
    entry: ConfigEntry, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResourceResult:
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    if request.include_synonyms:
        synonyms = tuple(DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms)
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        is_default=context.api_version == 0 and entry.source is ConfigSource.DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
