"""The bounded set of open files: the oldest one goes, but never from under somebody who uses it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exactlog.storage.filesystem import MemoryFilesystem, OsFilesystem
from exactlog.storage.open_files import OpenFiles
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.descriptors import open_descriptors


@pytest.fixture
def filesystem():
    filesystem = CountingFilesystem(MemoryFilesystem())
    filesystem.make_directories("/d/e")
    for name in "abc":
        filesystem.open(f"/d/{name}", create=True).write_at((name.encode(),), 0)
    filesystem.clear()
    return filesystem


def opened(filesystem):
    return [operation.path for operation in filesystem.operations if operation.name in {"open", "create"}]


def test_a_file_is_opened_once_while_it_stays(filesystem):
    files = OpenFiles(filesystem, files_max=3)

    assert files.get("/d/a") is files.get("/d/a")
    assert opened(filesystem) == ["/d/a"]


def test_the_least_recently_used_file_goes_first(filesystem):
    files = OpenFiles(filesystem, files_max=2)
    for name in "abac":
        files.get(f"/d/{name}")
    assert len(files) == 2
    filesystem.clear()

    files.get("/d/a")
    files.get("/d/c")
    assert opened(filesystem) == []
    files.get("/d/b")
    assert opened(filesystem) == ["/d/b"]


def test_a_file_in_use_is_never_closed(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text(name)
    files = OpenFiles(OsFilesystem(), files_max=1)
    in_use = files.get(str(tmp_path / "a"))
    before = open_descriptors(tmp_path)
    files.get(str(tmp_path / "b"))
    files.get(str(tmp_path / "c"))

    assert in_use.read_at(1, 0) == b"a"
    in_use.write_at((b"A",), 0)
    in_use.sync_data()
    assert open_descriptors(tmp_path) == before + 1, "what nobody uses is closed"
    del in_use
    assert open_descriptors(tmp_path) == before


def test_a_file_is_used_by_many_threads_while_it_comes_and_goes(tmp_path):
    paths = [str(tmp_path / f"{number}") for number in range(8)]
    for path in paths:
        Path(path).write_text(path)
    files = OpenFiles(OsFilesystem(), files_max=2)

    def read(first):
        for turn in range(400):
            path = paths[(first + turn) % len(paths)]
            assert files.get(path).read_at(1_000, 0) == path.encode()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(read, range(6)))

    assert len(files) == 2


def test_a_missing_file_is_made_only_when_asked_for(filesystem):
    files = OpenFiles(filesystem, files_max=2)
    with pytest.raises(FileNotFoundError):
        files.get("/d/new")
    assert len(files) == 0

    files.get("/d/new", create=True)

    assert filesystem.exists("/d/new")


def test_a_forgotten_file_is_opened_anew(filesystem):
    files = OpenFiles(filesystem, files_max=5)
    files.get("/d/a")
    files.forget("/d/a")
    files.forget("/d/a")
    filesystem.remove("/d/a")

    with pytest.raises(FileNotFoundError):
        files.get("/d/a")


def test_all_files_below_a_directory_are_forgotten_and_no_others(filesystem):
    files = OpenFiles(filesystem, files_max=9)
    for path in ("/d/e/x", "/d/e/y", "/d/ex"):
        files.get(path, create=True)
    files.forget_directory("/d/e")

    assert len(files) == 1
    filesystem.clear()
    files.get("/d/ex")
    assert opened(filesystem) == []


def test_read_only_files_cannot_be_written(tmp_path):
    (tmp_path / "a").write_text("a")
    files = OpenFiles(OsFilesystem(), files_max=1, read_only=True)

    with pytest.raises(OSError, match="Bad file descriptor"):
        files.get(str(tmp_path / "a")).write_at((b"b",), 0)
    assert files.get(str(tmp_path / "a")).read_at(1, 0) == b"a"
