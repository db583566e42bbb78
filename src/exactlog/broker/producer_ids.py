"""Producer ids: handed out of blocks that the catalog has set aside durably, so that none is ever given twice."""

import asyncio
import logging
from collections import deque
from concurrent.futures import Executor
from typing import Final

from exactlog.core.model.ids import ProducerId
from exactlog.storage.catalog import Catalog

_logger = logging.getLogger(__name__)

_IDS_IN_HAND_LEAST: Final = 250  # below that the next block is fetched: who cannot wait finds an id all the same


class ProducerIds:
    """Gives out producer ids; one disk write for each block of a thousand (KIP-730). It belongs to the event loop."""

    def __init__(self, catalog: Catalog, executor: Executor, *, least_in_hand: int = _IDS_IN_HAND_LEAST) -> None:
        self._catalog = catalog
        self._executor = executor
        self._least_in_hand = least_in_hand
        self._blocks: deque[range] = deque()
        self._refilling: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether `take_now` would have none."""
        return not self._blocks

    @property
    def is_refilling(self) -> bool:
        """Whether a block is being fetched."""
        return self._refilling is not None

    def take_now(self) -> ProducerId | None:
        """A producer id that nobody had before; None where none is in hand: `fill` gets some.

        The next block is fetched in the background before this one ends.
        """
        blocks = self._blocks
        producer_id = None
        if blocks:
            block = blocks.popleft()
            producer_id = ProducerId(block[0])
            if len(block) > 1:
                blocks.appendleft(block[1:])
        if sum(map(len, blocks)) < self._least_in_hand and self._refilling is None:
            self._refill().add_done_callback(_log_failure)
        return producer_id

    async def take(self) -> ProducerId:
        """A producer id that nobody had before, waited for. What a crash leaves of a block is skipped.

        Raises:
            OSError: the disk refuses to set ids aside.
        """
        while (producer_id := self.take_now()) is None:
            await self.fill()
        return producer_id

    async def fill(self) -> None:
        """Sees to it that `take_now` has an id.

        Raises:
            OSError: the disk refuses to set ids aside.
        """
        while self.is_empty:
            await asyncio.shield(self._refilling or self._refill())

    def _refill(self) -> asyncio.Task[None]:
        task = self._refilling = asyncio.ensure_future(self._fetch_block())
        task.add_done_callback(self._end_refilling)
        return task

    def _end_refilling(self, _: asyncio.Task[None]) -> None:
        self._refilling = None

    async def _fetch_block(self) -> None:
        loop = asyncio.get_running_loop()
        self._blocks.append(await loop.run_in_executor(self._executor, self._catalog.reserve_producer_ids))


def _log_failure(task: asyncio.Task[None]) -> None:
    """Nobody need have waited; who finds no id left tries again."""
    if not task.cancelled() and task.exception() is not None:
        _logger.error("no block of producer ids could be set aside: %s", task.exception())
