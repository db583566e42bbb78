"""DescribeConfigs: every setting of a topic and of the broker, and where it comes from."""

import pytest

from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS
from exactlog.core.config.topic_configs import TOPIC_CONFIG_KEYS
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
EVERY_VERSION = range(5)


def describe(raw, *resources, version=4, **options):
    """The answers for resources given as (type, name) or (type, name, keys)."""
    asked = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys[0] if keys else None)
        for kind, name, *keys in resources
    )
    return raw.ask(DescribeConfigsRequest(resources=asked, **options), version).results


def settings_of(result):
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_every_setting_of_a_topic_is_told_and_which_ones_were_set(raw, version):
    topic = raw.create_topic(retention_ms=1234)

    (result,) = describe(raw, (TOPIC, topic.name), version=version)

    settings = settings_of(result)
    assert set(settings) == {key.name for key in TOPIC_CONFIG_KEYS}
    assert settings["retention.ms"].value == "1234"
    if version == 0:
        assert not settings["retention.ms"].is_default
        assert settings["cleanup.policy"].is_default
    else:
        assert settings["retention.ms"].config_source == TOPIC_CONFIG
        assert settings["cleanup.policy"].config_source == DEFAULT_CONFIG
    if version >= 3:
        assert {entry.config_type for entry in settings.values()} >= {2, 3, 5}  # string, int, long


def test_only_the_keys_asked_for_are_told(raw, topic):
    some, none = describe(raw, (TOPIC, topic.name, ("retention.ms", "no.such.key")), (TOPIC, topic.name, ("no",)))

    assert set(settings_of(some)) == {"retention.ms"}
    assert settings_of(none) == {}


@pytest.mark.parametrize("keys", [None, ()])
def test_no_keys_are_all_of_them_as_in_kafka(raw, topic, keys):
    of_topic, of_broker = describe(raw, (TOPIC, topic.name, keys), (BROKER, "1", keys))

    assert set(settings_of(of_topic)) == {key.name for key in TOPIC_CONFIG_KEYS}
    assert set(settings_of(of_broker)) == {key.name for key in BROKER_CONFIG_KEYS}


def test_a_key_of_the_broker_is_told_by_the_name_it_is_asked_for(raw):
    (result,) = describe(raw, (BROKER, "1", ("log.retention.ms", "retention.ms", "node.id", "no.such.key")))

    assert {name: entry.value for name, entry in settings_of(result).items()} == {
        "log.retention.ms": "604800000",
        "retention.ms": "604800000",
        "node.id": "1",
    }


def test_only_keys_that_take_a_restart_are_read_only(raw, topic):
    of_topic, of_broker = describe(raw, (TOPIC, topic.name), (BROKER, "1"))

    assert not any(entry.read_only for entry in settings_of(of_topic).values())
    assert {name for name, entry in settings_of(of_broker).items() if not entry.read_only} == {
        key.name for key in BROKER_CONFIG_KEYS if key.is_dynamic
    }


def test_synonyms_and_documentation_are_told_on_demand(raw):
    topic = raw.create_topic(retention_ms=1234)

    (plain,) = describe(raw, (TOPIC, topic.name))
    (full,) = describe(raw, (TOPIC, topic.name), include_synonyms=True, include_documentation=True)

    assert settings_of(plain)["retention.ms"].synonyms == ()
    assert settings_of(plain)["retention.ms"].documentation is None
    synonyms = settings_of(full)["retention.ms"].synonyms
    assert [(synonym.value, synonym.source) for synonym in synonyms] == [
        ("1234", TOPIC_CONFIG),
        ("604800000", DEFAULT_CONFIG),
    ]
    assert settings_of(full)["retention.ms"].documentation


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_the_settings_of_the_broker_are_told_under_its_id(raw, version):
    of_this_one, of_all = describe(raw, (BROKER, "1"), (BROKER, ""), version=version)

    assert settings_of(of_this_one)["flush.mode"].value == "commit"
    assert settings_of(of_all) == {}, "nothing was set for all brokers"


def test_each_resource_is_answered_for_itself(raw, topic):
    """B053 (nisshi, compatibility findings): DescribeConfigs answered with no results."""
    results = describe(
        raw,
        (TOPIC, "no-such-topic"),
        (TOPIC, "in/valid"),
        (TOPIC, topic.name),
        (BROKER, "2"),
        (BROKER, "one"),
        (BROKER_LOGGER, "1"),
        (CLIENT_METRICS, "x"),
        (GROUP, "g"),
        (99, "x"),
    )

    assert [(result.resource_type, result.resource_name, ErrorCode(result.error_code)) for result in results] == [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "in/valid", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, topic.name, ErrorCode.NONE),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ]
    assert all(result.configs == () for result in results if result.error_code)
