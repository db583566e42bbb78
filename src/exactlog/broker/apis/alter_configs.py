"""AlterConfigs (key 33), versions 0 to 2.

Does: sets the configuration of topics (type 2) and of this broker (type 4; the empty name means every broker) to what
is named, and drops whatever else was set; or only checks that (`validate_only`). What was set is durable, and acts on
partitions that are open, when the answer says so; each topic's delta log records it.
Errors: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (a resource or a key named
twice, a null, a broker's key that takes a restart, another broker), KAFKA_STORAGE_ERROR, TOPIC_AUTHORIZATION_FAILED,
CLUSTER_AUTHORIZATION_FAILED.
Versions: 2 flexible.
Not done: loggers, client metrics and groups have no configuration here: INVALID_REQUEST.
"""

from exactlog.broker.config_alteration import Alteration, alter_all
from exactlog.broker.request_context import RequestContext
from exactlog.core.config.config_changes import replacing
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Changes the resources in the order of the request."""
    alterations = [
        Alteration(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            changes=replacing([(config.name, config.value) for config in asked.configs]),
            is_replacing=True,
        )
        for asked in request.resources
    ]
    refusals = await alter_all(alterations, context, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if refusal is None else refusal.error_code,
                error_message=None if refusal is None else str(refusal),
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked, refusal in zip(request.resources, refusals, strict=True)
        )
    )
