"""A program that scans a region, and says how many entries it had and how its memory grew.

python -m tests.unit.wal.scanning_program BOOTSTRAP NAMESPACE
"""

import asyncio
import json
import sys

from exactlog.wal import Wal
from tests.support.memory_peak import peak_bytes

WARM_UP = 100_000  # entries: until then buffers grow to their size


async def main(bootstrap, namespace):
    async with Wal.open(f"kafka://{bootstrap}", namespace=namespace) as wal:
        region = await wal.open_region(1, read_only=True)
        count, warm_bytes = 0, 0
        async for _ in region.scan():
            count += 1
            if count == WARM_UP:
                warm_bytes = peak_bytes()
        print(json.dumps({"count": count, "grown_bytes": peak_bytes() - warm_bytes}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
