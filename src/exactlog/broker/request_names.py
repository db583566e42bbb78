"""What a request is about: its topics and partitions, groups and transactional ids, found by the names of its fields.

For what asks this seldom, as a test that lets some requests fail; a handler knows its requests.
"""

from typing import Any, Final, TypeAlias
from uuid import UUID

from msgspec import Struct, field

from exactlog.core.codec.message_schema import Message, Structure, fields_of
from exactlog.core.config.definition import ConfigResourceType
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest

Place: TypeAlias = str | UUID
"""A topic, by its name or by its id."""

_GROUPS: Final = frozenset({"group_id", "groups", "groups_names"})
_TRANSACTIONAL_IDS: Final = frozenset({"transactional_id", "transactional_ids", "v3_and_below_transactional_id"})
_PARTITIONS: Final = frozenset({"partition_data", "partition_indexes", "partitions"})
_PARTITION_KEYS: Final = ("index", "partition", "partition_index")
_KEY_OF_GROUP, _KEY_OF_TRANSACTION = 0, 1  # types of FindCoordinator


class RequestNames(Struct):
    """What a request names."""

    topics: set[Place] = field(default_factory=set)
    partitions: set[tuple[Place, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    transactional_ids: set[str] = field(default_factory=set)


def names_of(request: Message) -> RequestNames:
    """What a request names. What a Fetch asks to be forgotten (KIP-227) is not what it is about."""
    names = RequestNames()
    _gather(request, names, array="")
    if isinstance(request, FindCoordinatorRequest):
        keys = {request.key, *request.coordinator_keys} - {""}
        if request.key_type == _KEY_OF_GROUP:
            names.groups |= keys
        elif request.key_type == _KEY_OF_TRANSACTION:
            names.transactional_ids |= keys
    return names


def _gather(structure: Structure, names: RequestNames, *, array: str) -> None:
    """Takes in what a structure names, which is an entry of an array of this name."""
    values: dict[str, Any] = {
        declared.name: getattr(structure, declared.name) for declared in fields_of(type(structure))
    }
    places = _places(values, array=array)
    names.topics |= places
    for name, value in values.items():
        if not value or name == "forgotten_topics_data":
            continue
        entries = value if isinstance(value, tuple) else (value,)
        plain = {entry for entry in entries if isinstance(entry, str)}
        if name in _GROUPS:
            names.groups |= plain
        elif name in _TRANSACTIONAL_IDS:
            names.transactional_ids |= plain
        elif name == "topic_names":
            names.topics |= plain
        elif name in _PARTITIONS:
            names.partitions |= {(place, _index(entry)) for place in places for entry in entries}
        for entry in entries:
            if isinstance(entry, Structure):
                _gather(entry, names, array=name)
    if values.get("resource_type") == ConfigResourceType.GROUP:
        names.groups.add(values["resource_name"])


def _places(values: dict[str, Any], *, array: str) -> set[Place]:
    """The topic that an entry is about, by name and by id where it has both; nothing where it is about none."""
    names = ["topic", "topic_id"]
    if "topic" in array:
        names.append("name")
    if values.get("resource_type") == ConfigResourceType.TOPIC:
        names.append("resource_name")
    return {values[name] for name in names if values.get(name) not in (None, "", ZERO_UUID)}


def _index(entry: Any) -> int:  # noqa: ANN401  a structure of any request, or a number
    if isinstance(entry, int):
        return entry
    return int(next(getattr(entry, key) for key in _PARTITION_KEYS if hasattr(entry, key)))
