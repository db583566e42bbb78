"""Finding delta commits and checkpoints: in files of their own, in packs, in both, and when some are gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.deltalog.log_path import print_checkpoint_name
from exactlog.core.model.errors import DamageError
from exactlog.core.model.limits import PACKS_OPEN_MAX
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.long_tables import (
    checkpoints,
    commit_path,
    listing,
    loose,
    pack_all,
    pack_path,
    packs,
    write_table,
)
from tests.support.partitions import DELTA_LOG, DIRECTORY, copy_of, replace_file
from tests.unit.core.deltalog.histories import history_of

VERSIONS = 33
HISTORY = history_of(versions=60)


@pytest.fixture(scope="module")
def packed():
    """A table with versions 0 to 19 in packs."""
    filesystem, _ = write_table(versions=VERSIONS)
    pack_all(filesystem)
    return filesystem


@pytest.fixture
def filesystem(packed):
    return copy_of(packed)


def directory_of(*, commits=(), packed=(), checkpoints=()):
    """A directory with commits of one history, in files of their own and in packs; checkpoints are names only."""
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DELTA_LOG)
    for version in commits:
        replace_file(filesystem, commit_path(version), HISTORY.documents[version])
    for first, last in packed:
        replace_file(filesystem, pack_path(first, last), b"".join(HISTORY.documents[first : last + 1]))
    for version in checkpoints:
        replace_file(filesystem, f"{DELTA_LOG}/{print_checkpoint_name(version)}", b"")
    return filesystem


# --- which versions there are ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commits", "packed", "made", "oldest", "newest"),
    [
        (range(6), [], [], 0, 5),
        ([], [(0, 9)], [], 0, 9),
        (range(20, 26), [(0, 9), (10, 19)], [20], 0, 25),
        (range(13, 26), [], [20], 13, 25),
        (range(20, 26), [(13, 19)], [], 13, 25),
        ([2, 3, *range(20, 26)], [], [], 20, 25),  # a vacuum was broken off
        ([18, *range(20, 26)], [(10, 19)], [], 10, 25),  # a packing was
        (range(11, 26), [], [10], 10, 25),  # the checkpoint stands in for its commit
        ([*range(10), *range(11, 26)], [], [10], 0, 25),
        (range(12, 26), [], [10], 12, 25),
        ([], [], [10], 10, 10),
        (range(10), [], [10], 0, 10),
        (range(8), [], [10], 10, 10),
        (range(20, 26), [(0, 5), (3, 19)], [], 0, 25),
    ],
)
def test_the_oldest_version_is_the_lowest_from_which_on_every_one_is_there(commits, packed, made, oldest, newest):
    delta_log = DeltaLogFiles(directory_of(commits=commits, packed=packed, checkpoints=made), DIRECTORY)

    assert (delta_log.oldest_version, delta_log.newest_version) == (oldest, newest)


def test_there_is_no_table_without_a_directory_or_without_a_name_in_it():
    filesystem = MemoryFilesystem()
    with pytest.raises(DamageError, match="_delta_log is missing"):
        DeltaLogFiles(filesystem, DIRECTORY)
    filesystem.make_directories(DELTA_LOG)
    replace_file(filesystem, f"{DELTA_LOG}/.{0:020d}.json.tmp", b"")
    with pytest.raises(DamageError, match="neither a delta commit nor a checkpoint"):
        DeltaLogFiles(filesystem, DIRECTORY)


def test_temporary_and_foreign_names_are_no_versions(filesystem):
    for name in (f".{40:020d}.json.tmp", "notes.txt", "_last_checkpoint"):
        replace_file(filesystem, f"{DELTA_LOG}/{name}", b"x")

    delta_log = DeltaLogFiles(filesystem, DIRECTORY)

    assert delta_log.newest_version == VERSIONS
    assert delta_log.temporary_names == [f".{40:020d}.json.tmp"]


# --- reading -----------------------------------------------------------------------------------------------------


@given(
    st.sets(st.integers(0, 30)),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)).map(lambda found: (found[0], sum(found))), max_size=5),
)
def test_a_version_is_found_wherever_it_is_and_however_packs_overlap(commits, packed):
    if not commits and not packed:
        return
    delta_log = DeltaLogFiles(directory_of(commits=commits, packed=packed), DIRECTORY)
    there = commits.union(*(range(first, last + 1) for first, last in packed))

    assert list(delta_log.versions) == sorted(there)
    for version in range(47):
        if version in there:
            assert delta_log.read_commit(version) == (HISTORY.commits[version], len(HISTORY.documents[version]))
            copies = [(version, version)] * (version in commits) + [
                found for found in sorted(set(packed)) if found[0] <= version <= found[1]
            ]
            assert len(delta_log.read_copies(version)) == len(copies)
        else:
            with pytest.raises(DamageError, match=f"delta version {version} is missing"):
                delta_log.read_commit(version)
            assert delta_log.read_copies(version) == {}


def test_a_gap_is_named(filesystem):
    """delta #7052: a gap was not noticed while changes were read."""
    filesystem.remove(commit_path(25))
    delta_log = DeltaLogFiles(filesystem, DIRECTORY)

    read = []
    with pytest.raises(DamageError, match=f"{25:020d}.json: delta version 25 is missing"):
        read.extend(decoded.commit.version for decoded in delta_log.commits_after(15))


