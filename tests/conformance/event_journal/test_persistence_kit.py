"""What Pekko's compatibility kit asks of every journal and every snapshot store, in our words.

`JOURNAL_CASES` and `SNAPSHOT_CASES` say where each of its cases is. Each is asked of a journal that is in the log only,
half replicated, and replicated.
"""

import re
from pathlib import Path

import msgspec
import pytest

from exactlog.core.journal.keys import JournalKey
from exactlog.journal import Envelope, JournalInputError, Journals
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.node.clock import SystemClock
from exactlog.testing import MovableClock
from tests.conformance.event_journal.worlds import Topic

SIZE = 5
MEGABYTES = 10

JOURNAL_CASES = {
    "all": "test_replays[replays all messages]",
    "from a lower number": "test_replays[replays from a lower number]",
    "to an upper number": "test_replays[replays to an upper number]",
    "a count": "test_replays[replays a count]",
    "between two numbers": "test_replays[replays between two numbers]",
    "between two numbers, and a count": "test_replays[replays between two numbers, and a count]",
    "both numbers the same": "test_replays[replays one where both numbers are the same]",
    "a count of one": "test_replays[replays one where the count is one]",
    "a count of none": "test_replays[replays none where the count is none]",
    "the lower number above the upper one": "test_a_lower_number_above_the_upper_one_is_refused",
    "never written to": "test_replays_none_of_a_journal_that_was_never_written_to",
    "a range deleted": "test_does_not_replay_what_was_deleted",
    "highest number after a delete": "test_tells_the_highest_number_after_some_was_deleted",
    "highest number after all is deleted": "test_tells_the_highest_number_after_more_was_deleted_than_there_was",
    "from the last one deleted": "test_replays_around_what_was_deleted[from the last one that is deleted]",
    "to within what is deleted": "test_replays_around_what_was_deleted[within what is deleted]",
    "to the last one deleted": "test_replays_around_what_was_deleted[up to the last one that is deleted]",
    "from the first one left": "test_replays_around_what_was_deleted[from the first one that is left]",
    "over the border of what is deleted": "test_replays_around_what_was_deleted[over the border]",
    "an event that cannot be written": "test_one_event_that_cannot_be_written_refuses_all_of_its_append",
    "events of one's own types": "test_an_event_comes_back_as_the_object_that_it_was",
    "metadata": "test_events_carry_what_was_said_of_them",
}
SNAPSHOT_CASES = {
    "another id": "test_there_is_no_snapshot_of_another_id",
    "times that do not match": "test_there_is_no_snapshot_from_before_the_first_one_was_taken",
    "numbers that do not match": "test_there_is_no_snapshot_below_the_first",
    "the newest": "test_the_newest_snapshot_is_told",
    "the newest up to a number": "test_the_newest_snapshot_up_to_a_number_is_told",
    "the newest up to a number and a time": "test_the_newest_snapshot_up_to_a_number_and_a_time_is_told",
    "delete one": "test_one_snapshot_is_deleted_and_no_other",
    "delete up to a number and a time": "test_snapshots_are_deleted_up_to_a_number_and_a_time",
    "delete none of another time": "test_snapshots_that_were_taken_later_are_not_deleted",
    "overwrite": "test_a_snapshot_of_the_same_number_takes_the_place_of_the_one_before",
    "a large one": "test_a_snapshot_may_be_large",
    "states of one's own types": "test_a_state_comes_back_as_the_object_that_it_was",
    "metadata": "test_a_snapshot_carries_what_was_said_of_it",
}


@pytest.mark.parametrize(("cases", "count"), [(JOURNAL_CASES, 22), (SNAPSHOT_CASES, 13)], ids=["journal", "snapshots"])
def test_every_case_of_the_kit_is_asked_here(cases, count):
    source = Path(__file__).read_text()
    assert len(set(cases.values())) == len(cases) == count
    for where in cases.values():
        name, _, parameters = where.removesuffix("]").partition("[")
        assert re.search(rf"def {name}\(", source), where
        assert not parameters or f'id="{parameters}"' in source, where


class Moved(msgspec.Struct, tag="moved"):
    """An event, and a state, of a program's own."""

    by: int


class Kit:
    """A topic with its journals, as far replicated as the case says."""

    def __init__(self, topic, journals, share, clock):
        self.topic, self.journals, self.share, self.clock = topic, journals, share, clock
        self.journal = journals[topic.name, "persistence-1"]

    async def replicate(self):
        if self.share is not None:
            actions = len(await self.topic.actions(self.journals.parts.client))
            await self.topic.replicate(self.journals.parts.client, behind=int(actions * (1 - self.share)))

    async def read(self, first=1, last=None, *, count=None):
        found = []
        async for record in self.journal.read(first, last):
            if count == len(found):
                break
            found.append(record.seq_nr)
        return found

    async def delete(self, to):
        await self.journal.delete(to)
        await self.replicate()


