"""Lets files of the commit journal go, one after the other, beside what goes on.

A file ends when it is long enough, or old enough: so a start never has much to put back, however little is written.
Then all that its rounds committed gets its delta versions, all of it is synced in its place, and the file goes. What it
holds of partitions that stand still is kept in the next file (`journal_remainder`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from functools import partial

from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.journal_engine import JournalEngine, JournalPart
from exactlog.storage.journal_remainder import read_remainder
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.whole_files import SyncFailedError

_logger = logging.getLogger(__name__)

FILE_AGE_MS_MAX = 30_000


class JournalUpkeep:
    """Belongs to the event loop; `look` is to be called again and again.

    Args:
        root: the data directory.
        unopened: the directories, by name, of partitions that the journal speaks of and that are not open.
        on_sync_failed: called with the reason where a sync has failed: nothing can be promised any more.
    """

    def __init__(
        self,
        engine: JournalEngine,
        rounds: RoundCommitter,
        *,
        filesystem: Filesystem,
        root: str,
        unopened: Callable[[], Collection[str]],
        executor: Executor,
        clock: Clock,
        on_sync_failed: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._filesystem = filesystem
        self._root = root
        self._unopened = unopened
        self._rounds = rounds
        self._executor = executor
        self._clock = clock
        self._on_sync_failed = on_sync_failed
        self._ended: deque[JournalPart] = deque()
        self._kept: dict[int, dict[str, int]] = {}
        """By the number of a file that is to go: up to which of its rounds each partition has been kept."""
        self._began_ms: int | None = None
        self._running: asyncio.Task[None] | None = None
        self._has_failed = False
        """A failed sync is final: it is not tried again."""

    def look(self) -> None:
        """Ends the present file if it is time, and lets those go that have ended."""
        if self._running is not None and not self._running.done():
            return
        is_due = self._is_due()
        if is_due or self._ended:
            self._running = asyncio.ensure_future(self._let_go(ends_file=is_due))

    def _is_due(self) -> bool:
        if self._engine.is_file_empty:
            self._began_ms = None
            return False
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
        return self._engine.is_file_full or now_ms - self._began_ms >= FILE_AGE_MS_MAX

    async def finish(self) -> None:
        """Lets all files go: what was written stands in its place. No round may be on its way."""
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._let_go(ends_file=True)

    async def _let_go(self, *, ends_file: bool) -> None:
        if self._has_failed:
            return
        try:
            if ends_file:
                await self._end_file()
            await self._settle()
        except SyncFailedError as error:
            self._has_failed = True
            self._on_sync_failed(f"the commit journal: {error}")
        except (OSError, DecodeError, DamageError) as error:  # it is tried again, and nothing is lost
            _logger.error("a file of the commit journal cannot go yet: %s", error)

    async def _end_file(self) -> None:
        ended = await self._rounds.between_rounds(self._engine.end_file)
        self._began_ms = None
        if ended is not None:
            self._ended.append(ended)

    async def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        while self._ended:
            still = await self._rounds.published()
            if still is None:  # the next start makes versions of what has none
                return
            part = self._ended[0]
            assert part.number is not None
            names = {partition.directory.rpartition("/")[2] for partition in still}
            await self.keep(part.number, names.union(self._unopened()))
            await loop.run_in_executor(self._executor, self._engine.settle, part)
            self._ended.popleft()
            self._kept.pop(part.number, None)

    async def keep(self, number: int, directories: Collection[str]) -> None:
        """Writes once more what a file holds of partitions, by the names of their directories, before it goes.

        What was written when it was called before is not written again.

        Raises:
            SyncFailedError: whether it is durable is not known.
            OSError, DecodeError, DamageError: it could not be read or written, or not all of it.
        """
        if not directories:
            return
        loop = asyncio.get_running_loop()
        kept = self._kept.setdefault(number, {})
        wanted = {directory: kept.get(directory, 0) for directory in directories}
        rounds = read_remainder(self._filesystem, self._root, number, wanted)
        while (found := await loop.run_in_executor(self._executor, next, rounds, None)) is not None:
            await self._rounds.between_rounds(partial(self._engine.keep, found.round, found.content))
            for directory in wanted:
                kept[directory] = max(kept.get(directory, 0), found.last_sequence)
