"""What every implementation of the file system port does alike."""

import errno
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from exactlog.testing import FailingFilesystem, Operation
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.descriptors import open_descriptors

IMPLEMENTATIONS = {
    "os": OsFilesystem,
    "memory": MemoryFilesystem,
    "counting": lambda: CountingFilesystem(MemoryFilesystem()),
    "failing": FailingFilesystem,
}


@pytest.fixture(params=IMPLEMENTATIONS)
def filesystem(request):
    return IMPLEMENTATIONS[request.param]()


@pytest.fixture
def root(filesystem, tmp_path):
    path = str(tmp_path / "root")
    filesystem.make_directories(path)
    return path


def write(filesystem, path, content):
    filesystem.open(path, create=True).write_at((content,), 0)


# --- files -------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_made_only_when_asked_for(filesystem, root):
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{root}/a")
    assert not filesystem.exists(f"{root}/a")

    filesystem.open(f"{root}/a", create=True)

    assert filesystem.exists(f"{root}/a")
    assert filesystem.file_size(f"{root}/a") == 0
    assert filesystem.read_file(f"{root}/a") == b""


def test_opening_with_create_keeps_what_is_there(filesystem, root):
    write(filesystem, f"{root}/a", b"kept")

    assert filesystem.open(f"{root}/a", create=True).read_at(10, 0) == b"kept"


def test_exclusive_creation_happens_once(filesystem, root):
    filesystem.open(f"{root}/a", create=True, exclusive=True)

    with pytest.raises(FileExistsError):
        filesystem.open(f"{root}/a", create=True, exclusive=True)


def test_a_file_in_a_missing_directory_cannot_be_made(filesystem, root):
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{root}/missing/a", create=True)
    assert not filesystem.exists(f"{root}/missing/a")


def test_a_directory_cannot_be_opened_as_a_file(filesystem, root):
    filesystem.make_directories(f"{root}/d")

    for create in (False, True):
        with pytest.raises(IsADirectoryError):
            filesystem.open(f"{root}/d", create=create)
    assert filesystem.list_names(f"{root}/d") == []


def test_bytes_are_read_where_they_were_written(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"hello", bytearray(b" "), memoryview(b"world")), 0)
    file.write_at((b"J",), 0)

    assert file.read_at(11, 0) == b"Jello world"
    assert file.read_at(5, 6) == b"world"
    assert file.size() == filesystem.file_size(f"{root}/a") == 11


def test_a_read_at_the_end_of_the_file_is_short(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"12345",), 0)

    assert file.read_at(10, 3) == b"45"
    assert file.read_at(10, 5) == b""
    assert file.read_at(10, 50) == b""
    assert file.read_at(0, 0) == b""


def test_a_gap_that_was_never_written_reads_as_zeros(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"x",), 4)

    assert file.read_at(10, 0) == b"\0\0\0\0x"


def test_nothing_written_behind_the_end_makes_no_gap(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((), 10)
    file.write_at((b"", b""), 10)

    assert file.size() == 0


def test_a_buffer_may_be_used_again_once_it_is_written(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    buffer = bytearray(b"first")
    file.write_at((buffer,), 0)
    buffer[:] = b"other"

    assert file.read_at(5, 0) == b"first"


def test_what_was_read_does_not_change_with_the_file(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"first",), 0)
    found, all_of_it = file.read_at(5, 0), filesystem.read_file(f"{root}/a")
    file.write_at((b"other",), 0)

    assert found == all_of_it == b"first"


def test_any_number_of_buffers_is_written_whole(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    buffers = [b"%04d" % number for number in range(5_000)]
    file.write_at(buffers, 3)
    file.write_at((), 3)

    assert file.read_at(1 << 20, 3) == b"".join(buffers)


def test_truncating_cuts_or_extends_with_zeros(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"12345",), 0)
    file.truncate(2)
    assert filesystem.read_file(f"{root}/a") == b"12"

    file.truncate(4)

    assert filesystem.read_file(f"{root}/a") == b"12\0\0"


def test_cut_off_bytes_do_not_come_back(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"12345",), 0)
    file.truncate(2)
    file.write_at((b"x",), 6)

    assert filesystem.read_file(f"{root}/a") == b"12\0\0\0\0x"


