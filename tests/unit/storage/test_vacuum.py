"""Vacuum lets old versions expire, and nothing that anything that stays is made of."""

from random import Random

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.model.errors import DamageError, InvariantError, VersionExpiredError
from exactlog.storage.fault_points import VACUUM_AFTER_UNLINK, VACUUM_BEFORE_UNLINK
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from exactlog.storage.vacuum import vacuum
from exactlog.storage.whole_files import SyncFailedError
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.long_tables import (
    check_versions,
    checkpoint_path,
    checkpoints,
    commit_path,
    listing,
    loose,
    pack_all,
    packs,
    reopened_state,
    write_table,
)
from tests.support.partitions import DIRECTORY, DataDirectory, batch_of, batches_of, copy_of, replace_file, state_of

VERSIONS = 33  # checkpoints at 4, 8, ... 32


@pytest.fixture(scope="module")
def written():
    return write_table(versions=VERSIONS)


@pytest.fixture(scope="module")
def packed(written):
    """The same with versions 0 to 19 in packs, and without the checkpoints at 8 and 16."""
    filesystem = copy_of(written[0])
    pack_all(filesystem)
    return filesystem, written[1]


@pytest.fixture
def filesystem(written):
    return copy_of(written[0])


def vacuumed(filesystem, keep, **options):
    return vacuum(filesystem, DIRECTORY, versions_keep=keep, **options)


# --- what goes, what stays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", range(1, VERSIONS + 3))
@pytest.mark.parametrize("fixture", ["written", "packed"])
def test_the_versions_to_keep_read_as_before_and_the_oldest_one_is_stated(request, fixture, keep):
    content, state = request.getfixturevalue(fixture)
    filesystem = copy_of(content)

    report = vacuumed(filesystem, keep)

    assert report.oldest_version <= max(0, VERSIONS - keep + 1), "as many as asked for, at least"
    assert report.newest_version == VERSIONS
    assert report.versions_expired == report.oldest_version
    check_versions(filesystem, oldest=report.oldest_version, newest=VERSIONS)
    assert reopened_state(filesystem) == state
    table = TableReader(filesystem, DIRECTORY)
    if report.oldest_version:
        with pytest.raises(VersionExpiredError) as expired:
            table.read(as_of_version=report.oldest_version - 1)
        assert expired.value.oldest == report.oldest_version
    newest_two = checkpoints(content)[-2:]
    assert set(newest_two) <= set(checkpoints(filesystem))
    for version in newest_two:  # one of the two may be damaged
        damaged = copy_of(filesystem)
        replace_file(damaged, checkpoint_path(version), b"")
        assert reopened_state(damaged) == state


@pytest.mark.parametrize(("keep", "oldest"), [(1, 28), (6, 28), (7, 24), (10, 24), (11, 20), (30, 4), (31, 0), (99, 0)])
def test_what_stays_begins_with_a_checkpoint(filesystem, keep, oldest):
    """delta #7205: what a clean-up expires goes, all of it."""
    report = vacuumed(filesystem, keep)

    assert report.oldest_version == oldest
    assert loose(filesystem) == list(range(oldest, VERSIONS + 1))
    assert checkpoints(filesystem) == list(range(max(4, oldest), VERSIONS, 4))


@pytest.mark.parametrize(("keep", "oldest"), [(1, 28), (14, 20), (15, 10), (22, 10), (23, 0), (30, 0)])
def test_a_pack_goes_whole_or_stays_whole(packed, keep, oldest):
    filesystem = copy_of(packed[0])

    report = vacuumed(filesystem, keep)

    assert report.oldest_version == oldest
    assert packs(filesystem) == [found for found in [(0, 9), (10, 19)] if found[0] >= oldest]
    assert checkpoints(filesystem) == [version for version in [4, 12, 20, 24, 28, 32] if version >= oldest]


def test_the_report_says_what_has_gone(filesystem):
    before = listing(filesystem)

    report = vacuumed(filesystem, 10)

    gone = before.keys() - listing(filesystem).keys()
    assert report.versions_expired == 24
    assert report.files_removed == len(gone) == 24 + 5
    assert report.bytes_freed == sum(len(before[name]) for name in gone)
    assert (report.oldest_version, report.newest_version, report.reason) == (24, VERSIONS, "")


