"""An event loop in a thread of its own, and twins of what is awaited: who hands work to it waits for the result."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")
Item = TypeVar("Item")
Original = TypeVar("Original")

ITEMS_AT_A_TIME: Final = 100
"""Of a stream, that are fetched from the thread at once."""


class BlockingLoop:
    """The thread with the event loop. Several threads may hand it work.

    Args:
        name: of the thread.
        closed: makes the error of work that comes when it is closed.
    """

    def __init__(self, name: str, *, closed: Callable[[], Exception]) -> None:
        self._closed = closed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Let a coroutine run in the thread, beside the caller. Those handed over first begin first."""
        if self._loop.is_closed():
            work.close()
            raise self._closed()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine that runs in the thread; interrupted, it is cancelled, and has ended before."""
        future: Future[Result] | None = None
        try:
            future = self.submit(work)
            return future.result()
        except BaseException:
            is_interrupted = future is None or not future.done()  # perhaps while it was handed over, and has begun
            if is_interrupted and not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(_give_up(work), self._loop).result()
            raise

    def iterate(
        self, items: AsyncIterator[Item], *, items_at_a_time: int = ITEMS_AT_A_TIME
    ) -> Generator[Item, None, None]:
        """The items of an asynchronous stream, which is closed when nobody reads on."""
        try:
            while batch := self.wait(_some(items, items_at_a_time)):
                yield from batch
        finally:
            self.wait(_close(items))

    @contextmanager
    def within(self, block: AbstractAsyncContextManager[Item]) -> Iterator[Item]:
        """An asynchronous context as one that waits."""
        entered: list[Item] = []
        try:
            item = self.wait(_enter(block, entered))
        except BaseException as error:
            if entered:  # it was interrupted just then
                self.wait(_leave(block, error))
            raise
        try:
            yield item
        except BaseException as error:
            if not self.wait(_leave(block, error)):
                raise
        else:
            self.wait(_leave(block, None))

    def give_up_all(self) -> None:
        """Cancel all that runs in the thread, and wait until it has ended."""
        self.wait(_give_up_all())

    def close(self) -> None:
        """End the thread; what still runs in it is given up."""
        self.give_up_all()
        self.wait(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Twin(Generic[Original]):
    """The base of a twin: its methods, those of `waited`, return when the original's are done."""

    def __init__(self, original: Original, loop: BlockingLoop) -> None:
        self.original = original
        self.loop = loop


def waited(
    method: Callable[Concatenate[Original, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Twin[Original], P], Result]:
    """A method of the original that is waited for in place of awaited."""

    @wraps(method)
    def call(self: Twin[Original], /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self.loop.wait(method(self.original, *args, **kwargs))

    return call


async def _enter(block: AbstractAsyncContextManager[Item], entered: list[Item]) -> Item:
    """What the block gives, which is told as well in case that the answer does not arrive."""
    item = await block.__aenter__()
    entered.append(item)
    return item


async def _leave(block: AbstractAsyncContextManager[Item], error: BaseException | None) -> bool:
    """Whether the block has dealt with the error."""
    if error is None:
        return bool(await block.__aexit__(None, None, None))
    return bool(await block.__aexit__(type(error), error, error.__traceback__))


async def _some(items: AsyncIterator[Item], count: int) -> list[Item]:
    some: list[Item] = []
    while len(some) < count:
        try:
            some.append(await anext(items))
        except StopAsyncIteration:
            break
    return some


async def _close(items: AsyncIterator[Item]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


async def _give_up(work: Coroutine[Any, Any, object]) -> None:
    """Cancel it, and wait until it has ended: a stream that is still being read cannot be closed."""
    running = {task for task in asyncio.all_tasks() if task.get_coro() is work}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    work.close()  # where it has not even begun


async def _give_up_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
