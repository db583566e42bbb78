"""What is packed and what expires, decided from names: every rule, and what must hold whatever the names are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.log_path import CompactedName
from exactlog.core.deltalog.version_cleanup import (
    PACK_VERSIONS,
    NothingToExpire,
    PackPlan,
    VacuumPlan,
    count_expired,
    find_cutoff,
    find_first_unpacked,
    find_superfluous_checkpoints,
    plan_pack,
    plan_vacuum,
)
from exactlog.core.deltalog.version_ranges import VersionRanges, VersionRun
from exactlog.core.model.errors import InvariantError


def pack(first, last):
    return CompactedName(first_version=first, last_version=last)


# --- packing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "checkpoint", "expected"),
    [
        (1_998, 1_990, None),  # one version too few is newer
        (1_999, 1_990, PackPlan(first_version=0, last_version=999)),
        (5_000, 999, PackPlan(first_version=0, last_version=999)),
        (5_000, 998, None),  # the checkpoint is not behind all of it
        (5_000, None, None),
    ],
)
def test_a_thousand_versions_are_packed_behind_a_checkpoint_when_a_thousand_are_newer(newest, checkpoint, expected):
    assert PACK_VERSIONS == 1_000
    assert plan_pack(0, newest_version=newest, checkpoint_version=checkpoint, versions_keep=1_000) == expected


def test_a_range_that_vacuum_has_taken_the_beginning_of_is_packed_up_to_its_usual_end():
    plan = plan_pack(4_530, newest_version=7_000, checkpoint_version=6_990, versions_keep=1_000)

    assert plan == PackPlan(first_version=4_530, last_version=4_999)


@pytest.mark.parametrize(
    ("loose", "oldest", "expected"),
    [
        (range(25), 0, 0),
        (range(10, 25), 0, 10),
        ([8, 9, *range(10, 25)], 0, 0),  # a packing that was broken off: its range again
        (range(13, 25), 13, 13),  # vacuum took the beginning
        ([17, *range(20, 25)], 13, 13),  # both
        ([2, *range(10, 25)], 10, 10),  # a vacuum that was broken off has left 2
        ([], 0, 20),  # a pack of 20 to 24 is made one of the whole range
    ],
)
def test_packing_goes_on_with_the_range_of_the_oldest_version_that_has_a_file_of_its_own(loose, oldest, expected):
    assert find_first_unpacked(loose, oldest_version=oldest, newest_version=24, pack_versions=10) == expected


@given(st.integers(0, 40), st.integers(0, 60), st.integers(1, 30), st.integers(1, 12))
def test_packing_again_and_again_leaves_the_newest_versions_and_makes_ranges_without_a_gap(
    oldest, count, versions_keep, pack_versions
):
    newest = oldest + count
    packs = []
    first = find_first_unpacked(
        range(oldest, newest + 1), oldest_version=oldest, newest_version=newest, pack_versions=pack_versions
    )
    while plan := plan_pack(
        first,
        newest_version=newest,
        checkpoint_version=newest,
        versions_keep=versions_keep,
        pack_versions=pack_versions,
    ):
        packs.append(plan)
        first = plan.last_version + 1

    edges = [oldest, *(plan.last_version + 1 for plan in packs)]
    assert [plan.first_version for plan in packs] == edges[:-1]
    assert all((plan.last_version + 1) % pack_versions == 0 for plan in packs)
    assert newest - (edges[-1] - 1) >= versions_keep or not packs
    assert newest - edges[-1] + 1 < versions_keep + pack_versions, "all that may be packed is"


def test_the_first_checkpoint_of_a_packed_range_stays_and_so_do_the_newest_two_of_the_table():
    plan = PackPlan(first_version=10, last_version=19)

    assert find_superfluous_checkpoints(plan, [4, 10, 14, 18, 22], kept_from=22) == [14, 18]
    assert find_superfluous_checkpoints(plan, [4, 10, 14, 18, 22], kept_from=18) == [14]
    assert find_superfluous_checkpoints(plan, [4, 12, 22], kept_from=22) == []
    assert find_superfluous_checkpoints(plan, [10, 14, 18], kept_from=0) == []


# --- vacuum ------------------------------------------------------------------------------------------------------


def vacuum_of(commits, checkpoints, *, keep, packs=(), good=None, usable=None):
    """The plan for a table whose checkpoints are good and usable, unless said otherwise."""
    good = checkpoints if good is None else good
    usable = good if usable is None else usable
    newest = max([*commits, *(found.last_version for found in packs)])
    cutoff = find_cutoff(newest, versions_keep=keep)
    return plan_vacuum(
        cutoff=cutoff,
        commits=commits,
        packs=packs,
        checkpoints=checkpoints,
        base_checkpoint=max((version for version in good if version <= cutoff), default=None),
        newest_checkpoints=sorted(usable, reverse=True)[:2],
    )


def test_what_is_older_than_the_checkpoint_below_the_kept_versions_expires():
    plan = vacuum_of(range(45), [10, 20, 30, 40], keep=20)

    assert plan == VacuumPlan(oldest_version=20, commits=tuple(range(20)), packs=(), checkpoints=(10,))


def test_without_any_checkpoint_nothing_expires():
    """delta-rs #2016: a clean-up of twenty commits without a checkpoint destroyed the table."""
    assert isinstance(vacuum_of(range(20), [], keep=5), NothingToExpire)