@pytest.fixture(params=[None, 0.5, 1], ids=["log", "half", "store"])
async def kit(request, broker, log_url):
    topic = Topic(broker, MemoryJournalStore(segment_size=2))
    clock = MovableClock(SystemClock())
    async with Journals.open(log_url, store=topic.store, events=[Moved], clock=clock) as journals:
        kit = Kit(topic, journals, request.param, clock)
        for n in range(1, SIZE + 1):
            await kit.journal.append([f"a-{n}"], metadata={"writer": "w"})
            await journals[topic.name, "persistence-2"].append([f"b-{n}"])
        await kit.replicate()
        yield kit


ALL = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("bounds", "count", "expected"),
    [
        pytest.param((), None, ALL, id="replays all messages"),
        pytest.param((3,), None, [3, 4, 5], id="replays from a lower number"),
        pytest.param((1, 3), None, [1, 2, 3], id="replays to an upper number"),
        pytest.param((), 2, [1, 2], id="replays a count"),
        pytest.param((2, 4), None, [2, 3, 4], id="replays between two numbers"),
        pytest.param((2, 5), 2, [2, 3], id="replays between two numbers, and a count"),
        pytest.param((2, 2), None, [2], id="replays one where both numbers are the same"),
        pytest.param((2, 4), 1, [2], id="replays one where the count is one"),
        pytest.param((1,), 0, [], id="replays none where the count is none"),
        pytest.param((6,), None, [], id="replays none behind the last"),
    ],
)
async def test_replays(kit, bounds, count, expected):
    assert await kit.read(*bounds, count=count) == expected


async def test_a_lower_number_above_the_upper_one_is_refused(kit):
    with pytest.raises(JournalInputError):
        await kit.read(3, 2)


async def test_replays_none_of_a_journal_that_was_never_written_to(kit):
    kit.journal = kit.journals[kit.topic.name, "persistence-3"]
    assert await kit.read() == []
    assert await kit.journal.pointer() is None


async def test_events_carry_what_was_said_of_them(kit):
    (record,) = [record async for record in kit.journal.read(3, 3)]
    assert (record.event, record.metadata) == ("a-3", {"writer": "w"})


async def test_an_event_comes_back_as_the_object_that_it_was(kit):
    await kit.journal.append([Moved(3)])
    await kit.replicate()
    (record,) = [record async for record in kit.journal.read(6)]
    assert record.event == Moved(3)


async def test_does_not_replay_what_was_deleted(kit):
    await kit.delete(3)
    assert await kit.read() == [4, 5]


async def test_tells_the_highest_number(kit):
    assert await kit.journal.pointer() == SIZE


async def test_tells_the_highest_number_after_some_was_deleted(kit):
    await kit.delete(3)
    assert await kit.journal.pointer() == SIZE


async def test_tells_the_highest_number_after_all_was_deleted(kit):
    await kit.delete(SIZE)
    assert await kit.read() == []
    assert await kit.journal.pointer() == SIZE
    assert (await kit.journal.append(["next"])).seq_nr == SIZE + 1


async def test_tells_the_highest_number_after_more_was_deleted_than_there_was(kit):
    await kit.delete(2**63 - 1)
    assert await kit.read() == []
    assert await kit.journal.pointer() == SIZE


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param((3,), [4, 5], id="from the last one that is deleted"),
        pytest.param((4,), [4, 5], id="from the first one that is left"),
        pytest.param((1, 2), [], id="within what is deleted"),
        pytest.param((1, 3), [], id="up to the last one that is deleted"),
        pytest.param((2, 4), [4], id="over the border"),
        pytest.param((1, 5), [4, 5], id="over all"),
    ],
)
async def test_replays_around_what_was_deleted(kit, bounds, expected):
    await kit.delete(3)
    assert await kit.read(*bounds) == expected


async def test_one_event_that_cannot_be_written_refuses_all_of_its_append(kit):
    with pytest.raises(JournalInputError):
        await kit.journal.append(["fine", object(), "fine"])
    assert await kit.read() == ALL
    assert (await kit.journal.append(["next"])).seq_nr == SIZE + 1


async def test_several_events_are_written_at_once_or_not_at_all(kit):
    with pytest.raises(JournalInputError):
        await kit.journal.append(["fine", Envelope("numbered wrong", seq_nr=1)])
    await kit.journal.append(["6", "7"])
    assert await kit.read(5) == [5, 6, 7]


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def snapshots(kit):
    for n in range(1, SIZE + 1):
        await kit.journal.snapshot(f"s-{n}", seq_nr=n, metadata={"n": n})
        kit.clock.advance_ms(60_000)
    return kit


