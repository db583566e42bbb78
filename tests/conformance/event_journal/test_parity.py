"""kafka-journal's own cases on the log of exactlog, read as kafka-journal reads: with a mark record.

Its suites are named by what they are of. `CASES` says where each one is asked here; those that are scripts are below,
and each script is asked in every way that a reader can come to its log (`scripts.py`).
"""

import asyncio
import itertools
import re
from contextlib import AsyncExitStack
from datetime import date

import pytest
from msgspec.structs import replace

from exactlog.client.adapters import connect
from exactlog.client.groups import MemberSettings
from exactlog.core.journal.actions import Delete, Mark, Purge
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.events import RecordMetadata
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import JournalKey, SeqRange, record_id_of
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import TextPayload
from exactlog.core.journal.rows import WriteRows
from exactlog.journal import ForkedJournalError
from exactlog.journal.replicator import ReplicatorSettings
from exactlog.journal.stores.memory_store import MemoryJournalStore
from tests.conformance.event_journal.scripts import (
    CACHED,
    KEY_ID,
    OTHER_ID,
    TIMESTAMP_MS,
    WAYS,
    Way,
    answer,
    check_in_all_ways,
)
from tests.conformance.event_journal.worlds import actions_in
from tests.peers import PROJECT
from tests.unit.core.journal.test_batch_optimizer import CASES as BATCHES
from tests.unit.journal.replicating import pointer_at, replicating, until

CASES = {
    "JournalSpec": ["tests/conformance/event_journal/test_journal_spec.py"],
    "reads at their worst": ["tests/conformance/event_journal/test_journal_spec.py::test_a_thousand_events_wherever_"],
    "HeadInfo": ["HEAD_INFO", "tests/unit/core/journal/test_head_summary.py"],
    "PartitionCache": ["WAYS", "tests/unit/core/journal/test_partition_cache.py"],
    "StreamActionRecords": ["test_the_log_is_read_from_behind_what_is_replicated_to_the_mark"],
    "Batch": ["BATCHES", "tests/unit/core/journal/test_batch_optimizer.py"],
    "ReplicatedCassandra": [
        "src/exactlog/testing/journal_store_contract/action_cases.py",
        "src/exactlog/testing/journal_store_contract/repetition_cases.py",
        "tests/peers/test_apache_cassandra.py",
    ],
    "EventualJournal": ["EVENTUAL_JOURNAL", "src/exactlog/testing/journal_store_contract/read_cases.py"],
    "EventualCassandra": ["test_two_rows_of_one_number_are_an_error_unless_one_is_of_another_life"],
    "Segments": ["test_ids_that_differ_in_case_alone_are_two", "tests/unit/core/journal/test_segments.py"],
    "ExpiryService": ["test_the_last_append_says_when_the_journal_expires", "tests/unit/core/journal/test_expiry.py"],
    "Schema": [
        "tests/peers/test_apache_cassandra.py::test_steps_that_are_missing_are_carried_out",
        "tests/unit/journal/stores/test_sqlite_schema.py",
    ],
    "TopicReplicator": [
        "test_two_partitions_are_replicated_in_one_poll_or_in_many",
        "test_marks_alone_move_the_pointer",
    ],
    "ConsumeTopic": [
        "tests/unit/journal/test_replicator.py::test_a_store_that_fails_is_written_to_again",
        "tests/unit/journal/test_replicator.py::test_partitions_go_from_one_replicator_to_another",
    ],
    "Plugin": ["tests/conformance/event_journal/test_persistence_kit.py"],
    "Integration": ["test_the_whole_life_of_a_journal_whenever_it_is_replicated"],
}


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_asked_somewhere(case):
    for where in CASES[case]:
        path, _, name = where.partition("::") if "/" in where else (__file__, "", where)
        text = (PROJECT / path).read_text()
        assert name in text if name.isupper() else re.search(rf"def {name or 'test_'}", text), where


# --- scripts ----------------------------------------------------------------------------------------------------------