def test_commits_that_the_oldest_kept_version_is_rebuilt_from_stay():
    """delta #606: the checkpoint is at 10, versions from 9 on are kept, and those need all from 0 on."""
    assert isinstance(vacuum_of(range(14), [10], keep=5), NothingToExpire)
    assert isinstance(vacuum_of(range(14), [10, 12], keep=5), NothingToExpire)
    assert "at or below version 9" in vacuum_of(range(14), [10, 12], keep=5).reason


def test_versions_up_to_the_only_checkpoint_stay_where_it_lies_behind_the_expired_ones():
    """deltalake 1.6.6, live: versions 0 to 4 are expired, the only checkpoint is at 9: version 0 stays."""
    assert isinstance(vacuum_of(range(10), [9], keep=5), NothingToExpire)


def test_the_newest_two_checkpoints_stay_with_the_commits_behind_the_older_one():
    plan = vacuum_of(range(45), [10, 20, 30, 40], keep=1)

    assert plan.oldest_version == 30
    assert isinstance(vacuum_of(range(45), [40], keep=1), NothingToExpire)


def test_a_damaged_checkpoint_is_none_but_goes_with_the_others():
    plan = vacuum_of(range(45), [10, 20, 30, 40], keep=20, good=[10, 30, 40])
    assert plan == VacuumPlan(oldest_version=10, commits=tuple(range(10)), packs=(), checkpoints=())

    plan = vacuum_of(range(45), [10, 20, 30, 40], keep=10, good=[10, 30, 40])
    assert plan.checkpoints == (10, 20)


def test_a_checkpoint_that_no_start_could_begin_from_does_not_count_as_one_of_the_newest_two():
    plan = vacuum_of(range(45), [10, 20, 30, 40], keep=1, usable=[10, 20, 30])

    assert plan.oldest_version == 20


def test_a_pack_goes_whole_or_stays_whole():
    packs = [pack(0, 9), pack(10, 19), pack(20, 29)]

    plan = vacuum_of(range(30, 60), [10, 24, 30, 40, 50], keep=34, packs=packs)

    assert plan == VacuumPlan(oldest_version=20, commits=(), packs=(pack(0, 9), pack(10, 19)), checkpoints=(10,))
    assert isinstance(vacuum_of(range(30, 60), [4, 30, 40, 50], keep=50, packs=packs), NothingToExpire)


def test_a_plan_counts_each_version_once_however_many_files_hold_it():
    commits, packs = [5, 6, 7, *range(10, 40)], [pack(0, 7), pack(4, 9)]
    plan = vacuum_of(commits, [10, 20, 30], keep=5, packs=packs)

    assert plan.packs == (pack(0, 7), pack(4, 9))
    assert count_expired(plan, commits=commits, packs=packs) == 20


def test_more_versions_than_there_are_are_all_of_them():
    assert vacuum_of(range(45), [10, 20], keep=45) == NothingToExpire("there are no older versions")
    assert vacuum_of(range(45), [10, 20], keep=46) == NothingToExpire("there are no older versions")


@pytest.mark.parametrize("keep", [0, -1])
def test_to_keep_nothing_is_refused(keep):
    """delta #1470: a vacuum that kept nothing broke the table."""
    with pytest.raises(InvariantError):
        find_cutoff(10, versions_keep=keep)


@st.composite
def tables(draw):
    """Names as packing, crashes and vacuums leave them: commits without a gap, loose, packed, or both."""
    oldest = draw(st.integers(0, 20))
    newest = oldest + draw(st.integers(0, 60))
    edges = sorted(draw(st.sets(st.integers(oldest + 1, newest + 1), max_size=5)))
    packs = [pack(first, last - 1) for first, last in zip([oldest, *edges], edges, strict=False)]
    loose = {*range(edges[-1] if edges else oldest, newest + 1), *draw(st.sets(st.integers(oldest, newest)))}
    checkpoints = sorted(draw(st.sets(st.integers(oldest, newest), max_size=8)))
    good = [version for version in checkpoints if draw(st.booleans())]
    usable = [version for version in good if draw(st.booleans())]
    return oldest, newest, sorted(loose), packs, checkpoints, good, usable


@given(tables(), st.integers(1, 90))
def test_whatever_the_names_are_what_must_stay_stays(table, keep):
    oldest, newest, loose, packs, checkpoints, good, usable = table
    if not loose and not packs:
        return
    plan = vacuum_of(loose, checkpoints, keep=keep, packs=packs, good=good, usable=usable)
    cutoff = find_cutoff(newest, versions_keep=keep)
    bases = [version for version in good if version <= cutoff]
    if isinstance(plan, NothingToExpire):
        floor = min([*bases[-1:], *usable[-2:]], default=0)
        is_possible = len(usable) >= 2 and bool(bases)
        assert not is_possible or not any(found.last_version < floor for found in packs)
        assert not is_possible or packs or not any(version < floor for version in loose)
        return

    left_loose = [version for version in loose if version not in plan.commits]
    left_packs = [found for found in packs if found not in plan.packs]
    left_checkpoints = [version for version in checkpoints if version not in plan.checkpoints]
    left = VersionRanges(left_loose, left_packs)
    assert left.runs == [VersionRun(plan.oldest_version, newest)], "what is left has no gap, and begins where it says"
    assert plan.oldest_version <= max(oldest, cutoff)
    assert bases[-1] in left_checkpoints
    assert set(usable[-2:]) <= set(left_checkpoints)
    assert plan.oldest_version <= min(bases[-1], *usable[-2:])
    assert all(version < plan.oldest_version for version in plan.checkpoints)
    before = VersionRanges(loose, packs)
    assert count_expired(plan, commits=loose, packs=packs) == len(before) - len(left) > 0
