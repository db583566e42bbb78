"""The broker is killed while journals are written to and replicated: what was answered is there, once."""

import asyncio

import pytest

from exactlog.client.ports import ClientSettings
from exactlog.core.model.errors import ExactlogError
from exactlog.journal import NO_STREAM, Conflict, Journals
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.testing import AsyncBroker
from tests.unit.journal.replicating import pointer_at, replicating

ROUNDS = 3
EACH = 20


async def write(journals, topic, key_id, first, answered):
    """One event after another, each with its number and id; asked again until there is an answer."""
    journal = journals[topic, key_id]
    for n in range(first, first + EACH):
        while True:
            try:
                told = await journal.append([n], n - 1 or NO_STREAM, event_ids=[f"{key_id}-{n}"])
            except Conflict:  # it is retried with its id: that is no conflict
                raise
            except ExactlogError:
                await asyncio.sleep(0.05)
            else:
                answered.append((key_id, told.seq_nr))
                break


@pytest.mark.slow
async def test_what_was_answered_is_there_once_however_often_the_broker_dies(tmp_path):
    store, topic, answered = MemoryJournalStore(), "killed", []
    keys = ["a", "b", "c"]
    async with AsyncBroker(tmp_path, config={"flush.mode": "commit"}) as broker:
        await broker.create_topic(topic, partitions=2)
        url = f"kafka://{broker.bootstrap_servers}"
        settings = ClientSettings(deadline_ms=2_000, request_timeout_ms=1_000)
        async with Journals.open(url, store=store, client_settings=settings) as journals:
            async with replicating(url, store, topic):
                for number in range(ROUNDS):
                    writing = asyncio.gather(
                        *(write(journals, topic, key_id, number * EACH + 1, answered) for key_id in keys)
                    )
                    while len(answered) < number * EACH * len(keys) + 5:  # noqa: ASYNC110  nobody tells
                        await asyncio.sleep(0.001)
                    await broker.kill()
                    await broker.restart()
                    await writing
                last = {
                    (place.partition): place.offset for place in [await journals[topic, key].mark("x") for key in keys]
                }
                for partition, offset in last.items():
                    await pointer_at(store, topic, offset, partition=partition)
            everything = list(range(1, ROUNDS * EACH + 1))
            for key_id in keys:
                journal = journals[topic, key_id]
                assert [record.event async for record in journal.read()] == everything
                assert [record.event async for record in journal.read_replicated()] == everything
    assert sorted(answered) == [(key_id, n) for key_id in keys for n in everything]
