"""Old delta commits become packs: nothing is lost, whatever breaks off, and nobody who reads notices."""

import errno
import json
from random import Random

import pytest

from exactlog.core.deltalog.commit_format import decode_commit
from exactlog.core.deltalog.version_cleanup import PackPlan
from exactlog.core.model.errors import DamageError
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.fault_points import PACK_AFTER_RENAME, PACK_BEFORE_RENAME, PACK_BEFORE_UNLINK
from exactlog.storage.packing import PackingProgress, find_pack, pack
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from exactlog.storage.whole_files import SyncFailedError
from exactlog.testing import Crashed, FailingFilesystem
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.long_tables import (
    PACK_VERSIONS,
    VERSIONS_KEEP,
    check_versions,
    checkpoint_path,
    checkpoints,
    commit_path,
    listing,
    loose,
    pack_all,
    pack_path,
    packs,
    reopened_state,
    write_table,
)
from tests.support.partitions import DELTA_LOG, DIRECTORY, copy_of, replace_file
from tests.unit.core.deltalog.histories import seal

VERSIONS = 33
FIRST_PACK = PackPlan(first_version=0, last_version=9)


@pytest.fixture(scope="module")
def written():
    return write_table(versions=VERSIONS)


@pytest.fixture
def filesystem(written):
    return copy_of(written[0])


@pytest.fixture
def state(written):
    return written[1]


def sealed_again(document, **changes):
    """The document with other values, and the checksum of these."""
    return seal(json.loads(document) | changes)


# --- what comes of it --------------------------------------------------------------------------------------------


def test_old_versions_are_packed_and_the_newest_keep_files_of_their_own(filesystem, written):
    assert pack_all(filesystem) == [(0, 9), (10, 19)]

    assert packs(filesystem) == [(0, 9), (10, 19)]
    assert loose(filesystem) == list(range(20, VERSIONS + 1))
    for first, last in packs(filesystem):
        documents = [written[0].read_file(commit_path(version)) for version in range(first, last + 1)]
        assert filesystem.read_file(pack_path(first, last)) == b"".join(documents)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_every_version_reads_as_before_and_a_broker_starts_as_before(flush_mode):
    filesystem, state = write_table(versions=VERSIONS, flush_mode=flush_mode)

    pack_all(filesystem)

    check_versions(filesystem, oldest=0, newest=VERSIONS)
    assert reopened_state(filesystem, flush_mode=flush_mode) == state


def test_everything_can_be_replayed_from_packs_alone(filesystem, state):
    pack_all(filesystem, versions_keep=1)
    for version in checkpoints(filesystem):
        filesystem.remove(checkpoint_path(version))

    assert reopened_state(filesystem) == state


def test_the_first_checkpoint_of_each_pack_stays_and_those_behind(filesystem):
    before = checkpoints(filesystem)
    assert before == [4, 8, 12, 16, 20, 24, 28, 32]

    pack_all(filesystem)

    assert checkpoints(filesystem) == [4, 12, 20, 24, 28, 32]


def test_the_newest_two_good_checkpoints_stay_wherever_they_are(filesystem):
    for version in (12, 20, 24, 28):
        filesystem.remove(checkpoint_path(version))
    replace_file(filesystem, checkpoint_path(16), b"{")

    pack_all(filesystem)

    assert checkpoints(filesystem) == [4, 8, 16, 32]


def test_without_a_checkpoint_behind_it_nothing_is_packed(filesystem):
    for version in (12, 16, 20, 24, 28):
        filesystem.remove(checkpoint_path(version))
    replace_file(filesystem, checkpoint_path(32), b"")

    assert pack_all(filesystem) == []


def test_what_is_asked_again_and_again_costs_nothing(filesystem):
    watched = CountingFilesystem(filesystem)
    progress = PackingProgress.of(DeltaLogFiles(watched, DIRECTORY), pack_versions=PACK_VERSIONS)
    watched.clear()
    plans = []
    for newest in range(VERSIONS + 1):
        plan = progress.find_pack(newest_version=newest, checkpoint_version=newest, versions_keep=VERSIONS_KEEP)
        if plan is not None:
            plans.append((newest, plan.first_version, plan.last_version))
            progress = progress.after(plan)

    assert plans == [(17, 0, 9), (27, 10, 19)]
    assert watched.operations == []


def test_the_progress_that_a_directory_shows_goes_on_where_packing_stopped(filesystem):
    pack_all(filesystem)

    assert PackingProgress.of(DeltaLogFiles(filesystem, DIRECTORY), pack_versions=10) == PackingProgress(20, 10)
    assert pack_all(filesystem) == []


def test_a_range_that_vacuum_has_taken_the_beginning_of_is_packed(filesystem):
    for version in range(14):
        filesystem.remove(commit_path(version))

    assert pack_all(filesystem) == [(14, 19)]
    check_versions(filesystem, oldest=14, newest=VERSIONS)


