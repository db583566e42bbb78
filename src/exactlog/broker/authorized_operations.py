"""What whoever asks may do with a resource, as the bit field of KIP-430."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType

NOT_ASKED: Final = -(2**31)
"""The field where nobody asked for it."""

POSSIBLE: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)
"""What can be done with a resource at all (Apache Kafka, ``AclEntry``)."""

_ALL: Final = MappingProxyType({kind: sum(1 << operation for operation in POSSIBLE[kind]) for kind in POSSIBLE})


def authorized_operations(context: RequestContext, resource_type: ResourceType, name: str) -> int:
    """A bit for each operation that is allowed, by its number."""
    if context.broker.allows_everything:
        return _ALL[resource_type]
    return sum(
        1 << operation for operation in POSSIBLE[resource_type] if context.allows(operation, resource_type, name)
    )


def cluster_authorized_operations(context: RequestContext) -> int:
    """The same of the cluster; none where it may not even be described."""
    if not context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
