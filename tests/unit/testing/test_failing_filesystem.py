"""What a power cut, a kill, a full or a broken disk leaves of the files of a `FailingFilesystem`."""

import errno
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from exactlog.testing import Crashed, FailingFilesystem, Operation
from exactlog.testing.operation_log import STEPS
from tests.support.file_trees import files_below, make_directories, tree, written

SEEDS = range(300)


@pytest.fixture
def files():
    """A file system with two directories whose names are certain."""
    files = FailingFilesystem()
    make_directories(files, "/d", "/e")
    files.clear()
    return files


def found_names(files, directory, seeds=SEEDS):
    """Every set of names that power cuts leave in a directory."""
    return {tuple(sorted(files.after_power_cut(Random(seed)).list_names(directory))) for seed in seeds}


def found_contents(files, path, seeds=SEEDS):
    """Everything that power cuts leave in a file."""
    return {files.after_power_cut(Random(seed)).read_file(path) for seed in seeds}


# --- bytes over a power cut ---------------------------------------------------------------------------------------


def test_only_synced_bytes_under_synced_names_are_certain(files):
    synced = written(files, "/d/synced", b"certain")
    written(files, "/d/no bytes", b"lost", synced=False)
    files.sync_directory("/d")
    synced.write_at((b" and more",), 7)
    written(files, "/d/no name", b"bytes")

    assert tree(files.after_power_cut()) == {"/d": None, "/e": None, "/d/no bytes": b"", "/d/synced": b"certain"}


def test_one_sync_of_all_makes_bytes_and_names_below_a_directory_certain(files):
    make_directories(files, "/d/f")
    written(files, "/d/f/a", b"certain", synced=False)
    written(files, "/d/b", b"too", synced=False)
    written(files, "/e/c", b"lost", synced=False)

    files.sync_all("/d")

    found = {"/d": None, "/d/b": b"too", "/d/f": None, "/d/f/a": b"certain", "/e": None}
    assert tree(files.after_power_cut()) == found


def test_a_failed_sync_of_all_drops_everything_below(files):
    written(files, "/d/a", b"lost", synced=False)
    with pytest.raises(OSError, match="Input/output error"), files.fail("sync_all"):
        files.sync_all("/d")
    files.sync_all("/d")

    assert files.after_power_cut().list_names("/d") == []


def test_a_power_cut_that_is_only_looked_at_changes_nothing(files):
    file = written(files, "/d/a", b"lost", synced=False)
    files.after_power_cut()
    files.after_power_cut(Random(1))

    assert file.read_at(10, 0) == b"lost"
    assert files.list_names("/d") == ["a"]
    assert "after_power_cut" not in str(files.operations)


def test_an_unsynced_write_is_torn_at_the_bounds_of_sectors_and_a_lost_sector_reads_as_zeros(files):
    file = written(files, "/d/a")
    files.sync_directory("/d")
    a, b, zeros = b"a" * 512, b"b" * 100, bytes(512)
    file.write_at((a + b,), 0)

    assert found_contents(files, "/d/a") == {b"", a, zeros, a + b, a + bytes(100), zeros + b, bytes(612)}


def test_a_later_write_may_be_found_where_an_earlier_one_is_not(files):
    file = written(files, "/d/a")
    files.sync_directory("/d")
    file.write_at((b"1" * 512,), 0)
    file.write_at((b"2" * 512,), 512)

    assert bytes(512) + b"2" * 512 in found_contents(files, "/d/a")


def test_writes_to_one_sector_are_found_in_their_order(files):
    file = written(files, "/d/a", b"----")
    files.sync_directory("/d")
    file.write_at((b"1",), 0)
    file.write_at((b"2",), 1)

    assert found_contents(files, "/d/a") == {b"----", b"1---", b"12--"}


def test_an_unsynced_truncation_may_be_lost_whole_or_in_its_bytes(files):
    file = written(files, "/d/a", b"12345")
    files.sync_directory("/d")
    file.truncate(2)

    assert files.after_power_cut().read_file("/d/a") == b"12345"
    assert found_contents(files, "/d/a") == {b"12345", b"12", b"12\0\0\0"}


