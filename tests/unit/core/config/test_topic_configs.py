import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.config.broker_configs import BrokerConfig, LayeredBrokerConfig, describe_broker_config
from exactlog.core.config.definition import (
    Between,
    ConfigSource,
    ConfigType,
    InvalidConfig,
    Parsed,
    format_config_value,
    parse_config_value,
)
from exactlog.core.config.topic_configs import (
    KAFKA_TOPIC_DEFAULTS,
    TOPIC_CONFIG_KEYS,
    TopicConfig,
    describe_topic_config,
    validate_topic_config,
)


def reason_of(overrides):
    invalid = validate_topic_config(overrides)
    assert isinstance(invalid, InvalidConfig)
    return str(invalid)


def test_no_overrides_give_kafkas_defaults():
    assert validate_topic_config({}) == KAFKA_TOPIC_DEFAULTS


@pytest.mark.parametrize("key", TOPIC_CONFIG_KEYS, ids=lambda key: key.name)
def test_every_key_has_an_attribute_with_its_default_and_a_default_that_is_valid(key):
    assert getattr(KAFKA_TOPIC_DEFAULTS, key.attribute) == key.default
    assert parse_config_value(key, format_config_value(key.default)) == Parsed(key.default)


def test_every_attribute_has_a_key():
    attributes = set(TopicConfig.__struct_fields__) - {"overrides"}

    assert attributes == {key.attribute for key in TOPIC_CONFIG_KEYS}


def test_overrides_are_typed_and_kept_as_given():
    config = validate_topic_config(
        {"segment.bytes": " 1024", "cleanup.policy": "compact, delete", "preallocate": "TRUE", "retention.ms": "-1"}
    )

    assert isinstance(config, TopicConfig)
    assert (config.segment_bytes, config.cleanup_policy, config.preallocate) == (1024, ("compact", "delete"), True)
    assert config.overrides["segment.bytes"] == " 1024"
    assert config.index_interval_bytes == KAFKA_TOPIC_DEFAULTS.index_interval_bytes


def test_what_is_not_overridden_comes_from_the_broker():
    config = validate_topic_config({"segment.bytes": "1024"}, defaults=TopicConfig(segment_bytes=99, retention_ms=5))

    assert isinstance(config, TopicConfig)
    assert (config.segment_bytes, config.retention_ms) == (1024, 5)


def test_an_unknown_name_is_refused_with_the_nearest_one():
    assert reason_of({"retention.millis": "1"}) == (
        "Unknown topic config name: retention.millis. Did you mean retention.ms?"
    )


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("retention.ms", "-2", "Value must be at least -1"),
        ("segment.bytes", "13", "Value must be at least 14"),
        ("max.message.bytes", "2147483648", "Not a number of type INT"),
        ("cleanup.policy", "archive", "String must be one of: compact, delete"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
        ("unclean.leader.election.enable", "yes", "Expected value to be either true or false"),
    ],
)
def test_a_value_out_of_kafkas_range_is_refused_in_kafkas_words(name, text, fault):
    assert reason_of({name: text}) == f"Invalid value {text} for configuration {name}: {fault}"


def test_a_least_compaction_lag_above_the_greatest_is_refused():
    assert reason_of({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"}) == (
        "conflict topic config setting min.compaction.lag.ms (11) > max.compaction.lag.ms (10)"
    )


def described(config, **kwargs):
    return {entry.name: entry for entry in describe_topic_config(config, **kwargs)}


def test_a_described_default_says_that_it_is_one():
    entry = described(KAFKA_TOPIC_DEFAULTS)["retention.ms"]

    assert (entry.value, entry.source, entry.type) == ("604800000", ConfigSource.DEFAULT_CONFIG, ConfigType.LONG)
    assert not entry.is_read_only
    assert not entry.is_sensitive
    assert [synonym.source for synonym in entry.synonyms] == [ConfigSource.DEFAULT_CONFIG]


def test_a_described_override_lists_what_it_hides_in_order_of_precedence():
    defaults = TopicConfig(max_message_bytes=2000)
    config = validate_topic_config({"max.message.bytes": "1000"}, defaults=defaults)
    assert isinstance(config, TopicConfig)

    broker = describe_broker_config(LayeredBrokerConfig(started_with=BrokerConfig(message_max_bytes=2000)))
    entry = described(config, broker=broker)["max.message.bytes"]

    assert (entry.value, entry.source) == ("1000", ConfigSource.TOPIC_CONFIG)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("max.message.bytes", "1000", ConfigSource.TOPIC_CONFIG),
        ("message.max.bytes", "2000", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]


def test_a_default_the_broker_was_given_is_described_as_the_brokers():
    broker = describe_broker_config(LayeredBrokerConfig(started_with=BrokerConfig(retention_ms=5)))

    entry = described(TopicConfig(retention_ms=5), broker=broker)["retention.ms"]

    assert (entry.value, entry.source) == ("5", ConfigSource.STATIC_BROKER_CONFIG)


def test_what_was_set_on_the_broker_while_it_runs_is_described_as_such():
    layers = LayeredBrokerConfig(
        started_with=BrokerConfig(retention_ms=5), cluster={"retention.ms": "6"}, node={"retention.ms": "7"}
    )

    entry = described(TopicConfig(retention_ms=7), broker=describe_broker_config(layers))["retention.ms"]

    assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("7", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("6", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("5", ConfigSource.STATIC_BROKER_CONFIG),
        ("604800000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert (entry.value, entry.source) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG)


def test_a_key_that_does_not_act_says_so_in_its_description():
    entries = described(KAFKA_TOPIC_DEFAULTS)

    assert entries["preallocate"].documentation.endswith("(Kept and shown; does not act yet.)")
    assert "does not act" not in entries["segment.bytes"].documentation


@given(st.data())
def test_what_a_description_shows_can_be_set_again(data):
    keys = data.draw(st.lists(st.sampled_from(TOPIC_CONFIG_KEYS), unique=True))
    numbers = {key.name: str(data.draw(st.integers(14, 2**31 - 1))) for key in keys if type(key.default) is int}
    config = validate_topic_config(numbers | {"max.compaction.lag.ms": str(2**62)})
    assert isinstance(config, TopicConfig)

    shown = {entry.name: entry.value for entry in describe_topic_config(config)}
    again = validate_topic_config(shown)

    assert isinstance(again, TopicConfig)
    assert all(getattr(again, key.attribute) == getattr(config, key.attribute) for key in TOPIC_CONFIG_KEYS)


def test_bounds_apply_to_numbers_only():
    for key in TOPIC_CONFIG_KEYS:
        if isinstance(key.valid, Between):
            assert key.type in {ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE}
