"""A broker that dies at each step of its own under a writer, and is started again: nothing acknowledged is lost."""

import asyncio
import itertools

import pytest

from demo.served_broker import ServedBroker
from exactlog.client import ClientSettings
from exactlog.core.model.errors import ExactlogError
from exactlog.wal import Wal

pytestmark = pytest.mark.slow

POINTS = {
    "storage.round.before_write": "files",
    "storage.round.after_segment_write": "files",
    "storage.round.after_segment_sync": "files",
    "storage.publish.before_link": "files",
    "storage.publish.after_link": "files",
    "storage.journal.before_write": "journal",
    "storage.journal.after_write": "journal",
    "storage.journal.after_sync": "journal",
    "txn.add.before_data": "files",
    "txn.add.after_data": "journal",
    "txn.end.before_prepare": "files",
    "txn.end.after_prepare": "files",
    "txn.marker.before": "files",
    "txn.marker.after_all": "journal",
    "txn.end.before_complete": "files",
}
"""Where it dies, and under which commit engine."""

OCCURRENCE = 5  # the start itself comes by some of them
TABLE = 3


class Writer:
    """Writes one entry after another, and marks and cleans now and then; what fails is looked at and done again."""

    def __init__(self, region):
        self.region = region
        self.last = 0
        self.marked = 0
        self.durably_marked = 0

    async def step(self, number):
        try:
            if number % 4 == 3:
                self.marked = max(self.marked, self.last - 2)
                await self.region.mark_deleted(TABLE, self.marked, durable=True)
                self.durably_marked = self.marked
                await self.region.clean()
            else:
                payload = b"%d" % (self.last + 1)
                self.last = await self.region.write(TABLE, [payload], expected_last=self.last)
        except ExactlogError:
            await self.look()

    async def look(self):
        """Whether a write that failed is there; while the broker is away nobody knows."""
        try:
            found = await self.region.sequence_num(TABLE)
        except ExactlogError:
            return
        assert found - self.last in (0, 1)
        self.last = found


async def entries(region):
    return [(entry.sequence, entry.payload) async for entry in region.read(TABLE)]


def expected(first, last):
    return [(number, b"%d" % number) for number in range(first, last + 1)]


@pytest.mark.parametrize("point", POINTS)
async def test_a_broker_that_dies_at_any_step_loses_nothing_that_was_acknowledged(tmp_path, point):
    options = ("--set", f"commit.engine={POINTS[point]}")
    settings = ClientSettings(deadline_ms=1_000)
    with ServedBroker(tmp_path / "data", log=tmp_path / "log", options=options) as broker:
        url = f"kafka://{broker.address}"
        async with Wal.open(url, settings=settings, clean_interval_s=None) as wal:
            writer = Writer(await wal.open_region(1, create=True))
            for number in range(8):
                await writer.step(number)
            assert writer.last >= 1
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start, kill_at=f"{point}:{OCCURRENCE}")

            for number in itertools.count():
                await writer.step(number)
                if broker.has_ended:
                    break
                assert number < 200, f"{point} is not come by"
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)

            await writer.look()
            for number in range(8):
                await writer.step(number)
            assert await entries(writer.region) == expected(writer.marked + 1, writer.last)

            async with Wal.open(url, clean_interval_s=None) as other:
                region = await other.open_region(1)
                assert await region.sequence_num(TABLE) == writer.last
                found = await entries(region)
                assert found == expected(writer.last - len(found) + 1, writer.last)
                assert writer.durably_marked <= writer.last - len(found) <= writer.marked