def test_what_was_cut_off_and_synced_does_not_come_back(files):
    file = written(files, "/d/a", b"12345")
    files.sync_directory("/d")
    file.truncate(2)
    file.sync_data()
    file.truncate(5)

    assert found_contents(files, "/d/a") == {b"12", b"12\0\0\0"}


def test_smaller_sectors_tear_smaller_writes():
    files = FailingFilesystem(sector_bytes=4)
    file = written(files, "/a")
    files.sync_directory("/")
    file.write_at((b"123456",), 0)

    assert {b"", b"1234", b"\0\0\0\0", b"\0\0\0\x0056", b"123456"} <= found_contents(files, "/a")


@pytest.mark.parametrize("sync", ["sync", "sync_data"])
def test_a_sync_covers_bytes_and_size_by_whatever_handle_they_were_written(files, sync):
    file = written(files, "/d/a", b"12345", synced=False)
    file.write_at((b"end",), 2_000)
    getattr(files.open("/d/a"), sync)()
    files.sync_directory("/d")

    assert found_contents(files, "/d/a") == {file.read_at(3_000, 0)}


def test_a_sync_of_a_file_that_has_no_other_name_does_not_save_its_name(files):
    written(files, "/d/a", b"bytes")

    assert files.after_power_cut().list_names("/d") == []


# --- names over a power cut ---------------------------------------------------------------------------------------


def test_each_name_is_made_and_lost_on_its_own(files):
    written(files, "/d/old")
    files.sync_directory("/d")
    written(files, "/d/new")
    files.remove("/d/old")

    assert files.after_power_cut().list_names("/d") == ["old"]
    assert found_names(files, "/d") == {("old",), ("new",), ("new", "old"), ()}


def test_a_replaced_name_is_the_old_or_the_new_file(files):
    written(files, "/d/a", b"old")
    files.sync_directory("/d")
    written(files, "/d/b", b"new")
    files.rename("/d/b", "/d/a")

    assert found_contents(files, "/d/a") == {b"old", b"new"}


def test_a_rename_may_leave_both_names_but_never_none(files):
    written(files, "/d/a", b"x")
    files.sync_directory("/d")
    files.rename("/d/a", "/d/b")

    assert found_names(files, "/d") == {("a",), ("b",), ("a", "b")}


@pytest.mark.parametrize(
    ("synced", "found"),
    [
        ([], {("a",), ("b",), ("a", "b")}),
        (["/e"], {("b",), ("a", "b")}),
        (["/d"], {("b",), ()}),
        (["/d", "/e"], {("b",)}),
    ],
)
def test_a_rename_to_another_directory_leaves_no_name_only_if_the_old_directory_alone_was_synced(files, synced, found):
    written(files, "/d/a", b"x")
    files.sync_directory("/d")
    files.rename("/d/a", "/e/b")
    for directory in synced:
        files.sync_directory(directory)

    cuts = [files.after_power_cut(Random(seed)) for seed in SEEDS]

    assert {(*cut.list_names("/d"), *cut.list_names("/e")) for cut in cuts} == found


def test_a_file_that_was_renamed_again_and_again_is_found_under_one_of_its_names(files):
    written(files, "/d/a", b"x")
    files.sync_directory("/d")
    for source, target in [("/d/a", "/e/b"), ("/e/b", "/d/c"), ("/d/c", "/d/a"), ("/d/a", "/e/d")]:
        files.rename(source, target)
        written(files, source)

    for seed in SEEDS:
        assert b"x" in tree(files.after_power_cut(Random(seed))).values()


def test_a_linked_file_is_one_file_under_each_name_that_is_found(files):
    file = written(files, "/d/a", b"x" * 2_000)
    files.link("/d/a", "/e/b")
    for directory in ("/d", "/e"):
        files.sync_directory(directory)
    file.write_at((b"y" * 2_000,), 0)

    for seed in SEEDS:
        left = files.after_power_cut(Random(seed))
        left.open("/d/a").write_at((b"!",), 5)
        assert left.read_file("/d/a") == left.read_file("/e/b")


