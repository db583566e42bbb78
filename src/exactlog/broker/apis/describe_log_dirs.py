"""DescribeLogDirs (key 35), versions 0 to 5.

Does: tells the data directory, the bytes of its disk, and how many bytes of batches each partition has committed;
indexes and delta logs do not count. No list of topics means all of them. Partitions are opened for it. Kept in memory
they are in the directory `memory`, of whose size nothing is known. What is unknown or cannot be opened is left out.
Errors: CLUSTER_AUTHORIZATION_FAILED.
Versions: 3 an error for the whole answer; 4 bytes of the disk; 5 directories that take no new partitions: never.
"""

import shutil
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from pathlib import Path

from exactlog.broker.partition_lookup import closed_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from exactlog.storage.partition_log import PartitionLog

MEMORY = "memory"
UNKNOWN_BYTES = -1


def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse | Coroutine[None, None, DescribeLogDirsResponse]:
    """Answers from the partitions' segments."""
    if not context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = _asked(request, context)
    closed = closed_partitions(context.broker.topics, asked)
    return _answer_when_open(asked, context, closed) if closed else _answer(asked, context)


def _asked(request: DescribeLogDirsRequest, context: RequestContext) -> list[TopicPartition]:
    if request.topics is None:
        topics = context.broker.topics.topics()
        return [TopicPartition(topic.name, index) for topic in topics for index in range(topic.partition_count)]
    named = (TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions)
    return list(dict.fromkeys(named))


async def _answer_when_open(
    asked: Iterable[TopicPartition], context: RequestContext, closed: list[TopicPartition]
) -> DescribeLogDirsResponse:
    for place in closed:  # one by one: nobody is in a hurry, and others open partitions too
        await context.broker.topics.open(place.topic, place.partition)
    return _answer(asked, context)


def _answer(asked: Iterable[TopicPartition], context: RequestContext) -> DescribeLogDirsResponse:
    by_topic: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for place in asked:
        partition = context.broker.topics.partition(place.topic, place.partition)
        if isinstance(partition, PartitionLog):
            size = sum(segment.size for segment in partition.segments)
            by_topic[place.topic].append(DescribeLogDirsPartition(partition_index=place.partition, partition_size=size))
    topics = tuple(
        DescribeLogDirsTopic(name=name, partitions=tuple(partitions)) for name, partitions in by_topic.items()
    )
    return DescribeLogDirsResponse(results=(_directory(context.broker.config.data_dir, topics),))


def _directory(path: Path | None, topics: tuple[DescribeLogDirsTopic, ...]) -> DescribeLogDirsResult:
    if path is None:
        return DescribeLogDirsResult(
            log_dir=MEMORY, topics=topics, total_bytes=UNKNOWN_BYTES, usable_bytes=UNKNOWN_BYTES
        )
    try:
        disk = shutil.disk_usage(path)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute()))
    return DescribeLogDirsResult(
        log_dir=str(path.absolute()), topics=topics, total_bytes=disk.total, usable_bytes=disk.free
    )
