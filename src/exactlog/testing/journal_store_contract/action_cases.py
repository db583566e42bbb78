"""What becomes of each action (seed table "expected action behaviour")."""

from datetime import date

import pytest

from exactlog.core.journal.expiry import ExpireAfter, Expiry
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, Place
from exactlog.core.journal.rows import HeadRow
from exactlog.core.model.ids import Offset
from exactlog.testing.journal_store_contract.action_script import (
    NOON_MS,
    NOW_MS,
    ActionScript,
    apply,
    head_of,
    life_from,
    rows_of,
    seq_nrs,
)
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore


class ActionCases(Opened):
    """Mark, append, delete and purge, where there is no head row and where there is one."""

    async def test_a_mark_changes_nothing_where_there_is_no_journal(self, opened: OpenedStore, key: JournalKey) -> None:
        (plan,) = await apply(opened.store, ActionScript(key).mark())

        assert not plan.is_changed
        assert await opened.store.head(key) is None
        assert await opened.stored_events(key) == []

    async def test_a_mark_changes_nothing_of_a_journal(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2))
        head, rows = await head_of(opened.store, key), await rows_of(opened.store, key)

        await apply(opened.store, script.mark(), now_ms=NOW_MS + 1)

        assert await head_of(opened.store, key) == head
        assert await rows_of(opened.store, key) == rows

    async def test_a_first_append_makes_the_head_row_and_the_rows(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        await apply(opened.store, ActionScript(key, partition=3, offset=17).append(1, 2, 3))

        assert await head_of(opened.store, key) == HeadRow(
            place=Place(3, Offset(17)),
            segment_size=segment_size,
            seq_nr=3,
            delete_to=None,
            created_ms=NOW_MS,
            updated_ms=NOW_MS,
            record_id=life_from(key, partition=3, offset=17),
            origin="writer",
        )
        rows = await rows_of(opened.store, key)
        assert [(row.seq_nr, row.place, row.timestamp_ms) for row in rows] == [
            (number, Place(3, Offset(17)), NOON_MS) for number in (1, 2, 3)
        ]
        assert await opened.stored_events(key) == [(number, (number - 1) // segment_size) for number in (1, 2, 3)]

    async def test_a_further_append_moves_the_last_number_and_adds_rows(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2))
        first = await head_of(opened.store, key)

        await apply(opened.store, script.append(3, 4, 5), now_ms=NOW_MS + 10)

        head = await head_of(opened.store, key)
        assert (head.seq_nr, head.delete_to, head.offset) == (5, None, 1)
        assert (head.created_ms, head.updated_ms) == (NOW_MS, NOW_MS + 10)
        assert (head.segment_size, head.record_id) == (first.segment_size, first.record_id)
        assert await seq_nrs(opened.store, key) == [1, 2, 3, 4, 5]

    async def test_a_journal_may_begin_with_any_number(self, opened: OpenedStore, key: JournalKey) -> None:
        await apply(opened.store, ActionScript(key).append(5, 6, 7))

        head = await head_of(opened.store, key)
        assert (head.seq_nr, head.delete_to) == (7, 4)
        assert await seq_nrs(opened.store, key) == [5, 6, 7]

    @pytest.mark.parametrize("to", [1, 2, 5, SEQ_NR_MAX])
    async def test_a_delete_where_there_is_no_journal_makes_one_that_goes_on_behind_it(
        self, opened: OpenedStore, key: JournalKey, to: int
    ) -> None:
        script = ActionScript(key, partition=1, offset=4)
        await apply(opened.store, script.delete(to))

        head = await head_of(opened.store, key)
        assert (head.seq_nr, head.delete_to, head.place) == (to, to, Place(1, Offset(4)))
        assert await opened.stored_events(key) == []
        if to < SEQ_NR_MAX:
            await apply(opened.store, script.append(to + 1))
            assert await seq_nrs(opened.store, key) == [to + 1]

    async def test_a_journal_that_began_with_a_delete_may_begin_with_any_number_all_the_same(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.delete(5))
        assert (await head_of(opened.store, key)).is_reset

        await apply(opened.store, script.append(2, 3))

        head = await head_of(opened.store, key)
        assert (head.seq_nr, head.delete_to, head.is_reset) == (3, 1, False)
        assert await seq_nrs(opened.store, key) == [2, 3]

    async def test_a_delete_takes_the_rows_up_to_its_number(self, opened: OpenedStore, key: JournalKey) -> None:
        for to in range(1, 6):
            entity = JournalKey(key.topic, f"entity-{to}")
            script = ActionScript(entity)
            await apply(opened.store, script.append(1, 2, 3, 4, 5))
            await apply(opened.store, script.delete(to), now_ms=NOW_MS + 1)

            head = await head_of(opened.store, entity)
            assert (head.seq_nr, head.delete_to, head.offset) == (5, to, 1)
            assert (head.created_ms, head.updated_ms, head.origin) == (NOW_MS, NOW_MS + 1, "deleter")
            assert [number for number, _ in await opened.stored_events(entity)] == list(range(to + 1, 6))

    async def test_deletes_go_on_from_each_other_and_never_back(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(*range(1, 8)))

        for to, deleted in ((2, 2), (5, 5), (3, 5)):
            await apply(opened.store, script.delete(to))
            head = await head_of(opened.store, key)
            assert (head.seq_nr, head.delete_to) == (7, deleted)
            assert await seq_nrs(opened.store, key) == list(range(deleted + 1, 8))
        assert (await head_of(opened.store, key)).offset == 3

    async def test_a_delete_beyond_the_last_event_takes_all_there_is_and_no_later_one(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, 3), script.delete(SEQ_NR_MAX))

        head = await head_of(opened.store, key)
        assert (head.seq_nr, head.delete_to) == (3, 3)
        assert await opened.stored_events(key) == []

        await apply(opened.store, script.append(4))

        assert await seq_nrs(opened.store, key) == [4]

    async def test_a_purge_where_there_is_no_journal_does_nothing(self, opened: OpenedStore, key: JournalKey) -> None:
        (plan,) = await apply(opened.store, ActionScript(key).purge())

        assert not plan.is_changed
        assert await opened.store.head(key) is None

    @pytest.mark.parametrize("deleted", [None, 1, 4, 5])
    async def test_a_purge_leaves_no_trace(self, opened: OpenedStore, key: JournalKey, deleted: int | None) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, 3), script.append(4, 5))
        if deleted is not None:
            await apply(opened.store, script.delete(deleted))

        await apply(opened.store, script.purge())

        assert await opened.store.head(key) is None
        assert await opened.stored_events(key) == []

    async def test_the_append_after_a_purge_begins_a_new_journal(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, 3, 4), script.delete(2))
        await apply(opened.store, script.purge())

        await apply(opened.store, script.append(1, 2), now_ms=NOW_MS + 7)

        head = await head_of(opened.store, key)
        assert (head.seq_nr, head.delete_to, head.created_ms) == (2, None, NOW_MS + 7)
        assert head.record_id == life_from(key, offset=3)
        assert await seq_nrs(opened.store, key) == [1, 2]

    async def test_the_last_append_says_when_a_journal_expires(self, opened: OpenedStore, key: JournalKey) -> None:
        minute, day = ExpireAfter.of_ms(60_000), ExpireAfter.of_ms(86_400_000)
        script = ActionScript(key)

        for expire_after, expiry in (
            (minute, Expiry(minute, date(2019, 12, 11))),
            (day, Expiry(day, date(2019, 12, 12))),
            (day, Expiry(day, date(2019, 12, 12))),
            (None, None),
            (ExpireAfter(1), Expiry(ExpireAfter(1), date(2019, 12, 11))),
        ):
            await apply(opened.store, script.append(script.offset + 1, expire_after=expire_after))
            assert (await head_of(opened.store, key)).expiry == expiry

        await apply(opened.store, script.delete(1))
        assert (await head_of(opened.store, key)).expiry == Expiry(ExpireAfter(1), date(2019, 12, 11))

    async def test_an_event_is_kept_as_it_was_written_however_often_its_journal_is_written_to(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, expire_after=ExpireAfter.of_ms(1)))
        rows = await rows_of(opened.store, key)

        await apply(opened.store, script.append(3), script.delete(1))

        assert (await rows_of(opened.store, key))[:1] == rows[1:]
