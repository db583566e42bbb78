"""Following the head of each partition that is read from, so that a read need not look for deletes in the log.

A follower reads its partition from where the store ends, keeps a small summary of every journal that it meets, and lets
go of what has been replicated since. A read whose mark it has come to asks it in place of the log. Where it cannot tell
(it is new, or too slow, or had to forget) the read looks for itself: the cache is never more than a short cut.

It reads when somebody asks for more than it has, one Fetch for all who ask at a time, and now and then by itself, so
that it never has far to go. What was written here it is told: where nobody else has written it reads nothing.
"""

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from typing import Final

from exactlog.client.ports import LATEST, Client, ConsumedRecord, IsolationLevel
from exactlog.core.journal.actions import ActionRecord
from exactlog.core.journal.event_journal_format import decode_action
from exactlog.core.journal.head_summary import HeadSummary
from exactlog.core.journal.partition_cache import Ahead, Behind, Found, PartitionCache, Unknown
from exactlog.core.model.errors import DecodeError, ExactlogError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.brokers import Connect
from exactlog.journal.closing import closing
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.settings import JournalSettings
from exactlog.journal.sight import is_near
from exactlog.journal.store_ports import EventualJournal

_log = logging.getLogger(__name__)

_OWN_RECORDS_MAX: Final = 1_000
"""That were written here and wait for what lies before them to be read. What is one too many is read as well."""


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
        cache = await self._follower(place).come_to(end)
        found = Behind() if cache is None else cache.get(key_id, end=end)
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

    async def is_untouched(self, place: TopicPartition, key_id: str, *, after: int, before: int) -> bool:
        """Whether it knows that no action of a journal lies behind one offset and before another one.

        It is not waited for where it would have to read what is needless here.
        """
        follower = self._follower(place)
        has_far_to_go = follower.end is None or follower.end <= after
        if has_far_to_go and is_near(after, before):
            return False
        cache = await follower.come_to(before)
        return cache is not None and cache.is_untouched(key_id, after=after, before=before)

    def settled(self, place: TopicPartition, key_id: str, summary: HeadSummary) -> None:
        """A summary that came from here, decided since by who knew the state before it."""
        follower = self._followers.get(place)
        if follower is not None and follower.cache is not None:
            follower.cache.put_settled(key_id, summary)

    def written(self, place: TopicPartition, record: ActionRecord) -> None:
        """An action that was written here just now, and stands in the log: it need not be read."""
        follower = self._followers.get(place)
        if follower is not None:
            follower.add_own(record)

    def _follower(self, place: TopicPartition) -> "_Follower":
        follower = self._followers.get(place)
        if follower is None or follower.is_over:
            follower = _Follower(place, self._brokers, self._store, self._settings)
            self._followers[place] = follower
        return follower

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
        self._asked = asyncio.Event()
        self._asked_at = asyncio.get_running_loop().time()
        self._wanted = 0  # somebody has asked for all before this offset
        self._own: dict[int, ActionRecord] = {}  # written here, ahead of what is known
        self._task = asyncio.create_task(self._run(), name=f"exactlog head of {place}")

    @property
    def is_over(self) -> bool:
        return self._task.done()

    @property
    def end(self) -> int | None:
        """All before this offset is known; None: nothing is yet."""
        return None if self.cache is None else self.cache.end

    async def come_to(self, end: int) -> PartitionCache | None:
        """The cache, once it knows all before `end`; None, where that takes too long."""
        self._asked_at = asyncio.get_running_loop().time()
        if self.cache is None or self.cache.end < end:
            self._wanted = max(self._wanted, end)
            self._asked.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.cache_wait_ms / 1000):
                while not self.is_over:
                    if self.cache is not None and self.cache.end >= end:
                        return self.cache
                    await self._moved.wait()
        return None

    def add_own(self, record: ActionRecord) -> None:
        """It counts as read as soon as all before it is known."""
        if self.cache is None or record.offset < self.cache.end or len(self._own) >= _OWN_RECORDS_MAX:
            return
        self._own[record.offset] = record
        self._take_own(self.cache)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    # --- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as connected, asyncio.TaskGroup() as tasks:
                start = await self._pointer() + 1
                self.cache = PartitionCache(self._place, start=start, steps_max=self._settings.cache_steps_max)
                # With a client of its own: where a transaction holds it up it holds up nobody else.
                client = await connected.enter_async_context(self._brokers())
                following = tasks.create_task(self._follow(self.cache, client))
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

    async def _follow(self, cache: PartitionCache, client: Client) -> None:
        """Read what is asked for, and when nobody has asked for a while what is there."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.pointer_ms / 1000):
                    while self._wanted <= cache.end:
                        self._asked.clear()
                        await self._asked.wait()
                        await asyncio.sleep(0)  # others ask, or are told where they have written, at the same moment
            if self._wanted <= cache.end:
                listed = await client.list_offsets({self._place: LATEST}, isolation=IsolationLevel.READ_COMMITTED)
                self._wanted = max(self._wanted, int(listed[self._place].offset or 0))
            if self._wanted > cache.end:
                await self._read(cache, client, end=self._wanted)

    async def _read(self, cache: PartitionCache, client: Client, *, end: int) -> None:
        records = client.consume(
            {self._place: Offset(cache.end)},
            ends={self._place: Offset(end)},
            isolation=IsolationLevel.READ_COMMITTED,
            include_control=True,
        )
        async with closing(records):
            async for found in records:
                self._add(cache, found)
        cache.add((), end=end)
        self._own = {offset: record for offset, record in self._own.items() if offset >= cache.end}
        self._take_own(cache)
        self._tell()

    def _take_own(self, cache: PartitionCache) -> None:
        while (record := self._own.pop(cache.end, None)) is not None:
            cache.add((record,), end=record.offset + 1)
            self._tell()

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