@pytest.mark.parametrize("fixture", ["written", "packed"])
@pytest.mark.parametrize("keep", [1, 10, 25, 99])
def test_a_dry_run_says_what_would_go_and_changes_nothing(request, fixture, keep):
    filesystem = copy_of(request.getfixturevalue(fixture)[0])
    before = listing(filesystem)

    said = vacuumed(CountingFilesystem(filesystem), keep, dry_run=True)

    assert listing(filesystem) == before
    assert said == vacuumed(filesystem, keep)


def test_a_second_time_there_is_nothing_to_do(filesystem):
    assert vacuumed(filesystem, 11).reason == ""
    before = listing(filesystem)

    report = vacuumed(filesystem, 11)

    assert (report.versions_expired, report.files_removed, report.bytes_freed) == (0, 0, 0)
    assert report.reason == "what is kept begins with version 20, the oldest one there is"
    assert listing(filesystem) == before


def test_without_a_checkpoint_nothing_expires():
    """delta-rs #2016: a clean-up of a table without a checkpoint destroyed it."""
    filesystem, state = write_table(versions=20, checkpoint_interval=1_000)
    before = listing(filesystem)

    report = vacuumed(filesystem, 5)

    assert (report.versions_expired, report.oldest_version) == (0, 0)
    assert report.reason.startswith("no good checkpoint lies at or below version 16")
    assert listing(filesystem) == before
    assert reopened_state(filesystem) == state


def test_commits_that_a_kept_version_is_rebuilt_from_stay():
    """delta #606: the first checkpoint is at 10, and version 9 is to be kept: all from 0 to 10 stay, too."""
    filesystem, _ = write_table(versions=22, checkpoint_interval=10)
    before = listing(filesystem)
    assert checkpoints(filesystem) == [10, 20]

    assert vacuumed(filesystem, 22 - 9 + 1).versions_expired == 0
    assert listing(filesystem) == before
    assert vacuumed(filesystem, 22 - 10 + 1).oldest_version == 10


def test_to_keep_nothing_is_refused(filesystem):
    """delta #1470: a vacuum that keeps nothing."""
    before = listing(filesystem)

    with pytest.raises(InvariantError):
        vacuumed(filesystem, 0)

    assert listing(filesystem) == before


def test_a_hundred_expired_versions_leave_no_file_behind():
    """delta #7205: a clean-up that never ran, or left files of expired versions."""
    filesystem, _ = write_table(versions=130, checkpoint_interval=10)

    vacuumed(filesystem, 25)

    assert sorted(listing(filesystem)) == sorted(
        [f"{version:020d}.json" for version in range(100, 131)]
        + [f"{version:020d}.checkpoint.json" for version in (100, 110, 120, 130)]
    )


def test_the_versions_that_are_left_are_packed_later(filesystem, written):
    vacuumed(filesystem, 20)
    assert loose(filesystem)[0] == 12

    assert pack_all(filesystem) == [(12, 19)]

    check_versions(filesystem, oldest=12, newest=VERSIONS)
    assert reopened_state(filesystem) == written[1]
    assert vacuumed(filesystem, 14).oldest_version == 20


def test_a_packing_that_was_broken_off_is_no_hindrance(packed):
    filesystem = copy_of(packed[0])
    unfinished, _ = write_table(versions=VERSIONS)
    for version in (3, 7, 15, 16):
        replace_file(filesystem, commit_path(version), unfinished.read_file(commit_path(version)))

    report = vacuumed(filesystem, 20)

    assert (report.oldest_version, report.versions_expired, report.files_removed) == (10, 10, 4)
    check_versions(filesystem, oldest=10, newest=VERSIONS)


# --- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("damaged", "oldest"), [(32, 24), (28, 24), (24, 28), (20, 28)])
def test_a_damaged_checkpoint_does_not_count(filesystem, written, damaged, oldest):
    replace_file(filesystem, checkpoint_path(damaged), b'{"version":')

    assert vacuumed(filesystem, 1).oldest_version == oldest

    assert reopened_state(filesystem) == written[1]


