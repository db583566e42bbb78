"""Kill -9 of the writer at each of its steps, over a real broker; and of the broker under a writer."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from exactlog.client import ClientSettings
from exactlog.core.model.errors import ExactlogError
from exactlog.wal import Wal
from tests.contract.wal_backends import new_namespace
from tests.unit.wal import killed_writer
from tests.unit.wal.killed_writer import WRITTEN

pytestmark = pytest.mark.slow

NO_STEP = -1


def run_writer(bootstrap, namespace, step):
    command = [sys.executable, killed_writer.__file__, bootstrap, namespace, str(step)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def told(ran):
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    written, marked = {3: 0, 4: 0}, {3: 0, 4: 0}
    for line in lines:
        if "last" in line:
            written[line["table"]] = line["last"]
        elif "marked" in line:
            marked[line["table"]] = line["marked"]
    return [line["step"] for line in lines if "step" in line], written, marked


def check_region(bootstrap, namespace, written, marked):
    """All that was promised is there, a write of two tables whole or not at all, and the region goes on."""
    with Wal.open_sync(f"kafka://{bootstrap}", namespace=namespace, clean_interval_s=None) as wal:
        region = wal.open_region(1, create=True)
        last = {table: region.sequence_num(table) for table in WRITTEN}
        assert (last[3] == 4) == (last[4] >= 2)
        for table, payloads in WRITTEN.items():
            assert last[table] >= written[table]
            if last[table]:
                entries = [(entry.sequence, entry.payload) for entry in region.read(table)]
                first = last[table] - len(entries) + 1
                assert entries == [(number, payloads[number - 1]) for number in range(first, last[table] + 1)]
                assert first - 1 >= marked[table]
        assert region.write(3, [b"next"]) == last[3] + 1


@pytest.mark.timeout(400)
def test_a_writer_that_is_killed_at_any_step_loses_nothing_that_it_promised(exactlog_broker):
    bootstrap = exactlog_broker.bootstrap_servers
    whole = run_writer(bootstrap, new_namespace(), NO_STEP)
    assert whole.returncode == 0, whole.stderr
    steps, written, marked = told(whole)
    assert (written, marked) == ({3: 4, 4: 3}, {3: 4, 4: 0})
    assert {"before commit", "after produce", "after delete_records", "before create_topic"} <= set(steps)

    for step in range(len(steps)):
        namespace = new_namespace()
        killed = run_writer(bootstrap, namespace, step)
        assert killed.returncode == -signal.SIGKILL, f"{step} {steps[step]}: {killed.stderr}"
        _, written, marked = told(killed)

        check_region(bootstrap, namespace, written, marked)


async def test_a_broker_that_is_killed_under_a_writer_loses_nothing_that_was_acknowledged(exactlog_own_broker):
    broker = exactlog_own_broker
    url = f"kafka://{broker.bootstrap_servers}"
    acknowledged = {}
    is_over = asyncio.Event()

    async def write(region, table):
        """Goes on with the entry that is not there yet, whatever became of the last call."""
        while not is_over.is_set():
            last = acknowledged.get(table, 0)
            try:
                acknowledged[table] = await region.write(table, [b"%d" % (last + 1)], expected_last=last)
            except ExactlogError:
                acknowledged[table] = await region.sequence_num(table)

    async with Wal.open(url, settings=ClientSettings(deadline_ms=60_000)) as wal:
        region = await wal.open_region(1, create=True)
        writers = [asyncio.create_task(write(region, table)) for table in range(4)]
        for _ in range(4):
            before = sum(acknowledged.values())
            while sum(acknowledged.values()) < before + 40:  # noqa: ASYNC110  the writers are what turns
                await asyncio.sleep(0.01)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)
        is_over.set()
        await asyncio.gather(*writers)
        region._is_closed = True  # it dies too: without a snapshot

    async with Wal.open(url) as wal:
        region = await wal.open_region(1)
        for table, last in acknowledged.items():
            assert await region.sequence_num(table) == last
            entries = [(entry.sequence, entry.payload) async for entry in region.read(table)]
            assert entries == [(number, b"%d" % number) for number in range(1, last + 1)]
