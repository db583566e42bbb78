"""A client for code that waits: its event loop runs in a thread of its own, so that sending goes on beside the work."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from exactlog.client.adapters import connect
from exactlog.client.ports import Client, ClientSettings

Result = TypeVar("Result")


class ClientThread:
    """A client of one cluster and the thread that it runs in; a context manager.

    Leaving it gives up whatever is still under way.

    Attributes:
        client: to be used by the coroutines that are handed over, and by nothing else.
    """

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        """Nothing is sent yet. Raises `ClientUrlError` where the addresses are malformed."""
        self.client: Client = connect(f"kafka://{bootstrap}", settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exactlog-client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.submit(self._shut_down()).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Let the coroutine run beside the caller. Those handed over first begin first."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Callable[[Client], Awaitable[Result]]) -> Result:
        """Wait for what `work` makes of the client."""

        async def awaited() -> Result:
            return await work(self.client)

        return self.submit(awaited()).result()

    async def _shut_down(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.client.close()
