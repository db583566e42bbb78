"""One journal: an entity's events."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from exactlog.core.journal.actions import Purge
from exactlog.core.journal.conflict import Conflict
from exactlog.core.journal.errors import JournalInputError, NotYetReplicated
from exactlog.core.journal.events import NO_HEADERS, RecordMetadata
from exactlog.core.journal.expectation import ANY, Expectation, expectation_of
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.judgement import Appended
from exactlog.core.journal.keys import SEQ_NR_MAX, SEQ_NR_MIN, JournalKey, Place, check_range, check_seq_nr
from exactlog.core.journal.new_actions import NewEvent, new_delete
from exactlog.core.journal.rows import SnapshotRow
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import Offset
from exactlog.journal.appending import Draft, outcome_unknown
from exactlog.journal.event_record import (
    Envelope,
    EventRecord,
    Snapshot,
    event_record_of,
    expire_after_of,
    json_text_of,
)
from exactlog.journal.parts import Parts
from exactlog.journal.sight import Known
from exactlog.journal.writing import Entity, load_entity

State = TypeVar("State")


class Journal:
    """A journal, by topic and id. Nothing is asked before the first call; it need not exist.

    Every call sees whatever was answered to anybody before it began. What each can raise beside what it says:

        Retriable      the log or the store cannot be asked for now, or not in time
        HeadLost       a part of the log is gone that was not replicated
        Repartitioned  the topic has another number of partitions than the journal was written in
        DecodeError    an action of this journal cannot be read
    """

    def __init__(self, key: JournalKey, parts: Parts) -> None:
        self.key = key
        self._parts = parts

    async def append(
        self,
        events: Iterable[object],
        expect: Expectation | int = ANY,
        *,
        event_ids: Sequence[str] = (),
        metadata: object = None,
        headers: Mapping[str, str] = NO_HEADERS,
        expire_after: ExpireAfter | timedelta | str | int | None = None,
    ) -> Appended:
        """Append events: all of them are seen, or none. It is in the log, and counts, when this returns.

        Args:
            events: objects of the journals' codec, or `Envelope`s of such; numbered from behind the last event, where
                an envelope does not say otherwise.
            expect: NO_STREAM, EXISTS, ANY, or the number of the last event.
            event_ids: an id for each event. The same ids with the same expectation get the answer of the first time.
            metadata: any JSON value; it stands in the header of the action, readable without the events.
            headers: of the record.
            expire_after: a time after which the journal may be purged, if no append follows: "30 days",
                milliseconds, or a `timedelta`. An append without it takes away what an earlier one said.

        Raises:
            Conflict: the journal is not as expected; nothing of the append is seen by anybody.
            ForkedJournalError: it expects nothing, and its numbers were given already.
            JournalInputError: the events cannot be written; nothing was.
            UnavailableError: the log did not answer; whether the events are in it is not known. To append the same
                ids with the same expectation again is safe.
        """
        return await self._parts.appender.append(
            self.key,
            self.draft(
                events,
                expect,
                event_ids=event_ids,
                metadata=metadata,
                headers=headers,
                expire_after=expire_after,
            ),
        )

    def draft(
        self,
        events: Iterable[object],
        expect: Expectation | int = ANY,
        *,
        event_ids: Sequence[str] = (),
        metadata: object = None,
        headers: Mapping[str, str] = NO_HEADERS,
        expire_after: ExpireAfter | timedelta | str | int | None = None,
    ) -> Draft:
        """An append that is encoded and not written. Arguments as for `append`; raises `JournalInputError`."""
        encoded = tuple(map(self._encoded, events))
        if not encoded:
            raise JournalInputError("an append has one event at least", hint="leave the call out when there is nothing")
        if event_ids:
            if len(event_ids) != len(encoded):
                raise JournalInputError(f"{len(event_ids)} ids for {len(encoded)} events", hint="give one for each")
            encoded = tuple(
                replace(event, event_id=event_id) for event, event_id in zip(encoded, event_ids, strict=True)
            )
        return Draft(
            events=encoded,
            expect=expectation_of(expect),
            metadata=RecordMetadata(json_text_of(metadata), None, expire_after_of(expire_after)),
            headers=headers,
        )

    @asynccontextmanager
    async def for_writing(
        self, initial: Callable[[], State], evolve: Callable[[State, object], State]
    ) -> AsyncIterator[Entity[State]]:
        """The entity, loaded to be changed: what is appended to it counts only if nobody else has changed it.

            async with journal.for_writing(Order, evolve) as order:
                if not order.state.is_paid:
                    order.append(Paid(by="card"))

        Args:
            initial: makes the state before the first event; a type does.
            evolve: makes the state behind an event.

        The newest snapshot that is of the type of the initial state spares the events before it. A block that ends with
        an exception appends nothing.

        Raises:
            Conflict: when the block ends: somebody else has appended or purged since it began.
        """
        async with load_entity(self.key, self._parts, initial, evolve) as (entity, expect):
            yield entity
            if entity.events:
                entity.appended = await self.append(
                    entity.events, expect, metadata=entity.metadata, headers=entity.headers
                )

    async def read(self, from_seq: int = 1, to_seq: int | None = None) -> AsyncIterator[EventRecord]:
        """The events from one number to another, both inclusive, as they are when the first one is asked for.

        Raises:
            JournalInputError: the range is none.
            JournalDeleted: they were deleted while they were being read.
            ForkedJournalError: the store has two events of one number.
        """
        wanted = check_range(from_seq, SEQ_NR_MAX if to_seq is None else to_seq)
        codec = self._parts.codec
        async for row in self._parts.reader.read(self.key, wanted):
            yield event_record_of(row, codec)

    async def read_replicated(
        self, from_seq: int = 1, to_seq: int | None = None, *, at_least: Appended | Place | None = None
    ) -> AsyncIterator[EventRecord]:
        """The events as they are in the store, which may lag behind: the log is not asked, and nothing is written.

        Args:
            from_seq: the first number.
            to_seq: the last number.
            at_least: an answer of this journal that is to be seen.

        Raises:
            NotYetReplicated: the store has not come so far yet.
            JournalInputError: the range is none.
        """
        wanted = check_range(from_seq, SEQ_NR_MAX if to_seq is None else to_seq)
        parts = self._parts
        held = await parts.looker.held(self.key)
        if at_least is not None and held.offset < at_least.offset:
            raise NotYetReplicated(
                f"journal {self.key}: offset {at_least.offset} of {held.place} is not replicated yet, {held.offset} is",
                hint="read the journal, which asks the log too, or wait for the replicator",
            )
        if held.head is None:
            return
        async for row in parts.store.rows(self.key, held.head, wanted):
            if row.seq_nr <= held.head.seq_nr:
                yield event_record_of(row, parts.codec)

    async def pointer(self) -> int | None:
        """The number of the last event, deleted or not; None: there is no journal."""
        state = (await self._parts.looker.look(self.key)).state
        return None if state is None else state.seq_nr

    async def delete(self, to: int) -> Place | None:
        """Delete the events up to a number, of those there are now; None: there is no journal.

        Later events stay, and numbers go on where they were.
        """
        parts = self._parts
        sight = await parts.looker.look(self.key)
        delete = new_delete(to, state=sight.state, writer=parts.writer)
        if delete is None or sight.state is None:
            return None
        expect = Expectation(exists=True, record_id=sight.state.record_id)  # not of a journal that begins meanwhile
        record = await parts.log.write(self.key, sight.place, replace(delete, expect=expect))
        return record.place

    async def purge(self, *, expect: Expectation | int = ANY) -> Place:
        """Leave nothing of the journal; the next append begins a new one.

        Raises:
            Conflict: it is not as expected, and stays.
        """
        parts = self._parts
        expected = expectation_of(expect)
        async with parts.appender.memory.turn(self.key):
            known = None if expected.is_any else await parts.appender.look(self.key)
            place = await parts.log.place_of(self.key) if known is None else known.place
            purge = Purge(origin=parts.writer.origin, version=parts.writer.version, expect=expected)
            record = await parts.log.write(self.key, place, purge)
            if known is None:
                parts.appender.memory.put(self.key, Known(place, record.offset, None))
            else:
                try:
                    before = await parts.looker.state_at(self.key, known, end=record.offset)
                except ExactlogError as error:
                    raise outcome_unknown(record, error) from error
                if not expected.holds(before):
                    raise Conflict(self.key, expected=expected, actual=None if before is None else before.seq_nr)
            return record.place

    async def mark(self, mark_id: str) -> Place:
        """Write a mark, which changes nothing; whoever reads the topic knows the place again by its id."""
        place = await self._parts.log.place_of(self.key)
        return (await self._parts.looker.write_mark(self.key, place, mark_id)).place

    async def snapshot(self, state: object, *, seq_nr: int | None = None, metadata: object = None) -> int:
        """Keep the state of the entity after one of its events; the answer is that event's number.

        It goes into the store, past the log. A snapshot of the same number is replaced.

        Args:
            state: an object of the journals' codec.
            seq_nr: of the last event that went into it; None: the last one there is.
            metadata: any JSON value.

        Raises:
            JournalInputError: there is no such event, or no journal.
        """
        parts = self._parts
        payload = parts.codec.encode(state)
        sight = await parts.looker.look(self.key)
        found = sight.state
        if found is None:
            raise JournalInputError(f"journal {self.key}: there is none to take a snapshot of")
        number = check_seq_nr(found.seq_nr if seq_nr is None else seq_nr)
        if number > found.seq_nr:
            raise JournalInputError(f"journal {self.key} has come to {found.seq_nr}, not {number}")
        row = SnapshotRow(
            seq_nr=number,
            record_id=found.record_id,
            place=_last_seen(sight.place.partition, sight.end),
            timestamp_ms=parts.clock.now_ms(),
            payload=payload,
            metadata=json_text_of(metadata),
        )
        await parts.store.save_snapshot(self.key, row)
        return number

    async def latest_snapshot(self, *, to_seq: int | None = None, to_timestamp: int | None = None) -> Snapshot | None:
        """The newest snapshot of the journal as it is now; None: there is none.

        Args:
            to_seq: at most of this event.
            to_timestamp: taken at this time, in milliseconds since 1970, or before.
        """
        parts = self._parts
        state = (await parts.looker.look(self.key)).state
        if state is None:
            return None
        to_seq_nr = state.seq_nr if to_seq is None else min(state.seq_nr, check_seq_nr(to_seq))
        row = await parts.store.latest_snapshot(
            self.key, record_id=state.record_id, to_seq_nr=to_seq_nr, to_timestamp_ms=to_timestamp
        )
        return None if row is None else parts.snapshot_of(row)

    async def delete_snapshots(self, to: int, *, first: int = SEQ_NR_MIN, to_timestamp: int | None = None) -> None:
        """Drop the snapshots up to a number, of whichever life of the journal.

        Args:
            to: the last number.
            first: the first number; with the last one the same it is one snapshot.
            to_timestamp: only those taken at this time, in milliseconds since 1970, or before.

        Raises:
            JournalInputError: a number is below 1, or the first one above the last.
        """
        check_range(first, to)
        await self._parts.store.delete_snapshots(
            self.key, from_seq_nr=first, to_seq_nr=to, to_timestamp_ms=to_timestamp
        )

    def _encoded(self, event: object) -> NewEvent:
        codec = self._parts.codec
        if isinstance(event, Envelope):
            return NewEvent(codec.encode(event.event), frozenset(event.tags), event.seq_nr, event.event_id)
        return NewEvent(codec.encode(event))


def _last_seen(partition: int, end: int) -> Place:
    return Place(partition, Offset(max(0, end - 1)))
