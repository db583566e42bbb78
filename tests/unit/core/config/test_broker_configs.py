from pathlib import Path

import pytest

from exactlog.core.config.broker_configs import (
    BrokerConfig,
    LayeredBrokerConfig,
    UnknownConfig,
    describe_broker_config,
    describe_cluster_config,
    find_broker_config_key,
    parse_host_port,
    validate_broker_config,
)
from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS
from exactlog.core.config.definition import (
    Between,
    ConfigSource,
    ConfigType,
    InvalidConfig,
    Parsed,
    format_config_value,
    parse_config_value,
)
from exactlog.core.config.topic_configs import KAFKA_TOPIC_DEFAULTS, TOPIC_CONFIG_KEYS

OF_THE_STORE = {"data.dir", "in.memory"}


@pytest.mark.parametrize("key", BROKER_CONFIG_KEYS, ids=lambda key: key.name)
def test_every_key_has_an_attribute_with_its_default_and_a_default_that_is_valid(key):
    if key.name not in OF_THE_STORE:
        assert getattr(BrokerConfig(), key.attribute) == key.default
    assert parse_config_value(key, format_config_value(key.default)) == Parsed(key.default)
    assert key.documentation


def test_every_attribute_has_a_key():
    keys = {key.attribute for key in BROKER_CONFIG_KEYS} - {"in_memory"}

    assert set(BrokerConfig.__struct_fields__) == keys


def test_no_two_keys_share_a_name():
    names = [name for key in BROKER_CONFIG_KEYS for name in (key.name, *key.aliases)]

    assert len(names) == len(set(names))


def test_bounds_apply_to_numbers_only():
    for key in BROKER_CONFIG_KEYS:
        if isinstance(key.valid, Between):
            assert key.type in {ConfigType.INT, ConfigType.LONG}


def test_nothing_set_gives_the_defaults_and_a_directory():
    assert validate_broker_config({}) == BrokerConfig(data_dir=Path("exactlog-data"))


def test_in_memory_leaves_the_directory_out():
    assert validate_broker_config({"in.memory": "true", "data.dir": "d"}) == BrokerConfig(data_dir=None)


def test_values_are_typed():
    config = validate_broker_config({"flush.mode": "none", "port": "0", "auto.create.topics.enable": "false"})

    assert isinstance(config, BrokerConfig)
    assert (config.flush_mode, config.port, config.auto_create_topics_enable) == ("none", 0, False)


