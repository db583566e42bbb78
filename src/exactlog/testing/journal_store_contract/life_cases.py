"""Rows of another life of the same journal: whatever left them there, nobody sees them."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from exactlog.core.journal.errors import ForkedJournalError
from exactlog.core.journal.events import Event, EventRow
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.keys import JournalKey, Place, SeqNr
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.rows import PutHead, WriteRows
from exactlog.core.model.ids import Offset
from exactlog.testing.journal_store_contract.action_script import (
    NOON_MS,
    ActionScript,
    apply,
    head_of,
    rows_of,
    seq_nrs,
)
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore

OTHER_LIFE = UUID(int=77)


def row(seq_nr: int, *, record_id: UUID | None, timestamp_ms: int = NOON_MS - 1, text: str = "left over") -> EventRow:
    """A row that no action in the log has."""
    return EventRow(
        event=Event(SeqNr(seq_nr), TextPayload(text)),
        timestamp_ms=timestamp_ms,
        place=Place(0, Offset(0)),
        record_id=record_id,
    )


class LifeCases(Opened):
    """Record ids."""

    async def test_rows_that_a_purge_left_are_no_part_of_the_next_life(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        left = tuple(row(number, record_id=OTHER_LIFE) for number in range(1, 6))
        await opened.carry_out(key, [WriteRows(left, segment_size)])

        await apply(opened.store, ActionScript(key).append(1, 2, 3))

        rows = await rows_of(opened.store, key)
        assert [row.seq_nr for row in rows] == [1, 2, 3]
        assert {row.timestamp_ms for row in rows} == {NOON_MS}

    async def test_rows_without_a_life_are_no_part_of_a_journal_that_has_one(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        await apply(opened.store, ActionScript(key).append(1, 3))
        await opened.carry_out(key, [WriteRows((row(2, record_id=None),), segment_size)])

        assert await seq_nrs(opened.store, key) == [1, 3]

    async def test_of_two_rows_with_one_number_the_one_of_this_life_is_read(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        await apply(opened.store, ActionScript(key).append(1, 2))
        await opened.carry_out(key, [WriteRows((row(2, record_id=OTHER_LIFE),), segment_size)])

        assert [row.timestamp_ms for row in await rows_of(opened.store, key)] == [NOON_MS, NOON_MS]

    async def test_two_rows_of_one_life_with_one_number_are_an_error(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        await apply(opened.store, ActionScript(key).append(1, 2))
        head = await head_of(opened.store, key)
        await opened.carry_out(key, [WriteRows((row(2, record_id=head.record_id),), segment_size)])

        with pytest.raises(ForkedJournalError, match="event 2 is there twice"):
            await rows_of(opened.store, key)
        assert await seq_nrs(opened.store, key, 1, 1) == [1]

    async def test_a_journal_from_before_there_were_lives_is_read_whole_and_stays_so(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2))
        head = replace(await head_of(opened.store, key), record_id=None)
        old = tuple(row(number, record_id=None, timestamp_ms=NOON_MS) for number in (1, 2))
        await opened.carry_out(key, [WriteRows(old, segment_size), PutHead(head)])

        await apply(opened.store, script.append(3))

        assert (await head_of(opened.store, key)).record_id is None
        assert [row.record_id for row in await rows_of(opened.store, key)] == [None, None, None]
        assert await seq_nrs(opened.store, key) == [1, 2, 3]

    async def test_a_head_that_other_programs_deleted_beyond_its_last_event_has_no_events(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2))
        await opened.carry_out(key, [PutHead(replace(await head_of(opened.store, key), delete_to=9))])

        assert await seq_nrs(opened.store, key) == []
        assert (await head_of(opened.store, key)).delete_to == 9

        await apply(opened.store, script.purge())
        assert await opened.store.head(key) is None

    async def test_an_action_whose_expectation_fails_does_nothing(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2))
        head = await head_of(opened.store, key)

        for action in (
            script.append(3, expect=Expectation(seq_nr=SeqNr(1))),
            script.append(3, expect=Expectation(exists=False)),
            script.delete(2, expect=Expectation(record_id=OTHER_LIFE)),
            script.purge(expect=Expectation(seq_nr=SeqNr(3))),
        ):
            (plan,) = await apply(opened.store, action)
            assert (plan.refused, plan.is_changed) == ((action.offset,), False)

        assert await head_of(opened.store, key) == head
        assert await seq_nrs(opened.store, key) == [1, 2]

    async def test_an_action_whose_expectation_holds_is_carried_out(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, expect=Expectation(exists=False)))
        life = (await head_of(opened.store, key)).record_id

        await apply(
            opened.store,
            script.append(3, expect=Expectation(seq_nr=SeqNr(2), record_id=life)),
            script.append(3, expect=Expectation(seq_nr=SeqNr(2))),
            script.append(4, expect=Expectation(exists=True)),
        )

        assert await seq_nrs(opened.store, key) == [1, 2, 3, 4]
        assert [row.place.offset for row in await rows_of(opened.store, key)] == [0, 0, 1, 3]
