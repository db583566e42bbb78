"""Appends to several journals, and offsets of consumers, that count together or not at all.

Expectations are judged before the transaction ends. The partitions are taken in one order by everybody: what goes to
the first is written, then everything before it in the log must be decided (its last stable offset is our own first
record), then it is judged, and only then is the next one written to. Two transactions therefore never wait for each
other, and what is judged is what every reader will find.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final
from uuid import uuid4

from msgspec import Struct

from exactlog.client.ports import LATEST, Client, IsolationLevel
from exactlog.client.transactions import OutcomeUnknownError, ProducerFencedError, TransactionalProducer
from exactlog.core.journal.actions import ActionRecord, Append
from exactlog.core.journal.errors import Fenced, ForkedJournalError, Retriable
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.judgement import Appended, NotAsExpected, Overtaken, judge_appends
from exactlog.core.journal.keys import JournalKey, Place
from exactlog.core.journal.state import JournalState
from exactlog.core.model.clock import Clock
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.appending import Appender, Draft
from exactlog.journal.settings import JournalSettings
from exactlog.journal.sight import Known, Looker

_STABLE_PAUSE_S: Final = 0.005
_END_ATTEMPTS_MAX: Final = 5


class PendingAppend:
    """An append of a transaction; `appended` is its answer once that has been committed."""

    def __init__(self, key: JournalKey, draft: Draft) -> None:
        self.key = key
        self.draft = draft
        self.appended: Appended | None = None


class Transaction:
    """What is to happen together. It is written when the block ends, and not at all if that ends with an exception."""

    def __init__(self) -> None:
        self.appends: list[PendingAppend] = []
        self.offsets: dict[str, dict[TopicPartition, Offset]] = {}

    def add(self, key: JournalKey, draft: Draft) -> PendingAppend:
        """Append to a journal when the transaction is committed."""
        pending = PendingAppend(key, draft)
        self.appends.append(pending)
        return pending

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group of consumers have come so far, if the transaction is committed: the next offsets to read."""
        self.offsets.setdefault(group, {}).update({place: Offset(offset) for place, offset in offsets.items()})


class _Numbered(Struct, frozen=True):
    """The appends to one journal, numbered behind what is known of it."""

    key: JournalKey
    known: Known
    pending: tuple[PendingAppend, ...]
    appends: tuple[Append, ...]


class _Judged(Struct, frozen=True):
    """The appends to one journal as they stand in the log, found good."""

    key: JournalKey
    known: Known
    pending: tuple[PendingAppend, ...]
    answers: tuple[Appended, ...]


class _OvertakenError(Exception):
    """Others came first where that does not matter: it is to be written anew."""


class _ConflictFoundError(Exception):
    """A journal is not as expected; what is there instead can be read once the transaction has ended."""

    def __init__(self, key: JournalKey, draft: Draft, before: JournalState | None) -> None:
        super().__init__(str(key))
        self.key = key
        self.draft = draft
        self.before = before


