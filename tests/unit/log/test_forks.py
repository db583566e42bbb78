"""A table that is open while its process forks: the child has no part in it."""

import gc
import os
import signal
import threading

import pytest

from exactlog.log import Committed, open_partition
from exactlog.storage import fault_points
from tests.support.other_processes import opens_elsewhere


@pytest.fixture(autouse=True)
def nothing_stays_armed():
    yield
    fault_points.disarm_all()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "topic=orders-part=0"


def in_a_fork(attempt):
    """What becomes of it in a fork of this process: the name of its error. A fork that hangs is killed."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            attempt()
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            os.write(sender, type(error).__name__.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as told:
        name = told.read()
    assert os.waitpid(child, 0)[1] == 0, "the fork was killed"
    return name


def test_a_fork_does_not_write_and_takes_nothing_along(path):
    with open_partition(path) as mine:
        for use in (
            lambda: mine.append([b"of the fork"]),
            lambda: mine.append_transactional([b"of the fork"]).commit(),
            lambda: list(mine.read()),
            mine.current_version,
            mine.maybe_checkpoint,
            lambda: mine.delete_records_before(0),
        ):
            assert in_a_fork(use) == "PartitionClosedError"
        assert in_a_fork(lambda: open_partition(path)) == "DirectoryLockedError"
        assert in_a_fork(lambda: open_partition(path, read_only=True).current_version()) == ""
        assert mine.append([b"a"]) == Committed(1, 0, 0)


@pytest.fixture
def only_ours_is_collected():
    """What tests before this one have left, clients with threads among it, is nothing that a fork can clear away."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("only_ours_is_collected")
def test_a_fork_that_closes_its_copy_does_not_unlock_its_parents(path):
    handles = [open_partition(path)]

    def let_go():
        handles.pop().close()
        gc.collect()

    assert in_a_fork(let_go) == ""
    assert not opens_elsewhere(path)
    handles.pop().close()


def test_a_fork_in_the_middle_of_an_append_of_another_thread_refuses_too(path):
    arrived, go_on = threading.Event(), threading.Event()

    def wait_there():
        arrived.set()
        go_on.wait(30)

    with open_partition(path) as mine:
        thread = threading.Thread(target=lambda: mine.append([b"a"]))
        fault_points.arm("storage.publish.before_link", wait_there)
        thread.start()
        try:
            assert arrived.wait(30)
            assert in_a_fork(lambda: mine.append([b"of the fork"])) == "PartitionClosedError"
        finally:
            go_on.set()
            thread.join()
        assert [record.value for record in mine.read()] == [b"a"]
