from pathlib import Path

import pytest

from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS
from exactlog.core.config.definition import format_config_value
from exactlog.core.model.errors import ConfigError
from exactlog.node.clock import SystemClock
from exactlog.node.config import BrokerConfig, load_config


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "exactlog.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_without_any_source_the_defaults_hold():
    assert load_config() == BrokerConfig(data_dir=Path("exactlog-data"))


def test_a_file_gives_keys_plain_or_quoted(file):
    config = load_config(
        file(
            """
            [broker]
            flush.mode = "interval"
            flush.interval.ms = 50
            "connections.max" = 7
            "connections.max.idle.ms" = "8"
            auto.create.topics.enable = false
            node.id = 3
            """
        )
    )

    assert (config.flush_mode, config.flush_interval_ms) == ("interval", 50)
    assert (config.connections_max, config.connections_max_idle_ms) == (7, 8)
    assert (config.auto_create_topics_enable, config.node_id) == (False, 3)


def test_flag_goes_before_environment_before_file(file):
    path = file('[broker]\nhost = "file"\nnode.id = 1\nnum.partitions = 1\n')
    environment = {"EXACTLOG_NODE_ID": "2", "EXACTLOG_NUM_PARTITIONS": "2", "PATH": "/bin"}

    config = load_config(path, overrides=[("num.partitions", "3")], environment=environment)

    assert (config.host, config.node_id, config.num_partitions) == ("file", 2, 3)


@pytest.mark.parametrize("key", BROKER_CONFIG_KEYS, ids=lambda key: key.name)
def test_every_key_can_be_set_by_a_variable(key):
    variable = "EXACTLOG_" + key.name.replace(".", "_").upper()
    environment = {variable: format_config_value(key.default)}

    assert load_config(environment=environment) == load_config()
    with pytest.raises(ConfigError, match=f"unknown configuration {variable}X"):
        load_config(environment={f"{variable}X": "1"})


def test_variables_that_configure_something_else_are_left_alone():
    load_config(environment={"EXACTLOG_BOOTSTRAP": "h:1", "EXACTLOG_KILL_AT": "x"})


def message_of(*args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        load_config(*args, **kwargs)
    return str(caught.value), caught.value.hint


def test_an_unknown_key_is_refused_wherever_it_stands_naming_place_and_nearest_key(file):
    path = file('[broker]\nflush.mod = "commit"\n')

    assert message_of(path) == (f"unknown configuration flush.mod (from {path})", "Did you mean flush.mode?")
    assert message_of(overrides=[("segment.byte", "1")]) == (
        "unknown configuration segment.byte (from the command line)",
        "Did you mean segment.bytes?",
    )
    assert message_of(environment={"EXACTLOG_FLUSHMODE": "commit"}) == (
        "unknown configuration EXACTLOG_FLUSHMODE (from the environment)",
        "Did you mean EXACTLOG_FLUSH_MODE?",
    )


def test_an_unknown_key_with_none_near_it_points_to_the_list():
    assert message_of(overrides=[("zzz", "1")])[1] == "docs/configuration.md lists every key."
    assert message_of(environment={"EXACTLOG_Z": "1"})[1] == "Unset it."


def test_a_value_that_is_not_valid_is_refused_naming_the_place():
    assert message_of(environment={"EXACTLOG_PORT": "http"})[0] == (
        "Invalid value http for configuration port: Not a number of type INT (from environment variable EXACTLOG_PORT)"
    )
    assert message_of(overrides=[("num.partitions", "0")], overrides_from="Broker(config=...)")[0] == (
        "Invalid value 0 for configuration num.partitions: Value must be at least 1 (from Broker(config=...))"
    )


def test_values_that_clash_are_refused_naming_both_places(file):
    path = file("[broker]\nmin_timeout_ms = 5000\n")

    message, hint = message_of(path, overrides=[("transaction.max.timeout.ms", "4000")])

    assert message == (
        f"min_timeout_ms (5000) is above transaction.max.timeout.ms (4000) (from {path} and the command line)"
    )
    assert hint == "Lower the first or raise the second"


def test_one_setting_by_both_its_names_must_have_one_value(file):
    path = file("[broker]\nmax_timeout_ms = 60000\n")

    assert load_config(path, overrides=[("transaction.max.timeout.ms", "60000")]).transaction_max_timeout_ms == 60000
    assert message_of(path, overrides=[("transaction.max.timeout.ms", "1000")])[0] == (
        f"configuration transaction.max.timeout.ms has two different values: "
        f"60000 (from {path}) and 1000 (from the command line)"
    )


def test_a_flag_given_twice_must_have_one_value():
    assert "two different values" in message_of(overrides=[("port", "1"), ("port", "2")])[0]
    assert load_config(overrides=[("port", "1"), ("port", "1")]).port == 1


def test_a_missing_file_is_named(tmp_path):
    assert message_of(tmp_path / "no.toml")[0] == (
        f"cannot read configuration file {tmp_path / 'no.toml'}: No such file or directory"
    )


def test_a_file_that_is_not_toml_is_named_with_the_line(file):
    message, hint = message_of(file("[broker]\nconnections.max = 1\nconnections.max.idle.ms = 2\n"))

    assert "is not valid TOML" in message
    assert "line 3" in message
    assert '"connections.max.idle.ms"' in hint


@pytest.mark.parametrize("text", ['flush.mode = "commit"', "[brokers]", "broker = 1"])
def test_anything_outside_the_broker_table_is_refused(file, text):
    message, hint = message_of(file(text))

    assert "only the table [broker] is known" in message
    assert hint == "Put the keys under a line [broker]."


@pytest.mark.parametrize("value", ["2020-01-01", "[1, 2]"])
def test_a_value_of_a_kind_no_key_takes_is_refused(file, value):
    assert "of a kind no key takes" in message_of(file(f"[broker]\nhost = {value}"))[0]


def test_a_list_of_texts_is_taken_as_one_with_commas(file):
    assert load_config(file('[broker]\nhost = ["a", "b"]')).host == "a,b"


def test_the_system_clock_tells_milliseconds_and_does_not_go_back():
    clock = SystemClock()

    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()
