"""Journals for code that waits: `Journals.open_sync`. Everything is as in `Journals`, without `await`.

An event loop runs in a thread of its own, and does the work.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from exactlog.core.journal.judgement import Appended
from exactlog.core.journal.keys import Place
from exactlog.journal.event_record import EventRecord
from exactlog.journal.journal import Journal
from exactlog.journal.open_journals import JournalTransaction, OpenJournals
from exactlog.journal.subscription import SubscribedEvent
from exactlog.journal.writing import Entity

P = ParamSpec("P")
Result = TypeVar("Result")
Item = TypeVar("Item")
State = TypeVar("State")

ITEMS_AT_A_TIME: Final = 100
"""Events that are fetched from the thread at once."""


class JournalLoop:
    """The thread with the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exactlog-journals", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine that runs in the thread; interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread; what still runs in it is given up."""
        self.wait(_give_up_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def iterate(self, items: AsyncIterator[Item], *, items_at_a_time: int = ITEMS_AT_A_TIME) -> Iterator[Item]:
        """The items of an asynchronous stream, which is closed when nobody reads on."""
        try:
            while batch := self.wait(_some(items, items_at_a_time)):
                yield from batch
        finally:
            self.wait(_close(items))

    @contextmanager
    def within(self, block: AbstractAsyncContextManager[Item]) -> Iterator[Item]:
        """An asynchronous context as one that waits."""
        item = self.wait(_enter(block))
        try:
            yield item
        except BaseException as error:
            if not self.wait(_leave(block, error)):
                raise
        else:
            self.wait(_leave(block, None))


def _waited(
    method: Callable[Concatenate[Journal, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["WaitingJournal", P], Result]:
    """A method of `Journal` that is waited for in place of awaited."""

    @wraps(method)
    def call(self: "WaitingJournal", /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self.loop.wait(method(self.journal, *args, **kwargs))

    return call


class WaitingJournal:
    """A `Journal` whose methods return when they are done."""

    def __init__(self, journal: Journal, loop: JournalLoop) -> None:
        self.journal = journal
        self.loop = loop

    append = _waited(Journal.append)
    pointer = _waited(Journal.pointer)
    delete = _waited(Journal.delete)
    purge = _waited(Journal.purge)
    mark = _waited(Journal.mark)
    snapshot = _waited(Journal.snapshot)
    latest_snapshot = _waited(Journal.latest_snapshot)
    delete_snapshots = _waited(Journal.delete_snapshots)

    def read(self, from_seq: int = 1, to_seq: int | None = None) -> Iterator[EventRecord]:
        """See `Journal.read`."""
        return self.loop.iterate(self.journal.read(from_seq, to_seq))

    def read_replicated(
        self, from_seq: int = 1, to_seq: int | None = None, *, at_least: Appended | Place | None = None
    ) -> Iterator[EventRecord]:
        """See `Journal.read_replicated`."""
        return self.loop.iterate(self.journal.read_replicated(from_seq, to_seq, at_least=at_least))

    @contextmanager
    def for_writing(
        self, initial: Callable[[], State], evolve: Callable[[State, object], State]
    ) -> Iterator[Entity[State]]:
        """See `Journal.for_writing`."""
        with self.loop.within(self.journal.for_writing(initial, evolve)) as entity:
            yield entity


class WaitingTransaction:
    """A `JournalTransaction` that takes journals that wait."""

    def __init__(self, transaction: JournalTransaction) -> None:
        self._transaction = transaction
        self.commit_offsets = transaction.commit_offsets

    def append(self, journal: WaitingJournal, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  as `append`
        """See `JournalTransaction.append`."""
        return self._transaction.append(journal.journal, *args, **kwargs)


class WaitingJournals:
    """A `Journals` whose methods return when they are done."""

    def __init__(self, journals: OpenJournals, loop: JournalLoop) -> None:
        self.metrics = journals.metrics
        self._journals = journals
        self._loop = loop

    def __getitem__(self, key: tuple[str, str]) -> WaitingJournal:
        """The journal of a topic and an id."""
        return WaitingJournal(self._journals[key], self._loop)

    @contextmanager
    def transaction(self, transactional_id: str | None = None) -> Iterator[WaitingTransaction]:
        """See `Journals.transaction`."""
        with self._loop.within(self._journals.transaction(transactional_id)) as transaction:
            yield WaitingTransaction(transaction)

    def subscribe(
        self,
        topic: str,
        from_position: int = 0,
        *,
        types: Collection[type] = (),
        tags: Collection[str] = (),
        follow: bool = True,
    ) -> Iterator[SubscribedEvent]:
        """See `Journals.subscribe`."""
        events = self._journals.subscribe(topic, from_position, types=types, tags=tags, follow=follow)
        return self._loop.iterate(events, items_at_a_time=1 if follow else ITEMS_AT_A_TIME)

    def purge_expired(self, *args: Any, **kwargs: Any) -> int:  # noqa: ANN401  as there
        """See `Journals.purge_expired`."""
        return self._loop.wait(self._journals.purge_expired(*args, **kwargs))


@contextmanager
def open_waiting(opening: AbstractAsyncContextManager[OpenJournals]) -> Iterator[WaitingJournals]:
    """Journals for code that waits, and the thread that does the work, for as long as the context lasts."""
    loop = JournalLoop()
    try:
        with loop.within(opening) as journals:
            yield WaitingJournals(journals, loop)
    finally:
        loop.close()


async def _enter(block: AbstractAsyncContextManager[Item]) -> Item:
    return await block.__aenter__()


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


async def _give_up_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