HEAD_INFO = """
a1-2 d3       -> - | 2
a1-2 d3 a3    -> 3 | 3
a1-2 d1       -> 2 | 2
a1-2 d1 d3    -> - | 2
a1-2 d2 d1    -> - | 2
a1-2 d2 d1 a3 -> 3 | 3
d1 a1-2       -> 1 2 | 2
d10 a1-2      -> 1 2 | 2
d10 a2-3      -> 2 3 | 3
d1 d2         -> - | 2
d2 d1         -> - | 2
a1-2 p        -> - | none
d1 p          -> - | none
p             -> - | none
p a1          -> 1 | 1
a1-2 m        -> 1 2 | 2
m             -> - | none
a1 o1-2 o3 a2 -> 1 2 | 2
"""

BATCH_ANSWERS = """
- | none
- | none
1 | 1
1 2 | 2
1 2 3 4 | 4
1 | 1
1 | 1
1 2 | 2
1 2 | 2
- | 1
- | 1
- | 1
2 | 2
2 | 2
2 3 | 3
2 | 2
- | 2
- | 2
- | 2
- | 2
- | 2
3 | 3
4 | 4
2 3 4 | 4
3 4 5 6 | 6
4 5 6 7 8 | 8
- | none
- | none
- | none
- | none
- | none
1 | 1
- | none
- | 1
- | 2
6 | 6
- | 6
- | 6
4 5 6 | 6
- | 10
- | 575
- | 3
1 2 | 2
6 | 6
"""


def batch_scripts():
    """The polls of its optimiser, and what is left to read after each."""
    polls = [line.partition("->")[0] for line in BATCHES.strip().splitlines()]
    scripts = [" ".join(re.sub(r"@\d+", "", poll).split()) for poll in polls]
    return [f"{script} -> {told}" for script, told in zip(scripts, BATCH_ANSWERS.strip().splitlines(), strict=True)]


def told(first, last, pointer):
    return f"{' '.join(map(str, range(first, last + 1))) or '-'} | {pointer or 'none'}"


def eventual_journal():
    """Appends of some size from some number on, and every delete of them."""
    for first, size in itertools.product((1, 2, 5), (1, 3, 5)):
        last = first + size - 1
        yield f"a{first}-{last} -> {told(first, last, last)}"
        for to in range(first, last + 1):
            yield f"a{first}-{last} d{to} -> {told(to + 1, last, last)}"
        yield f"a{first}-{last} d{last} a{last + 1} -> {told(last + 1, last + 1, last + 1)}"
        yield f"a{first}-{last} dmax -> {told(1, 0, last)}"
        yield f"a{first}-{last} d{first} d{first} -> {told(first + 1, last, last)}"
    for to in (1, 2, 5):
        yield f"d{to} -> {told(1, 0, to)}"
        yield f"d{to} a{to + 1} -> {told(to + 1, to + 1, to + 1)}"
    yield "a5-7 a8-9 -> 5 6 7 8 9 | 9"


EVENTUAL_JOURNAL = tuple(eventual_journal())
SCRIPTS = (*HEAD_INFO.strip().splitlines(), *batch_scripts(), *EVENTUAL_JOURNAL)


@pytest.mark.parametrize("script", dict.fromkeys(" ".join(script.split()) for script in SCRIPTS))
async def test_the_answer_is_the_same_however_a_reader_comes_to_it(log, script):
    actions, _, expected = script.partition(" -> ")
    await check_in_all_ways(log, actions, expected)


# --- what actions cost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "on_nothing", "on_events"),
    [
        ("read", [Mark], [Mark]),
        ("pointer", [Mark], [Mark]),
        ("delete", [Mark], [Mark, Delete]),
        ("purge", [Purge], [Purge]),
        ("mark", [Mark], [Mark]),
    ],
)
async def test_the_records_that_each_call_writes_are_those_of_kafka_journal(log, do, on_nothing, on_events):
    for script, expected in (("", on_nothing), ("a1-2", on_events)):
        await log.write(script)
        async with log.journals(MemoryJournalStore(), CACHED) as journals, connect(log.log_url) as client:
            journal, before = journals[log.topic, KEY_ID], len(await actions_in(client, log.place))
            match do:
                case "read":
                    assert len([record async for record in journal.read()]) == len(expected) * (script != "") * 2
                case "delete":
                    await journal.delete(1)
                case "mark":
                    await journal.mark("here")
                case _:
                    await getattr(journal, do)()
            written = (await actions_in(client, log.place))[before:]
        assert [type(record.action) for record in written] == expected


