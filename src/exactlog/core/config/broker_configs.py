"""The configuration a broker runs with: typed, validated and described."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS, PORT_MAX, TRANSACTION_TIMEOUT_MS_MAX
from exactlog.core.config.definition import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    InvalidConfig,
    format_config_value,
    index_config_keys,
    nearest_name_hint,
    parse_config_value,
)
from exactlog.core.config.topic_configs import DAY_MS, KAFKA_TOPIC_DEFAULTS, TopicConfig
from exactlog.core.model import limits

FlushMode = Literal["commit", "interval", "none"]
CommitEngine = Literal["files", "journal"]
TimeoutPolicy = Literal["kafka", "clamp"]

_KEYS_BY_NAME: Final = index_config_keys(BROKER_CONFIG_KEYS)


class BrokerConfig(Struct, frozen=True, kw_only=True):
    """What a broker runs with; one attribute a key, see `docs/configuration.md` for their meaning.

    Attributes:
        data_dir: the data directory; None: everything in memory.
    """

    node_id: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    advertised: str = ""
    data_dir: Path | None = None
    flush_mode: FlushMode = "commit"
    flush_interval_ms: int = 1_000
    commit_engine: CommitEngine = "journal"
    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    message_max_bytes: int = limits.RECORD_BATCH_BYTES_MAX
    segment_bytes: int = limits.SEGMENT_BYTES_MAX
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    retention_check_interval_ms: int = 300_000
    file_delete_delay_ms: int = 60_000
    delta_checkpoint_interval: int = 10
    delta_checkpoint_min_interval_ms: int = 1_000
    delta_versions_keep: int = 1_000
    transactions_enabled: bool = True
    transaction_version: int = 2
    transaction_max_timeout_ms: int = TRANSACTION_TIMEOUT_MS_MAX
    min_timeout_ms: int = 1_000
    timeout_policy: TimeoutPolicy = "kafka"
    check_interval_ms: int = 10_000
    write_abort_markers: bool = True
    fence_on_timeout: bool = True
    transaction_partitions_max: int = 10_000
    transaction_state_log_num_partitions: int = 1
    transactional_id_expiration_ms: int = 7 * DAY_MS
    producer_id_expiration_ms: int = DAY_MS
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = limits.GROUP_MEMBERS_MAX
    offset_metadata_max_bytes: int = 4_096
    offsets_topic_num_partitions: int = 1
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_segment_bytes: int = limits.COORDINATOR_SEGMENT_BYTES
    fetch_session_slots_max: int = limits.FETCH_SESSIONS_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    connections_max_idle_ms: int = limits.CONNECTION_IDLE_MS_MAX
    socket_request_max_bytes: int = limits.FRAME_BYTES_MAX
    fetch_bytes_in_flight_max: int = limits.FETCH_BYTES_IN_FLIGHT_MAX
    open_files_max: int = limits.OPEN_FILES_MAX

    @property
    def advertised_address(self) -> tuple[str, int] | None:
        """The host and port clients are told; None: the ones listened at."""
        return parse_host_port(self.advertised)

    @property
    def topic_defaults(self) -> TopicConfig:
        """What a topic runs with that has nothing set on it."""
        return replace(
            KAFKA_TOPIC_DEFAULTS,
            max_message_bytes=self.message_max_bytes,
            segment_bytes=self.segment_bytes,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            file_delete_delay_ms=self.file_delete_delay_ms,
        )


def parse_host_port(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT` or `[IPV6]:PORT`, or None if `text` is neither."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= PORT_MAX
    return (host, int(port)) if host and is_port else None


class UnknownConfig(Struct, frozen=True):
    """A name that is no key of a broker; `hint` names the nearest one."""

    name: str
    hint: str


def find_broker_config_key(name: str) -> ConfigKey | UnknownConfig:
    """The key that goes by `name`."""
    return _KEYS_BY_NAME.get(name) or UnknownConfig(name, nearest_name_hint(name, _KEYS_BY_NAME))


def validate_broker_config(texts: Mapping[str, str]) -> BrokerConfig | InvalidConfig:
    """The configuration with `texts` set, by the keys' own names, and defaults for the rest, or why it is refused."""
    values: dict[str, ConfigValue] = {key.attribute: key.default for key in BROKER_CONFIG_KEYS}
    for name, text in texts.items():
        parsed = parse_config_value(_KEYS_BY_NAME[name], text)
        if isinstance(parsed, InvalidConfig):
            return parsed
        values[_KEYS_BY_NAME[name].attribute] = parsed.value
    in_memory, data_dir = values.pop("in_memory"), str(values.pop("data_dir"))
    config: BrokerConfig = replace(BrokerConfig(), data_dir=None if in_memory else Path(data_dir), **values)
    return _find_conflict(config) or config