def test_a_renamed_directory_has_one_name_with_all_that_is_in_it(files):
    files.make_directories("/d/sub")
    written(files, "/d/sub/a", b"x")
    for directory in ("/d/sub", "/d"):
        files.sync_directory(directory)
    files.rename("/d/sub", "/e/sub")

    assert files.after_power_cut().read_file("/d/sub/a") == b"x"
    cuts = [tree(files.after_power_cut(Random(seed))) for seed in SEEDS]
    assert {tuple(path for path, content in cut.items() if content) for cut in cuts} == {
        ("/d/sub/a",),
        ("/e/sub/a",),
    }
    files.sync_directory("/e")
    assert tree(files.after_power_cut()) == {"/d": None, "/e": None, "/e/sub": None, "/e/sub/a": b"x"}


def test_a_directory_whose_own_name_is_not_certain_may_be_gone_with_all_that_is_in_it(files):
    files.make_directories("/d/sub")
    written(files, "/d/sub/a")
    files.sync_directory("/d/sub")

    assert files.after_power_cut().list_names("/d") == []
    assert found_names(files, "/d") == {(), ("sub",)}


def test_what_moved_out_of_a_directory_before_that_was_removed_is_found(files):
    files.make_directories("/d/sub")
    written(files, "/d/sub/a", b"x")
    for directory in ("/d/sub", "/d"):
        files.sync_directory(directory)
    files.rename("/d/sub/a", "/e/a")
    files.remove_directory("/d/sub")

    cuts = [tree(files.after_power_cut(Random(seed))) for seed in SEEDS]
    assert all(b"x" in cut.values() for cut in cuts)
    assert {"/d": None, "/e": None, "/e/a": b"x"} in cuts


def test_what_moved_into_a_directory_before_that_was_renamed_is_found_in_it(files):
    written(files, "/d/a", b"x")
    files.sync_directory("/d")
    files.rename("/d", "/e/d")
    files.sync_directory("/e")
    files.rename("/e", "/f")

    cuts = [files_below(files.after_power_cut(Random(seed))) for seed in SEEDS]
    assert {tuple(cut) for cut in cuts} == {("/e/d/a",), ("/f/d/a",)}


def test_a_directory_in_whose_place_came_others_that_were_renamed_too_is_found(files):
    written(files, "/d/a", b"x")
    files.sync_directory("/d")
    files.rename("/d", "/new")
    for name in ("/f", "/g"):
        files.make_directories("/d")
        files.rename("/d", name)

    for seed in SEEDS:
        assert list(files_below(files.after_power_cut(Random(seed))).values()) == [b"x"]


# --- what else is left ---------------------------------------------------------------------------------------------


def test_a_killed_process_leaves_all_that_it_handed_to_the_system(files):
    file = written(files, "/d/a", b"x" * 2_000, synced=False)
    file.truncate(1_500)
    files.link("/d/a", "/e/b")
    files.rename("/d/a", "/e/a")
    files.make_directories("/e/sub")
    files.rename("/e/sub", "/d/sub")

    assert tree(files.after_kill()) == tree(files)
    assert tree(files)["/e/b"] == b"x" * 1_500


def test_what_is_left_is_all_that_a_new_one_starts_with_and_durable(files):
    written(files, "/d/a", b"x", synced=False)
    files.link("/d/a", "/d/b")
    left = files.after_kill()
    again = FailingFilesystem(left)

    assert tree(again.after_power_cut()) == tree(left) == tree(files)
    again.open("/d/a").write_at((b"!",), 0)
    assert again.read_file("/d/b") == b"!"
    assert left.read_file("/d/a") == b"x"


# --- failures ------------------------------------------------------------------------------------------------------


