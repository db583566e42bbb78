import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.positions import (
    AsOfTime,
    AsOfVersion,
    AtOffset,
    AtTime,
    End,
    Start,
    parse_as_of,
    parse_position,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", Start()),
        ("end", End()),
        ("0", AtOffset(0)),
        (str(2**63 - 1), AtOffset(2**63 - 1)),
        ("@-1h", AtTime(NOW_MS - 3_600_000)),
        ("@-1d2h3m4s5ms", AtTime(NOW_MS - 93_784_005)),
        ("@-999999999d", AtTime(0)),
        ("@1732701600000", AtTime(1_732_701_600_000)),
        ("@2024-11-27T10:00:00Z", AtTime(1_732_701_600_000)),
        ("@2024-11-27T11:00:00.5+01:00", AtTime(1_732_701_600_500)),
        ("@2024-11-27T10:00:00", AtTime(1_732_701_600_000)),
        ("@1970-01-01", AtTime(0)),
    ],
)
def test_a_place_is_start_end_an_offset_or_a_time(text, position):
    assert parse_position(text, now_ms=NOW_MS) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1.5",
        "beginning",
        "@",
        "@-",
        "@-1",
        "@-1w",
        "@yesterday",
        "@1969-12-31",
        "٣",
        str(2**63),
        "@" + "9" * 30,
    ],
)
def test_anything_else_is_refused_with_examples(text):
    with pytest.raises(InvalidUsageError) as caught:
        parse_position(text, now_ms=NOW_MS)

    assert repr(text) in str(caught.value)
    assert caught.value.hint.startswith("Write ")


@given(st.text())
def test_any_text_is_a_place_or_refused(text):
    try:
        position = parse_position(text, now_ms=NOW_MS)
    except InvalidUsageError:
        return
    assert isinstance(position, Start | End | AtOffset | AtTime)


def test_a_history_is_entered_at_a_version_or_a_time():
    assert parse_as_of("17") == AsOfVersion(17)
    assert parse_as_of("2024-11-27T10:00:00Z") == AsOfTime(1_732_701_600_000)


@pytest.mark.parametrize("text", ["", "-1", "v1", "1969-12-31T00:00:00Z", "2024-13-01"])
def test_what_is_neither_version_nor_time_is_refused(text):
    with pytest.raises(InvalidUsageError, match="neither a version nor a time"):
        parse_as_of(text)
