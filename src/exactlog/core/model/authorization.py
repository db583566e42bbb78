"""Who may do what, as a port: the broker asks before it acts; what decides is put in from outside (KIP-11)."""

from enum import IntEnum
from typing import Protocol

from msgspec import Struct

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class ResourceType(IntEnum):
    """What is acted on, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """What is done, by Kafka's numbers. DESCRIBE is implied by READ, WRITE, DELETE and ALTER."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Requester(Struct, frozen=True):
    """Who asks."""

    principal: str
    """As Kafka writes it: `User:ANONYMOUS` for a connection that has not said who it is."""
    host: str
    client_id: str | None


class Authorizer(Protocol):
    """Decides. Called on the event loop for every request: it must be quick, and may not block."""

    def is_allowed(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether it may be done; False is answered with the error Kafka has for that resource."""


class AllowAll:
    """Everybody may do everything: what a broker without any rules does."""

    def is_allowed(  # the port's signature
        self,
        requester: Requester,  # noqa: ARG002
        operation: Operation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        """Yes."""
        return True