def test_a_file_opened_to_be_read_cannot_be_changed(filesystem, root):
    write(filesystem, f"{root}/a", b"kept")
    file = filesystem.open(f"{root}/a", read_only=True)

    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at((b"x",), 0)
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(0)
    assert file.read_at(10, 0) == filesystem.read_file(f"{root}/a") == b"kept"
    file.sync_data()


def test_a_file_opened_twice_is_one_file(filesystem, root):
    first = filesystem.open(f"{root}/a", create=True)
    second = filesystem.open(f"{root}/a", read_only=True)
    first.write_at((b"seen",), 0)

    assert second.read_at(10, 0) == b"seen"
    assert second.size() == 4


def test_an_open_file_outlives_its_name(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"old",), 0)
    filesystem.remove(f"{root}/a")
    write(filesystem, f"{root}/a", b"another")
    file.write_at((b"!",), 3)

    assert file.read_at(10, 0) == b"old!"
    assert filesystem.read_file(f"{root}/a") == b"another"


def test_an_open_file_outlives_being_replaced(filesystem, root):
    write(filesystem, f"{root}/a", b"old")
    old = filesystem.open(f"{root}/a")
    write(filesystem, f"{root}/b", b"new")
    filesystem.rename(f"{root}/b", f"{root}/a")

    assert old.read_at(10, 0) == b"old"
    assert filesystem.read_file(f"{root}/a") == b"new"


def test_an_open_file_goes_along_with_its_new_name(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    filesystem.rename(f"{root}/a", f"{root}/b")
    file.write_at((b"x",), 0)

    assert filesystem.read_file(f"{root}/b") == b"x"


def test_syncs_of_what_is_there_succeed(filesystem, root):
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"x",), 0)
    file.sync_data()
    file.sync()
    filesystem.sync_directory(root)
    tree = filesystem.open_tree(root)
    write(filesystem, f"{root}/later", b"x")
    tree.sync_all()
    for sync in (filesystem.sync_directory, filesystem.open_tree):
        with pytest.raises(FileNotFoundError):
            sync(f"{root}/missing")


def test_what_is_not_there_has_no_size_and_no_bytes(filesystem, root):
    for ask in (filesystem.file_size, filesystem.read_file, filesystem.remove):
        with pytest.raises(FileNotFoundError):
            ask(f"{root}/missing")


# --- names -------------------------------------------------------------------------------------------------------


def test_a_directory_lists_its_names_and_no_deeper(filesystem, root):
    filesystem.make_directories(f"{root}/d/e")
    write(filesystem, f"{root}/a", b"")
    write(filesystem, f"{root}/d/b", b"")

    assert sorted(filesystem.list_names(root)) == ["a", "d"]
    assert sorted(filesystem.list_names(f"{root}/d")) == ["b", "e"]
    assert filesystem.exists(f"{root}/d/e")
    with pytest.raises(FileNotFoundError):
        filesystem.list_names(f"{root}/missing")


def test_a_list_of_names_is_not_changed_later(filesystem, root):
    write(filesystem, f"{root}/a", b"")
    names = filesystem.list_names(root)
    write(filesystem, f"{root}/b", b"")

    assert names == ["a"]


def test_a_file_is_no_directory(filesystem, root):
    write(filesystem, f"{root}/a", b"x")
    write(filesystem, f"{root}/b", b"y")

    for refused in (
        lambda: filesystem.list_names(f"{root}/a"),
        lambda: filesystem.sync_directory(f"{root}/a"),
        lambda: filesystem.open_tree(f"{root}/a"),
        lambda: filesystem.remove_directory(f"{root}/a"),
        lambda: filesystem.open(f"{root}/a/c"),
        lambda: filesystem.open(f"{root}/a/c", create=True),
        lambda: filesystem.read_file(f"{root}/a/c/d"),
        lambda: filesystem.remove(f"{root}/a/c"),
        lambda: filesystem.rename(f"{root}/b", f"{root}/a/c"),
        lambda: filesystem.link(f"{root}/b", f"{root}/a/c"),
        lambda: filesystem.make_directories(f"{root}/a/c/d"),
    ):
        with pytest.raises(NotADirectoryError):
            refused()
    assert not filesystem.exists(f"{root}/a/c")
    assert sorted(filesystem.list_names(root)) == ["a", "b"]


