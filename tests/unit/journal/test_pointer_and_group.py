"""Where a replicator begins: the pointer of the store is the truth, and what its group has committed is not."""

import asyncio

import pytest
from msgspec.structs import replace

from exactlog.client.adapters import connect
from exactlog.client.groups import MemberSettings
from exactlog.core.journal.keys import SEQ_NR_MAX, JournalKey, SeqRange
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal import Journals
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.testing import Broker
from tests.unit.journal.replicating import QUICK, pointer_at, replicating, until

EAGER = replace(QUICK, member=MemberSettings(heartbeat_interval_ms=50, session_timeout_ms=6_000, commit_interval_ms=50))
"""Commits what it has read twenty times a second."""


class SameStore(MemoryJournalStore):
    """Another program's way to a store; it can be held up."""

    def __init__(self, store):
        super().__init__()
        self.__dict__ |= store.__dict__
        self.is_held = asyncio.Event()
        self.is_held.set()

    async def carry_out(self, key, steps):
        await self.is_held.wait()
        await super().carry_out(key, steps)


async def committed(client, topic):
    """The offset of the group, 0 where there is none."""
    found = await client.list_committed_offsets(f"replicator-{topic}")
    return next((at.offset for at in found.values()), 0)


async def seq_nrs(store, topic, key_id):
    key = JournalKey(topic, key_id)
    head = await store.head(key)
    return [] if head is None else [row.seq_nr async for row in store.rows(key, head, SeqRange(1, SEQ_NR_MAX))]


@pytest.mark.parametrize("ahead", [1, 2, 4])
async def test_a_replicator_begins_at_the_pointer_where_its_group_has_committed_more(
    journal, log_url, store, topic, ahead
):
    for n in range(3):
        told = await journal.append([n])
    async with replicating(log_url, store, topic):
        await pointer_at(store, topic, told.offset)
    for n in range(3, 7):
        last = await journal.append([n])
    async with connect(log_url) as client:
        await client.commit_offsets(f"replicator-{topic}", {TopicPartition(topic, 0): Offset(told.offset + 1 + ahead)})

    async with replicating(log_url, store, topic) as replicator:
        assert await pointer_at(store, topic, last.offset) == last.offset
        assert replicator.metrics.forks.value == 0
    assert await seq_nrs(store, topic, "order-7") == [1, 2, 3, 4, 5, 6, 7]


async def test_a_group_that_ran_ahead_of_a_program_that_died_in_a_poll_goes_back_for_the_next(
    journal, log_url, store, topic
):
    """It commits while the store takes its time, and then is gone; nothing more is written."""
    dying = SameStore(store)
    async with connect(log_url) as client:
        async with replicating(log_url, dying, topic, settings=EAGER):
            first = await journal.append(["1"])
            await pointer_at(store, topic, first.offset)
            dying.is_held.clear()
            last = await journal.append(["2", "3"])

            async def has_run_ahead():
                return await committed(client, topic) > last.offset

            await until(has_run_ahead)
        assert (await store.pointer(TopicPartition(topic, 0))).offset == first.offset

        async with replicating(log_url, store, topic):
            await pointer_at(store, topic, last.offset)
    assert await seq_nrs(store, topic, "order-7") == [1, 2, 3]


@pytest.mark.slow  # the client's own patience
async def test_a_replicator_is_closed_although_its_broker_is_gone(store, tmp_path):
    with Broker(tmp_path) as own:
        own.create_topic("orders")
        url = f"kafka://{own.bootstrap_servers}"
        async with replicating(url, store, "orders"):
            async with Journals.open(url, store=store) as journals:
                told = await journals["orders", "order-7"].append(["x"])
            await pointer_at(store, "orders", told.offset)
            await asyncio.to_thread(own.kill)
