"""Work that nobody waits for: in order within a lane, given up when it fails, final when a sync did."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactlog.storage.background import BackgroundWork
from exactlog.storage.whole_files import SyncFailedError

PATIENCE_S = 20


@pytest.fixture
async def background():
    failed = []
    executor = ThreadPoolExecutor(2)
    work = BackgroundWork(asyncio.get_running_loop(), executor, on_sync_failed=failed.append)
    work.failed = failed
    work.executor = executor
    yield work
    executor.shutdown()


async def test_the_work_of_a_lane_is_done_in_order_and_lanes_run_side_by_side(background):
    slow, quick = background.lane(), background.lane()
    may_end = threading.Event()
    done = []
    slow.submit(lambda: may_end.wait(PATIENCE_S), lambda _: done.append("slow 1"))
    slow.submit(lambda: None, lambda _: done.append("slow 2"))
    slow.submit(lambda: None, lambda _: done.append("slow 3"))
    quick.submit(lambda: None, lambda _: done.append("quick"))
    await quick.wait()
    assert done == ["quick"]

    may_end.set()
    await slow.wait()

    assert done == ["quick", "slow 1", "slow 2", "slow 3"]
    await background.wait()


@pytest.mark.parametrize("error", [OSError("no room"), ValueError("no room in our own code")])
async def test_work_that_fails_is_given_up_and_the_next_goes_on(background, caplog, error):
    lane = background.lane()
    results = []

    def fail():
        raise error

    lane.submit(fail, results.append)
    lane.submit(lambda: 7, results.append)
    await background.wait()

    assert results == [None, 7]
    assert "no room" in caplog.text


async def test_a_failed_sync_in_the_background_is_final(background):
    def fail():
        raise SyncFailedError(5, "Input/output error")

    lane = background.lane()
    lane.submit(fail, pytest.fail)
    await lane.wait()

    assert background.failed == ["[Errno 5] Input/output error"]


async def test_work_that_meets_the_end_of_its_threads_is_dropped(background):
    lane = background.lane()
    results = []
    background.executor.shutdown()
    lane.submit(lambda: 7, results.append)
    lane.submit(lambda: 8, results.append)
    await background.wait()
    await lane.wait()

    assert results == []


async def test_waiting_for_an_idle_lane_returns_at_once(background):
    await background.lane().wait()
    await background.wait()
