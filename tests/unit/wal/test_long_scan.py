"""A scan takes as much memory for many entries as for few."""

import asyncio
import json
import subprocess
import sys
import tracemalloc

import pytest

from exactlog.core.wal.log_entry_format import LogKey, encode_log_key
from exactlog.wal import MemoryBackend, Wal
from exactlog.wal.ports import StoredRecord, TopicBounds
from tests.contract.wal_backends import new_namespace
from tests.peers import PROJECT

COUNT = 50_000
MILLION = 1_000_000
BATCH = 5_000


class LongLog(MemoryBackend):
    """A region of which no record is kept: each is made when it is read."""

    async def bounds(self, topic):
        end = COUNT if "_data_" in topic else 0
        return TopicBounds(0, end, end)

    async def read(self, topic, start, end):
        for offset in range(start, end):
            yield StoredRecord(offset, encode_log_key(LogKey(1, offset % 2, offset // 2 + 1)), b"\x00x")


async def test_a_scan_of_many_small_entries_takes_constant_memory():
    log = LongLog()
    for topic in ("wal_meta_1", "wal_data_1"):
        await log.create_topic(topic, {})
    async with Wal.open(log, clean_interval_s=None) as wal:
        region = await wal.open_region(1)
        count = 0
        tracemalloc.start()
        try:
            async for _ in region.scan():
                count += 1
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert count == COUNT
    assert peak_bytes < 200_000


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("entry_count", [MILLION, pytest.param(10 * MILLION, marks=pytest.mark.long)])
async def test_a_scan_of_millions_of_entries_over_a_broker_takes_constant_memory(exactlog_own_broker, entry_count):
    bootstrap, namespace = exactlog_own_broker.bootstrap_servers, new_namespace()
    async with Wal.open(f"kafka://{bootstrap}", namespace=namespace) as wal:
        region = await wal.open_region(1, create=True)
        for batch in range(entry_count // BATCH):
            await region.write(batch % 5, [b"%d" % number for number in range(BATCH)])

    program = [sys.executable, "-m", "tests.unit.wal.scanning_program", bootstrap, namespace]
    scanning = await asyncio.create_subprocess_exec(*program, cwd=PROJECT, stdout=subprocess.PIPE)
    output, _ = await scanning.communicate()

    told = json.loads(output)
    assert told["count"] == entry_count
    assert told["grown_bytes"] < 16 * 1024 * 1024
