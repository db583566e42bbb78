"""IncrementalAlterConfigs: single keys of topics and of the broker, durable and in force when the answer says so."""

import pytest

from exactlog.core.config.topic_configs import TOPIC_CONFIG_KEYS
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.record.batch_format import decode_header
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.table_reader import TableReader
from exactlog.testing import Broker
from tests.support.raw_admin import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    DONE,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    alter_incrementally,
    described,
    set_on,
)
from tests.support.raw_client import RawClient, batch_of
from tests.support.watching import wait_published, wait_until

EVERY_VERSION = range(2)
EARLIEST = -2
POLICY = "cleanup.policy"
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5


def value_of(raw, name, key):
    return described(raw, TOPIC, name, key)[key].value


@pytest.fixture
def broker_as_started(raw):
    """Whatever a test sets on the broker is dropped afterwards: others use it, too."""
    yield
    assert alter(raw, (BROKER, "1", {}), (BROKER, "", {})) == [DONE, DONE]


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_keys_are_set_and_dropped_and_the_rest_stays(raw, version):
    topic = raw.create_topic(retention_ms=1234, segment_bytes=2000)
    changes = [("retention.ms", DELETE, None), ("retention.bytes", SET, "99"), ("flush.ms", DELETE, None)]

    assert alter_incrementally(raw, (TOPIC, topic.name, *changes), version=version) == [DONE]

    settings = described(raw, TOPIC, topic.name)
    assert {name: entry.value for name, entry in settings.items() if entry.config_source == TOPIC_CONFIG} == {
        "segment.bytes": "2000",
        "retention.bytes": "99",
    }


def test_a_list_that_nothing_is_set_for_is_appended_to_from_its_default(raw, topic):
    """B054 (nisshi): APPEND to a list without a value broke all later calls."""
    assert alter_incrementally(raw, (TOPIC, topic.name, (POLICY, APPEND, "compact"))) == [DONE]
    assert value_of(raw, topic.name, POLICY) == "delete,compact"

    assert alter_incrementally(raw, (TOPIC, topic.name, (POLICY, SUBTRACT, "delete"))) == [DONE]
    assert value_of(raw, topic.name, POLICY) == "compact"


