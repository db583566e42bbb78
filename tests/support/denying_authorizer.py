"""An authorizer for tests, which denies what it is told to deny; and a broker that asks it."""

from exactlog.node.node import Node
from exactlog.testing import Broker

ANYTHING = "*"


class DenyingAuthorizer:
    """Allows everything but what matches a rule: (operation, type of resource, name or `ANYTHING`).

    Attributes:
        rules: may be changed at any time.
        asked: (requester, operation, resource type, name) of each question since it was last cleared.
    """

    def __init__(self):
        self.rules = set()
        self.asked = []

    def is_allowed(self, requester, operation, resource_type, name):
        self.asked.append((requester, operation, resource_type, name))
        return not {(operation, resource_type, name), (operation, resource_type, ANYTHING)} & self.rules

    def deny(self, operation, resource_type, name=ANYTHING):
        self.rules.add((operation, resource_type, name))

    def allow_everything(self):
        self.rules = set()
        self.asked = []


def broker_with(authorizer, **config):
    """A broker in memory that asks an authorizer."""
    return Broker(
        config={"in.memory": True, **config},
        make_node=lambda settings, clock, **others: Node(settings, clock=clock, authorizer=authorizer, **others),
    )