def test_with_fewer_than_two_good_checkpoints_nothing_expires(filesystem):
    for version in checkpoints(filesystem)[:-1]:
        replace_file(filesystem, checkpoint_path(version), b"")
    before = listing(filesystem)

    report = vacuumed(filesystem, 1)

    assert report.versions_expired == 0
    assert report.reason == "there are fewer than 2 good checkpoints to start from"
    assert listing(filesystem) == before


@pytest.mark.parametrize("missing", [28, 29, 31])
def test_where_a_version_that_is_to_stay_is_missing_nothing_goes(filesystem, missing):
    filesystem.remove(commit_path(missing))
    before = listing(filesystem)
    if missing == 28:  # the checkpoint of that version stands in for it
        assert vacuumed(filesystem, 1).oldest_version == 28
        return

    with pytest.raises(DamageError, match=f"delta version {missing} is missing"):
        vacuumed(filesystem, 1)

    assert listing(filesystem) == before


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_checkpoint_whose_bytes_a_power_cut_took_is_none_that_a_start_begins_from(flush_mode):
    filesystem, _ = write_table(versions=VERSIONS, flush_mode=flush_mode)
    segment = TableReader(filesystem, DIRECTORY).snapshot().segments[-1]
    filesystem.remove(f"{DIRECTORY}/{segment.name}")  # what it holds was never synced
    lost = [version for version in checkpoints(filesystem) if version > segment.base]
    assert lost

    report = vacuumed(filesystem, 1)

    left = [version for version in checkpoints(filesystem) if version not in lost]
    assert len(left) >= 2
    assert report.oldest_version == left[-2] == left[0]
    assert reopened_state(filesystem, flush_mode=flush_mode)[3] == segment.base


def test_records_that_were_removed_since_do_not_make_a_checkpoint_a_bad_beginning():
    """It names segments that are gone; but nothing that is kept needs them."""
    config = TopicConfig(segment_bytes=250, file_delete_delay_ms=0)
    with DataDirectory(config=config, checkpoint_interval=2) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(12, size=40))
        disk.move_log_start(partition, 9)
        disk.commit(partition, *batches_of(6, size=40))
        for _ in range(4):
            partition.sweep_removed(now_ms=disk.clock.time_ms + 1)
            disk.run_round()
        assert not disk.filesystem.exists(f"{DIRECTORY}/{0:020d}.log")
        state, newest = state_of(partition), partition.table.version

        report = vacuumed(disk.filesystem, newest - 5)

        assert report.oldest_version == 6
        disk.restart()
        assert state_of(disk.open()) == state


# --- a crash, a power cut, a disk that refuses -------------------------------------------------------------------


def crashed_at(content, keep, step):
    failing = FailingFilesystem(content)
    failing.crash_at(step)
    try:
        vacuumed(failing, keep)
    except Crashed:
        return failing
    return None


def steps_of_vacuum(content, keep):
    failing = FailingFilesystem(content)
    vacuumed(failing, keep)
    return failing.steps


def check_left(filesystem, keep, state, finished):
    """Some versions are gone, from the lowest up; what is left is whole; another vacuum comes to the same end."""
    oldest = TableReader(filesystem, DIRECTORY).oldest_version
    assert oldest <= VERSIONS - keep + 1
    check_versions(filesystem, oldest=oldest, newest=VERSIONS)
    assert reopened_state(filesystem) == state
    vacuumed(filesystem, keep)
    assert listing(filesystem) == finished


@pytest.mark.parametrize("fixture", ["written", "packed"])
def test_after_a_crash_at_any_operation_what_is_left_is_whole(request, fixture):
    content, state = request.getfixturevalue(fixture)
    finished = copy_of(content)
    vacuumed(finished, 10)

    steps = steps_of_vacuum(content, 10)
    for step in range(steps):
        check_left(crashed_at(content, 10, step).after_kill(), 10, state, listing(finished))
    assert crashed_at(content, 10, steps) is None


@pytest.mark.parametrize("luck", [None, 1, 2, 3])
@pytest.mark.parametrize("fixture", ["written", "packed"])
def test_after_a_power_cut_at_any_operation_what_is_left_is_whole(request, fixture, luck):
    content, state = request.getfixturevalue(fixture)
    finished = copy_of(content)
    vacuumed(finished, 10)

    for step in range(steps_of_vacuum(content, 10)):
        chance = None if luck is None else Random(1_000 * luck + step)
        check_left(crashed_at(content, 10, step).after_power_cut(chance), 10, state, listing(finished))


