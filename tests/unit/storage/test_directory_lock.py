"""One owner for a data directory, across processes and within one."""

import json
import os
import subprocess
import sys

import pytest

from exactlog.core.model.errors import DirectoryLockedError
from exactlog.storage.directory_lock import DirectoryLock
from tests.support.descriptors import open_descriptors

HOLD = """
import sys
from exactlog.storage.directory_lock import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from exactlog.core.model.errors import DirectoryLockedError
from exactlog.storage.directory_lock import DirectoryLock
try:
    DirectoryLock(sys.argv[1])
except DirectoryLockedError as error:
    print(error.owner_pid)
    sys.exit(9)
"""


def python(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_second_process_is_refused_and_told_by_whom(tmp_path):
    with DirectoryLock(str(tmp_path)):
        second = python(TRY, tmp_path)
        told, _ = second.communicate(timeout=30)

    assert second.returncode == 9
    assert told.strip() == str(os.getpid())


def test_a_process_that_is_killed_holds_nothing_any_more(tmp_path):
    with python(HOLD, tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLockedError) as caught:
            DirectoryLock(str(tmp_path))
        assert caught.value.owner_pid == holder.pid
        assert str(holder.pid) in str(caught.value)
        assert caught.value.owner_host in str(caught.value)
        assert caught.value.hint
        holder.kill()
        holder.wait(timeout=30)

    DirectoryLock(str(tmp_path)).release()


def test_within_one_process_it_is_held_once_too(tmp_path):
    with DirectoryLock(str(tmp_path)), pytest.raises(DirectoryLockedError):
        DirectoryLock(str(tmp_path))


def test_after_a_release_anybody_may_have_it_and_the_file_names_the_new_owner(tmp_path):
    first = DirectoryLock(str(tmp_path))
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": "a longer name than ours, to be overwritten" * 3}))
    first.release()
    first.release()

    with DirectoryLock(str(tmp_path)):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", ["", "not JSON", "[]", "\0\0\0"])
def test_an_owner_that_has_not_said_who_it_is_is_another_process(tmp_path, content):
    with DirectoryLock(str(tmp_path)):
        (tmp_path / "lock").write_text(content)
        with pytest.raises(DirectoryLockedError, match="another process"):
            DirectoryLock(str(tmp_path))


def test_a_directory_that_is_missing_is_made(tmp_path):
    DirectoryLock(str(tmp_path / "a" / "b")).release()

    assert (tmp_path / "a" / "b" / "lock").exists()


def test_a_refused_lock_leaves_no_descriptor_open(tmp_path):
    with DirectoryLock(str(tmp_path)):
        before = open_descriptors(tmp_path)
        for _ in range(3):
            with pytest.raises(DirectoryLockedError):
                DirectoryLock(str(tmp_path))
        assert open_descriptors(tmp_path) == before
