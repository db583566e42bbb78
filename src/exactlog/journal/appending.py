"""Appending to a journal: write the action, read through it, and say what became of it.

What an action does is decided by the actions before it in the log, for every reader alike. So the writer knows the
outcome when it knows those, and answers only then: of two writers that expect the same one wins, on any broker.

An append that leaves its numbers to the journal is written behind the last event that the writer knows of, and expects
just that. Where somebody else came first nobody sees it, and it is written anew behind the other's.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypedDict
from weakref import WeakValueDictionary

from msgspec import Struct

from exactlog.core.journal.action_fold import apply_action
from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.conflict import Conflict
from exactlog.core.journal.errors import ForkedJournalError, JournalInputError, Retriable
from exactlog.core.journal.events import EventRow, RecordMetadata
from exactlog.core.journal.expectation import ANY, Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.judgement import Appended, NotAsExpected, Overtaken, first_answer, judge_append
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, JournalKey, SeqNr, SeqRange
from exactlog.core.journal.new_actions import NewEvent, Writer, new_append
from exactlog.core.journal.state import JournalState
from exactlog.core.model.errors import ExactlogError, UnavailableError
from exactlog.journal.action_log import ActionLog
from exactlog.journal.closing import closing
from exactlog.journal.event_record import event_record_of
from exactlog.journal.metrics import JournalMetrics
from exactlog.journal.reading import EventReader
from exactlog.journal.settings import JournalSettings
from exactlog.journal.sight import Known, Looker, is_near
from exactlog.journal.typed_events import EventCodec


class AppendOptions(TypedDict, total=False):
    """What `Journal.append` takes beside events and expectation."""

    event_ids: Sequence[str]
    metadata: object
    headers: Mapping[str, str]
    expire_after: ExpireAfter | timedelta | str | int | None


class Draft(Struct, frozen=True, kw_only=True):
    """What is to be appended, encoded but not numbered.

    Attributes:
        events: one or more.
        expect: of the caller.
        metadata: of all events.
        headers: of the record.
    """

    events: tuple[NewEvent, ...]
    expect: Expectation = ANY
    metadata: RecordMetadata = RecordMetadata()
    headers: Mapping[str, str]

    @property
    def is_numbered(self) -> bool:
        """Whether the caller has said where it begins."""
        return self.events[0].seq_nr is not None


class _Remembered(Struct, frozen=True):
    known: Known
    seen_at: float


class Memory:
    """Where journals stand, so far as this program knows: those that were written to last."""

    def __init__(self, journals_max: int) -> None:
        self._journals_max = journals_max
        self._known: OrderedDict[JournalKey, _Remembered] = OrderedDict()
        self._turns: WeakValueDictionary[JournalKey, asyncio.Lock] = WeakValueDictionary()  # of who has one, or waits

    def turn(self, key: JournalKey) -> asyncio.Lock:
        """Appends of one program to one journal go one after the other: they would only get in each other's way."""
        return self._turns.setdefault(key, asyncio.Lock())

    def get(self, key: JournalKey, *, seen_within_s: float) -> Known | None:
        """What is known, and was not long ago."""
        remembered = self._known.get(key)
        if remembered is None or time.monotonic() - remembered.seen_at > seen_within_s:
            return None
        return remembered.known

    def put(self, key: JournalKey, known: Known) -> None:
        """Remember it, if it is newer than what was."""
        before = self._known.get(key)
        if before is None or before.known.place != known.place or before.known.offset <= known.offset:
            self._known[key] = _Remembered(known, time.monotonic())
        self._known.move_to_end(key)
        while len(self._known) > self._journals_max:
            self._known.popitem(last=False)


