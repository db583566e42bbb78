"""Journals for code that waits: `Journals.open_sync`. Everything is as in `Journals`, without `await`.

An event loop runs in a thread of its own, and does the work.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar, Unpack

from exactlog.client.blocking_loop import ITEMS_AT_A_TIME, BlockingLoop, Twin, waited
from exactlog.core.journal.errors import JournalError
from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.judgement import Appended
from exactlog.core.journal.keys import Place
from exactlog.journal.appending import AppendOptions
from exactlog.journal.event_record import EventRecord
from exactlog.journal.journal import Journal
from exactlog.journal.open_journals import JournalTransaction, OpenJournals
from exactlog.journal.subscription import SubscribedEvent
from exactlog.journal.transaction import PendingAppend
from exactlog.journal.writing import Entity

State = TypeVar("State")


class WaitingJournal(Twin[Journal]):
    """A `Journal` whose methods return when they are done."""

    append = waited(Journal.append)
    pointer = waited(Journal.pointer)
    delete = waited(Journal.delete)
    purge = waited(Journal.purge)
    mark = waited(Journal.mark)
    snapshot = waited(Journal.snapshot)
    latest_snapshot = waited(Journal.latest_snapshot)
    delete_snapshots = waited(Journal.delete_snapshots)

    def read(self, from_seq: int = 1, to_seq: int | None = None) -> Generator[EventRecord, None, None]:
        """See `Journal.read`. Who leaves it half-way may close it."""
        return self.loop.iterate(self.original.read(from_seq, to_seq))

    def read_replicated(
        self, from_seq: int = 1, to_seq: int | None = None, *, at_least: Appended | Place | None = None
    ) -> Iterator[EventRecord]:
        """See `Journal.read_replicated`."""
        return self.loop.iterate(self.original.read_replicated(from_seq, to_seq, at_least=at_least))

    @contextmanager
    def for_writing(
        self, initial: Callable[[], State], evolve: Callable[[State, object], State]
    ) -> Iterator[Entity[State]]:
        """See `Journal.for_writing`."""
        with self.loop.within(self.original.for_writing(initial, evolve)) as entity:
            yield entity


class WaitingTransaction:
    """A `JournalTransaction` that takes journals that wait."""

    def __init__(self, transaction: JournalTransaction) -> None:
        self._transaction = transaction
        self.commit_offsets = transaction.commit_offsets

    def append(
        self,
        journal: WaitingJournal,
        events: Iterable[object],
        expect: Expectation | int = ANY,
        **options: Unpack[AppendOptions],
    ) -> PendingAppend:
        """See `JournalTransaction.append`."""
        return self._transaction.append(journal.original, events, expect, **options)


class WaitingJournals(Twin[OpenJournals]):
    """A `Journals` whose methods return when they are done."""

    purge_expired = waited(OpenJournals.purge_expired)

    def __init__(self, journals: OpenJournals, loop: BlockingLoop) -> None:
        super().__init__(journals, loop)
        self.metrics = journals.metrics

    def __getitem__(self, key: tuple[str, str]) -> WaitingJournal:
        """The journal of a topic and an id."""
        return WaitingJournal(self.original[key], self.loop)

    @contextmanager
    def transaction(self, transactional_id: str | None = None) -> Iterator[WaitingTransaction]:
        """See `Journals.transaction`."""
        with self.loop.within(self.original.transaction(transactional_id)) as transaction:
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
        events = self.original.subscribe(topic, from_position, types=types, tags=tags, follow=follow)
        return self.loop.iterate(events, items_at_a_time=1 if follow else ITEMS_AT_A_TIME)


@contextmanager
def open_waiting(opening: AbstractAsyncContextManager[OpenJournals]) -> Iterator[WaitingJournals]:
    """Journals for code that waits, and the thread that does the work, for as long as the context lasts."""
    loop = BlockingLoop("exactlog-journals", closed=_closed)
    try:
        with loop.within(opening) as journals:
            yield WaitingJournals(journals, loop)
    finally:
        loop.close()


def _closed() -> JournalError:
    return JournalError("the journals are closed", hint="use them as a context: `with Journals.open_sync(...)`")
