"""ListOffsets (key 2), versions 0 to 11.

Does: finds offsets by time: -1 the end of what the reader may see (high watermark, or last stable offset with
read_committed), -2 and -4 the log start, -3 the record with the greatest timestamp, anything else the first record that
is not older. Markers of transactions are no records. -5 and -6 speak of tiered storage, which there is none of: they
find nothing, as in Kafka without it.
Errors: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST (a partition is asked twice, or an
isolation level that is none), FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION (a special time the
version lacks), KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE.
Versions: 0 a list, of the one offset that version 1 would tell, or empty; 2 isolation level; 4 leader epochs; 7 to 11
special times.
"""

import logging
from collections import Counter
from collections.abc import Coroutine

from exactlog.broker.leader_epochs import leader_epoch_error
from exactlog.broker.partition_lookup import closed_partitions, find_partition, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, DecodeError, KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from exactlog.storage.log_reading import FoundRecord
from exactlog.storage.partition_log import PartitionLog

_logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SPECIAL_TIME_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = IsolationLevel.READ_COMMITTED
ISOLATION_LEVELS = frozenset(IsolationLevel)
_NOTHING = FoundRecord(-1, -1, -1)


def handle(
    request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[None, None, ListOffsetsResponse]:
    """Answers from the partitions' state and indexes."""
    closed = closed_partitions(
        context.broker.topics,
        (TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions),
    )
    if closed:
        return _handle_when_open(request, context, closed)
    return _answer(request, context)


async def _handle_when_open(
    request: ListOffsetsRequest, context: RequestContext, closed: list[TopicPartition]
) -> ListOffsetsResponse:
    await open_partitions(context.broker.topics, closed)
    return _answer(request, context)


def _answer(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    asked = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    topics = []
    for topic in request.topics:
        partitions = tuple(
            [
                _look_up(request, context, topic.name, part, is_asked_twice=count > 1)
                for part in topic.partitions
                if (count := asked.pop((topic.name, part.partition_index), 0))  # once: told already
            ]
        )
        if partitions:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=tuple(topics))


def _look_up(
    request: ListOffsetsRequest,
    context: RequestContext,
    topic: str,
    part: ListOffsetsPartition,
    *,
    is_asked_twice: bool,
) -> ListOffsetsPartitionResponse:
    try:
        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if is_asked_twice or request.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if part.timestamp < 0 and context.api_version < SPECIAL_TIME_SINCE.get(part.timestamp, 2**15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = _find_partition(context, topic, part)
        found = _find(request, context, partition, part.timestamp)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=error.error_code)
    except (DamageError, DecodeError, OSError) as fault:
        _logger.error("%s-%d cannot be searched: %s", topic, part.partition_index, fault)
        return ListOffsetsPartitionResponse(
            partition_index=part.partition_index, error_code=ErrorCode.KAFKA_STORAGE_ERROR
        )
    if context.api_version == 0:
        offsets = (found.offset,) if found.offset >= 0 and part.max_num_offsets > 0 else ()
        return ListOffsetsPartitionResponse(partition_index=part.partition_index, old_style_offsets=offsets)
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch if context.api_version >= 4 else -1,
    )


def _find_partition(context: RequestContext, topic: str, part: ListOffsetsPartition) -> PartitionLog:
    found = find_partition(context.broker.topics, topic, part.partition_index)
    if isinstance(found, ErrorCode):
        raise KafkaError(found)
    refused = leader_epoch_error(context, part.current_leader_epoch)
    if refused is not None:
        raise KafkaError(refused)
    return found


def _find(request: ListOffsetsRequest, context: RequestContext, partition: PartitionLog, time: int) -> FoundRecord:
    is_committed_only = request.isolation_level == READ_COMMITTED
    end = partition.last_stable_offset if is_committed_only else partition.high_watermark
    match time:
        case -1:
            return FoundRecord(end, -1, context.broker.leader_epoch)
        case -2 | -4:
            return FoundRecord(partition.log_start_offset, -1, _epoch_of_log_start(partition, context))
        case -5 | -6:
            return _NOTHING
        case -3:
            return partition.committed.find_latest_in_time(end_offset=end) or _NOTHING
        case _:
            return partition.committed.find_by_time(time, end_offset=end) or _NOTHING


def _epoch_of_log_start(partition: PartitionLog, context: RequestContext) -> int:
    """The epoch of the leader that wrote the first record; ours where there is none."""
    start = partition.log_start_offset
    epochs = [entry.epoch for entry in partition.table.leader_epochs if entry.start_offset <= start]
    return epochs[-1] if epochs else context.broker.leader_epoch
