"""Logs that are open for the recorders of this program.

One program opens a directory once: factories with the same log and store share what is open, and the last one that is
closed, or forgotten, closes it. What is open when the program ends is closed then.
"""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  what it registers for the end is to come behind what stands here
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname
from typing import Final
from uuid import NAMESPACE_URL, uuid4, uuid5

from eventsourcing.persistence import InterfaceError
from msgspec import Struct

from exactlog.client.blocking_loop import BlockingLoop
from exactlog.client.ports import LATEST, Client
from exactlog.client.transactions import TRANSACTION_TIMEOUT_MS_DEFAULT
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, NotFoundError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.journal.brokers import Connect
from exactlog.journal.closing import closing
from exactlog.journal.eventsourcing.persistence_errors import persistence_errors
from exactlog.journal.journals import Journals
from exactlog.journal.replicator import Replicator, ReplicatorSettings
from exactlog.journal.settings import JournalSettings, ReadBarrier
from exactlog.journal.waiting import WaitingJournals
from exactlog.node.log_url import InDirectory, InMemory, log_place

_log = logging.getLogger(__name__)

# All of an application goes through one sequence: whoever comes second there tries again, however many there are.
_SETTINGS: Final = JournalSettings(barrier=ReadBarrier.END_OFFSET, append_attempts_max=100)
_THREAD_NAME: Final = "exactlog-recorders"
_FOLLOW_AGAIN_S: Final = 0.2
_GOODBYE_S: Final = 3.0
"""For a replicator that leaves its group: where the brokers are gone it would try for the deadline of its client."""

_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


class TopicUse(Struct, frozen=True, kw_only=True):
    """How a topic is used.

    Attributes:
        is_created: where it is not there yet, with one partition, and kept for ever.
        is_replicated: into the store, from here.
        transactional_id: that is this program's alone: a transaction that an earlier run left open under it is ended.
    """

    is_created: bool = True
    is_replicated: bool = True
    transactional_id: str | None = None


