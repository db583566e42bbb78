"""Journals whose time is over: found by day, and purged only as they were found."""

from datetime import UTC, date, datetime

from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import JournalKey, SeqNr
from exactlog.core.journal.rows import DueJournal
from exactlog.testing.journal_store_contract.action_script import ActionScript, apply, head_of, seq_nrs
from exactlog.testing.journal_store_contract.opened_store import Opened, OpenedStore

DAY = ExpireAfter.of_ms(86_400_000)


def at(*utc: int) -> int:
    """A time in milliseconds since 1970: year, month, day, hour, minute."""
    return int(datetime(*utc, tzinfo=UTC).timestamp() * 1_000)  # type: ignore[arg-type,misc]


async def due(opened: OpenedStore, topic: str, through: date) -> list[tuple[str, date]]:
    """Id and day of each journal that is due, sorted."""
    return sorted([(found.key.id, found.expire_on) async for found in opened.store.due(topic, through=through)])


class ExpiryCases(Opened):
    """`due`, and a purge on condition."""

    async def test_due_is_what_ends_that_day_or_earlier(self, opened: OpenedStore, topic: str) -> None:
        for number, day in enumerate((9, 10, 11), start=1):
            script = ActionScript(JournalKey(topic, f"entity-{number}"))
            written = at(2026, 3, day, 12, 0)
            await apply(opened.store, script.append(1, expire_after=DAY, timestamp_ms=written))
        await apply(opened.store, ActionScript(JournalKey(topic, "for ever")).append(1))
        other = ActionScript(JournalKey(f"{topic}-b", "elsewhere"))
        await apply(opened.store, other.append(1, expire_after=DAY, timestamp_ms=0))

        first, second, third = (
            ("entity-1", date(2026, 3, 10)),
            ("entity-2", date(2026, 3, 11)),
            ("entity-3", date(2026, 3, 12)),
        )
        assert await due(opened, topic, date(2026, 3, 9)) == []
        assert await due(opened, topic, date(2026, 3, 10)) == [first]
        assert await due(opened, topic, date(2026, 3, 11)) == [first, second]
        assert await due(opened, topic, date(2030, 1, 1)) == [first, second, third]

    async def test_the_day_is_that_of_utc(self, opened: OpenedStore, topic: str) -> None:
        hour = ExpireAfter.of_ms(3_600_000)
        for key_id, minute in (("before midnight", 59), ("at midnight", 60)):
            script = ActionScript(JournalKey(topic, key_id))
            written = at(2026, 3, 9, 22, 0) + minute * 60_000
            await apply(opened.store, script.append(1, expire_after=hour, timestamp_ms=written))

        assert await due(opened, topic, date(2026, 3, 9)) == [("before midnight", date(2026, 3, 9))]
        assert await due(opened, topic, date(2026, 3, 10)) == [
            ("at midnight", date(2026, 3, 10)),
            ("before midnight", date(2026, 3, 9)),
        ]

    async def test_what_is_due_is_told_as_it_stands(self, opened: OpenedStore, key: JournalKey) -> None:
        await apply(opened.store, ActionScript(key).append(1, 2, expire_after=DAY, timestamp_ms=0))
        head = await head_of(opened.store, key)

        assert [found async for found in opened.store.due(key.topic, through=date(2026, 1, 1))] == [
            DueJournal(key=key, expire_on=date(1970, 1, 2), seq_nr=2, record_id=head.record_id)
        ]

    async def test_a_purge_of_what_was_due_takes_it(self, opened: OpenedStore, key: JournalKey) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, expire_after=DAY, timestamp_ms=0))

        await apply(opened.store, script.purge(expect=await self._as_due(opened, key)))

        assert await opened.store.head(key) is None
        assert await opened.stored_events(key) == []
        assert await due(opened, key.topic, date(2026, 1, 1)) == []

    async def test_a_later_append_wins_over_the_purge_of_what_was_due(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, expire_after=DAY, timestamp_ms=0))
        expect = await self._as_due(opened, key)

        append, purge = (
            script.append(3, expire_after=DAY, timestamp_ms=at(2026, 1, 1, 0, 0)),
            script.purge(expect=expect),
        )
        (plan,) = await apply(opened.store, append, purge)

        assert plan.refused == (purge.offset,)
        assert await seq_nrs(opened.store, key) == [1, 2, 3]
        assert await due(opened, key.topic, date(2026, 1, 1)) == []

    async def test_another_life_of_the_same_length_is_not_what_was_due(
        self, opened: OpenedStore, key: JournalKey
    ) -> None:
        script = ActionScript(key)
        await apply(opened.store, script.append(1, 2, expire_after=DAY, timestamp_ms=0))
        expect = await self._as_due(opened, key)
        await apply(opened.store, script.purge(), script.append(1, 2))

        await apply(opened.store, script.purge(expect=expect))

        assert await seq_nrs(opened.store, key) == [1, 2]

    async def _as_due(self, opened: OpenedStore, key: JournalKey) -> Expectation:
        (found,) = [found async for found in opened.store.due(key.topic, through=date(2026, 1, 1))]
        return Expectation(seq_nr=SeqNr(found.seq_nr), record_id=found.record_id)