class Transactor:
    """Carries out transactions of one transactional id, one after the other."""

    def __init__(
        self, client: Client, looker: Looker, appender: Appender, clock: Clock, settings: JournalSettings
    ) -> None:
        self._client = client
        self._looker = looker
        self._appender = appender
        self._clock = clock
        self._settings = settings
        self._producers: dict[str, TransactionalProducer] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._own_id = f"exactlog-journals-{uuid4()}"

    async def carry_out(self, transaction: Transaction, transactional_id: str | None) -> None:
        """Carry out all of it, or nothing.

        Raises:
            Conflict: a journal was not as expected; of the first such one.
            ForkedJournalError: numbers that the caller gave had been given already.
            Fenced: somebody else uses the transactional id now.
            Retriable: others came first again and again, or a transaction of others stays open.
            OutcomeUnknownError: whether it counts is not known.
        """
        if not transaction.appends and not transaction.offsets:
            return
        name = transactional_id or self._own_id
        async with AsyncExitStack() as turns:
            await turns.enter_async_context(self._turns.setdefault(name, asyncio.Lock()))
            for key in sorted({pending.key for pending in transaction.appends}):
                await turns.enter_async_context(self._appender.memory.turn(key))
            for attempt in range(self._settings.append_attempts_max):
                try:
                    await self._attempt(transaction, name)
                except _OvertakenError:
                    await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311  jitter
                except ProducerFencedError as error:
                    self._producers.pop(name, None)
                    raise Fenced(f"transactional id {name}: {error}", hint=error.hint) from error
                else:
                    return
        raise Retriable(
            f"{self._settings.append_attempts_max} times others appended first",
            hint="too many write to the same entities at once",
        )

    # --- one attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, transaction: Transaction, name: str) -> None:
        numbered = [await self._numbered(key, pending) for key, pending in _by_key(transaction.appends).items()]
        producer = await self._producer(name)
        await producer.begin()
        try:
            judged = await self._write_and_judge(producer, numbered)
            for group, offsets in transaction.offsets.items():
                await producer.send_offsets(group, offsets)
        except _ConflictFoundError as found:
            await self._end(name, is_committed=False)
            raise await self._appender.conflict(found.key, found.draft, found.before) from None
        except BaseException:
            await self._end(name, is_committed=False)
            raise
        await self._end(name, is_committed=True)
        for one in judged:
            self._appender.memory.put(one.key, one.known)
            for pending, appended in zip(one.pending, one.answers, strict=True):
                pending.appended = appended

    async def _producer(self, name: str) -> TransactionalProducer:
        producer = self._producers.get(name)
        if producer is None:
            producer = self._client.transactional_producer(name)
            await producer.init()
            self._producers[name] = producer
        return producer

    async def _end(self, name: str, *, is_committed: bool) -> None:
        """End the transaction, asking again where the answer was lost. A producer that cannot is used no more."""
        producer = self._producers[name]
        for attempt in range(_END_ATTEMPTS_MAX):
            try:
                await (producer.commit() if is_committed else producer.abort())
            except OutcomeUnknownError:
                if attempt == _END_ATTEMPTS_MAX - 1:
                    del self._producers[name]
                    raise
            except ExactlogError:
                del self._producers[name]
                raise
            else:
                return

    async def _numbered(self, key: JournalKey, pending: Sequence[PendingAppend]) -> _Numbered:
        """Behind a journal as it is now, one behind the other. Raises `Conflict` where one cannot be."""
        known = await self._appender.look(key)
        state, appends = known.state, []
        for one in pending:
            append = self._appender.numbered(key, one.draft, state)
            appends.append(append)
            last = max(append.range.last, 0 if state is None else state.seq_nr)
            state = JournalState(last)  # of a life that may begin with the one before: it has no id yet
        return _Numbered(key, known, tuple(pending), tuple(appends))

    async def _write_and_judge(self, producer: TransactionalProducer, numbered: Sequence[_Numbered]) -> list[_Judged]:
        """One partition after the other, in the order that every transaction takes them in."""
        judged: list[_Judged] = []
        for place in sorted({one.known.place for one in numbered}):
            here = [one for one in numbered if one.known.place == place]
            now_ms = self._clock.now_ms()
            actions = [(one.key, append) for one in here for append in one.appends]
            records = [encode_action(key, append, timestamp_ms=now_ms) for key, append in actions]
            produced = await producer.produce(place.topic, records, partition=place.partition)
            offsets = [one.offset for one in produced if one.offset is not None]
            first = offsets[0]
            if offsets != list(range(first, first + len(records))):
                raise _OvertakenError  # others have written in between: who came first there cannot be told yet
            await self._wait_until_stable(place, first)
            for one in here:
                of_key, offsets = offsets[: len(one.appends)], offsets[len(one.appends) :]
                judged.append(await self._judge(one, of_key, first=first, now_ms=now_ms))
        return judged

    async def _wait_until_stable(self, place: TopicPartition, offset: int) -> None:
        """Until every transaction that began before this offset has ended."""
        give_up_at = asyncio.get_running_loop().time() + self._settings.no_progress_ms / 1000
        while True:
            listed = await self._client.list_offsets({place: LATEST}, isolation=IsolationLevel.READ_COMMITTED)
            if (listed[place].offset or 0) >= offset:
                return
            if asyncio.get_running_loop().time() > give_up_at:
                raise Retriable(
                    f"{place}: a transaction of others has been open for {self._settings.no_progress_ms} ms",
                    hint="`exactlog txn list` shows it; this one was aborted",
                )
            await asyncio.sleep(_STABLE_PAUSE_S)

    async def _judge(self, one: _Numbered, offsets: Sequence[Offset], *, first: int, now_ms: int) -> _Judged:
        before = await self._looker.state_at(one.key, one.known, end=first)
        place = one.known.place
        records = [
            ActionRecord(one.key, Place(place.partition, offset), now_ms, append)
            for offset, append in zip(offsets, one.appends, strict=True)
        ]
        answers, after = judge_appends(records, before)
        appended: list[Appended] = []
        for pending, append, answer in zip(one.pending, one.appends, answers, strict=True):
            match answer:
                case Appended():
                    appended.append(answer)
                case NotAsExpected() if append.expect != pending.draft.expect and pending.draft.expect.holds(before):
                    raise _OvertakenError
                case NotAsExpected():
                    raise _ConflictFoundError(one.key, pending.draft, before)
                case Overtaken(actual=actual):
                    raise ForkedJournalError(
                        f"journal {one.key} had come to {actual}, so that it cannot have events from "
                        f"{append.range.first} on; nothing of the transaction counts",
                        hint="leave the numbers out, or say what is expected of the journal",
                    )
        return _Judged(one.key, Known(place, offsets[-1], after), one.pending, tuple(appended))


def _by_key(appends: Sequence[PendingAppend]) -> dict[JournalKey, list[PendingAppend]]:
    by_key: dict[JournalKey, list[PendingAppend]] = {}
    for pending in appends:
        by_key.setdefault(pending.key, []).append(pending)
    return by_key