def test_an_operation_fails_as_often_as_ordered_where_ordered(files):
    file = written(files, "/d/a", b"12345")
    other = written(files, "/d/b", b"12345")
    failure = files.fail("read_at", path_pattern="*/a", error=errno.ENOMEM, times=2, after=1)

    assert file.read_at(5, 0) == b"12345"
    for _ in range(2):
        assert other.read_at(5, 0) == b"12345"
        with pytest.raises(OSError, match="Cannot allocate memory: '/d/a'"):
            file.read_at(5, 0)
    assert file.read_at(5, 0) == b"12345"
    assert failure.count == 2


def test_an_operation_fails_until_its_failure_is_lifted(files):
    with files.fail("list_names", "make_directories", times=None):
        for refused in (files.list_names, files.make_directories) * 3:
            with pytest.raises(OSError, match="Input/output error"):
                refused("/d")

    assert files.list_names("/d") == []


@pytest.mark.parametrize(
    ("name", "carry_out"),
    [
        ("create", lambda files: files.open("/d/new", create=True)),
        ("open", lambda files: files.open("/d/a")),
        ("write_at", lambda files: files.open("/d/a").write_at((b"x",), 0)),
        ("truncate", lambda files: files.open("/d/a").truncate(0)),
        ("make_directories", lambda files: files.make_directories("/d/new")),
        ("remove", lambda files: files.remove("/d/a")),
        ("remove_directory", lambda files: files.remove_directory("/e")),
        ("rename", lambda files: files.rename("/d/a", "/d/b")),
        ("link", lambda files: files.link("/d/a", "/d/b")),
        ("read_file", lambda files: files.read_file("/d/a")),
        ("file_size", lambda files: files.file_size("/d/a")),
        ("size", lambda files: files.open("/d/a").size()),
    ],
)
def test_an_operation_that_fails_changes_nothing_and_can_be_tried_again(files, name, carry_out):
    written(files, "/d/a", b"kept")
    before = tree(files)
    files.fail(name)

    with pytest.raises(OSError, match="Input/output error"):
        carry_out(files)
    assert tree(files) == before
    carry_out(files)


def test_what_cannot_fail_cannot_be_ordered_to(files):
    for names in (["fsync"], ["read_at", "exists"], []):
        with pytest.raises(ValueError, match="what can fail is"):
            files.fail(*names)


@pytest.mark.parametrize("sync", ["sync", "sync_data"])
def test_after_a_failed_sync_a_later_one_succeeds_though_the_bytes_are_not_on_the_disk(files, sync):
    file = written(files, "/d/a", b"old")
    files.sync_directory("/d")
    file.write_at((b"new and longer",), 0)
    files.fail(sync)
    with pytest.raises(OSError, match="Input/output error"):
        getattr(file, sync)()

    getattr(file, sync)()

    assert file.read_at(20, 0) == b"new and longer"
    assert files.after_power_cut().read_file("/d/a") == b"old"
    assert b"new and longer" in found_contents(files, "/d/a")


def test_what_is_written_again_after_a_failed_sync_is_made_durable_by_the_next():
    files = FailingFilesystem(sector_bytes=4)
    file = written(files, "/a", b"----")
    files.sync_directory("/")
    file.write_at((b"12345678",), 0)
    with pytest.raises(OSError, match="Input/output error"), files.fail("sync"):
        file.sync()
    file.write_at((b"5",), 4)
    file.sync()

    assert files.after_power_cut().read_file("/a") == b"----5678"
    assert found_contents(files, "/a") == {b"----5678", b"12345678"}


def test_after_a_failed_sync_of_a_directory_a_later_one_does_not_save_its_names(files):
    written(files, "/d/a")
    files.fail("sync_directory")
    with pytest.raises(OSError, match="Input/output error"):
        files.sync_directory("/d")
    files.sync_directory("/d")
    assert found_names(files, "/d") == {(), ("a",)}

    files.rename("/d/a", "/d/b")
    files.sync_directory("/d")
    assert found_names(files, "/d") == {("b",)}