async def state(kit, to_seq=None, *, to_timestamp=None):
    found = await kit.journal.latest_snapshot(to_seq=to_seq, to_timestamp=to_timestamp)
    return None if found is None else found.state


async def taken_at(kit, seq_nr):
    return (await kit.journal.latest_snapshot(to_seq=seq_nr)).timestamp


async def test_there_is_no_snapshot_of_another_id(snapshots):
    assert await snapshots.journals[snapshots.topic.name, "persistence-2"].latest_snapshot() is None
    assert await snapshots.journals[snapshots.topic.name, "nobody"].latest_snapshot() is None


async def test_there_is_no_snapshot_below_the_first(snapshots):
    await snapshots.journal.delete_snapshots(2)
    assert await state(snapshots, 2) is None


async def test_there_is_no_snapshot_from_before_the_first_one_was_taken(snapshots):
    first = await taken_at(snapshots, 1)
    assert await state(snapshots, to_timestamp=first - 1) is None
    assert await state(snapshots, to_timestamp=first) == "s-1"


async def test_the_newest_snapshot_is_told(snapshots):
    assert await state(snapshots) == "s-5"


@pytest.mark.parametrize(("to_seq", "expected"), [(5, "s-5"), (3, "s-3"), (1, "s-1"), (100, "s-5")])
async def test_the_newest_snapshot_up_to_a_number_is_told(snapshots, to_seq, expected):
    assert await state(snapshots, to_seq) == expected


async def test_the_newest_snapshot_up_to_a_number_and_a_time_is_told(snapshots):
    third = await taken_at(snapshots, 3)
    assert await state(snapshots, 4, to_timestamp=third) == "s-3"
    assert await state(snapshots, 2, to_timestamp=third) == "s-2"
    assert await state(snapshots, to_timestamp=third - 1) == "s-2"


async def test_one_snapshot_is_deleted_and_no_other(snapshots):
    await snapshots.journal.delete_snapshots(3, first=3)
    assert [await state(snapshots, to_seq) for to_seq in range(1, 6)] == ["s-1", "s-2", "s-2", "s-4", "s-5"]


async def test_snapshots_are_deleted_up_to_a_number_and_a_time(snapshots):
    await snapshots.journal.delete_snapshots(4, to_timestamp=await taken_at(snapshots, 3))
    assert await state(snapshots, 3) is None
    assert [await state(snapshots, to_seq) for to_seq in (4, 5)] == ["s-4", "s-5"]


async def test_snapshots_that_were_taken_later_are_not_deleted(snapshots):
    await snapshots.journal.delete_snapshots(4, first=4, to_timestamp=await taken_at(snapshots, 4) - 1)
    assert [await state(snapshots, to_seq) for to_seq in (3, 4)] == ["s-3", "s-4"]


async def test_a_range_of_snapshots_that_is_none_is_refused(snapshots):
    for first, last in ((0, 1), (3, 2), (1, 2**63)):
        with pytest.raises(JournalInputError):
            await snapshots.journal.delete_snapshots(last, first=first)
    assert await state(snapshots) == "s-5"


async def test_snapshots_are_deleted_up_to_a_number_and_no_others(snapshots):
    await snapshots.journal.delete_snapshots(4)
    assert await state(snapshots, 4) is None
    assert await state(snapshots) == "s-5"
    await snapshots.journal.delete_snapshots(5)
    assert await state(snapshots) is None
    assert await snapshots.read() == ALL


async def test_a_snapshot_of_the_same_number_takes_the_place_of_the_one_before(snapshots):
    await snapshots.journal.snapshot("again", seq_nr=5)
    assert await state(snapshots) == "again"


async def test_a_snapshot_may_be_large(kit):
    large = "x" * (MEGABYTES * 1024 * 1024)
    await kit.journal.snapshot(large)
    assert await state(kit) == large


async def test_a_state_comes_back_as_the_object_that_it_was(kit):
    await kit.journal.snapshot(Moved(4))
    assert await state(kit) == Moved(4)


async def test_a_snapshot_carries_what_was_said_of_it(snapshots):
    found = await snapshots.journal.latest_snapshot(to_seq=2)
    assert (found.seq_nr, found.metadata, found.timestamp > 0) == (2, {"n": 2}, True)


async def test_what_has_no_form_is_no_snapshot(kit):
    with pytest.raises(JournalInputError):
        await kit.journal.snapshot(object())


async def test_the_store_keeps_snapshots_under_the_journal(snapshots):
    key = JournalKey(snapshots.topic.name, "persistence-1")
    record_id = (await snapshots.journals.parts.looker.look(key)).state.record_id
    assert (await snapshots.topic.store.latest_snapshot(key, record_id=record_id)).seq_nr == SIZE
