"""Looking at a journal: what the store holds of it, and what the log makes of that up to now (seed 003).

Nothing is told of a journal before every action ahead of the store is known.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal.actions import ActionRecord, Append, Mark
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.head_summary import HeadSummary, add_action, empty_summary, settle
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import Writer
from exactlog.core.journal.read_plan import Stretch, held_offset, needed_stretch
from exactlog.core.journal.rows import HeadRow
from exactlog.core.journal.state import JournalState
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.action_log import ActionLog
from exactlog.journal.metrics import JournalMetrics, Spared
from exactlog.journal.settings import JournalSettings, ReadBarrier
from exactlog.journal.store_ports import EventualJournal

_DOUBT_PAUSE_S: Final = 0.05
_SHORT_SCAN_RECORDS: Final = 16
"""So few records of others are read as soon as the cache is asked."""


class Held(Struct, frozen=True):
    """What a store holds of a journal: every action up to `offset`, and none behind it."""

    place: TopicPartition
    offset: int
    head: HeadRow | None
    pointer: int | None


class Sight(Struct, frozen=True):
    """A journal at one moment.

    Attributes:
        held: what the store holds.
        end: every action before this offset is in the sight.
        summary: of the log behind what is held, decided.
        kept: the actions that were found there; None: they were too many, or the summary came from elsewhere.
    """

    held: Held
    end: int
    summary: HeadSummary
    kept: Sequence[ActionRecord] | None

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return self.held.place

    @property
    def state(self) -> JournalState | None:
        """Where the journal stands; None: there is none."""
        return self.summary.state_after(self.before)

    @property
    def before(self) -> JournalState | None:
        """Where it stands in the store."""
        return _state(self.held.head)


class Known(Struct, frozen=True):
    """A journal as it was once: every action up to `offset` is in the state, none behind it."""

    place: TopicPartition
    offset: int
    state: JournalState | None


class HeadSummaries(Protocol):
    """Who may know what the head of a partition makes of a journal, without a look at the log."""

    async def summary(self, place: TopicPartition, key_id: str, *, offset: int, end: int) -> HeadSummary | None:
        """What stands behind an offset, up to `end` or further; None: it cannot tell."""

    async def is_untouched(self, place: TopicPartition, key_id: str, *, after: int, before: int) -> bool:
        """Whether they know that no action of a journal lies behind one offset and before another one."""

    def settled(self, place: TopicPartition, key_id: str, summary: HeadSummary) -> None:
        """A summary that came from here, decided since by who knew the state before it."""


class Looker:
    """Looks at journals."""

    def __init__(
        self,
        log: ActionLog,
        store: EventualJournal,
        settings: JournalSettings,
        metrics: JournalMetrics,
        *,
        writer: Writer,
        cache: HeadSummaries | None,
    ) -> None:
        self._log = log
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._writer = writer
        self._cache = cache

    @property
    def has_cache(self) -> bool:
        """Whether a look is likely not to read the log."""
        return self._cache is not None

    async def held(self, key: JournalKey) -> Held:
        """What the store holds of a journal.

        Raises:
            Repartitioned: it holds it in another partition.
            Retriable: the store cannot be asked.
        """
        return await self._held(key, await self._log.place_of(key))

    async def look(self, key: JournalKey) -> Sight:
        """The journal as it is now.

        Raises:
            HeadLost: a part of the log is gone that is not replicated.
            Repartitioned: the topic has another number of partitions than it had.
            DecodeError: an action of the journal cannot be read.
            Retriable: the log or the store cannot be asked, or what they say cannot be told apart yet.
        """
        give_up_at = asyncio.get_running_loop().time() + self._settings.no_progress_ms / 1000
        while True:
            sight = await self._look_once(key)
            doubt_at = sight.summary.doubt_at(sight.before)
            if doubt_at is None:
                return sight
            if asyncio.get_running_loop().time() > give_up_at:
                raise Retriable(
                    f"journal {key}: whether the purge at offset {doubt_at} of {sight.place} was carried out cannot "
                    "be told before it is replicated",
                    hint="see that the replicator of the topic runs, and read again",
                )
            await asyncio.sleep(_DOUBT_PAUSE_S)

    async def state_at(self, key: JournalKey, known: Known, *, end: int) -> JournalState | None:
        """The state of a journal behind every action before `end`, from one that is known of an earlier offset.

        Raises as `look`.
        """
        return known.state if await self.is_untouched(key, known, end=end) else await self.read_on(key, known, end=end)

    async def is_untouched(self, key: JournalKey, known: Known, *, end: int) -> bool:
        """Whether there is no action of a journal behind what is known and before `end`, so far as the cache knows.

        Where many journals are appended to at once, each would else read what all others have written meanwhile.
        """
        if end <= known.offset + 1:
            return True
        if self._cache is None:
            return False
        is_untouched = await self._cache.is_untouched(known.place, key.id, after=known.offset, before=end)
        self._metrics.spared[Spared.SCAN].inc(is_untouched)
        return is_untouched

    async def read_on(self, key: JournalKey, known: Known, *, end: int) -> JournalState | None:
        """As `state_at`, where the log has to be read. Raises as `look`."""
        nearer = known if is_near(known.offset, end) else await self._nearer(key, known, end=end)
        if nearer is not known and await self.is_untouched(key, nearer, end=end):
            return nearer.state
        summary, _ = await self._scan(nearer, key, end=end)
        if nearer is not known and summary.doubt_at(nearer.state) is not None:
            summary, _ = await self._scan(known, key, end=end)
        return summary.state_after(known.state)  # it is settled: what was before is in it

    async def applied(self, key: JournalKey, record: ActionRecord) -> JournalState | None:
        """The state behind an action, where that is the last one that the store has carried out; None: it is not."""
        head = (await self.held(key)).head
        return head.state if head is not None and head.offset == record.offset else None

    async def _nearer(self, key: JournalKey, known: Known, *, end: int) -> Known:
        """What the store holds, where that is more than what is known, and not too much."""
        held = await self._held(key, known.place)
        is_between = known.offset < held.offset < end
        return Known(known.place, held.offset, _state(held.head)) if is_between else known

    async def barrier(self, key: JournalKey, place: TopicPartition) -> int:
        """The offset before which a read that begins now is to see everything."""
        if self._settings.barrier is ReadBarrier.END_OFFSET:
            return await self._log.end(place)
        return (await self.write_mark(key, place, str(uuid4()))).offset

    async def write_mark(self, key: JournalKey, place: TopicPartition, mark_id: str) -> ActionRecord:
        """Write a mark."""
        mark = Mark(id=mark_id, origin=self._writer.origin, version=self._writer.version)
        return await self._log.write(key, place, mark)

    # --- one look -----------------------------------------------------------------------------------------------------

    async def _look_once(self, key: JournalKey) -> Sight:
        place = await self._log.place_of(key)
        is_marked = asyncio.Event()

        async def mark() -> int:
            end = await self.barrier(key, place)
            is_marked.set()
            return end

        async def ask() -> Held:
            held = await self._held(key, place)
            self._metrics.spared[Spared.WAIT_FOR_MARK].inc(not is_marked.is_set())
            return held

        end, held = await asyncio.gather(mark(), ask())
        sight = await self._without_scan(held, key, end=end)
        if sight is None and self._cache is not None and not is_near(held.offset, end):
            held = await self._held(key, place)  # the store may have gone on, and the cache forgotten what it has
            sight = await self._without_scan(held, key, end=end)
        if sight is None:
            summary, kept = await self._scan(Known(place, held.offset, _state(held.head)), key, end=end)
            sight = Sight(held, end, summary, kept)
        return sight

    async def _without_scan(self, held: Held, key: JournalKey, *, end: int) -> Sight | None:
        """The sight, where the log need not be read for it."""
        if needed_stretch(held.place, pointer=held.pointer, end=end, log_start=0) is None:
            self._metrics.spared[Spared.LOG].inc()
            return Sight(held, end, empty_summary(held.place, held.offset + 1), ())
        summary = await self._cached(held, key, _state(held.head), end=end)
        return None if summary is None else Sight(held, end, summary, None)

    async def _held(self, key: JournalKey, place: TopicPartition) -> Held:
        """The pointer first: the head row is at least as new then."""
        pointer_row = await self._store.pointer(place)
        head = await self._store.head(key)
        pointer = None if pointer_row is None else pointer_row.offset
        return Held(place, held_offset(place, pointer=pointer, head=head), head, pointer)

    async def _cached(
        self, held: Held, key: JournalKey, before: JournalState | None, *, end: int
    ) -> HeadSummary | None:
        if self._cache is None:
            return None
        summary = await self._cache.summary(held.place, key.id, offset=held.offset, end=end)
        if summary is None:
            return None
        self._metrics.spared[Spared.SCAN].inc()
        settled = settle(summary, before)
        if settled.doubt_at(before) is None:
            self._cache.settled(held.place, key.id, settled)
        return settled

    async def _scan(self, known: Known, key: JournalKey, *, end: int) -> tuple[HeadSummary, list[ActionRecord] | None]:
        """Read the log once, and keep what was found, if it is not too much. The summary is small in any case."""
        self._metrics.scans.inc()
        stretch = Stretch(known.offset + 1, end)
        summary = settle(empty_summary(known.place, stretch.start), known.state)
        kept: list[ActionRecord] | None = []
        kept_bytes = 0
        async for record in self._log.actions(known.place, stretch, key.id):
            summary = add_action(summary, record)
            if kept is None or isinstance(record.action, Mark):
                continue
            kept.append(record)
            kept_bytes += len(record.action.payload) if isinstance(record.action, Append) else 0
            if len(kept) > self._settings.buffer_actions_max or kept_bytes > self._settings.buffer_bytes_max:
                kept = None
        return replace(summary, end=max(summary.end, end)), kept


def is_near(offset: int, end: int) -> bool:
    """Whether what is behind an offset is read from the log as soon as anybody else is asked."""
    return end - offset <= _SHORT_SCAN_RECORDS


def _state(head: HeadRow | None) -> JournalState | None:
    return None if head is None else head.state
