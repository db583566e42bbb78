"""A store beside what its log makes: however its replicator polled, and whatever it has done since, is no damage."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.rows import DropHead, PutHead
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.pipeline.upkeep_store_verify import Comparison
from tests.support.journal_replication import IDS, LOGS, PARTITION, TOPIC, apply_to_all, written

PLACE = TopicPartition(TOPIC, PARTITION)
PARTITIONS = 2
SPLITS = st.sets(st.integers(0, 25))


def end_of(records):
    """The offset behind the last record; there are gaps."""
    return records[-1].offset + 1 if records else 0


def filled(records, splits):
    """A store that was given the records in polls that end at these offsets."""

    async def fill():
        store = MemoryJournalStore(segment_size=3)
        ends = sorted({end for end in splits if end < len(records)} | {len(records)})
        start = 0
        for end in ends:
            await apply_to_all(store, records[start:end], topic=TOPIC, now_ms=end)
            start = end
        if records:
            await store.topic(TOPIC).partition(PARTITION).create_pointer(end_of(records) - 1, now_ms=1)
        return store

    return asyncio.run(fill())


def compared(stored, made, *, end):
    return asyncio.run(Comparison(PLACE, stored, made, end=end).run(PARTITIONS))


@given(LOGS, SPLITS)
def test_how_the_replicator_polled_makes_no_difference(log, splits):
    records = written(log)

    found = compared(filled(records, splits), filled(records, ()), end=end_of(records))

    assert found.findings == ()
    assert (found.equal, found.damage, found.moved_on) == (found.journals, 0, 0)


@given(LOGS, SPLITS, st.integers(0, 25))
def test_what_the_replicator_has_done_since_is_no_damage(log, splits, end):
    records = written(log)

    found = compared(filled(records, splits), filled(records[:end], ()), end=end_of(records[:end]))

    assert found.findings == ()
    assert found.damage == 0


@given(LOGS, st.sampled_from(IDS), st.sampled_from(["drop head", "seq_nr", "delete_to"]))
def test_a_head_row_that_was_changed_is_found(log, key_id, what):
    records = written(log)
    stored, made = filled(records, ()), filled(records, ())
    key = JournalKey(TOPIC, key_id)

    async def change():
        head = await stored.head(key)
        if head is None:
            return False
        changed = {"seq_nr": {"seq_nr": head.seq_nr + 1}, "delete_to": {"delete_to": (head.delete_to or 0) + 1}}
        step = DropHead() if what == "drop head" else PutHead(replace(head, **changed[what]))
        await stored.carry_out(key, [step])
        return True

    is_changed = asyncio.run(change())

    assert (compared(stored, made, end=end_of(records)).damage > 0) == is_changed
