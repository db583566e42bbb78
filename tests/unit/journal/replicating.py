"""Replicators that run beside a test."""

import asyncio
from contextlib import asynccontextmanager

from exactlog.client.groups import MemberSettings
from exactlog.client.ports import ClientSettings
from exactlog.core.model.ids import TopicPartition
from exactlog.journal.brokers import open_brokers
from exactlog.journal.replicator import Replicator, ReplicatorSettings
from exactlog.node.clock import SystemClock

QUICK = ReplicatorSettings(
    discovery_ms=20, backoff_ms=10, member=MemberSettings(heartbeat_interval_ms=50, session_timeout_ms=6_000)
)


@asynccontextmanager
async def replicating(log_url, store, topic, *, settings=QUICK, skipped=()):
    async with open_brokers(log_url, ClientSettings(fetch_wait_ms_max=50)) as brokers:
        replicator = Replicator(
            brokers, store, SystemClock(), topic_prefixes=[topic], settings=settings, skipped=skipped
        )
        running = asyncio.create_task(replicator.run())
        try:
            yield replicator
        finally:
            running.cancel()
            await asyncio.wait([running])


async def until(condition):
    """Wait until an asynchronous condition holds."""
    while not await condition():  # noqa: ASYNC110  what is waited for tells nobody
        await asyncio.sleep(0.01)


async def pointer_at(store, topic, offset, *, partition=0):
    """Wait until a partition is replicated up to an offset."""
    while True:
        pointer = await store.pointer(TopicPartition(topic, partition))
        if pointer is not None and pointer.offset >= offset:
            return pointer.offset
        await asyncio.sleep(0.01)
