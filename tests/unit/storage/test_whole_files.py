"""A small file is seen whole or not at all, whatever step fails."""

import errno

import pytest

from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.whole_files import SyncFailedError, publish_new, remove_tree, replace
from tests.support.counting_filesystem import CountingFilesystem

SYNCS = {"sync", "sync_directory"}


@pytest.fixture
def filesystem():
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories("/d")
    filesystem.clear()
    return filesystem


def fail_at(filesystem, step):
    """The step-th operation from now on fails; gives the list of the one that did."""
    failed = []
    steps = iter(range(1_000))

    def before(operation):
        if next(steps) == step:
            failed.append(operation)
            raise OSError(errno.EIO, "Input/output error")

    filesystem.before = before
    return failed


def steps_of(write):
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories("/d")
    filesystem.clear()
    write(filesystem, "/d", "a.json", b"new", durable=True)
    return len(filesystem.operations)


def test_a_new_file_is_synced_before_it_has_its_name_and_its_name_last(filesystem):
    publish_new(filesystem, "/d", "a.json", b"new", durable=True)

    assert filesystem.names() == ["create", "truncate", "write_at", "sync", "link", "remove", "sync_directory"]
    assert filesystem.read_file("/d/a.json") == b"new"


def test_a_replaced_file_is_synced_before_it_has_its_name(filesystem):
    replace(filesystem, "/d", "a.json", b"old", durable=True)
    filesystem.clear()
    replace(filesystem, "/d", "a.json", b"new", durable=True)

    assert filesystem.names() == ["create", "truncate", "write_at", "sync", "rename", "sync_directory"]
    assert filesystem.list_names("/d") == ["a.json"]
    assert filesystem.read_file("/d/a.json") == b"new"


@pytest.mark.parametrize("write", [publish_new, replace])
def test_what_need_not_be_durable_is_not_synced(filesystem, write):
    write(filesystem, "/d", "a.json", b"new", durable=False)

    assert not SYNCS.intersection(filesystem.names())
    assert filesystem.read_file("/d/a.json") == b"new"


def test_a_taken_name_stays_as_it_is(filesystem):
    publish_new(filesystem, "/d", "a.json", b"theirs", durable=True)

    with pytest.raises(FileExistsError):
        publish_new(filesystem, "/d", "a.json", b"ours", durable=True)
    assert filesystem.read_file("/d/a.json") == b"theirs"
    assert filesystem.list_names("/d") == ["a.json"]


@pytest.mark.parametrize("write", [publish_new, replace])
def test_a_leftover_of_an_earlier_try_is_overwritten_whole(filesystem, write):
    filesystem.open("/d/.a.json.tmp", create=True).write_at((b"a longer leftover",), 0)
    write(filesystem, "/d", "a.json", b"new", durable=True)

    assert filesystem.read_file("/d/a.json") == b"new"


@pytest.mark.parametrize(
    ("write", "step"), [(write, step) for write in (publish_new, replace) for step in range(steps_of(write))]
)
def test_whatever_step_fails_the_file_is_whole_or_not_there(filesystem, write, step):
    failed = fail_at(filesystem, step)

    with pytest.raises(OSError, match="Input/output error") as caught:
        write(filesystem, "/d", "a.json", b"new", durable=True)
    filesystem.before = lambda operation: None

    (operation,) = failed
    names = filesystem.list_names("/d")
    is_final = operation.name in {*SYNCS, "remove"}
    assert isinstance(caught.value, SyncFailedError) == is_final
    if "a.json" in names:
        assert filesystem.read_file("/d/a.json") == b"new"
        assert is_final, "a refused file is not there"
    if not is_final:
        assert names == [], "nothing is left of a refused file"


def test_a_tree_is_removed_whole(filesystem):
    filesystem.make_directories("/d/x/y/z")
    for path in ("/d/x/a", "/d/x/y/b", "/d/x/y/z/c"):
        filesystem.open(path, create=True)
    filesystem.open("/d/stays", create=True)

    remove_tree(filesystem, "/d/x")

    assert filesystem.list_names("/d") == ["stays"]
