"""The write-ahead log for programs without an event loop: each call waits. One loop runs in a thread of its own."""

from collections.abc import Collection, Iterator
from typing import Any, Protocol, Self

from exactlog.client.blocking_loop import BlockingLoop, Twin, waited
from exactlog.core.wal.bounds import Bound, Max, Min
from exactlog.core.wal.errors import RegionClosedError
from exactlog.core.wal.limits import SCAN_BATCH_ENTRIES
from exactlog.wal.entries import OnProgress, RegionStats, WalEntry
from exactlog.wal.region import Region

_READ_AHEAD = SCAN_BATCH_ENTRIES  # entries: one hop between the threads for so many


class SyncRegion(Twin[Region[Any]]):
    """The twin of `Region`: the same methods, which wait. It may be used by several threads."""

    write = waited(Region[Any].write)
    write_batch = waited(Region[Any].write_batch)
    sequence_num = waited(Region[Any].sequence_num)
    mark_deleted = waited(Region[Any].mark_deleted)
    drop_table = waited(Region[Any].drop_table)
    write_snapshot = waited(Region[Any].write_snapshot)
    plan_clean = waited(Region[Any].plan_clean)
    clean = waited(Region[Any].clean)
    stats = waited(Region[Any].stats)

    def __init__(self, loop: BlockingLoop, region: Region[Any]) -> None:
        super().__init__(region, loop)
        self.region = region.region
        self.findings = region.findings

    @property
    def is_usable(self) -> bool:
        """See `Region`."""
        return self.original.is_usable

    @property
    def is_fenced(self) -> bool:
        """See `Region`."""
        return self.original.is_fenced

    @property
    def is_read_only(self) -> bool:
        """See `Region`."""
        return self.original.is_read_only

    def read(self, table: int, start: Bound = Min, end: Bound = Max) -> Iterator[WalEntry[Any]]:
        """See `Region`."""
        return self.loop.iterate(self.original.read(table, start, end), items_at_a_time=_READ_AHEAD)

    def scan(
        self,
        tables: Collection[int] | None = None,
        *,
        batch_size: int = SCAN_BATCH_ENTRIES,
        on_progress: OnProgress | None = None,
    ) -> Iterator[WalEntry[Any]]:
        """See `Region`. `on_progress` is called in the thread of the loop."""
        entries = self.original.scan(tables, batch_size=batch_size, on_progress=on_progress)
        return self.loop.iterate(entries, items_at_a_time=_READ_AHEAD)

    def scan_batches(
        self,
        tables: Collection[int] | None = None,
        *,
        batch_size: int = SCAN_BATCH_ENTRIES,
        on_progress: OnProgress | None = None,
    ) -> Iterator[list[WalEntry[Any]]]:
        """See `Region`. `on_progress` is called in the thread of the loop."""
        batches = self.original.scan_batches(tables, batch_size=batch_size, on_progress=on_progress)
        return self.loop.iterate(batches, items_at_a_time=1)


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
        self._loop: BlockingLoop | None = None

    def __enter__(self) -> Self:
        self._loop = BlockingLoop("exactlog-wal", closed=_closed)
        try:
            self._loop.wait(self._wal.__aenter__())
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
                loop.wait(self._wal.close())
            finally:
                loop.close()

    def regions(self) -> list[int]:
        """See `Wal`."""
        return self._running().wait(self._wal.regions())

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
        return SyncRegion(loop, loop.wait(opening))

    def close_region(self, region: int) -> None:
        """See `Wal`."""
        self._running().wait(self._wal.close_region(region))

    def stats(self) -> list[RegionStats]:
        """See `Wal`."""
        return self._running().wait(self._wal.stats())

    def _running(self) -> BlockingLoop:
        if self._loop is None:
            raise RegionClosedError("the write-ahead log is not open", hint="use it as a context: `with`")
        return self._loop


def _closed() -> RegionClosedError:
    return RegionClosedError("the write-ahead log is closed")
