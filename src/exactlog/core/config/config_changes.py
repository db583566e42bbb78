"""Changes that clients ask for in the configuration of a topic or a broker (AlterConfigs; KIP-339).

Wording and order of the refusals are those of Apache Kafka 4.4 (`ConfigAdminManager`, `ConfigurationControlManager`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from exactlog.core.config.broker_configs import UnknownConfig, find_broker_config_key
from exactlog.core.config.definition import ConfigKey, ConfigType, InvalidConfig, format_config_value
from exactlog.core.config.topic_configs import TopicConfig, find_topic_config_key
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError


class ConfigOperation(IntEnum):
    """What is done to one key, by its number in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(Struct, frozen=True):
    """One change of one key.

    Attributes:
        operation: a `ConfigOperation`, or a number that is none.
        value: None where the client gave null.
    """

    name: str
    operation: int
    value: str | None


def replacing(settings: Sequence[tuple[str, str | None]]) -> tuple[ConfigChange, ...]:
    """The changes by which AlterConfigs sets keys; what it does not name is to be dropped first."""
    return tuple(ConfigChange(name, ConfigOperation.SET, value) for name, value in settings)


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Refuses what can be of no key.

    Raises:
        KafkaError: INVALID_REQUEST for a key named twice, an unknown operation, a null where a value is needed.
    """
    if any(count > 1 for count in Counter(change.name for change in changes).values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    unknown = [str(change.operation) for change in changes if change.operation not in set(ConfigOperation)]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {', '.join(unknown)}")
    nulls = [change.name for change in changes if change.value is None and change.operation != ConfigOperation.DELETE]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")


def change_topic_config(
    set_before: Mapping[str, str], changes: Sequence[ConfigChange], *, defaults: TopicConfig
) -> dict[str, str]:
    """What is set on a topic after the changes; still to be validated as a whole.

    Args:
        set_before: what is set on it now.
        defaults: what the broker gives a topic: a list that is not set is appended to from there.

    Raises:
        KafkaError: INVALID_CONFIG for an append to something that is no list.
    """

    def list_now(key: ConfigKey) -> str:
        return set_before.get(key.name, format_config_value(getattr(defaults, key.attribute)))

    return _apply(set_before, changes, find_key=find_topic_config_key, list_now=list_now)


def change_broker_config(
    set_before: Mapping[str, str], changes: Sequence[ConfigChange], *, is_replacing: bool = False
) -> dict[str, str]:
    """What is set on a broker while it runs after the changes; by the keys' own names, whichever were used.

    Raises:
        KafkaError: INVALID_REQUEST for a key that can only be changed by a restart, INVALID_CONFIG for one there is
            not.
    """
    fixed = []
    for change in changes:
        key = find_broker_config_key(change.name)
        if isinstance(key, UnknownConfig):
            unknown = InvalidConfig(f"Unknown broker config name: {change.name}", (change.name,), key.hint)
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(unknown))
        if not key.is_dynamic and change.operation != ConfigOperation.DELETE:
            fixed.append(change.name)
    if fixed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    renamed = [ConfigChange(_own_name(change.name), change.operation, change.value) for change in changes]
    check_changes(renamed)
    return _apply({} if is_replacing else set_before, renamed, find_key=_find_broker_key, list_now=lambda _: "")


def _own_name(name: str) -> str:
    key = _find_broker_key(name)
    return name if key is None else key.name


def _find_broker_key(name: str) -> ConfigKey | None:
    key = find_broker_config_key(name)
    return None if isinstance(key, UnknownConfig) else key


def _apply(
    set_before: Mapping[str, str],
    changes: Sequence[ConfigChange],
    *,
    find_key: Callable[[str], ConfigKey | None],
    list_now: Callable[[ConfigKey], str],
) -> dict[str, str]:
    values = dict(set_before)
    for change in changes:
        match ConfigOperation(change.operation):
            case ConfigOperation.SET:
                values[change.name] = change.value or ""
            case ConfigOperation.DELETE:
                values.pop(change.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT as operation:
                key = find_key(change.name)
                if key is None or key.type is not ConfigType.LIST:
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"Can't {operation.name} to key {change.name} because its type is not LIST.",
                    )
                values[change.name] = _combine(operation, _members(list_now(key)), _members(change.value or ""))
    return values


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",")] if text.strip() else []


def _combine(operation: ConfigOperation, now: list[str], given: list[str]) -> str:
    if operation is ConfigOperation.SUBTRACT:
        return ",".join(member for member in now if member not in given)
    return ",".join(dict.fromkeys([*now, *given]))
