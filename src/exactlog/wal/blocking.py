"""The write-ahead log for programs without an event loop: each call waits. One loop runs in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from exactlog.core.wal.bounds import Bound, Max, Min
from exactlog.core.wal.cleaning import Cleaning
from exactlog.core.wal.errors import RegionClosedError
from exactlog.core.wal.limits import SCAN_BATCH_ENTRIES
from exactlog.wal.entries import CleanResult, OnProgress, RegionStats, WalEntry
from exactlog.wal.region import Region

Result = TypeVar("Result")

_READ_AHEAD = SCAN_BATCH_ENTRIES  # entries: one hop between the threads for so many


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exactlog-wal", daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[Result]) -> Result:
        """What the work returns or raises."""
        if self._loop.is_closed():
            if isinstance(work, Coroutine):
                work.close()
            raise RegionClosedError("the write-ahead log is closed")
        return asyncio.run_coroutine_threadsafe(_wait_for(work), self._loop).result()

    def close(self) -> None:
        """End the loop and the thread."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncRegion:
    """The twin of `Region`: the same methods, which wait. It may be used by several threads."""

    def __init__(self, loop: _Loop, region: Region[Any]) -> None:
        self._loop = loop
        self._region = region
        self.region = region.region
        self.findings = region.findings

    @property
    def is_usable(self) -> bool:
        """See `Region`."""
        return self._region.is_usable

    @property
    def is_fenced(self) -> bool:
        """See `Region`."""
        return self._region.is_fenced

    @property
    def is_read_only(self) -> bool:
        """See `Region`."""
        return self._region.is_read_only

    def write(self, table: int, entries: Sequence[Any], *, expected_last: int | None = None) -> int:
        """See `Region`."""
        return self._loop.run(self._region.write(table, entries, expected_last=expected_last))

    def write_batch(self, batch: Mapping[int, Sequence[Any]]) -> dict[int, int]:
        """See `Region`."""
        return self._loop.run(self._region.write_batch(batch))

    def sequence_num(self, table: int) -> int:
        """See `Region`."""
        return self._loop.run(self._region.sequence_num(table))

    def read(self, table: int, start: Bound = Min, end: Bound = Max) -> Iterator[WalEntry[Any]]:
        """See `Region`."""
        return self._entries(self._region.read(table, start, end))

    def scan(
        self,
        tables: Collection[int] | None = None,
        *,
        batch_size: int = SCAN_BATCH_ENTRIES,
        on_progress: OnProgress | None = None,
    ) -> Iterator[WalEntry[Any]]:
        """See `Region`. `on_progress` is called in the thread of the loop."""
        return self._entries(self._region.scan(tables, batch_size=batch_size, on_progress=on_progress))

    def scan_batches(
        self,
        tables: Collection[int] | None = None,
        *,
        batch_size: int = SCAN_BATCH_ENTRIES,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[WalEntry[Any]]]:
        """See `Region`. `on_progress` is called in the thread of the loop."""
        batches = self._region.scan_batches(tables, batch_size=batch_size, on_progress=on_progress)
        try:
            while (batch := self._loop.run(anext(batches, None))) is not None:
                yield batch
        finally:
            self._loop.run(batches.aclose())

    def mark_deleted(self, table: int, up_to: int, *, durable: bool = False) -> None:
        """See `Region`."""
        self._loop.run(self._region.mark_deleted(table, up_to, durable=durable))

    def drop_table(self, table: int) -> None:
        """See `Region`."""
        self._loop.run(self._region.drop_table(table))

    def write_snapshot(self) -> None:
        """See `Region`."""
        self._loop.run(self._region.write_snapshot())

    def plan_clean(self) -> Cleaning:
        """See `Region`."""
        return self._loop.run(self._region.plan_clean())

    def clean(self) -> CleanResult:
        """See `Region`."""
        return self._loop.run(self._region.clean())

    def stats(self) -> RegionStats:
        """See `Region`."""
        return self._loop.run(self._region.stats())

    def _entries(self, entries: AsyncGenerator[WalEntry[Any], None]) -> Iterator[WalEntry[Any]]:
        try:
            while some := self._loop.run(_next_of(entries)):
                yield from some
        finally:
            self._loop.run(entries.aclose())


class AsyncWal(Protocol):
    """What has a twin: `Wal`."""

    async def __aenter__(self) -> object: ...
    async def close(self) -> None:
        """See `Wal`."""

    async def regions(self) -> list[int]:
        """See `Wal`."""

    async def open_region(
        self, region: int, *, create: bool, read_only: bool, skip_offsets: Collection[int], accept_loss: bool
    ) -> Region[Any]:
        """See `Wal`."""

    async def close_region(self, region: int) -> None:
        """See `Wal`."""

    async def stats(self) -> list[RegionStats]:
        """See `Wal`."""


class SyncWal:
    """The twin of `Wal`: the same methods, which wait. `Wal.open_sync` makes it."""

    def __init__(self, wal: AsyncWal) -> None:
        """The twin of a log that is not open yet."""
        self._wal = wal
        self._loop: _Loop | None = None

    def __enter__(self) -> Self:
        self._loop = _Loop()
        try:
            self._loop.run(self._wal.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """See `Wal`."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._wal.close())
            finally:
                loop.close()

    def regions(self) -> list[int]:
        """See `Wal`."""
        return self._running().run(self._wal.regions())

    def open_region(
        self,
        region: int,
        *,
        create: bool = False,
        read_only: bool = False,
        skip_offsets: Collection[int] = (),
        accept_loss: bool = False,
    ) -> SyncRegion:
        """See `Wal`."""
        loop = self._running()
        opening = self._wal.open_region(
            region, create=create, read_only=read_only, skip_offsets=skip_offsets, accept_loss=accept_loss
        )
        return SyncRegion(loop, loop.run(opening))

    def close_region(self, region: int) -> None:
        """See `Wal`."""
        self._running().run(self._wal.close_region(region))

    def stats(self) -> list[RegionStats]:
        """See `Wal`."""
        return self._running().run(self._wal.stats())

    def _running(self) -> _Loop:
        if self._loop is None:
            raise RegionClosedError("the write-ahead log is not open", hint="use it as a context: `with`")
        return self._loop


async def _wait_for(work: Awaitable[Result]) -> Result:
    return await work


async def _next_of(entries: AsyncGenerator[WalEntry[Any], None]) -> list[WalEntry[Any]]:
    """The next entries, up to as many as are read ahead; none at the end."""
    some: list[WalEntry[Any]] = []
    async for entry in entries:
        some.append(entry)
        if len(some) == _READ_AHEAD:
            break
    return some
