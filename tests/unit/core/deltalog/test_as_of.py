import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.as_of import (
    VersionExpired,
    VersionFound,
    VersionUnknown,
    find_first_version,
    find_version,
    find_version_at,
)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (4, VersionExpired(5)),
        (5, VersionFound(5)),
        (7, VersionFound(7)),
        (9, VersionFound(9)),
        (10, VersionUnknown(9)),
        (-1, VersionExpired(5)),
    ],
)
def test_a_version_outside_those_kept_is_an_answer_of_its_own(version, expected):
    assert find_version(version, oldest=5, newest=9) == expected


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (99, VersionExpired(0)),
        (100, VersionFound(0)),
        (199, VersionFound(0)),
        (200, VersionFound(3)),
        (201, VersionFound(3)),
        (300, VersionFound(5)),
        (10**15, VersionFound(5)),
    ],
)
def test_a_time_finds_the_greatest_version_that_is_not_later(timestamp_ms, expected):
    timestamps = [100, 200, 200, 200, 300, 300]

    found = find_version_at(timestamp_ms, oldest=0, newest=5, timestamp_of=timestamps.__getitem__)

    assert found == expected


def test_a_time_before_the_oldest_version_kept_names_that_one():
    timestamps = [100, 200, 300, 400]

    assert find_version_at(250, oldest=2, newest=3, timestamp_of=timestamps.__getitem__) == VersionExpired(2)


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(-1, 51), st.data())
def test_the_search_finds_what_looking_at_every_version_finds_and_reads_few(timestamps, timestamp_ms, data):
    timestamps.sort()
    newest = len(timestamps) - 1
    oldest = data.draw(st.integers(0, newest))
    asked = []

    def timestamp_of(version):
        assert oldest <= version <= newest
        asked.append(version)
        return timestamps[version]

    found = find_version_at(timestamp_ms, oldest=oldest, newest=newest, timestamp_of=timestamp_of)

    good = [version for version in range(oldest, newest + 1) if timestamps[version] <= timestamp_ms]
    assert found == (VersionFound(good[-1]) if good else VersionExpired(oldest))
    assert len(asked) <= 2 + math.ceil(math.log2(newest - oldest + 1))


@given(st.integers(0, 100), st.integers(-1, 60), st.data())
def test_the_first_version_of_which_something_holds_is_found_by_asking_few(oldest, count, data):
    newest = oldest + count
    first = data.draw(st.integers(oldest, max(oldest, newest + 1)))
    asked = []

    def holds(version):
        assert oldest <= version <= newest
        asked.append(version)
        return version >= first

    assert find_first_version(oldest=oldest, newest=newest, holds=holds) == (first if first <= newest else None)
    assert len(asked) <= 1 + math.ceil(math.log2(count + 2))
