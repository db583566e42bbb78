"""What Pekko's compatibility kit asks of every journal and every snapshot store, in our words.

Each case is asked of a journal that is in the log only, half replicated, and replicated.
"""

import pytest

from exactlog.core.journal.keys import JournalKey
from exactlog.journal import Envelope, JournalInputError, Journals
from exactlog.journal.stores.memory_store import MemoryJournalStore
from tests.conformance.event_journal.worlds import Topic

SIZE = 5
MEGABYTES = 10


class Kit:
    """A topic with its journals, as far replicated as the case says."""

    def __init__(self, topic, journals, share):
        self.topic, self.journals, self.share = topic, journals, share
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
    async with Journals.open(log_url, store=topic.store) as journals:
        kit = Kit(topic, journals, request.param)
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


async def test_does_not_replay_what_was_deleted(kit):
    await kit.delete(3)
    assert await kit.read() == [4, 5]


async def test_tells_the_highest_number(kit):
    assert await kit.journal.pointer() == SIZE


async def test_tells_the_highest_number_after_all_was_deleted(kit):
    await kit.delete(SIZE)
    assert await kit.read() == []
    assert await kit.journal.pointer() == SIZE
    assert (await kit.journal.append(["next"])).seq_nr == SIZE + 1


async def test_tells_the_highest_number_after_more_was_deleted_than_there_was(kit):
    await kit.delete(2**63 - 1)
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
    return kit


async def state(kit, to_seq=None):
    found = await kit.journal.latest_snapshot(to_seq=to_seq)
    return None if found is None else found.state


async def test_there_is_no_snapshot_of_another_id(snapshots):
    assert await snapshots.journals[snapshots.topic.name, "persistence-2"].latest_snapshot() is None
    assert await snapshots.journals[snapshots.topic.name, "nobody"].latest_snapshot() is None


async def test_there_is_no_snapshot_below_the_first(snapshots):
    await snapshots.journal.delete_snapshots(2)
    assert await state(snapshots, 2) is None


async def test_the_newest_snapshot_is_told(snapshots):
    assert await state(snapshots) == "s-5"


@pytest.mark.parametrize(("to_seq", "expected"), [(5, "s-5"), (3, "s-3"), (1, "s-1"), (100, "s-5")])
async def test_the_newest_snapshot_up_to_a_number_is_told(snapshots, to_seq, expected):
    assert await state(snapshots, to_seq) == expected


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
