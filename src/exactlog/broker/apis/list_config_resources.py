"""ListConfigResources (key 74), versions 0 to 1.

Does: lists what has a configuration here: this broker and every topic; or those of some types.
Errors: UNSUPPORTED_VERSION (a type that there is not), CLUSTER_AUTHORIZATION_FAILED.
Versions: 0 client metrics only (KIP-714), of which there are none; 1 any type (KIP-1142).
Not done: loggers, client metrics and groups have no configuration here: none of them is listed.
"""

from exactlog.broker.request_context import RequestContext
from exactlog.core.config.definition import ConfigResourceType
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TYPES_SINCE = 1


def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    """Answers with what there is of the types asked for."""
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = set(request.resource_types) or set(ConfigResourceType)
    if context.api_version < TYPES_SINCE:
        asked = {ConfigResourceType.CLIENT_METRICS}
    if not asked <= set(ConfigResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    broker = context.broker
    names = {
        ConfigResourceType.BROKER: [str(broker.node_id)],
        ConfigResourceType.TOPIC: [topic.name for topic in broker.topics.topics()],
    }
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            if kind in asked
            for name in found
        )
    )