def test_a_sync_that_a_test_makes_fail_by_itself_drops_its_bytes_too(files):
    file = written(files, "/d/a", b"x", synced=False)
    files.sync_directory("/d")

    def refuse(operation):
        raise OSError(errno.EIO, operation.name)

    files.before = refuse
    with pytest.raises(OSError, match="sync_data"):
        file.sync_data()
    files.before = lambda operation: None
    file.sync_data()

    assert files.after_power_cut().read_file("/d/a") == b""


# --- a full disk ---------------------------------------------------------------------------------------------------


def test_a_write_is_done_as_far_as_there_is_room(files):
    files.capacity_bytes = 8
    file = written(files, "/d/a", b"12345")
    with pytest.raises(OSError, match="No space left on device"):
        file.write_at((b"678", b"9"), 5)

    assert file.read_at(20, 0) == b"12345678"
    assert files.used_bytes == 8


def test_what_needs_no_room_is_done_on_a_full_disk(files):
    file = written(files, "/d/a", b"12345")
    files.capacity_bytes = files.used_bytes
    file.write_at((b"!",), 0)
    file.sync()
    files.rename("/d/a", "/d/b")

    assert files.read_file("/d/b") == b"!2345"


def test_nothing_new_gets_a_name_on_a_full_disk(files):
    written(files, "/d/a", b"12345")
    files.capacity_bytes = files.used_bytes

    for refused in (
        lambda: files.open("/d/new", create=True),
        lambda: files.make_directories("/d/new"),
        lambda: files.link("/d/a", "/d/new"),
        lambda: files.open("/d/a").truncate(6),
        lambda: files.open("/d/a").write_at((b"x",), 7),
    ):
        with pytest.raises(OSError, match="No space left on device"):
            refused()
    assert tree(files) == {"/d": None, "/e": None, "/d/a": b"12345"}


def test_room_comes_back_with_what_is_removed_cut_off_or_added(files):
    files.capacity_bytes = 10
    first, second = written(files, "/d/a", b"12345"), written(files, "/d/b", b"12345")
    files.remove("/d/a")
    second.write_at((b"67890",), 5)
    with pytest.raises(OSError, match="No space left on device"):
        second.write_at((b"!",), 10)

    second.truncate(9)
    second.write_at((b"!",), 9)
    files.capacity_bytes = 11
    second.write_at((b"!",), 10)

    assert files.read_file("/d/b") == b"123456789!!"
    assert first.read_at(5, 0) == b"12345"


def test_a_file_takes_its_room_once_however_many_names_it_has(files):
    written(files, "/d/a", b"12345")
    files.link("/d/a", "/d/b")

    assert files.used_bytes == 5


# --- flipped bits --------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_read_and_is_found_after_a_power_cut(files):
    file = written(files, "/d/a", b"AAAA")
    files.sync_directory("/d")
    file.write_at((b"BB",), 1)
    files.flip_bit("/d/a", 0, 0)
    files.flip_bit("/d/a", 2, 7)

    assert file.read_at(4, 0) == b"@B\xc2A"
    assert found_contents(files, "/d/a") == {b"@A\xc1A", b"@B\xc2A"}


def test_a_random_bit_is_flipped_and_named(files):
    file = written(files, "/d/a", bytes(100))
    byte, bit = files.flip_random_bit("/d/a", Random(1))

    assert file.read_at(100, 0) == bytes(byte) + bytes((1 << bit,)) + bytes(99 - byte)
    assert files.flip_random_bit("/d/a", Random(2)) != (byte, bit)


def test_there_is_no_bit_to_flip_where_there_is_no_byte(files):
    written(files, "/d/a")

    for refused in (lambda: files.flip_bit("/d/a", 0, 0), lambda: files.flip_random_bit("/d/a", Random(1))):
        with pytest.raises(ValueError, match="/d/a"):
            refused()
    with pytest.raises(FileNotFoundError):
        files.flip_bit("/d/missing", 0, 0)


