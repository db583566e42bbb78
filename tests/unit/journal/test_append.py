"""Appending: numbers, expectations, ids, and what a writer is told."""

import asyncio
import gc
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import pytest

from exactlog.core.journal.keys import SEQ_NR_MAX
from exactlog.core.model.errors import UnavailableError
from exactlog.journal import (
    ANY,
    EXISTS,
    NO_STREAM,
    Conflict,
    Envelope,
    ForkedJournalError,
    JournalInputError,
    Journals,
    Retriable,
)


async def numbers(journal, *bounds):
    return [record.seq_nr async for record in journal.read(*bounds)]


async def events(journal):
    return [record.event async for record in journal.read()]


async def test_events_come_back_in_order_with_what_was_said_of_them(journal):
    told = await journal.append([{"n": 1}, "two", b"3", None], metadata={"by": "a"}, headers={"trace": "x"})

    records = [record async for record in journal.read()]

    assert (told.seq_nr, told.partition) == (4, 0)
    assert [record.event for record in records] == [{"n": 1}, "two", b"3", None]
    assert [record.seq_nr for record in records] == [1, 2, 3, 4]
    assert {record.offset for record in records} == {told.offset}
    assert all(record.metadata == {"by": "a"} and record.headers == {"trace": "x"} for record in records)
    assert all((records[0].origin, records[0].version, records[0].timestamp))


async def test_an_append_goes_behind_the_last_event(journal):
    await journal.append(["a", "b"])

    assert (await journal.append(["c"])).seq_nr == 3
    assert await numbers(journal) == [1, 2, 3]
    assert await journal.pointer() == 3


async def test_numbers_may_leave_gaps(journal):
    await journal.append([Envelope("a", seq_nr=3), Envelope("b", seq_nr=7), "c"])

    assert await numbers(journal) == [3, 7, 8]
    assert (await journal.append([Envelope("d", seq_nr=20)], 8)).seq_nr == 20


async def test_no_stream_is_for_a_new_journal_only(journal):
    await journal.append(["a"], NO_STREAM)

    with pytest.raises(Conflict) as refused:
        await journal.append(["b"], NO_STREAM)

    assert (refused.value.expected, refused.value.actual) == (NO_STREAM, 1)
    assert [record.event for record in refused.value.events] == ["a"]
    assert await events(journal) == ["a"]


async def test_exists_is_for_a_journal_that_is_there(journal):
    with pytest.raises(Conflict) as refused:
        await journal.append(["a"], EXISTS)
    assert refused.value.actual is None

    await journal.append(["a"])
    assert (await journal.append(["b"], EXISTS)).seq_nr == 2


async def test_an_expected_number_has_to_be_the_last_one(journal):
    await journal.append(["a", "b", "c"])

    with pytest.raises(Conflict) as refused:
        await journal.append(["d"], 1)

    assert (refused.value.expected.seq_nr, refused.value.actual) == (1, 3)
    assert [record.event for record in refused.value.events] == ["b", "c"]
    assert (await journal.append(["d"], 3)).seq_nr == 4


async def test_of_many_writers_that_expect_the_same_one_wins(log_url, store, topic):
    async def write(name):
        async with Journals.open(log_url, store=store) as journals:
            try:
                return await journals[topic, "e"].append([name], NO_STREAM)
            except Conflict as conflict:
                return conflict

    told = await asyncio.gather(*(write(f"writer-{n}") for n in range(6)))

    assert sum(not isinstance(answer, Conflict) for answer in told) == 1
    async with Journals.open(log_url, store=store) as journals:
        (winner,) = await events(journals[topic, "e"])
    losers = [answer for answer in told if isinstance(answer, Conflict)]
    assert {tuple(record.event for record in loser.events) for loser in losers} == {(winner,)}


async def test_writers_that_expect_nothing_lose_nothing(log_url, store, topic):
    async with Journals.open(log_url, store=store) as one, Journals.open(log_url, store=store) as other:
        writes = [
            journals[topic, "e"].append([f"{name}-{n}"])
            for n in range(5)
            for name, journals in (("one", one), ("other", other))
        ]
        told = await asyncio.gather(*writes)
        found = await events(one[topic, "e"])

    assert sorted(found) == sorted(f"{name}-{n}" for n in range(5) for name in ("one", "other"))
    assert sorted(answer.seq_nr for answer in told) == list(range(1, 11))


