"""A small store of tables: what is put is in a write-ahead log and in memory, and now and then flushed to a file.

    python examples/table_store.py DIR put TABLE KEY VALUE      put a value; it is durable when this returns
    python examples/table_store.py DIR fill TABLE COUNT         put so many, and be killed by a power cut before the end
    python examples/table_store.py DIR flush TABLE              write a table to its file, and let its log go
    python examples/table_store.py DIR show                     recover, and print every table

Nothing but DIR is needed: the log is a broker of the store's own, in the same process.
"""
# ruff: noqa: INP001, T201  a program, which prints

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Self

from exactlog.wal import Region, Wal

REGION = 1


class TableStore:
    """Tables with keys and values of text. Each has a file with what was flushed, and a memtable with the rest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._wal = Wal.open(f"embedded:{directory / 'wal'}", namespace="tables")
        self._region: Region[bytes] | None = None
        self.memtables: dict[int, dict[str, str]] = {}
        self.replayed = 0

    async def __aenter__(self) -> Self:
        await self._wal.__aenter__()
        self._region = await self._wal.open_region(REGION, create=True)
        await self._recover(self._region)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._wal.close()

    async def put(self, table: int, key: str, value: str) -> None:
        """Put a value. First the log, then the memory: what a reader has seen survives a crash."""
        assert self._region is not None
        await self._region.write(table, [json.dumps([key, value]).encode()])
        self.memtables.setdefault(table, {})[key] = value

    async def flush(self, table: int) -> None:
        """Write a table to its file, mark its entries, and let the log shrink.

        The file says up to which sequence it has everything, so a crash before the mark does no harm.
        """
        assert self._region is not None
        up_to = await self._region.sequence_num(table)
        content = {"up_to": up_to, "rows": dict(sorted(self.memtables.get(table, {}).items()))}
        file = self._file(table)
        aside = file.with_suffix(".new")
        with aside.open("w") as output:
            json.dump(content, output)
            output.flush()
            os.fsync(output.fileno())
        aside.replace(file)
        await self._region.mark_deleted(table, up_to, durable=True)
        await self._region.clean()

    async def _recover(self, region: Region[bytes]) -> None:
        """What was flushed, and then every entry of the log behind that."""
        up_to = {}
        for file in self._directory.glob("table-*.json"):
            table, content = int(file.stem.removeprefix("table-")), json.loads(file.read_text())
            up_to[table], self.memtables[table] = content["up_to"], content["rows"]
        async for entry in region.scan():
            if entry.sequence > up_to.get(entry.table, 0):
                key, value = json.loads(entry.payload)
                self.memtables.setdefault(entry.table, {})[key] = value
                self.replayed += 1

    def _file(self, table: int) -> Path:
        return self._directory / f"table-{table}.json"


async def main(directory: Path, command: str, *arguments: str) -> None:
    """Carry out one command."""
    async with TableStore(directory) as store:
        match command, *arguments:
            case "put", table, key, value:
                await store.put(int(table), key, value)
            case "fill", table, count:
                for number in range(int(count)):
                    await store.put(int(table), f"key {number}", f"value {number}")
                    print(f"key {number}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "flush", table:
                await store.flush(int(table))
            case ("show",):
                print(json.dumps({"replayed": store.replayed, "tables": store.memtables}))
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