def test_making_a_directory_again_changes_nothing(filesystem, root):
    filesystem.make_directories(f"{root}/d/e")
    write(filesystem, f"{root}/d/e/a", b"x")
    filesystem.make_directories(f"{root}/d/e")

    assert filesystem.list_names(f"{root}/d/e") == ["a"]


def test_a_directory_cannot_have_the_name_of_a_file(filesystem, root):
    write(filesystem, f"{root}/a", b"x")

    with pytest.raises(FileExistsError):
        filesystem.make_directories(f"{root}/a")
    assert filesystem.read_file(f"{root}/a") == b"x"


def test_only_an_empty_directory_is_removed(filesystem, root):
    filesystem.make_directories(f"{root}/d")
    write(filesystem, f"{root}/d/a", b"")
    with pytest.raises(OSError, match="not empty"):
        filesystem.remove_directory(f"{root}/d")

    filesystem.remove(f"{root}/d/a")
    filesystem.remove_directory(f"{root}/d")

    assert not filesystem.exists(f"{root}/d")
    assert filesystem.list_names(root) == []
    with pytest.raises(FileNotFoundError):
        filesystem.remove_directory(f"{root}/d")


def test_removing_a_directory_as_if_it_were_a_file_is_refused(filesystem, root):
    filesystem.make_directories(f"{root}/d")

    with pytest.raises((IsADirectoryError, PermissionError)):
        filesystem.remove(f"{root}/d")
    assert filesystem.exists(f"{root}/d")


def test_a_rename_replaces_a_file_of_that_name(filesystem, root):
    write(filesystem, f"{root}/a", b"new")
    write(filesystem, f"{root}/b", b"old and longer")
    filesystem.rename(f"{root}/a", f"{root}/b")

    assert filesystem.list_names(root) == ["b"]
    assert filesystem.read_file(f"{root}/b") == b"new"
    with pytest.raises(FileNotFoundError):
        filesystem.rename(f"{root}/a", f"{root}/c")


def test_a_rename_to_another_name_of_the_same_file_keeps_both(filesystem, root):
    write(filesystem, f"{root}/a", b"x")
    filesystem.link(f"{root}/a", f"{root}/b")
    filesystem.rename(f"{root}/a", f"{root}/b")

    assert sorted(filesystem.list_names(root)) == ["a", "b"]


def test_a_rename_never_puts_a_file_in_the_place_of_a_directory_nor_one_of_these_in_that_of_a_file(filesystem, root):
    write(filesystem, f"{root}/a", b"x")
    filesystem.make_directories(f"{root}/d")

    with pytest.raises(IsADirectoryError):
        filesystem.rename(f"{root}/a", f"{root}/d")
    with pytest.raises(NotADirectoryError):
        filesystem.rename(f"{root}/d", f"{root}/a")
    assert filesystem.read_file(f"{root}/a") == b"x"
    assert filesystem.list_names(f"{root}/d") == []


def test_a_rename_into_a_missing_directory_changes_nothing(filesystem, root):
    write(filesystem, f"{root}/a", b"x")
    filesystem.make_directories(f"{root}/d")

    for source in ("a", "d"):
        with pytest.raises(FileNotFoundError):
            filesystem.rename(f"{root}/{source}", f"{root}/missing/b")
    assert sorted(filesystem.list_names(root)) == ["a", "d"]


def test_a_directory_is_never_moved_into_itself(filesystem, root):
    filesystem.make_directories(f"{root}/d/e")

    with pytest.raises(OSError, match="Invalid argument"):
        filesystem.rename(f"{root}/d", f"{root}/d/e/f")
    assert filesystem.list_names(root) == ["d"]


def test_a_renamed_directory_replaces_an_empty_one(filesystem, root):
    filesystem.make_directories(f"{root}/new")
    write(filesystem, f"{root}/new/a", b"x")
    filesystem.make_directories(f"{root}/old")
    filesystem.rename(f"{root}/new", f"{root}/old")

    assert filesystem.list_names(root) == ["old"]
    assert filesystem.read_file(f"{root}/old/a") == b"x"