async def test_the_same_ids_with_the_same_expectation_get_the_same_answer(journal):
    first = await journal.append(["a", "b"], NO_STREAM, event_ids=["1", "2"])
    await journal.append(["c"])
    second = await journal.append(["d", "e"], 3, event_ids=["4", "5"])

    assert await journal.append(["a", "b"], NO_STREAM, event_ids=["1", "2"]) == first
    assert await journal.append(["d", "e"], 3, event_ids=["4", "5"]) == second
    with pytest.raises(Conflict):
        await journal.append(["d", "x"], 3, event_ids=["4", "6"])
    assert await numbers(journal) == [1, 2, 3, 4, 5]


async def test_a_fork_is_told_and_changes_nothing(journal):
    await journal.append(["a", "b"])

    with pytest.raises(ForkedJournalError):
        await journal.append([Envelope("x", seq_nr=2)], ANY)

    assert await events(journal) == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ([], {}),
        ([object()], {}),
        ([Envelope("a", seq_nr=0)], {}),
        ([Envelope("a", seq_nr=3), Envelope("b", seq_nr=3)], {}),
        (["a"], {"expect": 0}),
        (["a"], {"event_ids": ["1", "2"]}),
        (["a", "b"], {"event_ids": ["1", "1"]}),
        (["a"], {"metadata": object()}),
    ],
)
async def test_what_cannot_be_written_is_refused_and_others_go_on(journal, given, options):
    with pytest.raises(JournalInputError):
        await journal.append(given, **options)

    assert await journal.pointer() is None
    assert (await journal.append(["a"])).seq_nr == 1


class Placed(msgspec.Struct, tag="placed"):
    amount: int


class Paid(msgspec.Struct):
    by: str


@dataclass
class Sent:
    to: str


async def test_events_of_known_types_come_back_as_they_went_in(log_url, store, topic):
    given = [Placed(3), Paid("card"), Sent("home"), {"type": "Unheard"}]
    async with Journals.open(log_url, store=store, events=[Placed, Paid, Sent]) as journals:
        await journals[topic, "e"].append(given, expire_after=timedelta(days=1))
        assert await events(journals[topic, "e"]) == given
    async with Journals.open(log_url, store=store) as journals:
        found = await events(journals[topic, "e"])
    assert found == [
        {"type": "placed", "amount": 3},
        {"type": "Paid", "by": "card"},
        {"type": "Sent", "to": "home"},
        {"type": "Unheard"},
    ]


async def test_tags_are_kept(journal):
    await journal.append([Envelope("a", frozenset({"x", "y"}))])

    assert [record.tags async for record in journal.read()] == [{"x", "y"}]


async def test_what_is_written_and_cannot_be_judged_is_not_called_undone(journals, journal, monkeypatch):
    await journal.append(["a"])

    async def away(*arguments, **options):
        raise Retriable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(journals.parts.looker), "is_untouched", away)
        for writing in (journal.append(["b"], 1, event_ids=["b"]), journal.purge(expect=7)):
            with pytest.raises(UnavailableError) as unknown:
                await writing
            assert not unknown.value.retryable
    assert (await journal.append(["b"], 1, event_ids=["b"])).seq_nr == 2
    assert await events(journal) == ["a", "b"]


async def test_journals_that_were_written_to_once_leave_nothing_behind(journals, topic):
    memory = journals.parts.appender.memory
    await asyncio.gather(*(journals[topic, f"e-{number}"].purge() for number in range(20)))
    gc.collect()
    assert not list(memory._turns)

    async with memory.turn(("t", "e")):
        assert memory.turn(("t", "e")).locked()


async def test_the_last_number_that_there_is_is_no_end_where_somebody_has_purged_the_journal(log_url, store, topic):
    async with Journals.open(log_url, store=store) as one, Journals.open(log_url, store=store) as other:
        journal = one[topic, "e"]
        await journal.append([Envelope("last", seq_nr=SEQ_NR_MAX)])
        with pytest.raises(JournalInputError, match="has come to its last number"):
            await journal.append(["more"])
        await other[topic, "e"].purge()
        assert (await journal.append(["anew"])).seq_nr == 1
        assert await events(journal) == ["anew"]


async def test_who_has_purged_a_journal_begins_the_next_one_at_once(journals, journal):
    await journal.append(["a", "b"])
    await journal.purge()
    assert (await journal.append(["anew"])).seq_nr == 1
    assert journals.metrics.renumbered.value == 0
