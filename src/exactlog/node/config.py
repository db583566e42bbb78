"""Where a broker's configuration comes from: flags, the environment, a TOML file, defaults; the first one wins.

A file has one table, `[broker]`, whose keys are the configuration keys, written plainly (`flush.mode = "commit"`) or
quoted (`"flush.mode" = "commit"`). In the environment a key is `EXACTLOG_` and its name in capitals with underscores:
`EXACTLOG_FLUSH_MODE`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from exactlog.core.config.broker_configs import (
    BrokerConfig,
    UnknownConfig,
    find_broker_config_key,
    validate_broker_config,
)
from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS
from exactlog.core.config.definition import ConfigKey, InvalidConfig, format_config_value, nearest_name
from exactlog.core.model.errors import ConfigError

__all__ = ["BrokerConfig", "load_config"]

ENVIRONMENT_PREFIX: Final = "EXACTLOG_"
# Variables of the same family that say something else than a broker's configuration.
ENVIRONMENT_OTHERS: Final = frozenset(
    {
        "EXACTLOG_BOOTSTRAP",
        "EXACTLOG_KILL_AT",
        # of exactlog.journal.eventsourcing
        "EXACTLOG_REPLICATE",
        "EXACTLOG_STORE_URL",
        "EXACTLOG_TOPIC",
        "EXACTLOG_TRANSACTIONAL_ID",
        "EXACTLOG_URL",
    }
)
FILE_TABLE: Final = "broker"


class Setting(Struct, frozen=True):
    """A value somebody gave, still as text, and where it comes from."""

    key: ConfigKey
    name: str
    text: str
    place: str


def load_config(
    file: Path | None = None,
    *,
    overrides: Iterable[tuple[str, str]] = (),
    overrides_from: str = "the command line",
    environment: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """The configuration that flags (`overrides`), environment and file give together, in this order of precedence.

    Raises:
        ConfigError: a key is unknown, a value is not valid, one setting is given two different values by its two
            names, or the file cannot be read. The message says what, where and what to write instead.
    """
    layers = (
        _settings_of_file(file) if file is not None else [],
        _settings_of_environment(environment or {}),
        [_setting(name, text, place=overrides_from) for name, text in overrides],
    )
    settings = _resolve(layers)
    config = validate_broker_config({name: setting.text for name, setting in settings.items()})
    if isinstance(config, InvalidConfig):
        raise ConfigError(_with_places(config, settings), hint=config.hint)
    return config


def _resolve(layers: Iterable[list[Setting]]) -> dict[str, Setting]:
    by_given_name: dict[str, Setting] = {}
    for layer in layers:
        by_given_name |= _one_layer(layer)
    by_key: dict[str, Setting] = {}
    for setting in by_given_name.values():
        _refuse_different(by_key.get(setting.key.name), setting)
        by_key[setting.key.name] = setting
    return by_key


def _one_layer(layer: list[Setting]) -> dict[str, Setting]:
    by_given_name: dict[str, Setting] = {}
    for setting in layer:
        _refuse_different(by_given_name.get(setting.name), setting)
        by_given_name[setting.name] = setting
    return by_given_name


def _refuse_different(one: Setting | None, other: Setting) -> None:
    if one is not None and one.text.strip() != other.text.strip():
        raise ConfigError(
            f"configuration {other.key.name} has two different values: "
            f"{one.text} (from {one.place}) and {other.text} (from {other.place})",
            hint="Keep one of them.",
        )


def _with_places(invalid: InvalidConfig, settings: Mapping[str, Setting]) -> str:
    places = [settings[name].place for name in invalid.keys if name in settings]
    return f"{invalid.reason} (from {' and '.join(places)})" if places else invalid.reason


def _setting(name: str, text: str, *, place: str) -> Setting:
    key = find_broker_config_key(name)
    if isinstance(key, UnknownConfig):
        raise ConfigError(
            f"unknown configuration {name} (from {place})",
            hint=key.hint or "docs/configuration.md lists every key.",
        )
    return Setting(key, name, text, place)


def _settings_of_environment(environment: Mapping[str, str]) -> list[Setting]:
    names = {_shouted(name): name for key in BROKER_CONFIG_KEYS for name in (key.name, *key.aliases)}
    settings = []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_OTHERS:
            continue
        shouted = variable.removeprefix(ENVIRONMENT_PREFIX)
        if shouted not in names:
            nearest = nearest_name(shouted, names)
            hint = f"Did you mean {ENVIRONMENT_PREFIX}{nearest}?" if nearest else "Unset it."
            raise ConfigError(f"unknown configuration {variable} (from the environment)", hint=hint)
        settings.append(_setting(names[shouted], text, place=f"environment variable {variable}"))
    return settings


def _shouted(name: str) -> str:
    return name.replace(".", "_").upper()


def _settings_of_file(file: Path) -> list[Setting]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {file}: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        hint = 'A key that begins with another key\'s whole name needs quotes: "connections.max.idle.ms" = 1000.'
        raise ConfigError(f"configuration file {file} is not valid TOML: {error}", hint=hint) from error
    foreign = [name for name in document if name != FILE_TABLE]
    table = document.get(FILE_TABLE, {})
    if foreign or not isinstance(table, dict):
        what = f"{foreign[0]!r} stands" if foreign else "a value stands"
        raise ConfigError(
            f"configuration file {file}: {what} where only the table [{FILE_TABLE}] is known",
            hint=f"Put the keys under a line [{FILE_TABLE}].",
        )
    return [_setting(name, _text_of_toml(name, value, file), place=str(file)) for name, value in _flatten(table)]


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text_of_toml(name: str, value: object, file: Path) -> str:
    match value:
        case bool() | int() | float() | str():
            return format_config_value(value)
        case list() if all(isinstance(member, str) for member in value):
            return ",".join(value)
        case _:
            raise ConfigError(
                f"configuration {name} has a value of a kind no key takes (from {file})",
                hint="Write a text, a number, true or false.",
            )