class OpenLog:
    """A log, a store, journals on both, and the thread that does the work. Several threads may use it.

    Args:
        url: of the log.
        store_url: of the store.
        group_prefix: of the groups in which replicators of this store share the topics of the log.
    """

    def __init__(self, url: str, store_url: str, *, group_prefix: str) -> None:
        self._group_prefix = group_prefix
        self._turn = threading.Lock()
        self._topics: dict[str, TopicUse] = {}
        self._background = _Background()
        self._loop = BlockingLoop(_THREAD_NAME, closed=closed_error)
        with ExitStack() as opening:
            opening.callback(self._loop.close)
            opened = self._loop.within(Journals.open(url, store=store_url, settings=_SETTINGS))
            journals = opening.enter_context(opened)
            opening.callback(self._stop_background)
            self._closing = opening.pop_all()
        self._parts = journals.parts
        self.journals = WaitingJournals(journals, self._loop)

    def use_topic(self, topic: str, use: TopicUse) -> None:
        """Make a topic ready, the first time that it is used so."""
        with self._turn:
            if self._topics.get(topic) != use:
                self._loop.wait(self._make_ready(topic, use, self._topics.get(topic)))
                self._topics[topic] = use

    def call_on_commits(self, topic: str, key_id: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call, in the thread of the log, whenever something was committed where a journal is; the answer ends that.

        It is called once at the beginning too.
        """
        background = self._background
        task = self._loop.wait(background.start(_call_on_commits(self._parts.brokers, topic, key_id, call)))

        def end() -> None:
            try:
                self._loop.submit(background.stop(task))
            except InterfaceError:
                _log.debug("the log was closed before the subscription")

        return end

    def close(self) -> None:
        """Close all of it."""
        self._closing.close()

    def _stop_background(self) -> None:
        self._loop.wait(self._background.stop_all())

    async def _make_ready(self, topic: str, use: TopicUse, before: TopicUse | None) -> None:
        parts = self._parts
        if use.is_created:
            await _create(parts.client, topic)
        if use.transactional_id is not None:
            await parts.client.fence_producers(use.transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MS_DEFAULT)
        if use.is_replicated and not (before is not None and before.is_replicated):
            settings = ReplicatorSettings(group_prefix=self._group_prefix)
            replicator = Replicator(parts.brokers, parts.store, parts.clock, topic_prefixes=(topic,), settings=settings)
            _ = await self._background.start(replicator.run())


class _Background:
    """What runs beside the callers, until it is stopped."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self, *tasks: asyncio.Task[None]) -> None:
        """Let tasks end. What would still say good-bye to a broker that does not answer ends with the loop."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GOODBYE_S)

    async def stop_all(self) -> None:
        await self.stop(*self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what runs beside the recorders has ended: %s", error, exc_info=error)


async def _create(client: Client, topic: str) -> None:
    try:
        await client.describe_topic(topic)
    except NotFoundError:
        try:
            await client.create_topic(topic, partition_count=1, configs=_KEPT_FOR_EVER)
        except KafkaError as error:
            if error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


async def _call_on_commits(brokers: Connect, topic: str, key_id: str, call: Callable[[], None]) -> None:
    while True:
        try:
            async with brokers() as client:  # of its own: it waits for records all the time
                count = await client.partition_count(topic)
                place = TopicPartition(topic, partition_of_key(key_id.encode(), partition_count=count))
                listed = await client.list_offsets({place: LATEST}, isolation=IsolationLevel.READ_COMMITTED)
                start = listed[place].offset
                assert start is not None, "a partition has an end"
                call()
                records = client.consume({place: start}, isolation=IsolationLevel.READ_COMMITTED)
                async with closing(records):
                    async for _ in records:
                        call()
        except ExactlogError as error:
            _log.warning("topic %s: it is followed anew: %s", topic, error)
        await asyncio.sleep(_FOLLOW_AGAIN_S)


# --- sharing ----------------------------------------------------------------------------------------------------------


class _Shared:
    """A log that is open while anybody has a share in it."""

    def __init__(self, url: str, store_url: str) -> None:
        self._url = url
        self._store_url = store_url
        self._turn = threading.Lock()  # whoever opens a directory again waits until it is closed
        self._log: OpenLog | None = None
        self._shares = 0

    def take(self) -> OpenLog:
        with self._turn:
            if self._log is None:
                self._log = OpenLog(self._url, self._store_url, group_prefix=_group_prefix(self._store_url))
                _open_logs.add(self)
            self._shares += 1
            return self._log

    def give_back(self, log: OpenLog) -> None:
        with self._turn:
            if log is not self._log:  # it was closed before
                return
            self._shares -= 1
            if self._shares == 0:
                self._close()

    def close(self) -> None:
        """Close it, whoever has a share."""
        with self._turn:
            self._close()

    def _close(self) -> None:
        log, self._log, self._shares = self._log, None, 0
        try:
            if log is not None:
                log.close()
        finally:
            _open_logs.discard(self)  # whoever closes all waits until this is done


_turn = threading.Lock()
_shared: dict[tuple[str, str], _Shared] = {}
_open_logs: set[_Shared] = set()


class LogShare:
    """The share that a factory and its recorders have in an open log: it stays open as long as this is not closed.

    Raises:
        InterfaceError: another program has the directory of the log open.
        OperationalError: the store cannot be reached.
        DatabaseError: a URL is none.
    """

    def __init__(self, url: str, store_url: str) -> None:
        with persistence_errors():
            place = log_place(url, what="the log of recorders")
            if isinstance(place, InMemory):
                shared = _Shared(url, store_url)
            else:
                named = str(Path(place.directory).resolve()) if isinstance(place, InDirectory) else url
                with _turn:
                    shared = _shared.setdefault((named, store_url), _Shared(url, store_url))
            self._log = shared.take()
        self._shared = shared
        self._forgotten = weakref.finalize(self, _give_back_aside, shared, self._log)
        self._forgotten.atexit = False

    @property
    def log(self) -> OpenLog:
        """The log. Raises `InterfaceError` when the share was given back."""
        if not self._forgotten.alive:
            raise closed_error()
        return self._log

    def close(self) -> None:
        """Give the share back. The last one closes the log."""
        if self._forgotten.detach() is None:
            return
        if threading.current_thread().name == _THREAD_NAME:  # an application that is forgotten closes itself anywhere
            _give_back_aside(self._shared, self._log)
        else:
            self._shared.give_back(self._log)


def closed_error() -> InterfaceError:
    """What is told to who uses a recorder whose factory was closed."""
    return InterfaceError("the log of this recorder is closed")


def close_open_logs() -> None:
    """Close all logs that are open for recorders, whoever has a share in them. It is done when the program ends."""
    for shared in list(_open_logs):
        shared.close()


# When functions of `atexit` are called no executor takes work any more, and a broker in this program cannot be stopped
# in order. What `concurrent.futures` itself is called by comes before that, the last one registered first.
getattr(threading, "_register_atexit", atexit.register)(close_open_logs)


def _give_back_aside(shared: _Shared, log: OpenLog) -> None:
    """Nobody knows in which thread a thing is forgotten: it may be the one that would have to do the closing."""
    threading.Thread(target=shared.give_back, args=(log,), name="exactlog-recorders-close", daemon=True).start()


def _group_prefix(store_url: str) -> str:
    """Replicators of one store share topics, those of different stores must not: each would get a part only."""
    scheme, _, rest = store_url.partition(":")
    match scheme:
        case "memory":
            return f"replicator-{uuid4()}-"
        case "sqlite":
            path = Path("/" + rest.removeprefix("///")) if rest.startswith("////") else Path(rest.removeprefix("///"))
            return f"replicator-{uuid5(NAMESPACE_URL, f'{gethostname()}:{path.resolve()}')}-"
        case _:
            return f"replicator-{uuid5(NAMESPACE_URL, store_url.partition('?')[0])}-"
