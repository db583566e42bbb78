"""Keeps `transactions/transactions.json` up to date: a readable copy of what is committed of transactional ids."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import Final

from exactlog.broker.timers import Timers
from exactlog.core.model.clock import Clock
from exactlog.core.transaction.requests import TransactionDescription
from exactlog.core.transaction.transactions_export_format import encode_export
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.whole_files import replace

_logger = logging.getLogger(__name__)

EXPORT_DIRECTORY: Final = "transactions"
EXPORT_NAME: Final = "transactions.json"
EXPORT_INTERVAL_MS: Final = 1_000
_REST_FACTOR: Final = 20
"""A copy of very many takes long, and competes with what it is a copy of: at most so small a part of the time."""


class TransactionExport:
    """Writes it off the event loop, to which everything else here belongs.

    Args:
        root: the data directory.
        read: what is committed now.
        mark: differs whenever something has been committed since.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        root: str,
        *,
        executor: Executor,
        timers: Timers,
        clock: Clock,
        read: Callable[[], Sequence[TransactionDescription]],
        mark: Callable[[], Hashable],
    ) -> None:
        self._filesystem = filesystem
        self._directory = f"{root}/{EXPORT_DIRECTORY}"
        self._executor = executor
        self._timers = timers
        self._clock = clock
        self._read = read
        self._mark = mark
        self._written: Hashable = mark()
        self._writing: asyncio.Future[None] | None = None
        self._took_ms = 0
        """How long the last copy took to write."""

    def start(self) -> None:
        """Looks for changes from now on."""
        self._timers.set(self, EXPORT_INTERVAL_MS, self._look)

    async def close(self) -> None:
        """Writes what has changed since the last time."""
        self._timers.cancel(self)
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._write_if_changed()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def _look(self) -> None:
        self._write_if_changed()
        self._timers.set(self, max(EXPORT_INTERVAL_MS, _REST_FACTOR * self._took_ms), self._look)

    def _write_if_changed(self) -> None:
        mark = self._mark()
        if self._writing is not None or mark == self._written:
            return
        self._written = mark
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._executor, self._write, self._read(), self._clock.now_ms())
        self._writing.add_done_callback(self._has_written)

    def _has_written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        if not writing.cancelled() and writing.exception() is not None:  # nothing depends on it
            _logger.error("%s could not be written: %s", EXPORT_NAME, writing.exception())

    def _write(self, transactions: Sequence[TransactionDescription], now_ms: int) -> None:
        began = perf_counter()
        self._filesystem.make_directories(self._directory)
        content = encode_export(transactions, now_ms=now_ms)
        replace(self._filesystem, self._directory, EXPORT_NAME, content, durable=False)
        self._took_ms = int((perf_counter() - began) * 1_000)
