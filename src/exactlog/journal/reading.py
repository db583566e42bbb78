"""Reading the events of a journal: first from the store, then what it has not got yet from the log."""

from collections.abc import AsyncIterator, Sequence

from exactlog.core.journal.actions import ActionRecord
from exactlog.core.journal.errors import HeadLost, JournalDeleted
from exactlog.core.journal.events import EventRow
from exactlog.core.journal.keys import JournalKey, SeqNr, SeqRange
from exactlog.core.journal.read_plan import LogPart, LogReader, ReadPlan, plan_read
from exactlog.core.journal.rows import HeadRow
from exactlog.journal.action_log import ActionLog
from exactlog.journal.closing import closing
from exactlog.journal.metrics import JournalMetrics, Spared
from exactlog.journal.sight import Looker, Sight
from exactlog.journal.store_ports import EventualJournal


class EventReader:
    """Reads journals. However long one is, little of it is in memory at a time."""

    def __init__(self, looker: Looker, log: ActionLog, store: EventualJournal, metrics: JournalMetrics) -> None:
        self._looker = looker
        self._log = log
        self._store = store
        self._metrics = metrics

    async def read(self, key: JournalKey, wanted: SeqRange) -> AsyncIterator[EventRow]:
        """The events of a journal with these numbers, as it is when the first one is asked for.

        Raises:
            JournalDeleted: they were deleted, or the journal purged, while they were being read.
            ForkedJournalError: the store has two events of one number.
            ExactlogError: as `Looker.look`.
        """
        sight = await self._looker.look(key)
        async for row in self.read_sight(key, sight, wanted):
            yield row

    async def read_sight(self, key: JournalKey, sight: Sight, wanted: SeqRange) -> AsyncIterator[EventRow]:
        """The events of a journal that was looked at. Raises as `read`."""
        plan = plan_read(key, wanted, head=sight.held.head, summary=sight.summary)
        self._metrics.reads[plan.path].inc()
        if plan.wanted is None:
            return
        told = _Told(plan.wanted)
        if plan.store is not None:
            assert sight.held.head is not None
            async for row in told.tell(self._store.rows(key, sight.held.head, plan.store)):
                yield row
            stored_to = min(plan.store.last, sight.held.head.seq_nr)
            if not told.is_gapless_to(stored_to):
                await self._check_still_there(key, plan, sight)
        part = plan.log_after(told.last)
        if part is None:
            self._metrics.spared[Spared.SECOND_CONSUMER].inc(plan.log is not None)
            return
        async for row in self._rest(key, plan, sight, part, told):
            yield row

    # --- what the store did not give ----------------------------------------------------------------------------------

    async def _rest(
        self, key: JournalKey, plan: ReadPlan, sight: Sight, part: LogPart, told: "_Told"
    ) -> AsyncIterator[EventRow]:
        """The rest, by the cheapest way: what was kept, the store if it has caught up, else the log."""
        if sight.kept is not None:
            self._metrics.spared[Spared.SECOND_READ].inc()
            for row in _taken(plan, part, told, sight.kept):
                yield row
            return
        head = await self._caught_up(key, plan, sight)
        if head is None:
            try:
                async for row in self._from_log(key, plan, sight, part, told):
                    yield row
            except HeadLost:
                head = await self._caught_up(key, plan, sight)
                if head is None:
                    raise
        if head is not None:
            self._metrics.spared[Spared.SECOND_CONSUMER].inc()
            async for row in self._from_store(key, plan, head, told):
                yield row

    async def _from_log(
        self, key: JournalKey, plan: ReadPlan, sight: Sight, part: LogPart, told: "_Told"
    ) -> AsyncIterator[EventRow]:
        self._metrics.log_reads.inc()
        reader = LogReader(plan, part, next_seq_nr=told.next_seq_nr)
        actions = self._log.actions(sight.place, part.stretch, key.id)
        async with closing(actions):
            async for record in actions:
                for row in reader.take(record):
                    told.last = row.seq_nr
                    yield row
                if reader.is_done:
                    return

    async def _from_store(
        self, key: JournalKey, plan: ReadPlan, head: HeadRow, told: "_Told"
    ) -> AsyncIterator[EventRow]:
        wanted = SeqRange(SeqNr(told.next_seq_nr), told.wanted.last)
        async for row in told.tell(self._store.rows(key, head, wanted)):
            yield row
        if not told.is_gapless_to(wanted.last):
            await self._check_still_there(key, plan, None)

    async def _caught_up(self, key: JournalKey, plan: ReadPlan, sight: Sight) -> HeadRow | None:
        """The head row, if by now the store has the rest too, of the same life."""
        assert plan.state is not None
        pointer = await self._store.pointer(sight.place)
        if pointer is None or pointer.offset < sight.end - 1:
            return None
        head = await self._store.head(key)
        if head is None or head.record_id != plan.state.record_id:
            raise _deleted(key)
        return head

    async def _check_still_there(self, key: JournalKey, plan: ReadPlan, sight: Sight | None) -> None:
        """There was a gap. Gaps are allowed; a delete that has begun since would leave one too.

        A store without transactions drops rows before its head says so: the log has to be asked.
        """
        assert plan.state is not None
        assert plan.wanted is not None
        now = await self._looker.look(key)
        state = now.state
        if (
            sight is not None
            and now.held.head == sight.held.head
            and now.summary.last_offset == sight.summary.last_offset
        ):
            return
        if state is None or state.record_id != plan.state.record_id or state.delete_to >= plan.wanted.first:
            raise _deleted(key)


class _Told:
    """How far the reader has been told, and whether a number was left out on the way."""

    def __init__(self, wanted: SeqRange) -> None:
        self.wanted = wanted
        self.last: int | None = None
        self._is_gapless = True

    @property
    def next_seq_nr(self) -> int:
        return self.wanted.first if self.last is None else self.last + 1

    def is_gapless_to(self, seq_nr: int) -> bool:
        """Whether every number up to this one was told."""
        return self._is_gapless and self.next_seq_nr > seq_nr

    async def tell(self, rows: AsyncIterator[EventRow]) -> AsyncIterator[EventRow]:
        async with closing(rows):
            async for row in rows:
                self._is_gapless = self._is_gapless and row.seq_nr == self.next_seq_nr
                self.last = row.seq_nr
                yield row


def _taken(plan: ReadPlan, part: LogPart, told: _Told, actions: Sequence[ActionRecord]) -> Sequence[EventRow]:
    reader = LogReader(plan, part, next_seq_nr=told.next_seq_nr)
    return [row for record in actions for row in reader.take(record)]


def _deleted(key: JournalKey) -> JournalDeleted:
    return JournalDeleted(
        f"journal {key}: events that were being read were deleted meanwhile",
        hint="read it again: what is left then is all there is",
    )
