"""What a configuration key is: a type, a default, the values that are valid, a sentence of documentation.

Values arrive as text (from a client, a file, the environment, the command line) and are parsed here into typed ones.
Types and sources carry the numbers of Kafka's DescribeConfigs answer; faults are worded as Kafka words them, so that
what people find on the web about a message still applies.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, assert_never

from msgspec import Struct

ConfigValue = bool | int | float | str | tuple[str, ...]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# Narrower than int() and float(), which take underscores, other scripts' digits, NaN and infinities.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class ConfigType(IntEnum):
    """The type of a configuration value, by its number in DescribeConfigs 3 and later (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigResourceType(IntEnum):
    """What has a configuration in Kafka, by its number in requests about configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a configuration value comes from, by its number in DescribeConfigs 1 and later (KIP-226)."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class Between(Struct, frozen=True):
    """A number from `least` to `most`, both included; `most` None: as large as the type allows."""

    least: float
    most: float | None = None

    def __str__(self) -> str:
        return f"[{self.least},...]" if self.most is None else f"[{self.least},...,{self.most}]"


class OneOf(Struct, frozen=True):
    """One of the listed texts; of a list, each of its members."""

    choices: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.choices)


ValidValues = Between | OneOf


class ConfigKey(Struct, frozen=True, kw_only=True):
    """The definition of one configuration key.

    Attributes:
        acts: whether this version acts on it. A key that does not act yet is validated, kept and shown.
        aliases: other names it may be given by.
        broker_key: of a topic's key, the broker key that supplies its default, if there is one.
        is_dynamic: of a broker's key, whether clients may change it while the broker runs (KIP-226).
    """

    name: str
    type: ConfigType
    default: ConfigValue
    valid: ValidValues | None = None
    documentation: str
    acts: bool
    aliases: tuple[str, ...] = ()
    broker_key: str | None = None
    is_dynamic: bool = False

    @property
    def attribute(self) -> str:
        """The name as an attribute of the typed configuration."""
        return self.name.replace(".", "_")

    @property
    def explanation(self) -> str:
        """The documentation, with a word about it where the key does not act yet."""
        return self.documentation if self.acts else f"{self.documentation} (Kept and shown; does not act yet.)"


class InvalidConfig(Struct, frozen=True):
    """Why a configuration is refused: the reason names the `keys` at fault, `hint` says what to write instead."""

    reason: str
    keys: tuple[str, ...]
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}" if self.hint else self.reason


class Parsed(Struct, frozen=True):
    """A valid value, typed."""

    value: ConfigValue


class ConfigSynonym(Struct, frozen=True):
    """One of the places a value is looked up in, the first one wins (DescribeConfigs, `include_synonyms`)."""

    name: str
    value: str
    source: ConfigSource


class ConfigEntry(Struct, frozen=True, kw_only=True):
    """One row of a DescribeConfigs answer."""

    name: str
    value: str
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool = False
    type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


def parse_config_value(key: ConfigKey, text: str) -> Parsed | InvalidConfig:
    """The typed value that `text` stands for, or why it is not one that `key` takes."""
    value = _parse_typed(key.type, text.strip())
    fault = value.fault if isinstance(value, _NotOfType) else _find_fault(key.valid, value)
    if fault is None and not isinstance(value, _NotOfType):
        return Parsed(value)
    return InvalidConfig(f"Invalid value {text} for configuration {key.name}: {fault}", (key.name,))


def format_config_value(value: ConfigValue) -> str:
    """The value as text, such that parsing it gives the value again."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when none is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def nearest_name_hint(name: str, known: Iterable[str]) -> str:
    """`Did you mean x?` for a name that is not known, or nothing when none is near."""
    nearest = nearest_name(name, known)
    return f"Did you mean {nearest}?" if nearest else ""


def index_config_keys(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    """Every key by each of its names."""
    return {name: key for key in keys for name in (key.name, *key.aliases)}


class _NotOfType(Struct, frozen=True):
    fault: str


def _parse_typed(config_type: ConfigType, text: str) -> ConfigValue | _NotOfType:
    match config_type:
        case ConfigType.BOOLEAN:
            return {"true": True, "false": False}.get(
                text.lower(), _NotOfType("Expected value to be either true or false")
            )
        case ConfigType.INT | ConfigType.LONG:
            return _parse_integer(config_type, text)
        case ConfigType.DOUBLE:
            return _parse_double(text)
        case ConfigType.LIST:
            return tuple(member.strip() for member in text.split(",")) if text else ()
        case _:
            return text


def _parse_integer(config_type: ConfigType, text: str) -> int | _NotOfType:
    most = INT_MAX if config_type is ConfigType.INT else LONG_MAX
    if _INTEGER.fullmatch(text) and -most - 1 <= int(text) <= most:
        return int(text)
    return _NotOfType(f"Not a number of type {config_type.name}")


def _parse_double(text: str) -> float | _NotOfType:
    return float(text) if _DOUBLE.fullmatch(text) else _NotOfType(f"Not a number of type {ConfigType.DOUBLE.name}")


def _find_fault(valid: ValidValues | None, value: ConfigValue) -> str | None:
    match valid:
        case None:
            return None
        case Between(least=least, most=most):
            assert isinstance(value, int | float)
            if value < least:
                return f"Value must be at least {least}"
            return f"Value must be no more than {most}" if most is not None and value > most else None
        case OneOf(choices=choices):
            members = value if isinstance(value, tuple) else (value,)
            if not all(member in choices for member in members):
                return f"String must be one of: {', '.join(choices)}"
            return None if len(set(members)) == len(members) else "Values must not be duplicated"
        case _:
            assert_never(valid)
