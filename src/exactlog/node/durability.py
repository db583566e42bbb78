"""How a node's rounds become durable: the engine that its configuration asks for, and what is left of a journal.

Whatever the engine is now, a journal that an earlier start has left is put back first (`storage.journal_redo`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial

from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.deltalog.journal_format import JOURNAL_DIRECTORY
from exactlog.core.deltalog.log_path import print_partition_directory_name
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.journal import Journal
from exactlog.storage.journal_engine import JournalEngine
from exactlog.storage.journal_redo import redo_journal, remove_redone
from exactlog.storage.journal_upkeep import JournalUpkeep
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.round_committer import RoundCommitter
from exactlog.storage.whole_files import SyncFailedError

_logger = logging.getLogger(__name__)

_LOOK_MS = 1_000


class Durability:
    """The engine of one node and the upkeep of its journal.

    Attributes:
        is_journaled: whether rounds go through a commit journal.
        engine: carries the rounds out.
        redone: what an earlier start has left in the journal, put back in its place.

    Raises:
        DamageError: rounds that were acknowledged cannot be read from the journal any more.
    """

    def __init__(self, filesystem: Filesystem, root: str, open_files: OpenFiles, *, is_journaled: bool) -> None:
        self._filesystem = filesystem
        self._root = root
        self.redone = redo_journal(filesystem, root)
        self.is_journaled = is_journaled
        self.engine: FilesEngine | JournalEngine = FilesEngine(filesystem, open_files)
        self._upkeep: JournalUpkeep | None = None
        self._opening: asyncio.Task[None] | None = None
        if is_journaled:
            filesystem.make_directories(f"{root}/{JOURNAL_DIRECTORY}")  # its name is synced with those of partitions
            redone = self.redone
            journal = Journal(filesystem, root, number=redone.next_number, sequence=redone.next_sequence)
            self.engine = JournalEngine(filesystem, open_files, journal)

    def start(
        self,
        topics: TopicRegistry,
        rounds: RoundCommitter,
        *,
        executor: Executor,
        timers: Timers,
        clock: Clock,
        on_sync_failed: Callable[[str], None],
    ) -> None:
        """Looks after the journal from now on: what an earlier start has left goes, and what comes later too."""
        if isinstance(self.engine, JournalEngine):
            self._upkeep = JournalUpkeep(
                self.engine,
                rounds,
                filesystem=self._filesystem,
                root=self._root,
                unopened=lambda: list(self.redone.tails),
                executor=executor,
                clock=clock,
                on_sync_failed=on_sync_failed,
            )
        let_go = partial(self._finish_redone, topics, executor, on_sync_failed)
        if self.redone.files:
            self._opening = asyncio.ensure_future(let_go())
        if self._upkeep is not None:
            self._look_after(self._upkeep, let_go, timers)

    def _look_after(
        self, upkeep: JournalUpkeep, let_go: Callable[[], Coroutine[None, None, None]], timers: Timers
    ) -> None:
        def look() -> None:
            timers.set(upkeep, _LOOK_MS, look)
            if not self.redone.files:
                upkeep.look()
            elif self._opening is None or self._opening.done():  # the older files go first
                self._opening = asyncio.ensure_future(let_go())

        timers.set(upkeep, _LOOK_MS, look)

    async def finish(self) -> None:
        """Has everything that was written stand in its place; nothing is being written any more."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._upkeep is not None and not self.redone.files:
            await self._upkeep.finish()

    def close(self) -> None:
        """Ends the threads."""
        if self._opening is not None:
            self._opening.cancel()
        self.engine.close()

    async def _finish_redone(
        self, topics: TopicRegistry, executor: Executor, on_sync_failed: Callable[[str], None]
    ) -> None:
        """Opens the partitions that the journal speaks of, so that all their bytes have versions; then it may go."""
        tails = self.redone.tails
        for topic in topics.topics():
            for index in range(topic.partition_count):
                if print_partition_directory_name(topic.name, index) in tails:
                    await topics.open(topic.name, index)
        unopened = sorted(tails)
        if unopened:
            _logger.error("the commit journal keeps what it has of partitions until they can be opened: %s", unopened)
            if self._upkeep is None:
                return
        loop = asyncio.get_running_loop()
        try:
            if self._upkeep is not None:
                for number in self.redone.files:
                    await self._upkeep.keep(number, unopened)
            await loop.run_in_executor(executor, remove_redone, self._filesystem, self._root, self.redone)
        except SyncFailedError as error:
            on_sync_failed(f"the commit journal: {error}")
        except (OSError, DecodeError, DamageError) as error:
            _logger.error("files of the commit journal that are not needed any more stay: %s", error)
