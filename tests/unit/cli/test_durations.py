import pytest

from exactlog.cli.durations import format_duration, is_duration, parse_duration_ms
from exactlog.cli.errors import InvalidUsageError


@pytest.mark.parametrize(
    ("text", "duration_ms"), [("250ms", 250), ("90s", 90_000), ("1h30m", 5_400_000), ("2d1ms", 172_800_001), ("0s", 0)]
)
def test_a_duration_is_a_sum_of_units(text, duration_ms):
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 s", "1w", "9999999999s", "1s "])
def test_anything_else_is_none(text):
    assert not is_duration(text)
    with pytest.raises(InvalidUsageError, match="no duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1_000, "1s"), (843_999, "14m3s"), (3_600_000, "1h"), (90_061_000, "1d1h")],
)
def test_people_see_the_two_largest_units(duration_ms, text):
    assert format_duration(duration_ms) == text
    assert duration_ms == 0 or format_duration(-duration_ms) == f"-{text}"
