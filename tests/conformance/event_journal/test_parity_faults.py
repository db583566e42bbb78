"""Faults of kafka-journal as inputs: what comes of each on the log of exactlog, read with a mark record.

`docs/differences.md` lists them; `FAULTS` has its rows, by the number of a report where there is one.
"""

import asyncio
import re
from datetime import date, timedelta

import pytest

from exactlog.client.adapters import connect
from exactlog.core.journal.errors import Retriable
from exactlog.core.journal.event_journal_format import ACTION_HEADER
from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_builder import NewRecord
from exactlog.journal import Journals
from exactlog.journal.metrics import Spared
from exactlog.journal.stores.memory_store import MemoryJournalStore
from tests.conformance.event_journal.scripts import CACHED, KEY_ID, OTHER_ID, answer, check_in_all_ways
from tests.peers import PROJECT
from tests.unit.journal.replicating import pointer_at, replicating, until

UNIT, STORES, SEEDS = "tests/unit/journal/", "tests/unit/journal/stores/", "tests/seeds/test_seed_003_faults.py::"
CONTRACT = "src/exactlog/testing/journal_store_contract/"
FAULTS = {
    "#922": ["test_a_record_that_cannot_be_read_fails_its_journal_and_blinds_no_cache"],
    "#921, #932": [f"{UNIT}test_replicator.py::test_a_record_that_cannot_be_read_parks_its_journal_and_no_other"],
    "#923, #934": [
        f"{STORES}test_sqlite_schema.py::test_a_version_moves_only_after_its_statement",
        "tests/peers/test_apache_cassandra.py::test_a_step_that_fails_is_not_counted",
    ],
    "#924, #935": ["tests/conformance/event_journal/test_persistence_kit.py::test_one_event_that_cannot_be_written_"],
    "#676": ["a1-573 d384 a574 a575 m d575 -> - | 575"],
    "#687": ["d2 a1 a2 -> 1@1 2@2 | 2", "d2 a1 a2 p -> - | none", "d2 a1 a2 p a1 -> 1@4 | 1"],
    "#656, #665": [
        "a1-7 p a1-2 -> 1@2 2@2 | 2",
        f"{CONTRACT}life_cases.py::test_rows_that_a_purge_left_are_no_part_of_the_next_life",
        f"{SEEDS}test_a_purge_that_dies_in_the_middle_is_carried_to_its_end",
    ],
    "#956": ["test_one_journal_that_fails_costs_the_others_nothing"],
    "#957, #960": ["test_a_journal_that_the_store_refuses_holds_up_no_other_in_any_partition"],
    "#30": [f"{UNIT}test_reading.py::test_a_topic_that_has_grown_is_refused"],
    "#40, #52, #62, #69, #963": [
        "a1-3 a2-4 a4 -> 1@0 2@0 3@0 4@1 | 4",
        "a1-2 dmax a3 -> 3@2 | 3",
        f"{UNIT}test_replicator.py::test_a_fork_is_reported_and_who_came_first_stands",
    ],
    "#750": [f"{UNIT}test_replicator.py::test_partitions_go_from_one_replicator_to_another_"],
    "#464": [f"{CONTRACT}pointer_cases.py::test_each_partition_of_each_topic_has_its_own"],
    "polls": ["d10 a1-2 -> 1@1 2@1 | 2", "a1-2 d10 a3 -> 3@2 | 3", "a1-5 d4 d2 -> 5@0 | 5"],
    "purge and append": [
        "a1-10 p a1-2 -> 1@2 2@2 | 2",
        "tests/conformance/event_journal/test_journal_spec.py::test_a_purge_in_the_head_hides_what_the_store_still_has",
    ],
    "expiry, race": ["test_an_append_that_is_not_replicated_yet_is_not_purged_for_time"],
    "expiry, day": ["test_a_job_that_was_away_for_days_purges_what_was_due_meanwhile"],
    "expiry, untested": ["test_a_job_that_was_away_for_days_purges_what_was_due_meanwhile"],
    "lower case": ["tests/unit/core/journal/test_segments.py::test_the_segment_of_a_head_row"],
}
SCRIPTS = [(fault, where) for fault, places in FAULTS.items() for where in places if "->" in where]
TESTS = [(fault, where) for fault, places in FAULTS.items() for where in places if "->" not in where]


def test_every_fault_is_in_the_list_of_differences_and_no_other():
    page = (PROJECT / "docs/differences.md").read_text()
    section = page.partition("### Faults of kafka-journal")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*?) \|", section, re.MULTILINE)
    assert rows[1:] == list(FAULTS), rows


@pytest.mark.parametrize(("fault", "where"), TESTS)
def test_every_fault_is_tried(fault, where):
    path, _, name = where.rpartition("::")
    assert f"def {name}" in (PROJECT / (path or __file__)).read_text()


@pytest.mark.parametrize(("fault", "script"), SCRIPTS)
async def test_the_answer_to_a_fault_is_the_same_however_a_reader_comes_to_it(log, fault, script):
    actions, _, expected = script.partition(" -> ")
    await check_in_all_ways(log, actions, expected, has_places=True)


