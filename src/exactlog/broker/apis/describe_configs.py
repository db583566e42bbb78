"""DescribeConfigs (key 32), versions 0 to 4.

Does: shows the configuration of topics (type 2) and of this broker (type 4), with where each value comes from.
Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (another resource, another broker).
Versions: 0 says only whether a value is the default; 1 sources and synonyms; 3 types and documentation.
"""

from collections.abc import Sequence

from exactlog.broker.request_context import RequestContext
from exactlog.core.config.broker_configs import describe_broker_config
from exactlog.core.config.definition import ConfigEntry, ConfigSource
from exactlog.core.config.topic_configs import describe_topic_config
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

TOPIC, BROKER = 2, 4


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
    keys = asked.configuration_keys
    return DescribeConfigsResult(
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(_result(entry, request, context) for entry in entries if keys is None or entry.name in keys),
    )


def _entries(asked: DescribeConfigsResource, context: RequestContext) -> Sequence[ConfigEntry]:
    """The configuration of a resource.

    Raises:
        KafkaError: there is no such resource here.
    """
    broker = context.broker
    if asked.resource_type == TOPIC:
        topic = broker.topics.by_name(asked.resource_name)
        if topic is None:
            fault = reason_name_is_invalid(asked.resource_name)
            if fault is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{asked.resource_name}'.")
        return describe_topic_config(topic.config, defaults=broker.config.topic_defaults)
    if asked.resource_type == BROKER:
        if asked.resource_name not in ("", str(broker.node_id)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"This is broker {broker.node_id}; it was asked for '{asked.resource_name}'."
            )
        return describe_broker_config(broker.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {asked.resource_type} have no configuration here.")


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