def test_a_document_written_by_hand_becomes_a_line_of_the_same_version(filesystem, state):
    spaced = filesystem.read_file(commit_path(5)).replace(b",", b",\n  ")
    replace_file(filesystem, commit_path(5), spaced)

    pack_all(filesystem)

    assert filesystem.read_file(pack_path(0, 9)).count(b"\n") == 10
    check_versions(filesystem, oldest=0, newest=VERSIONS)
    assert reopened_state(filesystem) == state


def test_a_pack_of_any_size_is_written_in_portions(filesystem, monkeypatch):
    whole = copy_of(filesystem)
    pack_all(whole)
    monkeypatch.setattr("exactlog.storage.pack_files._WRITE_BYTES", 1_000)
    watched = CountingFilesystem(filesystem)

    pack_all(watched)

    assert listing(filesystem) == listing(whole)
    assert len(watched.names("write_at")) >= 6
    assert max(operation.size for operation in watched.operations if operation.name == "write_at") < 2_000


def test_packs_that_a_larger_one_holds_go(filesystem, state):
    pack_all(filesystem)

    assert pack_all(filesystem, pack_versions=20) == []
    pack(filesystem, DIRECTORY, PackPlan(first_version=0, last_version=19))

    assert packs(filesystem) == [(0, 19)]
    check_versions(filesystem, oldest=0, newest=VERSIONS)
    assert reopened_state(filesystem) == state


def test_the_points_of_a_packing_are_passed_in_order(filesystem):
    passed = []
    points = (PACK_BEFORE_RENAME, PACK_AFTER_RENAME, PACK_BEFORE_UNLINK)
    for point in points:
        point.arm(lambda name=point.name: passed.append((name, packs(filesystem), len(loose(filesystem)))))

    pack(filesystem, DIRECTORY, FIRST_PACK)

    for point in points:
        point.disarm()
    assert passed == [
        ("storage.pack.before_rename", [], VERSIONS + 1),
        ("storage.pack.after_rename", [(0, 9)], VERSIONS + 1),
        ("storage.pack.before_unlink", [(0, 9)], VERSIONS + 1),
    ]


# --- what must not be packed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 5, 9, 10])
@pytest.mark.parametrize("content", [b"", b"{", None])
def test_a_damaged_document_stops_packing_and_is_named(filesystem, version, content):
    document = bytearray(filesystem.read_file(commit_path(version)))
    document[60] ^= 1
    replace_file(filesystem, commit_path(version), bytes(document) if content is None else content)
    before = listing(filesystem)

    with pytest.raises(DamageError, match=f"{version:020d}.json"):
        pack(filesystem, DIRECTORY, FIRST_PACK)

    assert listing(filesystem) == before


@pytest.mark.parametrize("version", [1, 5, 9, 10])
def test_a_document_that_does_not_follow_from_the_one_before_it_stops_packing(filesystem, version):
    document = filesystem.read_file(commit_path(version))
    replace_file(filesystem, commit_path(version), sealed_again(document, prev_crc="0badcafe"))
    before = listing(filesystem)

    with pytest.raises(DamageError, match=f"{version:020d}.json: delta version {version} does not follow"):
        pack(filesystem, DIRECTORY, FIRST_PACK)

    assert listing(filesystem) == before


@pytest.mark.parametrize("version", [0, 5, 9])
def test_a_missing_document_stops_packing(filesystem, version):
    filesystem.remove(commit_path(version))
    before = listing(filesystem)

    with pytest.raises(DamageError, match=f"delta version {version} is missing"):
        pack(filesystem, DIRECTORY, FIRST_PACK)

    assert listing(filesystem) == before


def test_versions_below_a_gap_are_not_taken_for_the_next_to_pack(filesystem):
    filesystem.remove(commit_path(5))

    assert find_pack(DeltaLogFiles(filesystem, DIRECTORY), versions_keep=1, pack_versions=10) == PackPlan(
        first_version=6, last_version=9
    )


# --- a packing that broke off ------------------------------------------------------------------------------------


def broken_off(filesystem, *, unlinked):
    """A pack of the first range, with some of its commits still in files of their own."""
    documents = [filesystem.read_file(commit_path(version)) for version in range(10)]
    replace_file(filesystem, pack_path(0, 9), b"".join(documents))
    for version in unlinked:
        filesystem.remove(commit_path(version))
    return documents


