"""Journals that are open: by topic and id, several at once, and all of a topic."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import date
from typing import Unpack

from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.keys import JournalKey
from exactlog.journal.appending import AppendOptions
from exactlog.journal.journal import Journal
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.parts import Parts
from exactlog.journal.purge_expired import purge_expired
from exactlog.journal.subscription import SubscribedEvent, Subscription
from exactlog.journal.transaction import PendingAppend, Transaction, Transactor


class JournalTransaction(Transaction):
    """What is to happen together: see `Journals.transaction`."""

    def append(
        self,
        journal: Journal,
        events: Iterable[object],
        expect: Expectation | int = ANY,
        **options: Unpack[AppendOptions],
    ) -> PendingAppend:
        """Append to a journal when the transaction is committed; the answer is in `appended` then.

        Arguments are those of `Journal.append`. The same ids do not get the answer of the first time here.

        Raises:
            JournalInputError: the events cannot be written.
        """
        return self.add(journal.key, journal.draft(events, expect, **options))


class OpenJournals:
    """Journals by topic and id: `journals["orders", "order-7"]`.

    Attributes:
        metrics: what was counted.
        parts: what they are made of, for what is built on them.
    """

    def __init__(self, parts: Parts, metrics: JournalMetrics) -> None:
        self.metrics = metrics
        self.parts = parts
        self._transactor = Transactor(parts.client, parts.looker, parts.appender, parts.clock, parts.settings)

    def __getitem__(self, key: tuple[str, str]) -> Journal:
        """The journal of a topic and an id."""
        topic, key_id = key
        return Journal(JournalKey(topic, key_id), self.parts)

    @asynccontextmanager
    async def transaction(self, transactional_id: str | None = None) -> AsyncIterator[JournalTransaction]:
        """Several appends, and offsets of consumers, that count together or not at all.

        They are written when the block ends. One that ends with an exception writes nothing.

        Args:
            transactional_id: whoever takes the same one fences the one before; None: one of these `Journals`' own.

        Raises:
            Conflict: when the block ends: one of the journals is not as expected, and nothing counts.
            Fenced: somebody else has taken the transactional id.
            Retriable: others came first again and again, or another transaction stays open; nothing counts.
        """
        transaction = JournalTransaction()
        yield transaction
        await self._transactor.carry_out(transaction, transactional_id)

    async def subscribe(
        self,
        topic: str,
        from_position: int = 0,
        *,
        types: Collection[type] = (),
        tags: Collection[str] = (),
        follow: bool = True,
    ) -> AsyncIterator[SubscribedEvent]:
        """The events of all journals of a topic of one partition, in the order in which they were appended.

        Events that were deleted since come too; appends that did not count do not.

        Args:
            topic: of one partition.
            from_position: the first position that is wanted.
            types: only events of these types; none: all.
            tags: only events with one of these tags; none: all.
            follow: whether to wait for more at the end.

        Raises:
            JournalInputError: the topic has several partitions.
            HeadLost: the beginning of the topic is gone.
        """
        subscription = Subscription(self.parts, topic, from_position=from_position, types=types, tags=tags)
        async for event in subscription.events(is_followed=follow):
            yield event

    async def purge_expired(self, topics: Iterable[str] | None = None, *, today: date | None = None) -> int:
        """Ask for the purge of every journal whose time is over; how many these are. See `purge_expired`."""
        return await purge_expired(self.parts, topics=topics, today=today)
