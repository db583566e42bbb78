"""Actions that come again, in other polls, or after a crash: they leave the same behind."""

from collections.abc import Sequence

import pytest

from exactlog.core.journal.actions import ActionRecord
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.rows import PutHead, WriteRows
from exactlog.testing.journal_store_contract.action_script import (
    NOW_MS,
    ActionScript,
    apply,
    head_of,
    rows_of,
    seq_nrs,
)
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore


class RepetitionCases(Opened):
    """Idempotence by offset."""

    @pytest.mark.parametrize("repeated", [0, 1, 2])
    async def test_an_action_at_or_before_the_offset_of_the_head_changes_nothing(
        self, opened: OpenedStore, key: JournalKey, repeated: int
    ) -> None:
        script = ActionScript(key)
        actions = [script.append(1, 2), script.append(3), script.delete(1)]
        await apply(opened.store, *actions)
        head, rows = await head_of(opened.store, key), await rows_of(opened.store, key)

        (plan,) = await apply(opened.store, actions[repeated], now_ms=NOW_MS + 1)

        assert not plan.is_changed
        assert await head_of(opened.store, key) == head
        assert await rows_of(opened.store, key) == rows

    async def test_an_earlier_purge_takes_nothing_of_what_came_after_it(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        purge = script.purge()
        await apply(opened.store, script.append(1, 2))

        await apply(opened.store, purge)

        assert await seq_nrs(opened.store, key) == [1, 2]

    async def test_a_purge_may_come_again(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        append, purge = script.append(1, 2), script.purge()
        await apply(opened.store, append)

        await apply(opened.store, purge)
        (plan,) = await apply(opened.store, purge)

        assert not plan.is_changed
        assert await opened.store.head(key) is None

    @pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
    async def test_a_whole_log_told_twice_is_as_told_once(
        self, opened: OpenedStore, key: JournalKey, *, at_once: bool
    ) -> None:
        for entity, actions in _histories(key):
            await apply(opened.store, *actions)
            head, rows = await opened.store.head(entity), await rows_of(opened.store, entity)
            events = await opened.stored_events(entity)

            await apply(opened.store, *actions, at_once=at_once)

            assert await opened.store.head(entity) == head
            assert await rows_of(opened.store, entity) == rows
            assert await opened.stored_events(entity) == events

    async def test_polls_cut_anywhere_leave_the_same(self, opened: OpenedStore, key: JournalKey) -> None:
        for entity, actions in _histories(key):
            await apply(opened.store, *actions)
            wanted = await opened.store.head(entity), [row.event for row in await rows_of(opened.store, entity)]
            for cut in range(1, len(actions)):
                other = JournalKey(key.topic, f"{entity.id}-{cut}")
                told = [ActionRecord(other, record.place, record.timestamp_ms, record.action) for record in actions]
                await apply(opened.store, *told[:cut])
                await apply(opened.store, *told[cut:])

                found = await opened.store.head(other), [row.event for row in await rows_of(opened.store, other)]
                assert found == wanted, f"cut at {cut}"

    async def test_rows_that_were_written_before_a_crash_are_not_doubled(
        self, opened: OpenedStore, key: JournalKey, segment_size: int
    ) -> None:
        script = ActionScript(key)
        actions = [script.append(1, 2), script.append(3)]
        await apply(opened.store, *actions)
        rows = await rows_of(opened.store, key)
        await opened.carry_out(key, [WriteRows(tuple(rows[1:]), segment_size)])

        assert await rows_of(opened.store, key) == rows
        assert [number for number, _ in await opened.stored_events(key)] == [1, 2, 3]

    async def test_rows_beyond_the_head_that_a_crash_left_are_seen_when_the_head_says_so(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        first, second = script.append(1), script.append(2, 3)
        await apply(opened.store, first)
        before = await head_of(opened.store, key)
        await apply(opened.store, second)
        rows = await rows_of(opened.store, key)

        await opened.carry_out(key, [PutHead(before)])  # as if the crash had come before the head row
        assert set(await seq_nrs(opened.store, key)) <= {1, 2, 3}
        await apply(opened.store, first, second)

        assert await rows_of(opened.store, key) == rows

    async def test_what_an_append_says_of_numbers_that_are_taken_is_a_fork_and_is_not_stored(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, 3))
        rows = await rows_of(opened.store, key)

        (plan,) = await apply(opened.store, script.append(3, 4, timestamp_ms=5))

        assert [(fork.offset, fork.last_seq_nr) for fork in plan.forks] == [(1, 3)]
        assert (await rows_of(opened.store, key))[:3] == rows
        assert await seq_nrs(opened.store, key) == [1, 2, 3, 4]


def _histories(key: JournalKey) -> Sequence[tuple[JournalKey, Sequence[ActionRecord]]]:
    """Journals with all that can happen to them."""
    scripts = [ActionScript(JournalKey(key.topic, f"history-{number}"), offset=10) for number in range(6)]
    a, b, c, d, e, f = scripts
    return [
        (a.key, [a.append(1), a.append(2, 3), a.mark(), a.append(4)]),
        (b.key, [b.append(1, 2), b.delete(1), b.append(3), b.delete(3), b.append(4, 9)]),
        (c.key, [c.delete(3), c.append(4, 5), c.delete(4), c.append(6)]),
        (d.key, [d.append(1, 2), d.purge(), d.append(1), d.append(2, 3)]),
        (e.key, [e.append(1, 2), e.delete(2), e.append(3), e.purge()]),
        (f.key, [f.append(5), f.append(7, 8), f.delete(100), f.delete(6), f.append(9)]),
    ]