# --- which part of the log is read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicated", range(4))
async def test_the_log_is_read_from_behind_what_is_replicated_to_the_mark(log, replicated):
    """Events 11 to 13 of which so many are replicated; what is behind the mark is nobody's business."""
    await log.write("a11 a12 a13")
    way = Way("some", replicated / 3 + 0.01)
    store = await log.store_after(way)
    async with log.journals(store, way.settings) as journals:
        found = journals[log.topic, KEY_ID].read()
        assert (await anext(found)).seq_nr == 11
        await log.write("a14")
        assert [record.seq_nr async for record in found] == [12, 13]
        decoded = journals.metrics.decoded.value
    assert decoded == 3 - replicated


# --- rows of one number -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_other_life", [False, True])
async def test_two_rows_of_one_number_are_an_error_unless_one_is_of_another_life(log, has_other_life):
    await log.write("a1-3")
    way = Way("all", 1)
    store, key = await log.store_after(way), JournalKey(log.topic, KEY_ID)
    head = await store.head(key)
    (row,) = [row async for row in store.rows(key, head, SeqRange(2, 2))]
    again = replace(
        row,
        timestamp_ms=TIMESTAMP_MS + 1,
        event=replace(row.event, payload=TextPayload("2@another")),
        record_id=record_id_of(log.place, 999) if has_other_life else row.record_id,
    )
    await store.carry_out(key, [WriteRows((again,), head.segment_size)])

    async with log.journals(store, way.settings) as journals:
        journal = journals[log.topic, KEY_ID]
        if has_other_life:
            assert await answer(journal, has_places=True) == "1@0 2@0 3@0 | 3"
        else:
            with pytest.raises(ForkedJournalError, match="event 2 is there twice"):
                await answer(journal)


async def test_ids_that_differ_in_case_alone_are_two(log):
    """Their head rows are in one segment."""
    for way in (WAYS[0], Way("all", 1)):
        store = MemoryJournalStore()
        async with log.journals(store, way.settings) as journals:
            for key_id in ("id", "ID"):
                await journals[log.topic, key_id].append([f"{way.name} {key_id}"])
            if way.share:
                async with replicating(log.log_url, store, log.topic):
                    await pointer_at(store, log.topic, (await journals[log.topic, "id"].mark("x")).offset)
            for key_id in ("id", "ID"):
                found = [record.event async for record in journals[log.topic, key_id].read()]
                assert found[-1] == f"{way.name} {key_id}"
                assert all(event.endswith(key_id) for event in found)


# --- expiry -----------------------------------------------------------------------------------------------------------

MINUTE, DAY = ExpireAfter.of_ms(60_000), ExpireAfter.of_ms(86_400_000)
TODAY, TOMORROW = date(2019, 12, 11), date(2019, 12, 12)


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ([MINUTE], TODAY),
        ([DAY], TOMORROW),
        ([DAY, DAY], TOMORROW),
        ([DAY, MINUTE], TODAY),
        ([DAY, None], None),
        ([None, None], None),
    ],
)
@pytest.mark.parametrize("is_one_poll", [True, False])
async def test_the_last_append_says_when_the_journal_expires(log, given, due, is_one_poll):
    """Each is written on 2019-12-11 at 10:10:10 UTC."""
    key = JournalKey(log.topic, KEY_ID)
    async with connect(log.log_url) as client:
        for number, expire_after in enumerate(given, start=1):
            events = [NewEvent(TextPayload("x"), seq_nr=number)]
            action = new_append(events, last_seq_nr=0, metadata=RecordMetadata(expire_after=expire_after))
            record = encode_action(key, action, timestamp_ms=TIMESTAMP_MS)
            (produced,) = await client.produce(log.topic, [record], partition=0)
            log.offsets.append(produced.offset)
    store = await log.store_after(Way("all", 1, is_one_poll=is_one_poll))

    async with log.journals(store, CACHED) as journals:
        for day, is_due in ((TODAY, due == TODAY), (TOMORROW, due is not None)):
            assert await journals.purge_expired([log.topic], today=day) == is_due
        assert await journals[log.topic, KEY_ID].pointer() == (None if due else len(given))


# --- the replicator ---------------------------------------------------------------------------------------------------

PARTITIONS = 2