def test_packs_that_are_read_are_open_and_never_more_than_a_few():
    packed = [(first, first + 1) for first in range(0, 60, 2)]
    watched = CountingFilesystem(directory_of(packed=packed))
    delta_log = DeltaLogFiles(watched, DIRECTORY)
    assert len(packed) > PACKS_OPEN_MAX

    for version in (0, 1, 0):
        delta_log.read_commit(version)
    assert watched.names("open") == ["open"]

    for version in range(60):
        delta_log.read_commit(version)
    assert len(watched.names("open")) == len(packed)
    assert len(delta_log._open_packs) == PACKS_OPEN_MAX


def test_the_next_version_is_looked_for_under_its_name_only(filesystem, packed):
    for version in (32, 33):
        filesystem.remove(commit_path(version))
    filesystem.remove(f"{DELTA_LOG}/{print_checkpoint_name(32)}")
    watched = CountingFilesystem(filesystem)
    delta_log = DeltaLogFiles(watched, DIRECTORY)
    watched.clear()

    assert delta_log.read_next(32) is None
    assert len(watched.operations) <= 2

    for version in (32, 33):
        replace_file(filesystem, commit_path(version), packed.read_file(commit_path(version)))
        watched.clear()
        assert delta_log.read_next(version).commit.version == version
        assert watched.names() == ["read_file"]
    assert delta_log.newest_version == 33
    assert watched.names("list_names") == []


# --- dropping the newest versions --------------------------------------------------------------------------------


def test_versions_that_are_dropped_are_gone_from_files_and_from_packs(filesystem, packed):
    delta_log = DeltaLogFiles(filesystem, DIRECTORY)

    delta_log.remove_from(15)

    assert (loose(filesystem), packs(filesystem)) == ([], [(0, 9), (10, 14)])
    assert (delta_log.oldest_version, delta_log.newest_version) == (0, 14)
    assert filesystem.read_file(pack_path(10, 14)) == b"".join(
        line + b"\n" for line in packed.read_file(pack_path(10, 19)).split(b"\n")[:5]
    )
    assert checkpoints(filesystem) == [4, 12]


@pytest.mark.parametrize(("version", "left"), [(10, [(0, 9)]), (20, [(0, 9), (10, 19)]), (1, [(0, 0)])])
def test_a_pack_without_any_version_that_stays_is_removed(filesystem, version, left):
    DeltaLogFiles(filesystem, DIRECTORY).remove_from(version)

    assert packs(filesystem) == left
    assert loose(filesystem) == []


def test_a_crash_while_versions_are_dropped_leaves_those_below_and_dropping_goes_on(packed):
    finished = copy_of(packed)
    DeltaLogFiles(finished, DIRECTORY).remove_from(15)
    counted = FailingFilesystem(packed)
    DeltaLogFiles(counted, DIRECTORY).remove_from(15)

    for step in range(counted.steps):
        failing = FailingFilesystem(packed)
        failing.crash_at(step)
        with pytest.raises(Crashed):
            DeltaLogFiles(failing, DIRECTORY).remove_from(15)
        for left in (failing.after_kill(), failing.after_power_cut()):
            delta_log = DeltaLogFiles(left, DIRECTORY)
            for version in range(15):
                assert delta_log.read_commit(version)[0].commit.version == version
            delta_log.remove_from(15)
            for name in delta_log.temporary_names:
                left.remove(f"{DELTA_LOG}/{name}")
            assert listing(left) == listing(finished)