def test_a_file_that_cannot_be_removed_ends_it_and_the_next_one_goes_on(written):
    failing = FailingFilesystem(written[0])
    with failing.fail("remove", after=5), pytest.raises(OSError, match="Input/output error"):
        vacuumed(failing, 10)

    check_versions(failing, oldest=4, newest=VERSIONS)
    assert vacuumed(failing, 10).oldest_version == 24
    check_versions(failing, oldest=24, newest=VERSIONS)


def test_a_failed_sync_is_told_as_such(written):
    failing = FailingFilesystem(written[0])

    with failing.fail("sync_directory"), pytest.raises(SyncFailedError):
        vacuumed(failing, 10)


def test_the_points_of_a_vacuum_are_passed_in_order(filesystem):
    passed = []
    for point in (VACUUM_BEFORE_UNLINK, VACUUM_AFTER_UNLINK):
        point.arm(lambda name=point.name: passed.append((name, loose(filesystem)[0])))

    vacuumed(filesystem, 10)

    VACUUM_BEFORE_UNLINK.disarm()
    VACUUM_AFTER_UNLINK.disarm()
    assert passed == [("storage.vacuum.before_unlink", 0), ("storage.vacuum.after_unlink", 1)]


# --- beside readers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["written", "packed"])
def test_a_reader_from_before_goes_on_with_what_is_left(request, fixture):
    """delta-rs #3057: a handle that is older than a clean-up refers to commits that are gone."""
    filesystem = copy_of(request.getfixturevalue(fixture)[0])
    table = TableReader(filesystem, DIRECTORY)
    vacuumed(filesystem, 1)

    table.refresh()

    assert len(list(table.read())) == VERSIONS
    assert len(list(table.read(as_of_version=30))) == 30
    with pytest.raises(VersionExpiredError) as expired:
        table.read(as_of_version=22)
    assert expired.value.oldest == 28
    assert [found.delta_version for found in table.read_stored(20, 30)] == [None] * 7 + [28, 29, 30]


def test_what_a_reader_is_asked_for_after_a_vacuum_is_a_typed_error():
    """delta #1515: to read changes from an expired version on was a missing file."""
    filesystem, _ = write_table(versions=VERSIONS)
    table = TableReader(filesystem, DIRECTORY)
    versions = table.versions()
    assert [next(versions).version for _ in range(3)] == [0, 1, 2]
    vacuumed(filesystem, 1)

    with pytest.raises(VersionExpiredError, match="the oldest one that can is 28"):
        next(versions)
    with pytest.raises(VersionExpiredError, match="the oldest one that can is 28"):
        TableReader(filesystem, DIRECTORY).read(as_of_version=3)


def test_a_search_by_time_that_meets_expired_versions_finds_those_that_are_left(filesystem):
    table = TableReader(filesystem, DIRECTORY)
    times = [commit.timestamp for commit in table.versions()]
    assert len(set(times)) == VERSIONS + 1

    vacuumed(filesystem, 1)

    assert table.version_at(parse_timestamp(times[30])) == 30
    with pytest.raises(VersionExpiredError, match="the oldest one that can is 28"):
        TableReader(filesystem, DIRECTORY).version_at(parse_timestamp(times[10]))


def test_a_reader_that_slept_over_everything_begins_again_from_the_newest_checkpoint():
    with DataDirectory(checkpoint_interval=4) as disk:
        partition = disk.make()
        disk.commit(partition, *[batch_of(b"%d" % number) for number in range(5)])
        table = TableReader(disk.filesystem, DIRECTORY)
        disk.commit(partition, *[batch_of(b"%d" % number) for number in range(5, 40)])
        vacuumed(disk.filesystem, 1)
        assert loose(disk.filesystem)[0] > 6

        table.refresh()

        assert [record.value for record in table.read()] == [b"%d" % number for number in range(40)]
        assert table.snapshot() == TableReader(disk.filesystem, DIRECTORY).snapshot()