def test_a_refusal_stays_in_its_request(raw, topic):
    broken = alter_incrementally(raw, (TOPIC, topic.name, (POLICY, APPEND, "burn")))

    assert [refusal.error_code for refusal in broken] == [ErrorCode.INVALID_CONFIG]
    assert alter_incrementally(raw, (TOPIC, topic.name, (POLICY, APPEND, "compact"))) == [DONE]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (
            ("retention.ms", APPEND, "1"),
            (ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        (
            ("retention.ms", SUBTRACT, "1"),
            (ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        ),
        (
            ("retention.sm", SET, "1"),
            (ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention.sm. Did you mean retention.ms?"),
        ),
        (
            ("retention.ms", SET, "soon"),
            (ErrorCode.INVALID_CONFIG, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ),
        (("retention.ms", SET, None), (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms")),
        ((POLICY, APPEND, None), (ErrorCode.INVALID_REQUEST, "Null value not supported for : cleanup.policy")),
        (("retention.ms", 9, "1"), (ErrorCode.INVALID_REQUEST, "Unknown operation type 9")),
        (("segment.bytes", SET, "3"), (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_what_cannot_be_is_refused_in_kafkas_words_and_changes_nothing(raw, topic, change, refusal, validate_only):
    changes = [("segment.bytes", SET, "2000"), change]

    assert alter_incrementally(raw, (TOPIC, topic.name, *changes), validate_only=validate_only) == [refusal]

    assert described(raw, TOPIC, topic.name)["segment.bytes"].config_source == DEFAULT


def test_each_resource_is_answered_for_itself(raw, topic):
    twice = raw.create_topic()
    change = ("retention.ms", SET, "7")

    refusals = alter_incrementally(
        raw,
        (TOPIC, twice.name, change),
        (TOPIC, "no-such-topic", change),
        (BROKER_LOGGER, "1", ("root", SET, "INFO")),
        (TOPIC, topic.name, change),
        (TOPIC, twice.name, change),
    )

    assert [refusal.error_code for refusal in refusals] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert value_of(raw, topic.name, "retention.ms") == "7"


def test_what_is_only_validated_changes_nothing(raw, topic):
    change = ("retention.ms", SET, "7")

    assert alter_incrementally(raw, (TOPIC, topic.name, change), validate_only=True) == [DONE]

    assert value_of(raw, topic.name, "retention.ms") == "604800000"


@pytest.mark.parametrize("key", TOPIC_CONFIG_KEYS, ids=lambda key: key.name)
def test_every_key_can_be_set_to_what_is_shown_and_dropped_again(raw, topic, key):
    shown = value_of(raw, topic.name, key.name)

    assert alter_incrementally(raw, (TOPIC, topic.name, (key.name, SET, shown))) == [DONE]
    assert described(raw, TOPIC, topic.name)[key.name].config_source == TOPIC_CONFIG

    assert alter_incrementally(raw, (TOPIC, topic.name, (key.name, DELETE, None))) == [DONE]
    assert described(raw, TOPIC, topic.name)[key.name].config_source == DEFAULT


# --- in force at once ---------------------------------------------------------------------------------------------


def test_the_append_time_is_the_brokers_from_the_next_append_on(raw, topic):
    assert raw.produce(topic, batch_of(b"a", timestamp_ms=1_000)).log_append_time_ms == -1

    set_on(raw, TOPIC, topic.name, message_timestamp_type="LogAppendTime")

    told = raw.produce(topic, batch_of(b"b", timestamp_ms=1_000)).log_append_time_ms
    assert told > 1_700_000_000_000
    assert decode_header(bytes(raw.fetch(topic, 1).records)).max_timestamp == told


def test_a_compacted_topic_refuses_records_without_a_key_from_then_on(raw, topic):
    set_on(raw, TOPIC, topic.name, cleanup_policy="compact")

    assert raw.produce(topic, batch_of(b"no key")).error_code == ErrorCode.INVALID_RECORD


def test_segments_are_as_large_as_is_set_and_old_ones_go_by_the_new_retention(tmp_path):
    with Broker(tmp_path, config={"retention.check.interval.ms": 20}) as broker, RawClient(broker.port) as raw:
        topic = raw.create_topic(retention_ms=-1)
        for _ in range(3):
            raw.produce(topic, batch_of(b"x" * 100))

        set_on(raw, TOPIC, topic.name, segment_bytes=150)
        for _ in range(3):
            raw.produce(topic, batch_of(b"x" * 100))
        wait_published(broker)
        assert [segment.base for segment in table_of(tmp_path, topic).snapshot().segments] == [0, 3, 4, 5]

        set_on(raw, TOPIC, topic.name, retention_bytes=150)
        wait_until(lambda: raw.list_offset(topic, EARLIEST).offset == 5)


# --- kept ---------------------------------------------------------------------------------------------------------


def table_of(directory, topic):
    return TableReader(OsFilesystem(), str(directory / f"topic={topic.name}-part=0"))


@pytest.mark.parametrize("flush_mode", ["commit", "interval", "none"])
def test_a_change_is_a_version_of_every_partition_at_once_or_when_it_is_opened(tmp_path, flush_mode):
    with Broker(tmp_path, config={"flush.mode": flush_mode}) as broker, RawClient(broker.port) as raw:
        opened, closed = raw.create_topic(), raw.create_topic()
        raw.produce(opened, batch_of(b"a"))
        for topic in (opened, closed):
            set_on(raw, TOPIC, topic.name, retention_ms=7)

        assert table_of(tmp_path, opened).metadata.config["retention.ms"] == "7"
        assert "retention.ms" not in table_of(tmp_path, closed).metadata.config
        raw.produce(closed, batch_of(b"a"))
        assert table_of(tmp_path, closed).metadata.config["retention.ms"] == "7"

        alter_incrementally(raw, (TOPIC, opened.name, ("retention.ms", DELETE, None)))
        assert table_of(tmp_path, opened).metadata.config == {"flush.mode": flush_mode}


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_changes_outlive_the_broker(tmp_path, ending):
    broker = Broker(tmp_path)
    broker.start()
    with RawClient(broker.port) as raw:
        topic = raw.create_topic(retention_ms=5, segment_bytes=1_000)
        changes = [("retention.ms", SET, "7"), ("segment.bytes", DELETE, None)]
        assert alter_incrementally(raw, (TOPIC, topic.name, *changes)) == [DONE]
        set_on(raw, BROKER, "1", message_max_bytes=100)
        set_on(raw, BROKER, "", retention_bytes=8)
    getattr(broker, ending)()
    broker.start()
    with RawClient(broker.port) as raw:
        settings = described(raw, TOPIC, topic.name)
        assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("7", TOPIC_CONFIG)
        assert settings["segment.bytes"].config_source == DEFAULT
        assert (settings["retention.bytes"].value, settings["retention.bytes"].config_source) == (
            "8",
            DYNAMIC_DEFAULT_BROKER,
        )
        assert raw.produce(topic, batch_of(b"x" * 1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    broker.stop()


# --- the broker ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("broker_as_started")
def test_topics_follow_what_is_set_on_the_broker_unless_they_are_set_themselves(raw, topic):
    own = raw.create_topic(max_message_bytes=2_000)

    set_on(raw, BROKER, "1", message_max_bytes=100)

    assert raw.produce(topic, batch_of(b"x" * 1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert raw.produce(own, batch_of(b"x" * 1_000)).error_code == 0
    assert raw.produce(raw.create_topic(), batch_of(b"x" * 1_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.usefixtures("broker_as_started")
def test_the_source_of_a_value_is_told_with_all_that_it_hides(raw, topic):
    set_on(raw, BROKER, "1", log_retention_ms=5)
    set_on(raw, BROKER, "", retention_ms=6)

    of_broker = described(raw, BROKER, "1", "log.retention.ms", include_synonyms=True)["log.retention.ms"]
    of_topic = described(raw, TOPIC, topic.name, include_synonyms=True)["retention.ms"]

    hidden = [("5", DYNAMIC_BROKER), ("6", DYNAMIC_DEFAULT_BROKER), ("604800000", DEFAULT)]
    for entry in (of_broker, of_topic):
        assert (entry.value, entry.config_source, entry.read_only) == ("5", DYNAMIC_BROKER, False)
        assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == hidden
    of_cluster = described(raw, BROKER, "")
    assert {name: entry.value for name, entry in of_cluster.items()} == {"retention.ms": "6"}
    alter_incrementally(raw, (BROKER, "1", ("retention.ms", DELETE, None)))
    assert value_of(raw, topic.name, "retention.ms") == "6"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            [("node.id", SET, "2"), ("retention.ms", SET, "1"), ("num.partitions", SET, "2")],
            (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id, num.partitions]"),
        ),
        (
            [("retention.ms", SET, "soon")],
            (ErrorCode.INVALID_REQUEST, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ),
        (
            [("retention.sm", SET, "1")],
            (ErrorCode.INVALID_CONFIG, "Unknown broker config name: retention.sm. Did you mean retention.ms?"),
        ),
        (
            [("retention.ms", APPEND, "1")],
            (ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        ([("retention.ms", SET, None)], (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms")),
        (
            [("retention.ms", SET, "1"), ("log.retention.ms", SET, "1")],
            (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"),
        ),
    ],
)
@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize("validate_only", [True, False])
def test_what_cannot_be_set_on_the_broker_is_refused_and_changes_nothing(raw, changes, refusal, name, validate_only):
    assert alter_incrementally(raw, (BROKER, name, *changes), validate_only=validate_only) == [refusal]

    assert described(raw, BROKER, "1")["retention.ms"].config_source == DEFAULT