class LayeredBrokerConfig(Struct, frozen=True, kw_only=True):
    """What a broker was started with, and what clients have set over it since (KIP-226).

    Attributes:
        started_with: from flags, the environment and the file.
        cluster: what was set for every broker of the cluster, by the keys' own names, as given.
        node: what was set for this broker alone; it hides the rest.
    """

    started_with: BrokerConfig
    cluster: Mapping[str, str] = {}
    node: Mapping[str, str] = {}

    def in_force(self) -> BrokerConfig | InvalidConfig:
        """What the broker runs with, or why it cannot."""
        values: dict[str, ConfigValue] = {}
        for name, text in {**self.cluster, **self.node}.items():
            key = find_broker_config_key(name)
            if isinstance(key, UnknownConfig):
                return InvalidConfig(f"Unknown broker config name: {name}", (name,), key.hint)
            parsed = parse_config_value(key, text)
            if isinstance(parsed, InvalidConfig):
                return parsed
            values[key.attribute] = parsed.value
        config: BrokerConfig = replace(self.started_with, **values)
        return _find_conflict(config) or config


def describe_broker_config(layers: LayeredBrokerConfig) -> tuple[ConfigEntry, ...]:
    """The rows of a DescribeConfigs answer for the broker: read-only but those that can be changed while it runs."""
    return tuple(_describe(key, layers) for key in BROKER_CONFIG_KEYS)


def describe_cluster_config(layers: LayeredBrokerConfig) -> tuple[ConfigEntry, ...]:
    """The rows of a DescribeConfigs answer for all brokers of the cluster: what was set for them, and nothing else."""
    entries = []
    for key in BROKER_CONFIG_KEYS:
        if key.name in layers.cluster:
            synonym = ConfigSynonym(key.name, layers.cluster[key.name], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            entries.append(_entry(key, (synonym,)))
    return tuple(entries)


def _find_conflict(config: BrokerConfig) -> InvalidConfig | None:
    if config.advertised and config.advertised_address is None:
        return InvalidConfig(
            f"Invalid value {config.advertised} for configuration advertised: Not of the form HOST:PORT",
            ("advertised",),
            "Write for example localhost:9092",
        )
    if config.min_timeout_ms > config.transaction_max_timeout_ms:
        return InvalidConfig(
            f"min_timeout_ms ({config.min_timeout_ms}) is above "
            f"transaction.max.timeout.ms ({config.transaction_max_timeout_ms})",
            ("min_timeout_ms", "transaction.max.timeout.ms"),
            "Lower the first or raise the second",
        )
    return None


def _describe(key: ConfigKey, layers: LayeredBrokerConfig) -> ConfigEntry:
    synonyms = [
        ConfigSynonym(key.name, values[key.name], source)
        for values, source in (
            (layers.node, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (layers.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        if key.name in values
    ]
    started_with, default = _value_text(key, layers.started_with), format_config_value(key.default)
    if started_with != default:
        synonyms.append(ConfigSynonym(key.name, started_with, ConfigSource.STATIC_BROKER_CONFIG))
    synonyms.append(ConfigSynonym(key.name, default, ConfigSource.DEFAULT_CONFIG))
    return _entry(key, tuple(synonyms))


def _entry(key: ConfigKey, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        is_read_only=not key.is_dynamic,
        type=key.type,
        documentation=key.explanation,
        synonyms=synonyms,
    )


def _value_text(key: ConfigKey, config: BrokerConfig) -> str:
    match key.name:
        case "in.memory":
            return format_config_value(config.data_dir is None)
        case "data.dir":
            return "" if config.data_dir is None else str(config.data_dir)
        case _:
            return format_config_value(getattr(config, key.attribute))
