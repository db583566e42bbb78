"""The writer of `demo.wal_flights`: every flight into the table of its carrier, in regions, until it is killed.

    python -m demo.wal_writer HOST:PORT

It goes on where the tables stand, and tells after each round how many entries of each table are acknowledged.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from demo.flight_table import Flight, fetch_archive, read_flights
from demo.flights import CACHE
from exactlog.wal import Region, Wal

NAMESPACE: Final = "flights"
REGIONS: Final = range(4)
ROUND_FLIGHTS: Final = 2_000

Tables = dict[int, list[bytes]]


def carriers_of(flights: Sequence[Flight]) -> list[str]:
    """The carriers in order of their codes; the table of a carrier is its place in it, from 1 on."""
    return sorted({carrier_of(flight) for flight in flights})


def carrier_of(flight: Flight) -> str:
    """Its code."""
    carrier: str = json.loads(flight.value)["carrier"]
    return carrier


def tables_of(flights: Sequence[Flight]) -> Tables:
    """All entries of each table, in the order in which they are written."""
    table_of = {carrier: table for table, carrier in enumerate(carriers_of(flights), 1)}
    tables: Tables = {table: [] for table in table_of.values()}
    for flight in flights:
        tables[table_of[carrier_of(flight)]].append(flight.value)
    return tables


def region_of(table: int) -> int:
    """In which region a table is."""
    return REGIONS[table % len(REGIONS)]


async def write_all(address: str, flights: Sequence[Flight]) -> None:
    """Write what is not there yet."""
    tables = tables_of(flights)
    async with Wal.open(f"kafka://{address}", namespace=NAMESPACE) as wal:
        regions = {number: await wal.open_region(number, create=True) for number in REGIONS}
        rest = {
            table: iter(entries[await regions[region_of(table)].sequence_num(table) :])
            for table, entries in tables.items()
        }
        await asyncio.gather(*(_write_region(region, number, rest) for number, region in regions.items()))


async def _write_region(region: Region[bytes], number: int, rest: dict[int, Iterator[bytes]]) -> None:
    """Write the rest of the tables of one region, side by side: one batch of all of them at a time."""
    own = {table: entries for table, entries in rest.items() if region_of(table) == number}
    while True:
        batch = {table: some for table, entries in own.items() if (some := list(islice(entries, ROUND_FLIGHTS)))}
        if not batch:
            return
        written = await region.write_batch(batch)
        print(json.dumps({"acknowledged": written}), flush=True)


def main() -> int:
    """Run until all is written."""
    (address,) = sys.argv[1:]
    asyncio.run(write_all(address, read_flights(fetch_archive(CACHE))))
    print(json.dumps({"done": True}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