class Appender:
    """Appends, and says what became of it."""

    def __init__(
        self,
        log: ActionLog,
        looker: Looker,
        reader: EventReader,
        settings: JournalSettings,
        metrics: JournalMetrics,
        *,
        writer: Writer,
        codec: EventCodec,
    ) -> None:
        self._log = log
        self._looker = looker
        self._reader = reader
        self._settings = settings
        self._metrics = metrics
        self._writer = writer
        self._codec = codec
        self.memory = Memory(settings.journals_remembered_max)

    async def append(self, key: JournalKey, draft: Draft) -> Appended:
        """Append events, all or none of them.

        Raises:
            Conflict: the journal was not as expected.
            ForkedJournalError: numbers that the caller gave had been given already.
            JournalInputError: the events cannot be written as they are.
            Retriable: others came first again and again; nothing of it is seen by anybody.
            UnavailableError: whether it counts is not known.
            ExactlogError: the log refuses it.
        """
        async with self.memory.turn(key):
            known = await self._known_before(key, draft)
            for _ in range(self._settings.append_attempts_max):
                append, known = await self._numbered_behind(key, draft, known)
                record = await self._log.write(key, known.place, append)
                self._metrics.appends.inc()
                try:
                    before, known = await self._read_through(key, known, record)
                except ExactlogError as error:
                    raise outcome_unknown(record, error) from error
                answer = await self._answer(key, draft, record, before)
                if answer is not None:
                    return answer
                self._metrics.renumbered.inc()
        raise Retriable(
            f"journal {key}: {self._settings.append_attempts_max} times others appended first",
            hint="too many write to one entity at once; say what is expected, or let one of them write",
        )

    # --- before -------------------------------------------------------------------------------------------------------

    async def _known_before(self, key: JournalKey, draft: Draft) -> Known:
        """A state from which the append can be judged; one of now, where the numbers depend on it.

        A store that has no head row may have one again before the append is in the log: only a whole look tells.
        """
        known = self.memory.get(key, seen_within_s=self._settings.remembered_ms / 1000)
        if known is not None and (known.state is not None or not draft.expect.exists):
            return known
        if not self._looker.has_cache and (draft.is_numbered or draft.expect.seq_nr is not None):
            held = await self._looker.held(key)
            if held.head is not None:
                return Known(held.place, held.offset, held.head.state)
        return await self.look(key)

    async def _numbered_behind(self, key: JournalKey, draft: Draft, known: Known) -> tuple[Append, Known]:
        """The action, and what it was numbered by. What is remembered may be of a journal that somebody has purged."""
        try:
            return self.numbered(key, draft, known.state), known
        except JournalInputError:
            known = await self.look(key)
            return self.numbered(key, draft, known.state), known

    async def look(self, key: JournalKey) -> Known:
        """Where a journal stands now; remembered. Raises as `Looker.look`."""
        sight = await self._looker.look(key)
        known = Known(sight.place, max(sight.summary.end - 1, sight.held.offset), sight.state)
        self.memory.put(key, known)
        return known

    def numbered(self, key: JournalKey, draft: Draft, state: JournalState | None) -> Append:
        """The action, for a journal in this state.

        Raises:
            Conflict: there is no journal, and there has to be one.
            JournalInputError: the events cannot be written behind its last one.
        """
        if draft.expect.exists and state is None:
            self._metrics.conflicts.inc()
            raise Conflict(key, expected=draft.expect, actual=None)
        last_seq_nr, expect = _place_for(draft, state)
        return new_append(
            draft.events,
            last_seq_nr=last_seq_nr,
            expect=expect,
            metadata=draft.metadata,
            headers=draft.headers,
            writer=self._writer,
        )

    # --- afterwards ---------------------------------------------------------------------------------------------------

    async def _read_through(
        self, key: JournalKey, known: Known, record: ActionRecord
    ) -> tuple[JournalState | None, Known]:
        """The state before the append, and what is known behind it."""
        append, end, after = record.action, record.offset, None
        assert isinstance(append, Append)
        if await self._looker.is_untouched(key, known, end=end):
            before = known.state
        else:
            if not is_near(known.offset, end) and _is_exact(append.expect):
                after = await self._looker.applied(key, record)
            if after is not None:  # replicated already, so that it was as expected
                before = _expected(append.expect)
            else:
                before = await self._looker.read_on(key, known, end=end)
        if after is None:
            after = apply_action(before, record)
        known = Known(known.place, record.offset, after)
        self.memory.put(key, known)
        return before, known

    async def _answer(
        self, key: JournalKey, draft: Draft, record: ActionRecord, before: JournalState | None
    ) -> Appended | None:
        """What to tell the caller; None: the append was numbered in vain, and is to be written anew."""
        append = record.action
        assert isinstance(append, Append)
        judgement = judge_append(record, before)
        match judgement:
            case Appended():
                return judgement
            case Overtaken(actual=actual, taken=taken):
                self._metrics.forks.inc()
                first = await self._first_answer(key, append, append.range.first)
                if first is not None:
                    return first
                lost = f"up to {min(actual, append.range.last)}" if taken else f"to {append.range.last}"
                raise ForkedJournalError(
                    f"journal {key} had come to {actual}: events {append.range.first} {lost} of this append do not "
                    "count",
                    hint="leave the numbers out, or say what is expected of the journal",
                )
            case NotAsExpected():
                if draft.expect.holds(before) and append.expect != draft.expect:
                    return None
                first = await self._first_answer(key, append, _behind(draft.expect))
                if first is not None:
                    return first
                raise await self.conflict(key, draft, before)

    async def conflict(self, key: JournalKey, draft: Draft, before: JournalState | None) -> Conflict:
        """What to tell a caller whose expectation failed: with the events that came instead."""
        self._metrics.conflicts.inc()
        actual = None if before is None else before.seq_nr
        instead = [event_record_of(row, self._codec) for row in await self._rows(key, _behind(draft.expect))]
        return Conflict(key, expected=draft.expect, actual=actual, events=instead)

    async def _first_answer(self, key: JournalKey, append: Append, first_seq_nr: int) -> Appended | None:
        if not append.event_ids:
            return None
        return first_answer(append, await self._rows(key, first_seq_nr, count=len(append.event_ids)))

    async def _rows(self, key: JournalKey, first_seq_nr: int, *, count: int | None = None) -> Sequence[EventRow]:
        count = self._settings.conflict_events_max if count is None else count
        wanted = SeqRange(SeqNr(first_seq_nr), SEQ_NR_MAX)
        rows: list[EventRow] = []
        async with closing(self._reader.read(key, wanted)) as found:
            async for row in found:
                rows.append(row)
                if len(rows) == count:
                    break
        return rows