@pytest.mark.parametrize("unlinked", [[], [0, 1, 2], range(9), [1, 5, 8]])
def test_a_pack_that_is_there_already_is_our_own_earlier_success(filesystem, state, unlinked):
    broken_off(filesystem, unlinked=unlinked)
    check_versions(filesystem, oldest=0, newest=VERSIONS)
    assert reopened_state(filesystem) == state
    made = filesystem.read_file(pack_path(0, 9))

    assert pack_all(filesystem) == [(0, 9), (10, 19)]

    assert loose(filesystem) == list(range(20, VERSIONS + 1))
    assert filesystem.read_file(pack_path(0, 9)) == made


def test_a_pack_that_differs_from_the_files_it_stands_for_is_damage(filesystem):
    documents = broken_off(filesystem, unlinked=[])
    documents[4] = sealed_again(documents[4], txn_id="broker-1:1:1")
    replace_file(filesystem, pack_path(0, 9), b"".join(documents))
    before = listing(filesystem)

    with pytest.raises(DamageError, match="holds another delta version 4 than"):
        pack(filesystem, DIRECTORY, FIRST_PACK)

    assert listing(filesystem) == before


@pytest.mark.parametrize("damage", [lambda lines: lines[:-1], lambda lines: [*lines, b"{}\n"], lambda lines: [b"\n"]])
def test_a_pack_with_more_or_fewer_lines_than_versions_is_damage_and_takes_nothing_away(filesystem, damage):
    documents = broken_off(filesystem, unlinked=[])
    replace_file(filesystem, pack_path(0, 9), b"".join(damage(documents)))
    before = listing(filesystem)

    with pytest.raises(DamageError, match=r"compacted\.json"):
        pack(filesystem, DIRECTORY, FIRST_PACK)

    assert listing(filesystem) == before


# --- a crash, a power cut ----------------------------------------------------------------------------------------


def crashed_at(content, step):
    """The file system as a crash leaves a packing of everything after so many steps; None when it was over by then."""
    failing = FailingFilesystem(content, sector_bytes=16)
    failing.crash_at(step)
    try:
        pack_all(failing)
    except Crashed:
        return failing
    return None


def steps_of_packing(content):
    failing = FailingFilesystem(content)
    pack_all(failing)
    return failing.steps


def check_left(filesystem, finished, state):
    """Everything is there; the broker starts; the next packing comes to the same end."""
    check_versions(filesystem, oldest=0, newest=VERSIONS)
    assert reopened_state(filesystem) == state
    pack_all(filesystem)
    for name in filesystem.list_names(DELTA_LOG):
        if name.startswith("."):  # the next start sweeps them
            filesystem.remove(f"{DELTA_LOG}/{name}")
    assert listing(filesystem) == finished


def test_after_a_crash_at_any_operation_everything_is_there_and_the_next_packing_finishes(written):
    content, state = written
    finished = copy_of(content)
    pack_all(finished)
    steps = steps_of_packing(content)
    assert steps > 30

    for step in range(steps):
        check_left(crashed_at(content, step).after_kill(), listing(finished), state)
    assert crashed_at(content, steps) is None


@pytest.mark.parametrize("luck", [None, 1, 2, 3])
def test_after_a_power_cut_at_any_operation_everything_is_there_and_the_next_packing_finishes(written, luck):
    content, state = written
    finished = copy_of(content)
    pack_all(finished)

    for step in range(steps_of_packing(content)):
        chance = None if luck is None else Random(1_000 * luck + step)
        check_left(crashed_at(content, step).after_power_cut(chance), listing(finished), state)


# --- a disk that refuses -----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_everything_as_it_was(written):
    failing = FailingFilesystem(written[0])
    failing.capacity_bytes = failing.used_bytes + 100
    before = listing(failing)

    with pytest.raises(OSError, match="space") as refused:
        pack(failing, DIRECTORY, FIRST_PACK)

    assert refused.value.errno == errno.ENOSPC
    assert not isinstance(refused.value, SyncFailedError)
    assert listing(failing) == before


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_failed_sync_is_told_as_such_and_no_file_goes(written, operation):
    failing = FailingFilesystem(written[0])
    failing.fail(operation)

    with pytest.raises(SyncFailedError):
        pack(failing, DIRECTORY, FIRST_PACK)

    assert loose(failing) == list(range(VERSIONS + 1))
    assert checkpoints(failing) == checkpoints(written[0])


@pytest.mark.parametrize("operation", ["create", "write_at", "link", "read_file", "list_names"])
def test_what_the_disk_refuses_leaves_everything_as_it_was(written, operation):
    failing = FailingFilesystem(written[0])
    before = listing(failing)
    with failing.fail(operation), pytest.raises(OSError, match="Input/output error"):
        pack(failing, DIRECTORY, FIRST_PACK)

    assert listing(failing) == before


