"""Waiting for partitions that are opened because a request touches them."""

import asyncio
from collections.abc import Iterable

from exactlog.broker.topic_registry import NotOpenYet, TopicRegistry
from exactlog.core.model.ids import TopicPartition

OPENING_WAIT_S = 5.0
"""How long a request waits; a longer recovery is answered with LEADER_NOT_AVAILABLE, which clients try again."""


def closed_partitions(topics: TopicRegistry, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions that exist and must be opened before they can be used."""
    return [key for key in keys if isinstance(topics.partition(key.topic, key.partition), NotOpenYet)]


async def open_partitions(topics: TopicRegistry, keys: Iterable[TopicPartition]) -> None:
    """Opens partitions side by side; how it went, or that it takes longer, is the registry's to say."""
    tasks = [asyncio.ensure_future(topics.open(key.topic, key.partition)) for key in keys]
    await asyncio.wait(tasks, timeout=OPENING_WAIT_S)