def _is_exact(expect: Expectation) -> bool:
    """Whether it says to which event the journal has come."""
    return expect.exists is False or expect.seq_nr is not None


def _expected(expect: Expectation) -> JournalState | None:
    """A journal that is as exactly expected, so far as a writer needs to know."""
    return None if expect.seq_nr is None else JournalState(expect.seq_nr, record_id=expect.record_id)


def _behind(expect: Expectation) -> int:
    """The first number that an append with this expectation can have."""
    return SEQ_NR_MIN if expect.seq_nr is None else expect.seq_nr + 1


def outcome_unknown(record: ActionRecord, error: ExactlogError) -> UnavailableError:
    """What to tell a writer whose action is in the log, where what came before it cannot be read."""
    unknown = UnavailableError(
        f"journal {record.key}: the action at offset {record.offset} is written, but whether it counts is not known: "
        f"{error}",
        hint="read the journal; to append the same event ids with the same expectation again is safe",
    )
    unknown.retryable = False
    return unknown


def _place_for(draft: Draft, state: JournalState | None) -> tuple[int, Expectation]:
    """The number behind which the events go, and what the action expects: what the caller does, or just this place."""
    expect = draft.expect
    if expect.seq_nr is not None:
        return expect.seq_nr, expect
    if expect.exists is False or draft.is_numbered:
        return 0, expect
    if state is None:
        return 0, Expectation(exists=False)
    return state.seq_nr, Expectation(seq_nr=SeqNr(state.seq_nr), record_id=state.record_id)
