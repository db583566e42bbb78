from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.log_path import CompactedName
from exactlog.core.deltalog.version_ranges import VersionRanges, VersionRun

VERSIONS = st.integers(0, 60)
PACKS = st.lists(
    st.tuples(VERSIONS, st.integers(0, 20)).map(
        lambda found: CompactedName(first_version=found[0], last_version=found[0] + found[1])
    ),
    max_size=5,
)


@given(st.sets(VERSIONS), PACKS)
def test_it_holds_what_its_names_hold_and_knows_the_run_of_each(versions, packs):
    ranges = VersionRanges(versions, packs)
    expected = versions.union(*(range(pack.first_version, pack.last_version + 1) for pack in packs))

    assert list(ranges) == sorted(expected)
    assert len(ranges) == len(expected)
    assert bool(ranges) == bool(expected)
    for version in range(-1, 85):
        assert (version in ranges) == (version in expected)
        run = ranges.run_of(version)
        if run is None:
            assert version not in expected
        else:
            assert run.first_version <= version <= run.last_version
            assert set(range(run.first_version, run.last_version + 1)) <= expected
            assert not expected & {run.first_version - 1, run.last_version + 1}


@given(st.sets(VERSIONS, min_size=1), st.integers(0, 3))
def test_one_more_version_at_the_top_is_as_if_it_had_been_there(versions, distance):
    ranges = VersionRanges(versions)
    newest = max(versions) + distance

    ranges.add_newest(newest)

    assert ranges.runs == VersionRanges({*versions, newest}).runs


def test_a_hundred_thousand_versions_without_a_gap_are_one_run():
    packs = [CompactedName(first_version=first, last_version=first + 999) for first in range(0, 99_000, 1_000)]

    assert VersionRanges(range(99_000, 100_000), packs).runs == [VersionRun(0, 99_999)]
