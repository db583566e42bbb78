"""Who waits for a point of a log: told once it is reached, or that it never will be."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from exactlog.core.model.error_code import ErrorCode

WaitCallback = Callable[[ErrorCode], None]
"""Called once what it waits for is reached (NONE), or will never be (the error)."""

Settling = Callable[[WaitCallback], None]
"""Calls back once what is decided somewhere has come to a point (NONE), or never will."""


async def until_settled(settling: Settling) -> ErrorCode:
    """Waits until what is decided somewhere has come to a point (NONE), or has failed."""
    told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    settling(partial(_tell, told))
    return await told


def _tell(told: asyncio.Future[ErrorCode], error: ErrorCode) -> None:
    if not told.done():  # nobody waits any more where this was cancelled
        told.set_result(error)


class Waiting:
    """Those who wait, in order: the points they wait for never go down."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, WaitCallback]] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, point: int, callback: WaitCallback) -> None:
        """One more waits."""
        self._queue.append((point, callback))

    def reach(self, point: int) -> None:
        """Tells those who wait for a point up to this one."""
        while self._queue and self._queue[0][0] <= point:
            self._queue.popleft()[1](ErrorCode.NONE)

    def take_all(self) -> list[WaitCallback]:
        """All of them; they wait no longer."""
        callbacks = [callback for _, callback in self._queue]
        self._queue.clear()
        return callbacks
