"""Which names a topic may have (Apache Kafka, ``org.apache.kafka.common.internals.Topic``).

1 to 249 characters out of ASCII letters, digits, ``.``, ``_`` and ``-``; neither ``.`` nor ``..``.

Kafka replaces ``.`` by ``_`` in the names of its metrics, so ``a.b`` and ``a_b`` would share one. Its tool warns, its
controller refuses to create the second of two such topics (``ReplicationControlManager``, INVALID_TOPIC_EXCEPTION). A
name that collides is valid here; who creates topics compares `collision_key` and refuses, as the controller does.
"""

import re
from typing import Final

from exactlog.core.model.limits import TOPIC_NAME_LENGTH_MAX

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
"""Kafka's log of its controllers; there is none here, and nobody may make one up."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""The topics of the coordinators."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    """Whether it is a coordinator's topic: clients read it, and only the broker writes it."""
    return name in INTERNAL_TOPICS


def reason_name_is_invalid(name: str) -> str | None:
    """Return why a topic cannot have this name, as a clause to follow "the topic name is invalid: "; None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"its {len(name)} characters are more than the {TOPIC_NAME_LENGTH_MAX} allowed"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return what two topic names must not have in common."""
    return name.replace(".", "_")
