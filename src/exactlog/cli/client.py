"""What commands that talk to a broker have in common."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from exactlog.cli.settings import Settings
from exactlog.client.adapters import connect
from exactlog.client.ports import Client, ClientSettings

Result = TypeVar("Result")

DEADLINE_MS: Final = 10_000  # somebody is waiting: longer than a slow disk takes, shorter than patience


def run_with_client(settings: Settings, work: Callable[[Client], Awaitable[Result]]) -> Result:
    """What `work` returns, given a client of the broker that the settings name; closed afterwards.

    Raises:
        ExactlogError: the address is none, or the operation failed.
    """

    async def run() -> Result:
        _let_termination_interrupt()
        async with connect(f"kafka://{settings.bootstrap}", ClientSettings(deadline_ms=DEADLINE_MS)) as client:
            return await work(client)

    settings.start_logging()
    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _let_termination_interrupt() -> None:
    """SIGTERM ends a command as Ctrl-C does: in order, so that a member leaves its group."""
    task = asyncio.current_task()
    assert task is not None, "a command runs in a task"
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