@pytest.mark.parametrize(
    ("texts", "reason", "keys"),
    [
        (
            {"flush.mode": "always"},
            "Invalid value always for configuration flush.mode: String must be one of: commit, interval, none",
            ("flush.mode",),
        ),
        (
            {"port": "65536"},
            "Invalid value 65536 for configuration port: Value must be no more than 65535",
            ("port",),
        ),
        (
            {"advertised": "localhost"},
            "Invalid value localhost for configuration advertised: Not of the form HOST:PORT",
            ("advertised",),
        ),
        (
            {"min_timeout_ms": "5000", "transaction.max.timeout.ms": "4000"},
            "min_timeout_ms (5000) is above transaction.max.timeout.ms (4000)",
            ("min_timeout_ms", "transaction.max.timeout.ms"),
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_keys_at_fault(texts, reason, keys):
    invalid = validate_broker_config(texts)

    assert isinstance(invalid, InvalidConfig)
    assert (invalid.reason, invalid.keys) == (reason, keys)


def test_a_key_is_found_by_each_of_its_names():
    key = find_broker_config_key("transaction.max.timeout.ms")

    assert find_broker_config_key("max_timeout_ms") is key
    assert find_broker_config_key("log.segment.bytes") is find_broker_config_key("segment.bytes")


def test_a_name_that_is_no_key_comes_back_with_the_nearest_one():
    assert find_broker_config_key("flushmode") == UnknownConfig("flushmode", "Did you mean flush.mode?")


def test_topics_take_their_defaults_from_the_broker():
    defaults = BrokerConfig(message_max_bytes=7, segment_bytes=100, retention_ms=1).topic_defaults

    assert (defaults.max_message_bytes, defaults.segment_bytes, defaults.retention_ms) == (7, 100, 1)
    assert BrokerConfig().topic_defaults == KAFKA_TOPIC_DEFAULTS


def test_every_broker_key_a_topic_key_names_exists_and_has_the_same_type_and_default():
    for topic_key in TOPIC_CONFIG_KEYS:
        if topic_key.broker_key is not None:
            broker_key = find_broker_config_key(topic_key.broker_key)
            assert not isinstance(broker_key, UnknownConfig)
            assert (broker_key.type, broker_key.default, broker_key.valid) == (
                topic_key.type,
                topic_key.default,
                topic_key.valid,
            )


def test_a_description_tells_what_was_set_from_what_is_default():
    layers = LayeredBrokerConfig(started_with=BrokerConfig(port=1, data_dir=Path("d")))
    entries = {entry.name: entry for entry in describe_broker_config(layers)}

    assert (entries["port"].value, entries["port"].source) == ("1", ConfigSource.STATIC_BROKER_CONFIG)
    assert [synonym.value for synonym in entries["port"].synonyms] == ["1", "9092"]
    assert (entries["host"].value, entries["host"].source) == ("127.0.0.1", ConfigSource.DEFAULT_CONFIG)
    assert (entries["data.dir"].value, entries["in.memory"].value) == ("d", "false")


def test_what_can_be_changed_while_the_broker_runs_is_not_read_only():
    entries = describe_broker_config(LayeredBrokerConfig(started_with=BrokerConfig()))

    assert {entry.name for entry in entries if not entry.is_read_only} == {
        "message.max.bytes",
        "segment.bytes",
        "retention.ms",
        "retention.bytes",
        "file.delete.delay.ms",
        "producer.id.expiration.ms",
    }


def test_every_broker_key_that_gives_topics_a_default_can_be_changed_while_the_broker_runs():
    dynamic = {key.name for key in BROKER_CONFIG_KEYS if key.is_dynamic}

    assert {key.broker_key for key in TOPIC_CONFIG_KEYS if key.broker_key is not None} <= dynamic


def test_the_broker_runs_with_what_was_set_last_and_most_narrowly():
    layers = LayeredBrokerConfig(
        started_with=BrokerConfig(retention_ms=1, segment_bytes=100, port=7),
        cluster={"retention.ms": "2", "segment.bytes": "200"},
        node={"retention.ms": "3"},
    )

    assert layers.in_force() == BrokerConfig(retention_ms=3, segment_bytes=200, port=7)


def test_a_layer_with_a_value_that_cannot_be_is_refused():
    layers = LayeredBrokerConfig(started_with=BrokerConfig(), node={"retention.ms": "soon"})

    assert layers.in_force() == InvalidConfig(
        "Invalid value soon for configuration retention.ms: Not a number of type LONG", ("retention.ms",)
    )


def test_the_whole_cluster_is_described_by_what_was_set_for_it_alone():
    layers = LayeredBrokerConfig(
        started_with=BrokerConfig(retention_ms=1), cluster={"retention.ms": "2"}, node={"retention.ms": "3"}
    )

    (entry,) = describe_cluster_config(layers)

    assert (entry.name, entry.value, entry.source) == ("retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert len(entry.synonyms) == 1


def test_a_broker_in_memory_is_described_as_such():
    described = describe_broker_config(LayeredBrokerConfig(started_with=BrokerConfig()))
    entries = {entry.name: entry.value for entry in described}

    assert (entries["data.dir"], entries["in.memory"]) == ("", "true")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:1", ("::1", 1)),
        ("::1:1", None),
        ("localhost", None),
        (":9092", None),
        ("h:0", None),
        ("h:65536", None),
        ("h:٣", None),
        ("h:-1", None),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_host_port(text) == address
