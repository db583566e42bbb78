import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.config.definition import (
    INT_MAX,
    LONG_MAX,
    Between,
    ConfigKey,
    ConfigType,
    InvalidConfig,
    OneOf,
    Parsed,
    format_config_value,
    nearest_name_hint,
    parse_config_value,
)


def key_of(config_type, valid=None):
    return ConfigKey(name="a.key", type=config_type, default="", valid=valid, documentation="", acts=True)


def fault_of(config_type, text, valid=None):
    parsed = parse_config_value(key_of(config_type, valid), text)
    assert isinstance(parsed, InvalidConfig)
    assert parsed.keys == ("a.key",)
    return parsed.reason


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.INT, str(INT_MAX), INT_MAX),
        (ConfigType.INT, str(-INT_MAX - 1), -INT_MAX - 1),
        (ConfigType.LONG, f" +{LONG_MAX} ", LONG_MAX),
        (ConfigType.DOUBLE, "0.25", 0.25),
        (ConfigType.DOUBLE, "1e-2", 0.01),
        (ConfigType.STRING, " as is ", "as is"),
        (ConfigType.LIST, "compact, delete", ("compact", "delete")),
        (ConfigType.LIST, "", ()),
    ],
)
def test_text_is_parsed_by_the_type_of_its_key(config_type, text, value):
    assert parse_config_value(key_of(config_type), text) == Parsed(value)


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_0", "+-1", "٣", str(INT_MAX + 1), "9" * 5_000])
def test_text_that_is_no_int_is_refused_in_kafkas_words(text):
    assert fault_of(ConfigType.INT, text).endswith("for configuration a.key: Not a number of type INT")


def test_a_long_beyond_64_bits_is_refused():
    assert fault_of(ConfigType.LONG, str(LONG_MAX + 1)).endswith("Not a number of type LONG")


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1_0.0", "", "."])
def test_text_that_is_no_double_is_refused(text):
    assert fault_of(ConfigType.DOUBLE, text).endswith("Not a number of type DOUBLE")


def test_a_boolean_is_true_or_false():
    assert fault_of(ConfigType.BOOLEAN, "1") == (
        "Invalid value 1 for configuration a.key: Expected value to be either true or false"
    )


def test_a_number_stays_within_its_bounds():
    assert fault_of(ConfigType.INT, "-1", Between(0)).endswith("Value must be at least 0")
    assert fault_of(ConfigType.DOUBLE, "1.1", Between(0, 1)).endswith("Value must be no more than 1")
    assert parse_config_value(key_of(ConfigType.DOUBLE, Between(0, 1)), "1") == Parsed(1.0)


def test_a_choice_is_one_of_those_listed():
    choices = OneOf(("gzip", "zstd"))
    assert fault_of(ConfigType.STRING, "zip", choices).endswith("String must be one of: gzip, zstd")
    assert fault_of(ConfigType.LIST, "gzip,zip", choices).endswith("String must be one of: gzip, zstd")
    assert fault_of(ConfigType.LIST, "gzip,gzip", choices).endswith("Values must not be duplicated")
    assert parse_config_value(key_of(ConfigType.LIST, choices), "zstd,gzip") == Parsed(("zstd", "gzip"))


@given(
    st.one_of(
        st.tuples(st.just(ConfigType.BOOLEAN), st.booleans()),
        st.tuples(st.just(ConfigType.INT), st.integers(-INT_MAX - 1, INT_MAX)),
        st.tuples(st.just(ConfigType.LONG), st.integers(-LONG_MAX - 1, LONG_MAX)),
        st.tuples(st.just(ConfigType.DOUBLE), st.floats(allow_nan=False, allow_infinity=False)),
        st.tuples(st.just(ConfigType.LIST), st.lists(st.from_regex(r"\A[a-z]+\Z"), max_size=4).map(tuple)),
    )
)
def test_a_formatted_value_parses_to_itself(typed):
    config_type, value = typed

    assert parse_config_value(key_of(config_type), format_config_value(value)) == Parsed(value)


@given(st.sampled_from(ConfigType), st.text())
def test_any_text_is_either_parsed_or_refused(config_type, text):
    assert isinstance(parse_config_value(key_of(config_type, None), text), Parsed | InvalidConfig)


def test_bounds_and_choices_read_as_in_kafkas_documentation():
    assert [str(Between(1)), str(Between(0, 1)), str(OneOf(("a", "b")))] == ["[1,...]", "[0,...,1]", "a, b"]


def test_the_nearest_name_is_offered_and_none_that_is_far():
    assert nearest_name_hint("retention.msec", ["segment.ms", "retention.ms"]) == "Did you mean retention.ms?"
    assert nearest_name_hint("zzz", ["segment.ms"]) == ""


def test_a_reason_reads_on_with_its_hint():
    assert str(InvalidConfig("no", ("k",), "Do x")) == "no. Do x"
    assert str(InvalidConfig("no", ("k",))) == "no"
