"""How long a journal lives: as text, and the day it ends on."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.expire_after_text import parse_expire_after, print_expire_after
from exactlog.core.journal.expiry import ExpireAfter, Expiry, expiry_of
from exactlog.core.model.errors import DecodeError

MINUTE, DAY = ExpireAfter.of_ms(60_000), ExpireAfter.of_ms(86_400_000)


def ms(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expire_after", "text"),
    [
        (DAY, "1 day"),
        (ExpireAfter.of_ms(30 * 86_400_000), "30 days"),
        (ExpireAfter.of_ms(100 * 60_000), "100 minutes"),
        (ExpireAfter.of_ms(1), "1 millisecond"),
        (ExpireAfter(1), "1 nanosecond"),
        (ExpireAfter(1_500), "1500 nanoseconds"),
        (ExpireAfter(0), "0 days"),
    ],
)
def test_a_time_is_written_in_the_greatest_unit_that_fits(expire_after, text):
    assert print_expire_after(expire_after) == text
    assert parse_expire_after(text) == expire_after


@pytest.mark.parametrize(
    ("written", "expected_ms"),
    [
        ("1 min", 60_000),
        ("30 h", 30 * 3_600_000),
        ("90s", 90_000),
        ("  2   days ", 2 * 86_400_000),
        ("1.5 h", 5_400_000),
        ("-1 day", -86_400_000),
        (60_000, 60_000),
        (0, 0),
    ],
)
def test_a_time_is_read_as_scala_reads_it_and_a_number_is_milliseconds(written, expected_ms):
    assert parse_expire_after(written) == ExpireAfter.of_ms(expected_ms)


@pytest.mark.parametrize(
    "written",
    ["", "soon", "1", "day", "1 fortnight", "1 dayss", "Inf", "1e3 s", True, None, [], 1.5, "300000 days", 2**63],
)
def test_anything_else_is_an_error(written):
    with pytest.raises(DecodeError, match="expireAfter"):
        parse_expire_after(written)


def test_a_time_that_cannot_be_written_is_refused():
    with pytest.raises(JournalInputError, match="more than can be written") as told:
        ExpireAfter(2**63)

    assert told.value.hint == "292 years at most"


@given(st.integers(-(2**63) + 1, 2**63 - 1).map(ExpireAfter))
def test_every_time_is_read_as_it_was_written(expire_after):
    assert parse_expire_after(print_expire_after(expire_after)) == expire_after


@pytest.mark.parametrize(
    ("expire_after", "at", "day"),
    [
        (MINUTE, "2019-12-11T10:10:10", date(2019, 12, 11)),
        (MINUTE, "2019-12-12T10:10:10", date(2019, 12, 12)),
        (DAY, "2019-12-11T10:10:10", date(2019, 12, 12)),
        (DAY, "2019-12-11T00:00:00", date(2019, 12, 12)),
        (MINUTE, "2019-12-11T23:59:00", date(2019, 12, 12)),
        (ExpireAfter(MINUTE.ns - 1), "2019-12-11T23:59:00", date(2019, 12, 11)),
        (ExpireAfter(2**63 - 1), "9900-01-01T00:00:00", date.max),
    ],
)
def test_a_journal_expires_on_the_utc_day_on_which_its_time_ends(expire_after, at, day):
    assert expiry_of(expire_after, timestamp_ms=ms(at)) == Expiry(expire_after, day)


def test_without_a_time_it_never_does():
    assert expiry_of(None, timestamp_ms=0) is None