# --- steps, crashes, syncs that wait -------------------------------------------------------------------------------


def test_operations_are_listed_in_order_with_the_bytes_they_move(files):
    file = files.open("/d/a", create=True)
    file.write_at((b"12", b"345"), 0)
    file.read_at(10, 3)
    files.read_file("/d/a")
    files.link("/d/a", "/e/a")
    files.sync_directory("/e")

    assert files.operations == [
        Operation("create", "/d/a"),
        Operation("write_at", "/d/a", 5),
        Operation("read_at", "/d/a", 2),
        Operation("read_file", "/d/a", 5),
        Operation("link", "/e/a"),
        Operation("sync_directory", "/e"),
    ]
    assert files.bytes_read == 7
    assert files.steps == 4
    assert files.names("link", "create") == ["create", "link"]


def test_a_test_may_look_around_before_an_operation(files):
    seen = []

    def look(operation):
        files.before = lambda operation: None
        seen.append((operation, files.exists("/d/a")))

    files.before = look
    files.open("/d/a", create=True)

    assert seen == [(Operation("create", "/d/a"), False)]


def steps(files):
    file = files.open("/d/a", create=True)
    file.write_at((b"x",), 0)
    file.read_at(1, 0)
    file.truncate(0)
    file.sync_data()
    file.sync()
    files.link("/d/a", "/e/a")
    files.rename("/e/a", "/e/b")
    files.remove("/d/a")
    files.make_directories("/d/sub")
    files.sync_directory("/d")
    files.remove_directory("/d/sub")


def test_a_crash_comes_at_any_operation_that_changes_something_and_nothing_is_done_from_then_on(files):
    dry, states = FailingFilesystem(files.after_kill()), []
    dry.before = lambda operation: states.append(tree(dry.after_kill())) if operation.name in STEPS else None
    steps(dry)
    assert dry.steps == len(states) == 11

    for step, state in enumerate(states):
        crashing = FailingFilesystem(files.after_kill())
        crashing.crash_at(step)
        with pytest.raises(Crashed):
            steps(crashing)
        assert crashing.steps == step
        for refused in (crashing.list_names, crashing.remove_directory, crashing.sync_directory):
            with pytest.raises(Crashed):
                refused("/e")
        assert tree(crashing.after_kill()) == state


def test_a_crash_ends_what_other_threads_are_doing(files):
    file = written(files, "/d/a", b"x", synced=False)
    files.sync_directory("/d")
    with ThreadPoolExecutor(1) as threads:
        with files.syncs_held():
            syncing = threads.submit(file.sync)
            files.wait_for_sync()
            files.crash_at(0)
            with pytest.raises(Crashed):
                files.remove("/d/a")
        with pytest.raises(Crashed):
            syncing.result()

    assert files.after_power_cut().read_file("/d/a") == b""


@pytest.mark.parametrize("sync", ["sync", "sync_data", "sync_directory"])
def test_a_sync_that_is_held_back_ends_when_it_is_let_go(files, sync):
    file = written(files, "/d/a", b"x", synced=False)
    with ThreadPoolExecutor(1) as threads:
        with files.syncs_held():
            syncing = threads.submit((lambda: files.sync_directory("/d")) if "dir" in sync else getattr(file, sync))
            files.wait_for_sync()
            assert not syncing.done()
            assert file.read_at(1, 0) == b"x"
            assert tree(files.after_power_cut()) == {"/d": None, "/e": None}
        syncing.result()
        file.sync()


def test_waiting_for_a_sync_that_does_not_come_ends(files):
    with files.syncs_held(), pytest.raises(TimeoutError):
        files.wait_for_sync(timeout_s=0)


def test_threads_may_share_it(files):
    def work(number):
        file = files.open(f"/d/{number % 5}", create=True)
        file.write_at((b"%d" % number,), number)
        file.sync()
        files.sync_directory("/d")
        if number % 7 == 0:
            files.after_power_cut(Random(number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(300)))

    assert tree(files.after_power_cut()) == tree(files)
