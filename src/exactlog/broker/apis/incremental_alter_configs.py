"""IncrementalAlterConfigs (key 44), versions 0 to 1 (KIP-339).

Does: changes single keys of topics (type 2) and of this broker (type 4; the empty name means every broker): sets them,
drops what was set, appends to a list or takes from it; or only checks that (`validate_only`). A list that nothing is
set for is appended to from what the broker defaults to. What was set is durable, and acts on partitions that are open,
when the answer says so; each topic's delta log records it.
Errors: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST (a resource or a key named
twice, a null, an unknown operation, a broker's key that takes a restart, another broker), KAFKA_STORAGE_ERROR,
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
Versions: 1 flexible.
Not done: loggers, client metrics and groups have no configuration here: INVALID_REQUEST.
"""

from exactlog.broker.config_alteration import Alteration, alter_all
from exactlog.broker.request_context import RequestContext
from exactlog.core.config.config_changes import ConfigChange
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    """Changes the resources in the order of the request."""
    alterations = [
        Alteration(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            changes=[ConfigChange(config.name, config.config_operation, config.value) for config in asked.configs],
            is_replacing=False,
        )
        for asked in request.resources
    ]
    refusals = await alter_all(alterations, context, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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
