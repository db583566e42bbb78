"""336,776 real flights in a write-ahead log of four regions, a table for each carrier; its writer is killed half-way.

Run by `make demo-wal`. Ends with one line `DEMO OK {json}`, or with the reason and a non-zero exit.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from demo.flight_table import Flight
from demo.flights import take_flights, temporary_folder
from demo.group_reading import wait_until
from demo.served_broker import ServedBroker
from demo.story import DemoFailedError, Story, tell_to_its_end
from demo.talking_program import TalkingProgram
from demo.wal_writer import NAMESPACE, REGIONS, Tables, carriers_of, region_of, tables_of
from exactlog.wal import CleanResult, Region, RegionFenced, Wal

WRITER_SECONDS_MAX: Final = 120


class Replay(NamedTuple):
    """What was read back."""

    entries: int
    seconds: float


class RunningWriter(TalkingProgram):
    """The writer, and how many entries of each table it was told are there."""

    def __init__(self, broker: ServedBroker) -> None:
        self.acknowledged: dict[int, int] = {}
        self.is_done = False
        super().__init__("demo.wal_writer", [broker.address])

    @property
    def count(self) -> int:
        """How many entries are acknowledged."""
        return sum(self.acknowledged.copy().values())

    def on_told(self, told: dict[str, Any]) -> None:
        """It has got on."""
        self.is_done = "done" in told
        self.acknowledged |= {int(table): count for table, count in told.get("acknowledged", {}).items()}


def main() -> int:
    """Tell the story, and whether it ended well."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    return tell_to_its_end(run)


def run(story: Story) -> dict[str, Any]:
    """The demo; returns what it showed, in numbers.

    Raises:
        DemoFailedError: something is not as promised.
    """
    story.title("exactlog: real flights in a write-ahead log that many tables share.")
    flights = take_flights(story)
    with temporary_folder() as folder, ServedBroker(folder / "data", log=folder / "broker.log") as broker:
        return run_on(story, broker, flights)


def run_on(story: Story, broker: ServedBroker, flights: Sequence[Flight]) -> dict[str, Any]:
    """The steps, on a broker that is empty; returns what they showed, in numbers.

    Raises:
        DemoFailedError: something is not as promised.
    """
    tables = tables_of(flights)
    story.step(f"A writer takes {len(REGIONS)} regions and puts each flight into the table of its carrier")
    story.tell(f"{len(tables)} carriers are {len(tables)} tables: {', '.join(carriers_of(flights))}")
    acknowledged = write_until_killed(story, broker, total=len(flights))
    replay = asyncio.run(replay_and_compare(story, broker, tables, acknowledged))
    write_the_rest(story, broker, total=len(flights))
    cleaned = asyncio.run(flush_and_clean(story, broker, tables, carriers_of(flights)))
    return {
        "entries": len(flights),
        "tables": len(tables),
        "regions": len(REGIONS),
        "acknowledged_at_kill": sum(acknowledged.values()),
        "recovered_entries": replay.entries,
        "replay_seconds": round(replay.seconds, 2),
        **cleaned,
    }


def write_until_killed(story: Story, broker: ServedBroker, *, total: int) -> dict[int, int]:
    """The first writer, killed half-way; how many entries of each table it was told are there."""
    writer = RunningWriter(broker)
    try:
        wait_until(
            lambda: writer.count >= total // 2 or writer.has_ended,
            "the writer is half-way",
            seconds_max=WRITER_SECONDS_MAX,
        )
    finally:
        writer.kill()
    story.tell(f"kill -9 of the writer after {writer.count:,} acknowledged entries, with more on their way")
    if not 0 < writer.count < total:
        raise DemoFailedError("the writer was to be killed while it writes")
    return writer.acknowledged


