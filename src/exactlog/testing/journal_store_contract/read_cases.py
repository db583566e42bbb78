"""Reading: ranges, gaps and segments, and every field of what was written."""

import pytest

from exactlog.core.journal.events import Event, RecordMetadata
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, SeqNr
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, TextPayload
from exactlog.testing.journal_store_contract.action_script import WHOLE, ActionScript, apply, head_of, rows_of, seq_nrs
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore

MANY = 2_500
"""More than stores read at a time."""


class ReadCases(Opened):
    """What readers get."""

    async def test_any_range_is_what_it_says(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(*range(1, 8)), script.delete(2))
        there = range(3, 8)

        for first in range(1, 9):
            for last in range(first, 10):
                assert await seq_nrs(opened.store, key, first, last) == [n for n in there if first <= n <= last]
        assert await seq_nrs(opened.store, key, SEQ_NR_MAX) == []

    async def test_gaps_are_no_end(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        numbers = [1, 2, 7, 8, 30, 31, 64]
        await apply(opened.store, script.append(1, 2), script.append(7, 8), script.append(30, 31, 64))

        assert await seq_nrs(opened.store, key) == numbers
        assert await seq_nrs(opened.store, key, 3, 30) == [7, 8, 30]

    async def test_the_greatest_number_there_is_can_be_that_of_an_event(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(SEQ_NR_MAX - 3), script.append(SEQ_NR_MAX - 1, SEQ_NR_MAX))

        assert await seq_nrs(opened.store, key) == [SEQ_NR_MAX - 3, SEQ_NR_MAX - 1, SEQ_NR_MAX]

        await apply(opened.store, script.delete(SEQ_NR_MAX - 1))
        assert await seq_nrs(opened.store, key) == [SEQ_NR_MAX]
        await apply(opened.store, script.purge())
        assert await opened.stored_events(key) == []

    async def test_a_long_journal_is_read_whole_and_in_order(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, *(script.append(*range(n, n + 500)) for n in range(1, MANY, 500)))

        assert await seq_nrs(opened.store, key) == list(range(1, MANY + 1))
        assert await seq_nrs(opened.store, key, 700, 2_100) == list(range(700, 2_101))

    async def test_a_reader_may_stop_anywhere(self, opened: OpenedStore, key: JournalKey) -> None:
        await apply(opened.store, ActionScript(key).append(*range(1, 50)))
        head = await head_of(opened.store, key)

        rows = opened.store.rows(key, head, WHOLE)
        assert (await anext(rows)).seq_nr == 1
        assert (await anext(rows)).seq_nr == 2
        del rows

        assert len(await rows_of(opened.store, key)) == 49

    async def test_two_readers_do_not_disturb_each_other(self, opened: OpenedStore, key: JournalKey) -> None:
        await apply(opened.store, ActionScript(key).append(*range(1, 8)))
        head = await head_of(opened.store, key)

        one, other = opened.store.rows(key, head, WHOLE), opened.store.rows(key, head, WHOLE)
        told = [((await anext(one)).seq_nr, (await anext(other)).seq_nr) for _ in range(7)]

        assert told == [(number, number) for number in range(1, 8)]

    async def test_every_field_of_an_event_is_kept(self, opened: OpenedStore, key: JournalKey) -> None:
        events = [
            Event(SeqNr(1)),
            Event(SeqNr(2), TextPayload("text: ü 𝄞 \u0000 '"), frozenset({"red", "blü"})),
            Event(SeqNr(3), JsonPayload('{"b": 1.00, "a": [1e400, "é"]}')),
            Event(SeqNr(4), BinaryPayload(bytes(range(256)))),
            Event(SeqNr(5), TextPayload("")),
            Event(SeqNr(6), BinaryPayload(b"")),
        ]
        script = ActionScript(key, partition=2, offset=2**40)
        await apply(
            opened.store,
            script.append(
                events=events,
                expire_after=ExpireAfter(1_500_000_001),
                timestamp_ms=1_700_000_000_123,
                origin="host, not a name",
                headers={"trace": "1", "": "ü"},
                header_data='{"who": "ü"}',
                payload_data="[1]",
                event_ids=[f"id-{number}" for number in range(1, 7)],
            ),
        )

        rows = await rows_of(opened.store, key)
        life = (await head_of(opened.store, key)).record_id
        assert [row.event for row in rows] == events
        assert [row.event_id for row in rows] == [f"id-{number}" for number in range(1, 7)]
        for row in rows:
            assert (row.timestamp_ms, row.place) == (1_700_000_000_123, (2, 2**40))
            assert (row.origin, row.version, row.record_id) == ("host, not a name", "1.0", life)
            assert row.headers == {"trace": "1", "": "ü"}
            assert row.metadata == RecordMetadata('{"who": "ü"}', "[1]", ExpireAfter(1_500_000_001))

    async def test_what_an_append_leaves_out_is_not_there(self, opened: OpenedStore, key: JournalKey) -> None:
        await apply(opened.store, ActionScript(key).append(1, origin=None))

        (row,) = await rows_of(opened.store, key)
        assert (row.origin, row.event_id, row.metadata, dict(row.headers)) == (None, None, RecordMetadata(), {})
        assert row.event.tags == frozenset()
        assert (await head_of(opened.store, key)).origin is None

    async def test_journals_are_told_apart_by_topic_and_by_id_to_the_letter(
        self, opened: OpenedStore, topic: str
    ) -> None:
        keys = [
            JournalKey(topic + suffix, key_id) for suffix in ("", "-b") for key_id in ("A", "a", "ä", "", "a b/c:%")
        ]
        for number, key in enumerate(keys, start=1):
            await apply(opened.store, ActionScript(key).append(number))

        for number, key in enumerate(keys, start=1):
            assert await seq_nrs(opened.store, key) == [number]

    async def test_the_ids_of_a_topic_are_those_with_a_head_row(self, opened: OpenedStore, topic: str) -> None:
        keys = [JournalKey(topic, f"entity-{number}") for number in range(30)]
        scripts = [ActionScript(key) for key in keys]
        for script in scripts:
            await apply(opened.store, script.append(1))
        await apply(opened.store, ActionScript(JournalKey(f"{topic}-b", "elsewhere")).append(1))
        await apply(opened.store, scripts[0].purge())
        await apply(opened.store, scripts[1].delete(1))

        assert sorted([key_id async for key_id in opened.store.ids(topic)]) == sorted(key.id for key in keys[1:])
        assert [key_id async for key_id in opened.store.ids(f"{topic}-b")] == ["elsewhere"]
        assert [key_id async for key_id in opened.store.ids(f"{topic}-unknown")] == []

    @pytest.mark.parametrize("key_id", ["id", "ID", "user-42", "polygenelubricants", ""])
    async def test_a_journal_is_found_whatever_its_id_hashes_to(
        self, opened: OpenedStore, topic: str, key_id: str
    ) -> None:
        key = JournalKey(topic, key_id)
        await apply(opened.store, ActionScript(key).append(1))

        assert (await head_of(opened.store, key)).seq_nr == 1
