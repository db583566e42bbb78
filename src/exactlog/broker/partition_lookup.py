"""How a request comes by the partitions it touches: found, or opened first and waited for."""

import asyncio
from collections.abc import Iterable
from typing import assert_never

from exactlog.broker.topic_registry import NotOpenYet, Stopped, TopicRegistry, UnknownTopicOrPartition
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.storage.partition_log import PartitionLog

OPENING_WAIT_S = 5.0
"""How long a request waits; a longer recovery is answered with LEADER_NOT_AVAILABLE, which clients try again."""


def find_partition(topics: TopicRegistry, name: str, index: int) -> PartitionLog | ErrorCode:
    """An open partition, or the error that tells a client why it cannot be used."""
    found = topics.partition(name, index)
    if isinstance(found, PartitionLog):
        return found if found.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
    match found:
        case UnknownTopicOrPartition():
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        case NotOpenYet():
            return ErrorCode.LEADER_NOT_AVAILABLE
        case Stopped():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case unreachable:
            assert_never(unreachable)


def closed_partitions(topics: TopicRegistry, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of the partitions that exist and must be opened before they can be used."""
    return [key for key in keys if isinstance(topics.partition(key.topic, key.partition), NotOpenYet)]


async def open_partitions(topics: TopicRegistry, keys: Iterable[TopicPartition]) -> None:
    """Opens partitions side by side; how it went, or that it takes longer, is the registry's to say."""
    tasks = [asyncio.ensure_future(topics.open(key.topic, key.partition)) for key in keys]
    await asyncio.wait(tasks, timeout=OPENING_WAIT_S)
