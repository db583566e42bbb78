"""A program that writes to a region, marks and cleans, and is killed at one of its steps, for good.

    python killed_writer.py BOOTSTRAP NAMESPACE STEP

A step is before or after a request that changes something; what is done is printed once it is promised.
"""

import asyncio
import json
import os
import signal
import sys

from exactlog.client import connect
from exactlog.wal import Wal
from exactlog.wal.client_backend import ClientBackend

DEADLY = {"produce", "commit", "delete_records", "init", "create_topic"}
WRITTEN = {3: [b"a", b"b", b"c", b"d"], 4: [b"x", b"y", b"z"]}


class Steps:
    """Counts steps, and dies at one of them."""

    def __init__(self, deadly):
        self.deadly = deadly
        self.count = 0

    def take(self, name):
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1
        print(json.dumps({"step": name}), flush=True)


class Stepping:
    """Anything, with a step before and after each of its calls that change something."""

    def __init__(self, inner, steps):
        self._inner = inner
        self._steps = steps

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "transactional_producer":
            return lambda *arguments, **options: Stepping(found(*arguments, **options), self._steps)
        if name not in DEADLY:
            return found

        async def call(*arguments, **options):
            self._steps.take(f"before {name}")
            result = await found(*arguments, **options)
            self._steps.take(f"after {name}")
            return result

        return call


def promise(**done):
    print(json.dumps(done), flush=True)


async def main(bootstrap, namespace, step):
    client = Stepping(connect(f"kafka://{bootstrap}"), Steps(step))
    async with ClientBackend(client) as backend, Wal.open(backend, namespace=namespace, clean_interval_s=None) as wal:
        region = await wal.open_region(1, create=True)
        promise(table=3, last=await region.write(3, WRITTEN[3][:3]))
        last = await region.write_batch({3: WRITTEN[3][3:], 4: WRITTEN[4][:2]})
        for table in last:
            promise(table=table, last=last[table])
        await region.mark_deleted(3, 2, durable=True)
        promise(table=3, marked=2)
        promise(table=4, last=await region.write(4, WRITTEN[4][2:]))
        await region.clean()
        await region.mark_deleted(3, 4)
        await region.clean()
        promise(table=3, marked=4)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
