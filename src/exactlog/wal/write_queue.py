"""Writes that wait for their turn: what has come while one append was under way is the next one, in one transaction."""

import asyncio
from collections import deque
from collections.abc import Sequence

from exactlog.core.model.errors import ExactlogError
from exactlog.core.wal.errors import RegionClosedError, WalError
from exactlog.core.wal.limits import PENDING_BYTES_MAX, WRITE_GROUP_BYTES_MAX, WRITE_GROUP_CALLS_MAX
from exactlog.core.wal.write_batches import WriteBatch
from exactlog.wal.region_writer import RegionWriter

Written = dict[int, int]


class _Call:
    """A write that waits."""

    __slots__ = ("batch", "outcome", "size_bytes")

    def __init__(self, batch: WriteBatch, outcome: asyncio.Future[Written]) -> None:
        self.batch = batch
        self.outcome = outcome
        self.size_bytes = batch.size_bytes


class WriteQueue:
    """The writes of a region, in the order they came. With too many bytes pending, those that come wait."""

    def __init__(self, region: int, writer: RegionWriter) -> None:
        self._region = region
        self._writer = writer
        self._calls: deque[_Call] = deque()
        self._pending_bytes = 0
        self._room = asyncio.Condition()
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False

    async def write(self, batch: WriteBatch) -> Written:
        """Write a batch: the last sequence of each of its tables, once it is durable.

        Whoever is cancelled does not take the write back.
        """
        async with self._room:
            await self._room.wait_for(lambda: self._is_closed or self._pending_bytes < PENDING_BYTES_MAX)
            if self._is_closed:
                raise RegionClosedError(f"region {self._region} is closed", region=self._region)
            self._writer.check_may_write()
            call = _Call(batch, asyncio.get_running_loop().create_future())
            self._calls.append(call)
            self._pending_bytes += call.size_bytes
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await asyncio.shield(call.outcome)

    async def close(self) -> None:
        """Take no more, and wait for what was taken."""
        async with self._room:
            self._is_closed = True
            self._room.notify_all()
        if self._working is not None:
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        while self._calls:
            group = self._next_group()
            try:
                await self._write(group)
            finally:
                for call in group:
                    if not call.outcome.done():  # ended in the middle: cancelled with its loop
                        call.outcome.cancel()
                async with self._room:
                    self._pending_bytes -= sum(call.size_bytes for call in group)
                    self._room.notify_all()

    def _next_group(self) -> list[_Call]:
        group = [self._calls.popleft()]
        size_bytes = group[0].size_bytes
        while self._calls and len(group) < WRITE_GROUP_CALLS_MAX:
            size_bytes += self._calls[0].size_bytes
            if size_bytes > WRITE_GROUP_BYTES_MAX:
                break
            group.append(self._calls.popleft())
        return group

    async def _write(self, group: Sequence[_Call]) -> None:
        try:
            assigned = await self._writer.write([call.batch for call in group])
        except ExactlogError as error:
            if len(group) > 1 and not error.retryable and not isinstance(error, WalError):
                for call in group:  # one of them is refused; the others are not to suffer for it
                    await self._write([call])
                return
            for call in group:
                _fail(call, error)
            return
        except Exception as error:  # noqa: BLE001  a bug: those that wait are told, and the next ones get their turn
            for call in group:
                _fail(call, error)
            return
        for call, result in zip(group, assigned.results, strict=True):
            if isinstance(result, WalError):
                _fail(call, result)
            else:
                call.outcome.set_result(result)


def _fail(call: _Call, error: Exception) -> None:
    call.outcome.set_exception(error)
    call.outcome.exception()  # whoever was cancelled does not look