async def replay_and_compare(
    story: Story, broker: ServedBroker, tables: Tables, acknowledged: dict[int, int]
) -> Replay:
    """Another owner takes the regions, and replays them: nothing acknowledged is missing, nothing is there twice.

    Raises:
        DemoFailedError: it is not so.
    """
    story.step("Another owner opens the regions and replays them, all four side by side")
    began = time.monotonic()
    found: Tables = {table: [] for table in tables}

    async def replay(region: Region[bytes]) -> None:
        async for entry in region.scan():
            found[entry.table].append(entry.payload)
            if entry.sequence != len(found[entry.table]):
                raise DemoFailedError(f"table {entry.table} has a gap at sequence {entry.sequence}")

    async with Wal.open(f"kafka://{broker.address}", namespace=NAMESPACE) as wal:
        regions = [await wal.open_region(number) for number in REGIONS]
        await asyncio.gather(*map(replay, regions))
        seconds = time.monotonic() - began
        for table, entries in found.items():
            if entries != tables[table][: len(entries)] or len(entries) < acknowledged.get(table, 0):
                raise DemoFailedError(f"table {table} does not hold what was written to it")
        await _fence(story, broker, regions[0])
    count = sum(map(len, found.values()))
    surplus = count - sum(acknowledged.values())
    story.tell(f"{count:,} entries in {seconds:.2f} s: every acknowledged one, in order, sequences without a gap")
    story.tell(f"{surplus:,} of them had been committed and their writer never learnt it; no batch is there in part")
    return Replay(count, seconds)


async def _fence(story: Story, broker: ServedBroker, old: Region[bytes]) -> None:
    """Who takes a region fences its owner of before."""
    async with Wal.open(f"kafka://{broker.address}", namespace=NAMESPACE) as other:
        await other.open_region(old.region)
        try:
            await old.write(next(table for table in range(1, 100) if region_of(table) == old.region), [b"too late"])
        except RegionFenced as error:
            story.tell(f"a third one takes region {old.region}; the second one's next write: {error}")
            return
    raise DemoFailedError("two owners of a region could write")


def write_the_rest(story: Story, broker: ServedBroker, *, total: int) -> None:
    """A writer that goes on where the tables stand."""
    story.step("The writer is started again, and goes on where each table stands")
    writer = RunningWriter(broker)
    try:
        wait_until(lambda: writer.has_ended, "the writer has written all", seconds_max=WRITER_SECONDS_MAX)
    finally:
        writer.stop()
    if not writer.is_done:
        raise DemoFailedError("the writer ended before all was written")
    story.tell(f"all {total:,} flights are in the log")


async def flush_and_clean(
    story: Story, broker: ServedBroker, tables: Tables, carriers: Sequence[str]
) -> dict[str, int]:
    """Tables are flushed elsewhere and marked; what no table needs any more is deleted.

    Raises:
        DemoFailedError: something that was to stay is gone, or the other way round.
    """
    story.step("Tables are flushed, all but the smallest of each region, and the log is cleaned")
    async with Wal.open(f"kafka://{broker.address}", namespace=NAMESPACE, clean_interval_s=None) as wal:
        regions = {number: await wal.open_region(number) for number in REGIONS}
        kept = {
            number: min((table for table in tables if region_of(table) == number), key=lambda table: len(tables[table]))
            for number in REGIONS
        }
        deleted = [0, 0]
        for number, region in regions.items():
            for table in tables:
                if region_of(table) == number and table != kept[number]:
                    await region.mark_deleted(table, await region.sequence_num(table))
            result = await region.clean()
            deleted[0] += result.log_start
            story.tell(_tell(result, await region.stats(), carriers))
            left = [entry.payload async for entry in region.scan()]
            if left != tables[kept[number]]:
                raise DemoFailedError(f"region {number} was to keep the table of {carriers[kept[number] - 1]}, whole")
        story.step("Those are flushed too")
        for number, region in regions.items():
            await region.mark_deleted(kept[number], await region.sequence_num(kept[number]), durable=True)
            result = await region.clean()
            deleted[1] += result.log_start
            story.tell(_tell(result, await region.stats(), carriers))
            if [entry async for entry in region.scan()] or result.pin is not None:
                raise DemoFailedError(f"region {number} was to be empty")
            counts = {table: await region.sequence_num(table) for table in tables if region_of(table) == number}
            if counts != {table: len(tables[table]) for table in counts}:
                raise DemoFailedError(f"region {number} has lost count of its tables")
        story.tell("and each table still knows how far it has come: the next entry gets the next sequence")
    return {"offsets_freed_at_first": deleted[0], "offsets_freed": deleted[1]}


def _tell(result: CleanResult, stats: Any, carriers: Sequence[str]) -> str:  # noqa: ANN401
    freed = f"region {result.region}: the log begins at offset {result.log_start:,} of {stats.end:,} now"
    if result.pin is None:
        return f"{freed}; no table needs anything of it"
    pin = result.pin
    return f"{freed}: entry {pin.sequence} of table {pin.table} ({carriers[pin.table - 1]}) lies there, not yet flushed"


if __name__ == "__main__":
    sys.exit(main())