@pytest.mark.parametrize("after", [1, 2, 7])
def test_files_that_cannot_be_removed_are_removed_by_the_next_packing(written, after):
    failing = FailingFilesystem(written[0])
    with failing.fail("remove", after=after), pytest.raises(OSError, match="Input/output error"):
        pack(failing, DIRECTORY, FIRST_PACK)
    check_versions(failing, oldest=0, newest=VERSIONS)

    assert pack_all(failing) == [(0, 9), (10, 19)]
    check_versions(failing, oldest=0, newest=VERSIONS)


# --- beside readers ----------------------------------------------------------------------------------------------


def test_a_reader_that_was_opened_before_finds_everything_after(filesystem):
    """delta-rs #3057: a handle on the table from before a clean-up still works."""
    table = TableReader(filesystem, DIRECTORY)
    versions = table.versions()
    assert next(versions).version == 0

    pack_all(filesystem)

    assert [commit.version for commit in versions] == list(range(1, VERSIONS + 1))
    for version in (0, 9, 10, 19, 20, VERSIONS):
        assert len(list(table.read(as_of_version=version))) == version
    assert table.version_of(4).version == 5


def test_a_reader_lists_the_names_once_more_however_many_files_have_gone(filesystem):
    watched = CountingFilesystem(filesystem)
    table = TableReader(watched, DIRECTORY)
    pack_all(filesystem)
    watched.clear()

    assert len(list(table.versions())) == VERSIONS + 1

    assert watched.names("list_names") == ["list_names"]


@pytest.mark.parametrize("moment", ["before_rename", "after_rename", "before_unlink"])
def test_a_reader_that_comes_in_the_middle_sees_the_whole_table(filesystem, moment):
    points = {
        "before_rename": PACK_BEFORE_RENAME,
        "after_rename": PACK_AFTER_RENAME,
        "before_unlink": PACK_BEFORE_UNLINK,
    }
    armed = points[moment].arm(lambda: check_versions(filesystem, oldest=0, newest=VERSIONS))

    pack(filesystem, DIRECTORY, FIRST_PACK)

    assert armed.has_fired


def test_names_that_were_listed_in_the_middle_of_a_packing_are_listed_again(filesystem):
    """The first listing misses the pack, and some of the files that it stands for."""
    pack_all(filesystem)
    torn = [name for name in filesystem.list_names(DELTA_LOG) if ".compacted." not in name]
    torn.append(f"{4:020d}.json")

    class Torn(CountingFilesystem):
        def list_names(self, directory):
            found = super().list_names(directory)
            return torn if len(self.names("list_names")) == 1 else found

    check_versions(Torn(filesystem), oldest=0, newest=VERSIONS)


def test_a_checkpoint_that_went_while_the_table_was_opened_is_looked_for_once_more(filesystem):
    """delta #1351: a clean-up takes the checkpoint away between the listing and the reading."""
    watched = CountingFilesystem(filesystem)

    def take_away(operation):
        if operation.name == "list_names" and not watched.names("list_names"):
            return
        if operation.name == "read_file" and filesystem.exists(checkpoint_path(32)):
            filesystem.remove(checkpoint_path(32))

    watched.before = take_away

    check_versions(watched, oldest=0, newest=VERSIONS)
    assert not filesystem.exists(checkpoint_path(32))


# --- damage in a pack --------------------------------------------------------------------------------------------


def test_a_damaged_line_costs_its_version_only(filesystem, state):
    pack_all(filesystem)
    content = bytearray(filesystem.read_file(pack_path(0, 9)))
    start = sum(len(line) + 1 for line in bytes(content).split(b"\n")[:5])
    content[start + 60] ^= 1
    replace_file(filesystem, pack_path(0, 9), bytes(content))

    delta_log = DeltaLogFiles(filesystem, DIRECTORY)
    with pytest.raises(DamageError, match=r"compacted\.json, delta version 5:"):
        delta_log.read_commit(5)
    for version in (*range(5), *range(6, VERSIONS + 1)):
        assert delta_log.read_commit(version)[0].commit.version == version
    assert len(list(TableReader(filesystem, DIRECTORY).read())) == VERSIONS
    assert reopened_state(filesystem) == state


def test_a_copy_in_a_pack_serves_where_the_file_of_its_own_is_damaged(filesystem, state):
    broken_off(filesystem, unlinked=[])
    replace_file(filesystem, commit_path(5), b"")

    check_versions(filesystem, oldest=0, newest=VERSIONS)
    assert reopened_state(filesystem) == state


def test_the_file_of_its_own_is_what_counts_where_there_are_two(filesystem):
    documents = broken_off(filesystem, unlinked=[])
    documents[4] = sealed_again(documents[4], txn_id="broker-1:1:1")
    replace_file(filesystem, pack_path(0, 9), b"".join(documents))

    found, size = DeltaLogFiles(filesystem, DIRECTORY).read_commit(4)

    document = filesystem.read_file(commit_path(4))
    assert (found, size) == (decode_commit(document, path_hint="x"), len(document))
