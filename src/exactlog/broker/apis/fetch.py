"""Fetch (key 1), versions 4 to 18.

Does: returns whole batches below the high watermark (below the last stable offset with read_committed), from the batch
that holds the fetch offset on; waits up to `max_wait_ms` for `min_bytes`. The first batch of an answer may exceed the
limits, so that every consumer moves on (KIP-74).
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
FETCH_SESSION_ID_NOT_FOUND, KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE.
Versions: 5 log start offset; 9 leader epochs; 12 flexible; 13 topic ids.
Not done: fetch sessions (KIP-227): every answer carries session id 0, which tells clients to send full requests.
"""

import logging
from collections.abc import Coroutine

from msgspec import Struct

from exactlog.broker.delayed_fetch import DelayedFetch
from exactlog.broker.partition_lookup import check_leader_epoch, find_partition, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_registry import Topic
from exactlog.core.codec.wire_types import Buffer
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from exactlog.storage.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

TOPIC_IDS_SINCE = 13
READ_COMMITTED = 1


class Asked(Struct, frozen=True):
    """One partition that a request asks for, and what is known of it before anything is read."""

    request: FetchPartition
    partition: PartitionLog | None
    error: ErrorCode
    topic: Topic | None = None


class AskedTopic(Struct, frozen=True):
    """One topic of a request and its partitions."""

    request: FetchTopic
    partitions: list[Asked]


def handle(
    request: FetchRequest, context: RequestContext
) -> FetchResponse | Coroutine[None, None, FetchResponse | None] | None:
    """Answers with what there is, or waits until there is enough."""
    if request.session_id != 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    asked = _look_up_all(request, context)
    closed = [
        TopicPartition(part.topic.name, part.request.partition)
        for topic in asked
        for part in topic.partitions
        if part.error is ErrorCode.LEADER_NOT_AVAILABLE and part.topic is not None
    ]
    if closed:
        return _handle_when_open(request, context, closed)
    return _fetch(request, context, asked)


async def _handle_when_open(
    request: FetchRequest, context: RequestContext, closed: list[TopicPartition]
) -> FetchResponse | None:
    await open_partitions(context.broker.topics, closed)
    return _fetch(request, context, _look_up_all(request, context))


def _fetch(request: FetchRequest, context: RequestContext, asked: list[AskedTopic]) -> FetchResponse | None:
    answer = _read(request, context, asked)
    watched = [part.partition for topic in asked for part in topic.partitions if part.partition is not None]
    if answer.bytes_read >= request.min_bytes or answer.has_error or request.max_wait_ms <= 0 or not watched:
        return answer.response

    def answer_now() -> None:
        context.answer(_read(request, context, _look_up_all(request, context)).response)

    DelayedFetch(
        watched,
        bytes_wanted=request.min_bytes - answer.bytes_read,
        wait_ms=request.max_wait_ms,
        then=answer_now,
        context=context,
    )
    return None


def _look_up_all(request: FetchRequest, context: RequestContext) -> list[AskedTopic]:
    return [
        AskedTopic(topic, [_look_up(context, found, part) for part in topic.partitions])
        for topic in request.topics
        for found in (_find_topic(topic, context),)
    ]


def _find_topic(topic: FetchTopic, context: RequestContext) -> Topic | None:
    if context.api_version >= TOPIC_IDS_SINCE:
        return context.broker.topics.by_id(topic.topic_id)
    return context.broker.topics.by_name(topic.topic)


def _look_up(context: RequestContext, topic: Topic | None, part: FetchPartition) -> Asked:
    if topic is None:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        return Asked(part, None, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = find_partition(context.broker.topics, topic.name, part.partition)
    if isinstance(found, ErrorCode):
        return Asked(part, None, found, topic)
    try:
        check_leader_epoch(context, part.current_leader_epoch)
    except KafkaError as error:
        return Asked(part, None, error.error_code)
    return Asked(part, found, ErrorCode.NONE)


class Answer(Struct, frozen=True):
    """A response as it could be sent now, and whether it is worth sending."""

    response: FetchResponse
    bytes_read: int
    has_error: bool


def _read(request: FetchRequest, context: RequestContext, asked: list[AskedTopic]) -> Answer:
    """Reads what every partition has, within the limits of the request and of the broker."""
    bytes_left = context.broker.fetch_budget.clip(request.max_bytes)
    bytes_read = 0
    has_error = False
    topics = []
    for topic in asked:
        partitions = []
        for part in topic.partitions:
            data = _read_partition(request, part, bytes_left=bytes_left, is_first=bytes_read == 0)
            size = len(data.records) if data.records is not None else 0
            bytes_read += size
            bytes_left = max(0, bytes_left - size)
            has_error = has_error or data.error_code != ErrorCode.NONE
            partitions.append(data)
        topics.append(
            FetchableTopicResponse(
                topic=topic.request.topic, topic_id=topic.request.topic_id, partitions=tuple(partitions)
            )
        )
    return Answer(FetchResponse(responses=tuple(topics)), bytes_read, has_error)


def _read_partition(request: FetchRequest, asked: Asked, *, bytes_left: int, is_first: bool) -> PartitionData:
    partition = asked.partition
    if partition is None:
        return _failed(asked.request.partition, asked.error)
    offset = asked.request.fetch_offset
    is_committed_only = request.isolation_level == READ_COMMITTED
    end = partition.last_stable_offset if is_committed_only else partition.high_watermark
    if not partition.log_start_offset <= offset <= partition.high_watermark:
        error = ErrorCode.OFFSET_OUT_OF_RANGE
        records: Buffer = b""
    else:
        error = ErrorCode.NONE
        bytes_max = min(bytes_left, asked.request.partition_max_bytes)
        try:
            records = partition.committed.read(offset, end_offset=end, bytes_max=bytes_max, at_least_one_batch=is_first)
        except (DamageError, OSError) as fault:
            _logger.error("%s cannot be read at offset %d: %s", partition.topic_partition, offset, fault)
            return _failed(asked.request.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    return PartitionData(
        partition_index=asked.request.partition,
        error_code=error,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=() if is_committed_only else None,
        records=records,
    )


def _failed(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )
