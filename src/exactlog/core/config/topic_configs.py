"""The configuration of a topic: every key Kafka clients set or ask for, typed, validated and described.

Names, types, defaults and ranges are those of Apache Kafka 4.4 (its documentation, "Topic Configs"), with one
exception: `segment.bytes` may go down to 14, as in Kafka 3.9, so that a test can make a topic roll its segments.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.config.definition import (
    LONG_MAX,
    Between,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    InvalidConfig,
    OneOf,
    format_config_value,
    index_config_keys,
    nearest_name_hint,
    parse_config_value,
)
from exactlog.core.model import limits

DAY_MS: Final = 24 * 60 * 60 * 1000
SEGMENT_BYTES_LEAST: Final = 14

TimestampTypeName = Literal["CreateTime", "LogAppendTime"]

TOPIC_CONFIG_KEYS: Final = (
    ConfigKey(
        name="cleanup.policy",
        type=ConfigType.LIST,
        default=("delete",),
        valid=OneOf(("compact", "delete")),
        documentation="What happens to old segments: `delete` drops them by retention, `compact` keeps the newest "
        "record of every key, when `exactlog log compact` is run; a record without a key is refused.",
        acts=True,
    ),
    ConfigKey(
        name="compression.type",
        type=ConfigType.STRING,
        default="producer",
        valid=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        documentation="The compression of what is stored; `producer` keeps what the producer chose.",
        acts=False,
    ),
    ConfigKey(
        name="delete.retention.ms",
        type=ConfigType.LONG,
        default=DAY_MS,
        valid=Between(0),
        documentation="How long a compacted topic keeps tombstones, so that a reader from the start sees them.",
        acts=True,
    ),
    ConfigKey(
        name="file.delete.delay.ms",
        type=ConfigType.LONG,
        default=60_000,
        valid=Between(0),
        documentation="How long a removed file stays on disk.",
        acts=True,
        broker_key="file.delete.delay.ms",
    ),
    ConfigKey(
        name="flush.messages",
        type=ConfigType.LONG,
        default=LONG_MAX,
        valid=Between(1),
        documentation="After how many records a sync to disk is forced. The broker's flush.mode decides here.",
        acts=False,
    ),
    ConfigKey(
        name="flush.ms",
        type=ConfigType.LONG,
        default=LONG_MAX,
        valid=Between(0),
        documentation="After how long a sync to disk is forced. The broker's flush.mode decides here.",
        acts=False,
    ),
    ConfigKey(
        name="index.interval.bytes",
        type=ConfigType.INT,
        default=limits.INDEX_INTERVAL_BYTES,
        valid=Between(0),
        documentation="One index entry for so many bytes of log.",
        acts=True,
    ),
    ConfigKey(
        name="max.compaction.lag.ms",
        type=ConfigType.LONG,
        default=LONG_MAX,
        valid=Between(1),
        documentation="The longest a record of a compacted topic may wait for compaction.",
        acts=False,
    ),
    ConfigKey(
        name="max.message.bytes",
        type=ConfigType.INT,
        default=limits.RECORD_BATCH_BYTES_MAX,
        valid=Between(0),
        documentation="The largest record batch, as it arrives; larger ones are refused with MESSAGE_TOO_LARGE.",
        acts=True,
        broker_key="message.max.bytes",
    ),
    ConfigKey(
        name="message.timestamp.after.max.ms",
        type=ConfigType.LONG,
        default=3_600_000,
        valid=Between(0),
        documentation="How far ahead of the broker's clock a record's CreateTime may be.",
        acts=True,
    ),
    ConfigKey(
        name="message.timestamp.before.max.ms",
        type=ConfigType.LONG,
        default=LONG_MAX,
        valid=Between(0),
        documentation="How far behind the broker's clock a record's CreateTime may be.",
        acts=True,
    ),
    ConfigKey(
        name="message.timestamp.type",
        type=ConfigType.STRING,
        default="CreateTime",
        valid=OneOf(("CreateTime", "LogAppendTime")),
        documentation="Whether a record bears the time its producer gave it or the time of the append.",
        acts=True,
    ),
    ConfigKey(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.DOUBLE,
        default=0.5,
        valid=Between(0, 1),
        documentation="The part of a compacted log that must be uncompacted before it is compacted again.",
        acts=False,
    ),
    ConfigKey(
        name="min.compaction.lag.ms",
        type=ConfigType.LONG,
        default=0,
        valid=Between(0),
        documentation="The least time a record of a compacted topic stays uncompacted.",
        acts=True,
    ),
    ConfigKey(
        name="min.insync.replicas",
        type=ConfigType.INT,
        default=1,
        valid=Between(1),
        documentation="How many replicas must have a batch before acks=all is answered; with fewer in sync the "
        "answer is NOT_ENOUGH_REPLICAS. One broker has one replica.",
        acts=True,
    ),
    ConfigKey(
        name="preallocate",
        type=ConfigType.BOOLEAN,
        default=False,
        documentation="Whether a new segment reserves its size on disk.",
        acts=False,
    ),
    ConfigKey(
        name="retention.bytes",
        type=ConfigType.LONG,
        default=-1,
        documentation="The size at which a partition drops its oldest segments; -1: no such bound.",
        acts=True,
        broker_key="retention.bytes",
    ),
    ConfigKey(
        name="retention.ms",
        type=ConfigType.LONG,
        default=7 * DAY_MS,
        valid=Between(-1),
        documentation="The age at which a partition drops its oldest segments; -1: no such bound.",
        acts=True,
        broker_key="retention.ms",
    ),
    ConfigKey(
        name="segment.bytes",
        type=ConfigType.INT,
        default=limits.SEGMENT_BYTES_MAX,
        valid=Between(SEGMENT_BYTES_LEAST),
        documentation="The size at which a segment is full and the next one starts.",
        acts=True,
        broker_key="segment.bytes",
    ),
    ConfigKey(
        name="segment.index.bytes",
        type=ConfigType.INT,
        default=10 * 1024 * 1024,
        valid=Between(4),
        documentation="The size of an index file at which its segment counts as full.",
        acts=False,
    ),
    ConfigKey(
        name="segment.jitter.ms",
        type=ConfigType.LONG,
        default=0,
        valid=Between(0),
        documentation="A random part taken off segment.ms, so that not all topics roll at once.",
        acts=False,
    ),
    ConfigKey(
        name="segment.ms",
        type=ConfigType.LONG,
        default=7 * DAY_MS,
        valid=Between(1),
        documentation="A segment is full, even if it is small, when a batch comes that is so much younger than the "
        "first one in it.",
        acts=True,
    ),
    ConfigKey(
        name="unclean.leader.election.enable",
        type=ConfigType.BOOLEAN,
        default=False,
        documentation="Whether a replica that is behind may become leader, losing records.",
        acts=False,
    ),
)

_KEYS_BY_NAME: Final = index_config_keys(TOPIC_CONFIG_KEYS)


class TopicConfig(Struct, frozen=True, kw_only=True):
    """The configuration a topic runs with: what was set on it, and for the rest the broker's defaults.

    Attributes:
        overrides: what was set on the topic itself, as it was given; the only part that is stored.
    """

    overrides: Mapping[str, str] = {}
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = limits.INDEX_INTERVAL_BYTES
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = limits.RECORD_BATCH_BYTES_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: TimestampTypeName = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = limits.SEGMENT_BYTES_MAX
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False


KAFKA_TOPIC_DEFAULTS: Final = TopicConfig()


def validate_topic_config(
    overrides: Mapping[str, str], *, defaults: TopicConfig = KAFKA_TOPIC_DEFAULTS
) -> TopicConfig | InvalidConfig:
    """The configuration of a topic with `overrides` set on it, or why they are refused.

    An unknown name is refused with the nearest known one. `defaults` is what the broker gives a topic without any.
    """
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        key = _KEYS_BY_NAME.get(name)
        if key is None:
            return InvalidConfig(f"Unknown topic config name: {name}", (name,), nearest_name_hint(name, _KEYS_BY_NAME))
        parsed = parse_config_value(key, text)
        if isinstance(parsed, InvalidConfig):
            return parsed
        values[key.attribute] = parsed.value
    config: TopicConfig = replace(defaults, overrides=dict(overrides), **values)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        return InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
            ("min.compaction.lag.ms", "max.compaction.lag.ms"),
        )
    return config


def find_topic_config_key(name: str) -> ConfigKey | None:
    """The key of that name, if there is one."""
    return _KEYS_BY_NAME.get(name)


def describe_topic_config(config: TopicConfig, *, broker: Iterable[ConfigEntry] = ()) -> tuple[ConfigEntry, ...]:
    """The rows of a DescribeConfigs answer for a topic, by name. `broker` are those of its broker."""
    broker_entries = {entry.name: entry for entry in broker}
    return tuple(_describe(key, config, broker_entries) for key in TOPIC_CONFIG_KEYS)


def _describe(key: ConfigKey, config: TopicConfig, broker: Mapping[str, ConfigEntry]) -> ConfigEntry:
    synonyms: list[ConfigSynonym] = []
    if key.name in config.overrides:
        value = format_config_value(getattr(config, key.attribute))
        synonyms.append(ConfigSynonym(key.name, value, ConfigSource.TOPIC_CONFIG))
    if key.broker_key is not None and key.broker_key in broker:
        synonyms += broker[key.broker_key].synonyms
    else:
        default = format_config_value(key.default)
        synonyms.append(ConfigSynonym(key.broker_key or key.name, default, ConfigSource.DEFAULT_CONFIG))
    return ConfigEntry(
        name=key.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        is_read_only=False,
        type=key.type,
        documentation=key.explanation,
        synonyms=tuple(synonyms),
    )
