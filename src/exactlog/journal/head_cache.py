"""Following the head of each partition that is read from, so that a read need not look for deletes in the log.

A follower reads its partition from where the store ends, keeps a small summary of every journal that it meets, and lets
go of what has been replicated since. A read whose mark it has come to asks it in place of the log. Where it cannot tell
(it is new, or too slow, or had to forget) the read looks for itself: the cache is never more than a short cut.
"""

import asyncio
import logging
from contextlib import suppress

from exactlog.client.ports import ConsumedRecord, IsolationLevel
from exactlog.core.journal.event_journal_format import decode_action
from exactlog.core.journal.head_summary import HeadSummary
from exactlog.core.journal.partition_cache import Ahead, Behind, Found, PartitionCache, Unknown
from exactlog.core.model.errors import DecodeError, ExactlogError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.brokers import Connect
from exactlog.journal.closing import closing
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.settings import JournalSettings
from exactlog.journal.store_ports import EventualJournal

_log = logging.getLogger(__name__)


class HeadCache:
    """The followers of one `Journals`; `close` ends them."""

    def __init__(
        self, brokers: Connect, store: EventualJournal, settings: JournalSettings, metrics: JournalMetrics
    ) -> None:
        self._brokers = brokers
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._followers: dict[TopicPartition, _Follower] = {}

    async def summary(self, place: TopicPartition, key_id: str, *, offset: int, end: int) -> HeadSummary | None:
        """What stands behind an offset, up to `end` or further; None: it cannot tell."""
        follower = self._followers.get(place)
        if follower is None or follower.is_over:
            follower = _Follower(place, self._brokers, self._store, self._settings)
            self._followers[place] = follower
        found = await follower.ask(key_id, end=end)
        match found:
            case Found(summary=summary):
                since = summary.since(offset)
                self._metrics.cache_answer("found" if since is not None else "gap")
                return since
            case Unknown(reason=reason):
                self._metrics.cache_answer(reason)
            case Ahead():
                self._metrics.cache_answer("ahead")
            case Behind():
                self._metrics.cache_answer("behind")
        return None

    def settled(self, place: TopicPartition, key_id: str, summary: HeadSummary) -> None:
        """A summary that came from here, decided since by who knew the state before it."""
        follower = self._followers.get(place)
        if follower is not None and follower.cache is not None:
            follower.cache.put_settled(key_id, summary)

    async def close(self) -> None:
        """Follow no more."""
        for follower in self._followers.values():
            await follower.stop()
        self._followers.clear()


class _Follower:
    """One partition, followed by a task of its own."""

    def __init__(
        self, place: TopicPartition, brokers: Connect, store: EventualJournal, settings: JournalSettings
    ) -> None:
        self.cache: PartitionCache | None = None
        self._place = place
        self._brokers = brokers
        self._store = store
        self._settings = settings
        self._moved = asyncio.Event()
        self._asked_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run(), name=f"exactlog head of {place}")

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def ask(self, key_id: str, *, end: int) -> Ahead | Found | Unknown | Behind:
        """What the cache says, once it has come to `end`; sooner, where it takes too long."""
        self._asked_at = asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.cache_wait_ms / 1000):
                while not self.is_over:
                    answer = Behind() if self.cache is None else self.cache.get(key_id, end=end)
                    if not isinstance(answer, Behind):
                        return answer
                    await self._moved.wait()
        return Behind()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    # --- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                start = await self._pointer() + 1
                self.cache = PartitionCache(self._place, start=start, steps_max=self._settings.cache_steps_max)
                following = tasks.create_task(self._follow(self.cache, start))
                await self._let_go(self.cache)
                following.cancel()
        except* ExactlogError as errors:
            _log.warning(
                "%s: the head is followed no more, reads look for themselves: %s", self._place, errors.exceptions
            )
        finally:
            self.cache = None
            self._tell()

    async def _pointer(self) -> int:
        pointer = await self._store.pointer(self._place)
        return -1 if pointer is None else pointer.offset

    async def _let_go(self, cache: PartitionCache) -> None:
        """Of what is replicated; and of everything once nobody has asked for long enough."""
        now = asyncio.get_running_loop().time
        while now() - self._asked_at < self._settings.cache_idle_ms / 1000:
            await asyncio.sleep(self._settings.pointer_ms / 1000)
            if cache.remove(await self._pointer()):
                self._tell()

    async def _follow(self, cache: PartitionCache, start: int) -> None:
        """With a client of its own: it waits for records all the time."""
        async with self._brokers() as client:
            records = client.consume(
                {self._place: Offset(start)}, isolation=IsolationLevel.READ_COMMITTED, include_control=True
            )
            async with closing(records):
                async for found in records:
                    self._add(cache, found)

    def _add(self, cache: PartitionCache, found: ConsumedRecord) -> None:
        record = found.record
        try:
            action = None if found.batch.is_control else decode_action(self._place, record)
            cache.add(() if action is None else (action,), end=record.offset + 1)
        except DecodeError:
            with suppress(UnicodeDecodeError):
                cache.add_unreadable((record.key or b"").decode(), offset=record.offset)
            cache.add((), end=record.offset + 1)
        self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
