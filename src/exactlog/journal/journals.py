"""Journals on a log, with a store: where everything begins."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Self

from exactlog.client.ports import ClientSettings
from exactlog.core.journal.new_actions import Writer
from exactlog.core.model.clock import Clock
from exactlog.journal.action_log import ActionLog
from exactlog.journal.appending import Appender
from exactlog.journal.brokers import Connect, open_brokers
from exactlog.journal.head_cache import HeadCache
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.open_journals import OpenJournals
from exactlog.journal.parts import Parts
from exactlog.journal.reading import EventReader
from exactlog.journal.replicator import Replicator
from exactlog.journal.settings import THIS_WRITER, JournalSettings
from exactlog.journal.sight import Looker
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.stores.store_url import journal_store
from exactlog.journal.typed_events import EventCodec, TypedEvents
from exactlog.journal.waiting import WaitingJournals, open_waiting
from exactlog.node.clock import SystemClock


class Journals(OpenJournals):
    """Journals by topic and id: `journals["orders", "order-7"]`.

    Attributes:
        metrics: what was counted.
    """

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        log: str,
        *,
        store: str | JournalStore = "memory:",
        events: Iterable[type] | EventCodec = (),
        settings: JournalSettings | None = None,
        client_settings: ClientSettings | None = None,
        writer: Writer = THIS_WRITER,
        clock: Clock | None = None,
        replicate: Collection[str] = (),
    ) -> AsyncIterator[Self]:
        """Open journals, for as long as the context lasts.

        Args:
            log: `kafka://HOST:PORT`, `embedded:DIRECTORY` or `memory:`.
            store: `sqlite:///FILE`, `cassandra://HOST:PORT/KEYSPACE`, `memory:`, or a store that the caller closes.
            events: the types of events that are to come back as they went in, or a codec of one's own.
            settings: how journals behave.
            client_settings: of the clients of the log.
            writer: who actions say that they are from; this host, unless told otherwise.
            clock: gives actions their time; the system's, unless told otherwise.
            replicate: topics with names that begin so are replicated into the store from here; ("",) are all topics.
                Where others replicate, or nobody needs to, none.

        Raises:
            ClientUrlError: a URL is malformed.
            DirectoryLockedError: another process has the directory of the log open.
            StoreUrlError: likewise.
            Retriable: the store cannot be reached.
        """
        codec = TypedEvents(events) if isinstance(events, Iterable) else events
        settings, clock, metrics = settings or JournalSettings(), clock or SystemClock(), JournalMetrics()
        async with (
            open_brokers(log, client_settings) as brokers,
            brokers() as client,
            _store(store) as opened,
            _head_cache(brokers, opened, settings, metrics) as cache,
            _replicator(brokers, opened, clock, replicate),
        ):
            waits_ms, written = settings.no_progress_ms, None if cache is None else cache.written
            actions = ActionLog(client, clock, no_progress_ms=waits_ms, metrics=metrics, written=written)
            looker = Looker(actions, opened, settings, metrics, writer=writer, cache=cache)
            reader = EventReader(looker, actions, opened, metrics)
            parts = Parts(
                brokers=brokers,
                client=client,
                log=actions,
                store=opened,
                looker=looker,
                reader=reader,
                appender=Appender(actions, looker, reader, settings, metrics, writer=writer, codec=codec),
                codec=codec,
                clock=clock,
                writer=writer,
                settings=settings,
            )
            yield cls(parts, metrics)

    @classmethod
    def open_sync(
        cls,
        log: str,
        *,
        store: str | JournalStore = "memory:",
        events: Iterable[type] | EventCodec = (),
        settings: JournalSettings | None = None,
        client_settings: ClientSettings | None = None,
        writer: Writer = THIS_WRITER,
        clock: Clock | None = None,
        replicate: Collection[str] = (),
    ) -> AbstractContextManager[WaitingJournals]:
        """The twin for code that waits: `with Journals.open_sync(...) as journals`. Arguments are those of `open`."""
        opening = cls.open(
            log,
            store=store,
            events=events,
            settings=settings,
            client_settings=client_settings,
            writer=writer,
            clock=clock,
            replicate=replicate,
        )
        return open_waiting(opening)


@asynccontextmanager
async def _head_cache(
    brokers: Connect, store: JournalStore, settings: JournalSettings, metrics: JournalMetrics
) -> AsyncIterator[HeadCache | None]:
    if not settings.head_cache:
        yield None
        return
    cache = HeadCache(brokers, store, settings, metrics)
    try:
        yield cache
    finally:
        await cache.close()


@asynccontextmanager
async def _replicator(
    brokers: Connect, store: JournalStore, clock: Clock, topic_prefixes: Collection[str]
) -> AsyncIterator[None]:
    if not topic_prefixes:
        yield
        return
    running = asyncio.create_task(Replicator(brokers, store, clock, topic_prefixes=topic_prefixes).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()  # it does not end by itself: this tells why it has


@asynccontextmanager
async def _store(store: str | JournalStore) -> AsyncIterator[JournalStore]:
    if not isinstance(store, str):
        yield store
        return
    async with journal_store(store) as opened:
        yield opened
