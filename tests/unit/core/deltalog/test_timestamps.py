import pytest

from exactlog.core.deltalog.timestamps import TIMESTAMP_MS_MAX, format_timestamp, parse_timestamp
from exactlog.core.model.errors import DecodeError, InvariantError


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (951_782_400_999, "2000-02-29T00:00:00.999Z"),
        (1_762_539_302_883, "2025-11-07T18:15:02.883Z"),
        (TIMESTAMP_MS_MAX, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_and_its_text_are_one(timestamp_ms, text):
    assert format_timestamp(timestamp_ms) == text
    assert parse_timestamp(text) == timestamp_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-11-07",
        "2025-11-07T18:15:02Z",
        "2025-11-07T18:15:02.88Z",
        "2025-11-07T18:15:02.8830Z",
        "2025-11-07T18:15:02.883",
        "2025-11-07T18:15:02.883z",
        "2025-11-07t18:15:02.883Z",
        "2025-11-07 18:15:02.883Z",
        "2025-11-07T18:15:02.883+00:00",
        "2025-11-07T18:15:02,883Z",
        "2025-11-07T18:15:02.883Z\n",
        "2025-13-07T18:15:02.883Z",
        "2025-02-29T18:15:02.883Z",
        "2025-11-07T24:15:02.883Z",
        "2025-11-07T18:15:60.883Z",
        "0000-01-01T00:00:00.000Z",
        "1969-12-31T23:59:59.999Z",
        "\u0662025-11-07T18:15:02.883Z",
    ],
)
def test_any_other_spelling_is_refused(text):
    with pytest.raises(DecodeError):
        parse_timestamp(text)


@pytest.mark.parametrize("timestamp_ms", [-1, TIMESTAMP_MS_MAX + 1])
def test_an_instant_that_the_form_cannot_tell_is_refused(timestamp_ms):
    with pytest.raises(InvariantError, match="between 1970 and 9999"):
        format_timestamp(timestamp_ms)
