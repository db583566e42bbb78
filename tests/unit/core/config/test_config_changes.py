"""What a configuration is after the changes a client asks for, and which changes cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.config.config_changes import (
    ConfigChange,
    ConfigOperation,
    change_broker_config,
    change_topic_config,
    check_changes,
    replacing,
)
from exactlog.core.config.topic_configs import KAFKA_TOPIC_DEFAULTS, TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
POLICY = "cleanup.policy"


def changed(before, *changes, defaults=KAFKA_TOPIC_DEFAULTS):
    return change_topic_config(before, [ConfigChange(*change) for change in changes], defaults=defaults)


def refusal_of(work, *arguments):
    with pytest.raises(KafkaError) as refused:
        work(*arguments)
    return refused.value.error_code, str(refused.value)


def test_keys_are_set_and_dropped_and_the_rest_stays():
    before = {"retention.ms": "1", "segment.bytes": "2"}

    after = changed(before, ("retention.ms", DELETE, None), ("retention.bytes", SET, "3"), ("flush.ms", DELETE, None))

    assert after == {"segment.bytes": "2", "retention.bytes": "3"}
    assert before == {"retention.ms": "1", "segment.bytes": "2"}


@pytest.mark.parametrize(
    ("before", "operation", "given_members", "after"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({}, APPEND, "delete", "delete"),
        ({POLICY: "compact"}, APPEND, "delete, compact", "compact,delete"),
        ({POLICY: ""}, APPEND, "compact", "compact"),
        ({POLICY: " compact , delete"}, SUBTRACT, "compact", "delete"),
        ({POLICY: "compact"}, SUBTRACT, "delete", "compact"),
        ({}, SUBTRACT, "delete", ""),
    ],
)
def test_a_list_grows_and_shrinks_from_what_is_set_or_from_the_default(before, operation, given_members, after):
    assert changed(before, (POLICY, operation, given_members)) == {POLICY: after}


def test_a_list_that_is_not_set_grows_from_what_the_broker_defaults_to():
    defaults = TopicConfig(cleanup_policy=("compact",))

    assert changed({}, (POLICY, APPEND, "delete"), defaults=defaults) == {POLICY: "compact,delete"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such.key"])
def test_only_lists_grow_and_shrink(operation, name):
    assert refusal_of(changed, {}, (name, operation, "1")) == (
        ErrorCode.INVALID_CONFIG,
        f"Can't {operation.name} to key {name} because its type is not LIST.",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("a", SET, "1"), ("b", SET, "1"), ("a", DELETE, None)], "Error due to duplicate config keys"),
        ([("a", SET, None), ("b", APPEND, None), ("c", DELETE, None)], "Null value not supported for : a,b"),
        ([("a", 4, "1")], "Unknown operation type 4"),
        ([("a", -1, "1")], "Unknown operation type -1"),
    ],
)
def test_what_can_be_of_no_key_is_refused(changes, message):
    refusal = refusal_of(check_changes, [ConfigChange(*change) for change in changes])

    assert refusal == (ErrorCode.INVALID_REQUEST, message)


def test_replacing_is_setting():
    assert replacing([("a", "1"), ("b", None)]) == (ConfigChange("a", SET, "1"), ConfigChange("b", SET, None))


# --- brokers ------------------------------------------------------------------------------------------------------


def broker_changed(before, *changes, **options):
    return change_broker_config(before, [ConfigChange(*change) for change in changes], **options)


def test_what_is_set_on_a_broker_is_kept_by_the_keys_own_name():
    after = broker_changed({"segment.bytes": "1"}, ("log.retention.ms", SET, "2"), ("log.segment.bytes", DELETE, None))

    assert after == {"retention.ms": "2"}


def test_a_replacement_drops_what_it_does_not_name():
    assert broker_changed({"segment.bytes": "1"}, ("retention.ms", SET, "2"), is_replacing=True) == {
        "retention.ms": "2"
    }


def test_a_key_set_by_both_of_its_names_is_named_twice():
    refusal = refusal_of(broker_changed, {}, ("retention.ms", SET, "1"), ("log.retention.ms", SET, "1"))

    assert refusal == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def test_keys_that_take_a_restart_are_refused_and_all_of_them_named():
    refusal = refusal_of(
        broker_changed, {}, ("node.id", SET, "2"), ("retention.ms", SET, "1"), ("num.partitions", SET, "3")
    )

    assert refusal == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [node.id, num.partitions]",
    )


def test_to_drop_what_was_never_set_is_nothing():
    assert broker_changed({}, ("node.id", DELETE, None)) == {}


def test_a_key_there_is_not_is_refused_with_the_nearest_one():
    assert refusal_of(broker_changed, {}, ("retention.sm", SET, "1")) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown broker config name: retention.sm. Did you mean retention.ms?",
    )


MEMBERS = st.lists(st.sampled_from(["compact", "delete"]), unique=True).map(",".join)


@given(MEMBERS, MEMBERS)
def test_what_is_appended_and_subtracted_again_is_not_there(before, members):
    appended = changed({POLICY: before}, (POLICY, APPEND, members))
    subtracted = changed(appended, (POLICY, SUBTRACT, members))

    assert set(appended[POLICY].split(",")) >= set(members.split(",")) - {""}
    assert set(subtracted[POLICY].split(",")).isdisjoint(set(members.split(",")) - {""})
