"""How records can be stored (seed table "cases on how records can be stored")."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from exactlog.core.journal.keys import JournalKey, Place
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.rows import SnapshotRow
from exactlog.core.model.ids import Offset
from exactlog.testing.journal_store_contract.action_script import NOON_MS, ActionScript, apply, head_of, seq_nrs
from exactlog.testing.journal_store_contract.opened_store import Opened, StoreOpener


class StorageCase(NamedTuple):
    """One line of the table: an aggregate, its events as (number, segment), its snapshots."""

    seq_nr: int
    delete_to: int | None
    segment_size: int
    events: Sequence[tuple[int, int]]
    snapshots: Sequence[int] = ()


_FIVE_EVENTS = ((1, 0), (2, 0), (3, 0), (4, 1), (5, 1))
CASES = (
    StorageCase(3, None, 5, ((1, 0), (2, 0), (3, 0))),
    StorageCase(5, None, 3, _FIVE_EVENTS),
    StorageCase(5, 2, 3, _FIVE_EVENTS[2:]),
    StorageCase(5, None, 3, _FIVE_EVENTS, (5,)),
    StorageCase(5, 5, 3, ()),
    StorageCase(5, 5, 3, (), (5,)),
    StorageCase(5, 5, 3, (), (2, 5)),
)


class StorageCases(Opened):
    """Each line of the table, brought about by actions one by one and by one poll with all of them."""

    @pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_a_journal_is_stored_as_the_table_says(
        self, open_store: StoreOpener, key: JournalKey, case: StorageCase, *, at_once: bool
    ) -> None:
        script = ActionScript(key)
        actions = [script.append(number) for number in range(1, case.seq_nr + 1)]
        if case.delete_to is not None:
            actions.append(script.delete(case.delete_to))

        async with open_store(case.segment_size) as opened:
            await apply(opened.store, *actions, at_once=at_once)
            head = await head_of(opened.store, key)
            for number in case.snapshots:
                snapshot = SnapshotRow(
                    seq_nr=number,
                    record_id=head.record_id,
                    place=Place(0, Offset(number)),
                    timestamp_ms=NOON_MS,
                    payload=TextPayload(f"state {number}"),
                )
                await opened.store.save_snapshot(key, snapshot)

            assert (head.seq_nr, head.delete_to, head.segment_size) == (
                case.seq_nr,
                case.delete_to,
                case.segment_size,
            )
            assert tuple(await opened.stored_events(key)) == tuple(case.events)
            assert tuple(await seq_nrs(opened.store, key)) == tuple(number for number, _ in case.events)
            for to in range(1, case.seq_nr + 1):
                latest = await opened.store.latest_snapshot(key, record_id=head.record_id, to_seq_nr=to)
                below = [number for number in case.snapshots if number <= to]
                assert (latest and latest.seq_nr) == (max(below) if below else None)

    async def test_a_journal_that_is_nowhere_is_nowhere(self, open_store: StoreOpener, key: JournalKey) -> None:
        async with open_store(3) as opened:
            assert await opened.store.head(key) is None
            assert await opened.stored_events(key) == []
            assert await opened.store.latest_snapshot(key, record_id=None) is None

    async def test_a_journal_keeps_the_segment_size_it_began_with(
        self, open_store: StoreOpener, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        async with open_store(3) as opened:
            await apply(opened.store, script.append(1, 2))
            await apply(opened.store, script.append(3, 4, 5, 6, 7))

            assert (await head_of(opened.store, key)).segment_size == 3
            assert [segment for _, segment in await opened.stored_events(key)] == [0, 0, 0, 1, 1, 1, 2]
