"""A program that scans a region, and says how many entries it had and how its memory grew.

python scanning_program.py BOOTSTRAP NAMESPACE
"""

import asyncio
import json
import resource
import sys

from exactlog.wal import Wal

WARM_UP = 100_000  # entries: until then buffers grow to their size


async def main(bootstrap, namespace):
    async with Wal.open(f"kafka://{bootstrap}", namespace=namespace) as wal:
        region = await wal.open_region(1, read_only=True)
        count, warm_kib = 0, 0
        async for _ in region.scan():
            count += 1
            if count == WARM_UP:
                warm_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm_kib
        print(json.dumps({"count": count, "grown_kib": grown_kib}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
