"""The store that the tasks of one worker share: opening one takes longer than a small micro-batch.

A worker of Spark's does one task after the other and lives on. It keeps the store that it had last, of the same run
of the same job, and lets go of it when a task fails: the next one finds it as if new.
"""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from msgspec import Struct

from exactlog.client.blocking_loop import BlockingLoop
from exactlog.core.model.errors import InvariantError
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.store_url import journal_store


class StoreAddress(Struct, frozen=True, kw_only=True):
    """Which store tasks open.

    Attributes:
        url: where it is, from whatever folder.
        segment_size: of journals that begin in it.
        run_id: of the run of the job: one that comes later opens the store anew.
    """

    url: str
    segment_size: int
    run_id: str


class OpenedStore:
    """A store that is open, and the loop that it lives in. It is closed by `close`."""

    def __init__(self, address: StoreAddress) -> None:
        """Opens it. Raises as entering the context of a store does."""
        self.address = address
        self.loop = BlockingLoop("exactlog-journal-store", closed=_closed)
        self._stack = AsyncExitStack()
        try:
            opening = self._stack.enter_async_context(journal_store(address.url, segment_size=address.segment_size))
            self.store: JournalStore = self.loop.wait(opening)
        except BaseException:
            self.loop.close()
            raise

    def close(self) -> None:
        """Give back its files and connections."""
        try:
            self.loop.wait(self._stack.aclose())
        finally:
            self.loop.close()


_kept: list[OpenedStore] = []


@contextmanager
def store_of_worker(address: StoreAddress) -> Iterator[tuple[BlockingLoop, JournalStore]]:
    """The store for one task, which is the only one of its worker; after it has failed nothing is kept.

    Raises:
        ExactlogError: as entering the context of a store does.
    """
    if _kept and _kept[0].address != address:
        _kept.pop().close()
    if not _kept:
        _kept.append(OpenedStore(address))
    try:
        yield _kept[0].loop, _kept[0].store
    except BaseException:
        _kept.pop().close()
        raise


def _closed() -> InvariantError:
    return InvariantError("the store of a worker is used when it has been let go of")