@pytest.mark.parametrize("records_max", [1, 1_000])
async def test_two_partitions_are_replicated_in_one_poll_or_in_many(broker, log_url, records_max):
    """Appends of 1, 1 to 2, 2 and 3 in each; offsets are committed and pointers moved to behind the last."""
    topic, store = f"two-partitions-{records_max}", MemoryJournalStore()
    broker.create_topic(topic, partitions=PARTITIONS)
    journals_of = {partition: (f"p{partition}-a", f"p{partition}-b") for partition in range(PARTITIONS)}
    async with connect(log_url) as client:
        for partition, (one, other) in journals_of.items():
            for key_id, numbers in ((one, [1]), (other, [1, 2]), (one, [2]), (one, [3])):
                events = [NewEvent(TextPayload(str(number)), seq_nr=number) for number in numbers]
                record = encode_action(JournalKey(topic, key_id), new_append(events, last_seq_nr=0), timestamp_ms=1)
                await client.produce(topic, [record], partition=partition)
        member = MemberSettings(heartbeat_interval_ms=50, session_timeout_ms=6_000, commit_interval_ms=50)
        settings = ReplicatorSettings(discovery_ms=20, poll_records_max=records_max, member=member)
        async with replicating(log_url, store, topic, settings=settings):
            for partition in range(PARTITIONS):
                assert await pointer_at(store, topic, 3, partition=partition) == 3

            async def is_committed():
                committed = await client.list_committed_offsets(f"replicator-{topic}")
                return [committed[place].offset for place in sorted(committed)] == [4] * PARTITIONS

            await until(is_committed)
    for one, other in journals_of.values():
        for key_id, last in ((one, 3), (other, 2)):
            key = JournalKey(topic, key_id)
            head = await store.head(key)
            assert [row.seq_nr async for row in store.rows(key, head, SeqRange(1, 9))] == list(range(1, last + 1))


async def test_marks_alone_move_the_pointer(log):
    await log.write("m m m")
    store = MemoryJournalStore()
    async with replicating(log.log_url, store, log.topic):
        assert await pointer_at(store, log.topic, 2) == 2
    assert [key_id async for key_id in store.ids(log.topic)] == []


# --- all of it together -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replication", ["off", "on", "late", "then off"])
async def test_the_whole_life_of_a_journal_whenever_it_is_replicated(log, replication):
    async with AsyncExitStack() as stack:
        store = MemoryJournalStore(segment_size=2)
        journals = await stack.enter_async_context(log.journals(store, CACHED))
        replicator = await stack.enter_async_context(AsyncExitStack())

        async def switch(*, is_on):
            if is_on:
                await replicator.enter_async_context(replicating(log.log_url, store, log.topic))
            else:
                await replicator.aclose()

        async def settle(place):
            if replication == "on":
                await pointer_at(store, log.topic, place.offset)

        if replication in {"on", "then off"}:
            await switch(is_on=True)
        journal = journals[log.topic, KEY_ID]
        await settle(await journal.append(["1", "2", "3"]))
        assert await told_by(journal) == (["1", "2", "3"], 3)
        await settle(await journal.delete(1))
        assert await told_by(journal) == (["2", "3"], 3)
        if replication == "then off":
            await pointer_at(store, log.topic, (await journal.mark("x")).offset)
            await switch(is_on=False)
        await settle(await journal.delete(2**63 - 1))
        assert await told_by(journal) == ([], 3)
        if replication == "late":
            await switch(is_on=True)
        await settle(await journal.purge())
        assert await told_by(journal) == ([], None)
        await settle(await journal.append(["1"], expire_after="1 day"))
        assert await told_by(journal) == (["1"], 1)
        told = await asyncio.gather(*(journal.append([str(n)]) for n in range(2, 30)))
        await settle(max(told, key=lambda appended: appended.offset))
        events, pointer = await told_by(journal)
        assert (sorted(events, key=int), pointer) == ([str(n) for n in range(1, 30)], 29)
        await settle(await journal.delete(15))
        assert [record.seq_nr async for record in journal.read()] == list(range(16, 30))
        assert await told_by(journals[log.topic, OTHER_ID]) == ([], None)  # in a lengthy topic of another journal


async def told_by(journal):
    return [record.event async for record in journal.read()], await journal.pointer()
