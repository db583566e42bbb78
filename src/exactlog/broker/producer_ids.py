"""Producer ids: handed out of blocks that the catalog has set aside durably, so that none is ever given twice."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor

from exactlog.core.model.ids import ProducerId
from exactlog.storage.catalog import Catalog


class ProducerIds:
    """Gives out producer ids; one disk write for each block of a thousand (KIP-730)."""

    def __init__(self, catalog: Catalog, executor: Executor) -> None:
        self._catalog = catalog
        self._executor = executor
        self._block: Iterator[int] = iter(())
        self._refilling = asyncio.Lock()

    async def take(self) -> ProducerId:
        """A producer id that nobody had before. What a crash leaves of a block is skipped."""
        while (producer_id := next(self._block, None)) is None:
            async with self._refilling:
                if (producer_id := next(self._block, None)) is not None:
                    break
                loop = asyncio.get_running_loop()
                self._block = iter(await loop.run_in_executor(self._executor, self._catalog.reserve_producer_ids))
        return ProducerId(producer_id)
