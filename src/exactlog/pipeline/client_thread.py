"""A client for code that waits: its event loop runs in a thread of its own, so that sending goes on beside the work."""

from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from exactlog.client.adapters import connect
from exactlog.client.blocking_loop import BlockingLoop
from exactlog.client.ports import Client, ClientSettings
from exactlog.core.model.errors import InvariantError

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
        self._loop: BlockingLoop | None = None

    def __enter__(self) -> Self:
        self._loop = BlockingLoop("exactlog-client", closed=_closed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = self._running()
        try:
            loop.give_up_all()
            loop.wait(self.client.close())
        finally:
            loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Let the coroutine run beside the caller. Those handed over first begin first."""
        return self._running().submit(work)

    def run(self, work: Callable[[Client], Awaitable[Result]]) -> Result:
        """Wait for what `work` makes of the client."""

        async def awaited() -> Result:
            return await work(self.client)

        return self._running().wait(awaited())

    def _running(self) -> BlockingLoop:
        if self._loop is None:
            raise _closed()
        return self._loop


def _closed() -> InvariantError:
    return InvariantError("the thread of a client is used outside of its context")