def test_a_rename_to_the_same_name_changes_nothing(filesystem, root):
    write(filesystem, f"{root}/a", b"x")
    filesystem.rename(f"{root}/a", f"{root}/a")

    assert filesystem.list_names(root) == ["a"]
    assert filesystem.read_file(f"{root}/a") == b"x"


def test_a_renamed_directory_takes_everything_below_it_along(filesystem, root):
    filesystem.make_directories(f"{root}/from/d/e")
    write(filesystem, f"{root}/from/d/a", b"x")
    filesystem.make_directories(f"{root}/to")
    filesystem.rename(f"{root}/from/d", f"{root}/to/d2")

    assert filesystem.list_names(f"{root}/from") == []
    assert sorted(filesystem.list_names(f"{root}/to/d2")) == ["a", "e"]
    assert filesystem.read_file(f"{root}/to/d2/a") == b"x"
    assert not filesystem.exists(f"{root}/from/d/a")
    assert not filesystem.exists(f"{root}/from/d")


def test_a_directory_is_never_renamed_over_one_that_holds_something(filesystem, root):
    filesystem.make_directories(f"{root}/new")
    filesystem.make_directories(f"{root}/old")
    write(filesystem, f"{root}/old/precious", b"x")

    with pytest.raises(OSError, match="not empty"):
        filesystem.rename(f"{root}/new", f"{root}/old")
    assert filesystem.read_file(f"{root}/old/precious") == b"x"
    assert sorted(filesystem.list_names(root)) == ["new", "old"]


def test_a_link_is_a_second_name_of_the_same_bytes(filesystem, root):
    write(filesystem, f"{root}/a", b"x")
    filesystem.link(f"{root}/a", f"{root}/b")
    filesystem.remove(f"{root}/a")

    assert filesystem.read_file(f"{root}/b") == b"x"
    assert filesystem.list_names(root) == ["b"]


def test_a_link_never_takes_a_name_that_is_in_use(filesystem, root):
    write(filesystem, f"{root}/a", b"mine")
    write(filesystem, f"{root}/b", b"theirs")
    filesystem.make_directories(f"{root}/d")

    for taken in ("b", "d"):
        with pytest.raises(FileExistsError):
            filesystem.link(f"{root}/a", f"{root}/{taken}")
    assert filesystem.read_file(f"{root}/b") == b"theirs"
    with pytest.raises(FileNotFoundError):
        filesystem.link(f"{root}/missing", f"{root}/c")
    with pytest.raises(FileNotFoundError):
        filesystem.link(f"{root}/a", f"{root}/missing/c")


def test_a_directory_gets_no_second_name(filesystem, root):
    filesystem.make_directories(f"{root}/d")

    with pytest.raises((PermissionError, IsADirectoryError)):
        filesystem.link(f"{root}/d", f"{root}/e")
    assert filesystem.list_names(root) == ["d"]


@pytest.mark.parametrize("take", ["link", "create"])
def test_a_name_is_taken_once_however_many_threads_want_it(filesystem, root, take):
    write(filesystem, f"{root}/mine", b"")

    def wins(name):
        try:
            if take == "link":
                filesystem.link(f"{root}/mine", name)
            else:
                filesystem.open(name, create=True, exclusive=True)
        except FileExistsError:
            return False
        return True

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            names = [f"{root}/{number}" for number in range(200) for _ in range(4)]
            assert sum(threads.map(wins, names)) == 200
    finally:
        sys.setswitchinterval(before)


def test_a_file_is_read_while_another_thread_makes_it_longer(filesystem, root):
    """A reader on the event loop beside a round on its thread."""
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at((b"x" * 4096,), 0)

    def grow():
        for position in range(4096, 4096 + 20_000 * 8, 8):
            file.write_at((b"12345678",), position)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as writer:
            growing = writer.submit(grow)
            while not growing.done():
                assert file.read_at(4096, 0) == b"x" * 4096
            growing.result()
    finally:
        sys.setswitchinterval(before)

    assert file.size() == 4096 + 20_000 * 8