async def test_a_record_that_cannot_be_read_fails_its_journal_and_blinds_no_cache(log):
    await log.write("a1 o1")
    async with log.journals(MemoryJournalStore(), CACHED) as journals, connect(log.log_url) as client:
        bad, other = journals[log.topic, KEY_ID], journals[log.topic, OTHER_ID]
        assert await answer(bad) == "1 | 1"
        poison = NewRecord(b"x", key=KEY_ID.encode(), headers=[(ACTION_HEADER, b"no json")])
        (produced,) = await client.produce(log.topic, [poison])
        for n in range(2, 5):
            await other.append([f"{n}@"])
            spared, scans = journals.metrics.spared[Spared.SCAN].value, journals.metrics.scans.value
            assert await answer(other) == " ".join(map(str, range(1, n + 1))) + f" | {n}"
            assert journals.metrics.spared[Spared.SCAN].value == spared + 2  # a read, and a pointer
            assert journals.metrics.scans.value == scans
            with pytest.raises(DecodeError, match=f"offset {produced.offset}"):
                await answer(bad)


# --- the replicator ---------------------------------------------------------------------------------------------------


class CountingStore(MemoryJournalStore):
    """Counts what it is asked to carry out, and is away for one journal."""

    def __init__(self, refused=None):
        super().__init__()
        self.refused, self.is_refusing, self.carried_out = refused, True, 0

    async def carry_out(self, key, steps):
        self.carried_out += 1
        if key.id == self.refused and self.is_refusing:
            raise Retriable(f"the store is away for {key}")
        await super().carry_out(key, steps)


async def test_one_journal_that_fails_costs_the_others_nothing(log):
    """All of them in one poll."""
    store, keys = CountingStore(), [f"e{n}" for n in range(300)]
    async with log.journals(store, CACHED) as journals, connect(log.log_url) as client:
        poison = NewRecord(b"x", key=b"bad", headers=[(ACTION_HEADER, b"no json")])
        await client.produce(log.topic, [poison])
        await asyncio.gather(*(journals[log.topic, key_id].append(["1"]) for key_id in keys))
        async with replicating(log.log_url, store, log.topic) as replicator:

            async def are_all_there():
                return {key_id async for key_id in store.ids(log.topic)} == set(keys)

            await until(are_all_there)
            assert [parked.key_id for parked in replicator.parked] == ["bad"]
            assert replicator.metrics.restarts.value == 0
    assert store.carried_out <= len(keys) + 10  # once each; a group that begins may be told something twice


async def test_a_journal_that_the_store_refuses_holds_up_no_other_in_any_partition(broker, log_url):
    topic, store = "refused", CountingStore("e0")
    broker.create_topic(topic, partitions=3)
    keys = [f"e{n}" for n in range(12)]
    async with Journals.open(log_url, store=store, settings=CACHED) as journals:
        places = [await journals[topic, key_id].append(["1"]) for key_id in keys]
        async with replicating(log_url, store, topic):

            async def are_the_others_there():
                return {key_id async for key_id in store.ids(topic)} == set(keys[1:])

            await until(are_the_others_there)
            store.is_refusing = False
            for place in places:
                await pointer_at(store, topic, place.offset, partition=place.partition)
    assert await store.head(JournalKey(topic, "e0")) is not None


# --- expiry -----------------------------------------------------------------------------------------------------------


async def due_on(store, log):
    return (await store.head(JournalKey(log.topic, KEY_ID))).expiry.on


async def test_an_append_that_is_not_replicated_yet_is_not_purged_for_time(log):
    async with log.journals(store := MemoryJournalStore(), CACHED) as journals:
        journal = journals[log.topic, KEY_ID]
        told = await journal.append(["1@"], expire_after="1 ms")
        async with replicating(log.log_url, store, log.topic):
            await pointer_at(store, log.topic, told.offset)
        await journal.append(["2@"])

        assert await journals.purge_expired([log.topic], today=await due_on(store, log)) == 1
        assert await answer(journal) == "1 2 | 2"
        async with replicating(log.log_url, store, log.topic):
            await pointer_at(store, log.topic, (await journal.mark("x")).offset)
        assert await answer(journal) == "1 2 | 2"
        assert await journals.purge_expired([log.topic], today=date.max) == 0  # the second append took the time away


async def test_a_job_that_was_away_for_days_purges_what_was_due_meanwhile(log):
    async with log.journals(store := MemoryJournalStore(), CACHED) as journals:
        journal = journals[log.topic, KEY_ID]
        told = await journal.append(["1@"], expire_after="1 day")
        async with replicating(log.log_url, store, log.topic):
            await pointer_at(store, log.topic, told.offset)
            day = await due_on(store, log)
            assert await journals.purge_expired([log.topic], today=day - timedelta(days=1)) == 0
            assert await journals.purge_expired([log.topic], today=day + timedelta(days=3)) == 1
            assert await answer(journal) == "- | none"
            await pointer_at(store, log.topic, (await journal.mark("x")).offset)
            assert await store.head(JournalKey(log.topic, KEY_ID)) is None
            assert (await journal.append(["1@"])).seq_nr == 1
