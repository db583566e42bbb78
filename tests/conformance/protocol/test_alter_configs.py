"""AlterConfigs: what a request names is set, what it does not name falls back, what cannot be changes nothing."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from tests.support.raw_admin import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DONE,
    GROUP,
    TOPIC,
    Refusal,
    alter,
    described,
    set_on,
)
from tests.support.raw_client import batch_of

EVERY_VERSION = range(3)
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER = 1, 2, 3


def set_by_client(raw, kind, name, *, source=TOPIC_CONFIG):
    """The settings of a resource that somebody set, by name."""
    entries = described(raw, kind, name).values()
    return {entry.name: entry.value for entry in entries if entry.config_source == source}


@pytest.fixture
def broker_as_started(raw):
    """Whatever a test sets on the broker is dropped afterwards: others use it, too."""
    yield
    assert alter(raw, (BROKER, "1", {}), (BROKER, "", {})) == [DONE, DONE]


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_what_is_named_is_set_and_all_else_falls_back(raw, version):
    topic = raw.create_topic(retention_ms=1234, segment_bytes=2000)

    assert alter(raw, (TOPIC, topic.name, {"retention.bytes": "99", "segment.bytes": "3000"}), version=version) == [
        DONE
    ]

    assert set_by_client(raw, TOPIC, topic.name) == {"retention.bytes": "99", "segment.bytes": "3000"}


def test_nothing_named_drops_everything(raw):
    topic = raw.create_topic(retention_ms=1234)

    assert alter(raw, (TOPIC, topic.name, {})) == [DONE]

    assert set_by_client(raw, TOPIC, topic.name) == {}


def test_a_change_acts_at_once(raw, topic):
    assert raw.produce(topic, batch_of(b"x" * 1_000)).error_code == 0

    alter(raw, (TOPIC, topic.name, {"max.message.bytes": "100"}))
    assert raw.produce(topic, batch_of(b"x" * 1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE

    alter(raw, (TOPIC, topic.name, {}))
    assert raw.produce(topic, batch_of(b"x" * 1_000)).error_code == 0


@pytest.mark.parametrize(
    ("configs", "refusal"),
    [
        (
            {"retention.ms": "soon"},
            (ErrorCode.INVALID_CONFIG, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ),
        (
            {"retention.ms": "-2"},
            (ErrorCode.INVALID_CONFIG, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ),
        (
            {"cleanup.policy": "burn"},
            (
                ErrorCode.INVALID_CONFIG,
                "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
            ),
        ),
        (
            {"retention.sm": "1"},
            (ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention.sm. Did you mean retention.ms?"),
        ),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "1"},
            (
                ErrorCode.INVALID_CONFIG,
                "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (1)",
            ),
        ),
        ({"retention.ms": None}, (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms")),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_configuration_that_cannot_be_is_refused_in_kafkas_words_and_changes_nothing(
    raw, configs, refusal, validate_only
):
    topic = raw.create_topic(retention_ms=1234)

    assert alter(raw, (TOPIC, topic.name, configs), validate_only=validate_only) == [refusal]

    assert set_by_client(raw, TOPIC, topic.name) == {"retention.ms": "1234"}


@pytest.mark.parametrize("resource", [(TOPIC, "retention.bytes"), (BROKER, "retention.ms")], ids=["topic", "broker"])
def test_what_is_only_validated_changes_nothing(raw, topic, resource):
    kind, key = resource
    name = topic.name if kind == TOPIC else "1"

    assert alter(raw, (kind, name, {key: "7"}), validate_only=True) == [DONE]

    assert set_by_client(raw, TOPIC, topic.name) == {}
    assert set_by_client(raw, BROKER, "1", source=DYNAMIC_BROKER) == {}


def test_each_resource_is_answered_for_itself(raw, topic):
    twice = raw.create_topic()
    valid = {"retention.ms": "7"}

    refusals = alter(
        raw,
        (TOPIC, twice.name, valid),
        (TOPIC, "no-such-topic", valid),
        (TOPIC, "in/valid", valid),
        (TOPIC, "", valid),
        (BROKER, "2", valid),
        (BROKER, "one", valid),
        (BROKER_LOGGER, "1", {"root": "INFO"}),
        (CLIENT_METRICS, "x", {"interval.ms": "1"}),
        (GROUP, "g", {"consumer.session.timeout.ms": "1"}),
        (99, "x", valid),
        (TOPIC, topic.name, valid),
        (TOPIC, twice.name, valid),
    )

    once = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert refusals == [
        once,
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no-such-topic' does not exist."),
        refusals[2],
        (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: one"),
        (ErrorCode.INVALID_REQUEST, "Resources of type BROKER_LOGGER have no configuration here."),
        (ErrorCode.INVALID_REQUEST, "Resources of type CLIENT_METRICS have no configuration here."),
        (ErrorCode.INVALID_REQUEST, "Resources of type GROUP have no configuration here."),
        (ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
        DONE,
        once,
    ]
    assert refusals[2].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert set_by_client(raw, TOPIC, topic.name) == valid
    assert set_by_client(raw, TOPIC, twice.name) == {}


@pytest.mark.usefixtures("broker_as_started")
def test_what_is_set_on_the_broker_is_replaced_too(raw):
    set_on(raw, BROKER, "1", retention_ms=5, segment_bytes=2000)
    set_on(raw, BROKER, "", retention_ms=6)

    assert alter(raw, (BROKER, "1", {"retention.bytes": "7"})) == [DONE]

    assert set_by_client(raw, BROKER, "1", source=DYNAMIC_BROKER) == {"retention.bytes": "7"}
    assert set_by_client(raw, BROKER, "1", source=DYNAMIC_DEFAULT_BROKER) == {"retention.ms": "6"}