# --- all of it -----------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "d", "e", "d/a", "d/b", "d/e", "a/b", "d/e/a"]
names = st.sampled_from(NAMES)
small = st.integers(0, 40)
calls = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, st.binary(max_size=30), small),
        st.tuples(st.just("truncate"), names, small),
        st.tuples(st.sampled_from(["create", "create_new", "read", "read_some", "remove"]), names),
        st.tuples(st.sampled_from(["make_directories", "remove_directory", "list", "sync_directory", "exists"]), names),
        st.tuples(st.sampled_from(["rename", "link"]), names, names),
    ),
    max_size=25,
)


def carry_out(filesystem, root, call, *arguments):
    """What the call gives: a value, or the kind of its error."""
    paths = [f"{root}/{argument}".rstrip("/") if isinstance(argument, str) else argument for argument in arguments]
    path = paths[0]
    try:
        match call:
            case "write":
                return filesystem.open(path).write_at((paths[1],), paths[2])
            case "truncate":
                return filesystem.open(path).truncate(paths[1])
            case "create" | "create_new":
                return filesystem.open(path, create=True, exclusive=call == "create_new").size()
            case "read":
                return filesystem.read_file(path)
            case "read_some":
                return filesystem.open(path, read_only=True).read_at(20, 5)
            case "list":
                return sorted(filesystem.list_names(path))
            case _:
                return getattr(filesystem, call)(*paths)
    except OSError as error:
        return "a directory" if error.errno in {errno.EPERM, errno.EISDIR} else error.errno


@given(calls=calls)
def test_they_all_do_the_same(calls):
    with tempfile.TemporaryDirectory() as directory:
        filesystems = [make() for make in IMPLEMENTATIONS.values()]
        for filesystem in filesystems:
            filesystem.make_directories(directory)
        for call in [*calls, *(("read", name) for name in NAMES), *(("list", name) for name in [*NAMES, ""])]:
            expected, *given = [carry_out(filesystem, directory, *call) for filesystem in filesystems]
            assert given == [expected] * len(given), call


# --- the operating system's own ways -----------------------------------------------------------------------------


def test_a_write_that_the_kernel_cuts_short_is_finished(tmp_path, monkeypatch):
    real_pwrite, real_pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: real_pwritev(fd, [bytes(buffers[0])[:3]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, content, at: real_pwrite(fd, content[:4], at))
    file = OsFilesystem().open(str(tmp_path / "a"), create=True)

    file.write_at((b"hello", b" ", b"wide", b" world"), 2)

    assert file.read_at(100, 2) == b"hello wide world"


def test_a_read_that_the_kernel_cuts_short_is_finished(tmp_path, monkeypatch):
    real_pread = os.pread
    file = OsFilesystem().open(str(tmp_path / "a"), create=True)
    file.write_at((b"hello world",), 0)
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_pread(fd, min(size, 3), at))

    assert file.read_at(9, 2) == b"llo world"
    assert file.read_at(100, 2) == b"llo world"


def test_a_file_that_nobody_uses_any_more_closes_itself(tmp_path):
    before = open_descriptors(tmp_path)
    file = OsFilesystem().open(str(tmp_path / "a"), create=True)
    assert open_descriptors(tmp_path) == before + 1

    del file

    assert open_descriptors(tmp_path) == before


# --- the one that counts -----------------------------------------------------------------------------------------


def test_the_counting_file_system_counts_operations_and_bytes():
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories("/d")
    file = filesystem.open("/d/a", create=True)
    file.write_at((b"12", b"345"), 0)
    file.read_at(3, 1)
    filesystem.read_file("/d/a")

    assert filesystem.operations == [
        Operation("make_directories", "/d"),
        Operation("create", "/d/a"),
        Operation("write_at", "/d/a", 5),
        Operation("read_at", "/d/a", 3),
        Operation("read_file", "/d/a", 5),
    ]
    assert filesystem.bytes_read == 8


def test_the_counting_file_system_lets_a_test_step_in_first():
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories("/d")

    def refuse(operation):
        raise OSError(operation.name)

    filesystem.before = refuse
    with pytest.raises(OSError, match="create"):
        filesystem.open("/d/a", create=True)
    filesystem.before = lambda operation: None

    assert not filesystem.exists("/d/a")
