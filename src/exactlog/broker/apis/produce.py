"""Produce (key 0), versions 3 to 13.

Does: validates each batch whole before any offset is given, appends it, and answers once what it was told is committed.
Answers an idempotent producer's repeated batch with its first offsets (KIP-98).
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUIRED_ACKS, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE. With acks=0 an error closes the connection, as in Kafka.
Versions: 0 to 2 are advertised and refused (KAFKA-18659); 8 error messages; 9 flexible; 13 topic ids (KIP-516).
Not done: transactional batches: none is part of a transaction here, so INVALID_TXN_STATE.
"""

from collections.abc import Coroutine

from exactlog.broker.opening import closed_partitions, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.broker.topic_registry import NotOpenYet, Stopped, Topic, UnknownTopicOrPartition
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.batch_validation import InvalidRecords, validate_produced
from exactlog.storage.partition_log import AppendRefused, PartitionLog

TOPIC_IDS_SINCE = 13
LEGAL_ACKS = (-1, 0, 1)
TopicsOfRequest = list[tuple[TopicProduceData, Topic | None]]


class Refusal(Exception):  # noqa: N818  not an error of the program: the ending of one partition's append
    """Why a partition's records are not appended."""

    def __init__(self, error_code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


def handle(request: ProduceRequest, context: RequestContext) -> Coroutine[None, None, None] | None:
    """Appends what the request brings; the answer follows when the last of its partitions is committed."""
    topics = _find_topics(request, context)
    closed = closed_partitions(
        context.broker.topics,
        (TopicPartition(topic.name, part.index) for data, topic in topics if topic for part in data.partition_data),
    )
    if closed:
        return _handle_when_open(request, context, closed)
    _append(request, context, topics)
    return None


async def _handle_when_open(request: ProduceRequest, context: RequestContext, closed: list[TopicPartition]) -> None:
    await open_partitions(context.broker.topics, closed)
    _append(request, context, _find_topics(request, context))


def _find_topics(request: ProduceRequest, context: RequestContext) -> TopicsOfRequest:
    topics = context.broker.topics
    if context.api_version >= TOPIC_IDS_SINCE:
        return [(data, topics.by_id(data.topic_id)) for data in request.topic_data]
    return [(data, topics.by_name(data.name)) for data in request.topic_data]


def _append(request: ProduceRequest, context: RequestContext, topics: TopicsOfRequest) -> None:
    answer = _Answer(request, context)
    now_ms = context.broker.clock.now_ms()
    for topic_index, (data, topic) in enumerate(topics):
        for part_index, part in enumerate(data.partition_data):
            slot = answer.slots[topic_index], part_index
            try:
                _append_records(request, context, topic, part, now_ms=now_ms, answer=answer, slot=slot)
            except Refusal as refusal:
                answer.put(slot, _refused(part.index, refusal))
    answer.all_asked()


def _append_records(
    request: ProduceRequest,
    context: RequestContext,
    topic: Topic | None,
    part: PartitionProduceData,
    *,
    now_ms: int,
    answer: "_Answer",
    slot: "_Slot",
) -> None:
    """Appends one partition's records; its place in the answer is filled when they are committed.

    Raises:
        Refusal: the request itself is wrong; nothing was looked at that could change.
    """
    partition = _find_partition(request, context, topic, part.index)
    assert topic is not None
    records = part.records if part.records is not None else b""
    validated = validate_produced(
        records, batch_bytes_max=topic.config.max_message_bytes, is_compacted=_is_compacted(topic)
    )
    if isinstance(validated, InvalidRecords):
        raise Refusal(validated.error_code, validated.message)
    _check_batch(validated.header, topic.config, now_ms=now_ms)
    outcome = partition.append(validated.header, memoryview(records), now_ms=now_ms)

    def when_committed(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            answer.put(slot, _refused(part.index, Refusal(error, partition.failure or "the disk refused the write")))
        elif isinstance(outcome, AppendRefused):
            answer.put(slot, _refused(part.index, Refusal(outcome.error_code, outcome.message)))
        else:
            answer.put(
                slot,
                PartitionProduceResponse(
                    index=part.index,
                    base_offset=outcome.base_offset,
                    log_append_time_ms=outcome.log_append_time_ms,
                    log_start_offset=partition.log_start_offset,
                ),
            )

    partition.when_committed(when_committed)


def _find_partition(request: ProduceRequest, context: RequestContext, topic: Topic | None, index: int) -> PartitionLog:
    if request.acks not in LEGAL_ACKS:
        raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it can be -1, 0 or 1")
    if topic is None:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if request.acks == -1 and topic.config.min_insync_replicas > 1:
        raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas is above 1 and this broker is alone")
    match context.broker.topics.partition(topic.name, index):
        case UnknownTopicOrPartition():
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        case NotOpenYet():
            raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE)
        case Stopped(reason=reason):
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        case PartitionLog() as partition:
            return partition


def _check_batch(header: BatchHeader, config: TopicConfig, *, now_ms: int) -> None:
    """What the topic's configuration and this stage of the broker ask of a batch."""
    if header.is_transactional:
        raise Refusal(ErrorCode.INVALID_TXN_STATE, "this broker has no transactions yet")
    if config.message_timestamp_type == "LogAppendTime":
        return
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    if header.max_timestamp > latest or 0 <= header.base_timestamp < earliest:
        raise Refusal(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps {header.base_timestamp} to {header.max_timestamp} of the batch are out of range; "
            f"they should be within [{earliest}, {latest}]",
        )


def _is_compacted(topic: Topic) -> bool:
    return "compact" in topic.config.cleanup_policy


def _refused(index: int, refusal: Refusal) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.error_code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=refusal.message or None,
    )


_Slot = tuple[list[PartitionProduceResponse | None], int]


class _Answer:
    """Gathers the results of a request's partitions, and answers when the last one is known."""

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self.slots: list[list[PartitionProduceResponse | None]] = [
            [None] * len(data.partition_data) for data in request.topic_data
        ]
        self._missing = 1 + sum(map(len, self.slots))  # one more for `all_asked`
        self._has_error = False

    def put(self, slot: _Slot, response: PartitionProduceResponse) -> None:
        """One partition's result is known."""
        results, index = slot
        results[index] = response
        self._has_error = self._has_error or response.error_code != ErrorCode.NONE
        self._missing -= 1
        if self._missing == 0:
            self._send()

    def all_asked(self) -> None:
        """Every partition has been asked; with acks=0 nobody waits for what comes of it."""
        self._missing -= 1
        if self._request.acks == 0:
            if self._has_error:
                self._context.close("acks-0-failed")  # what else could tell the client
            else:
                self._context.skip()
        elif self._missing == 0:
            self._send()

    def _send(self) -> None:
        if self._request.acks == 0:
            return
        self._context.answer(
            ProduceResponse(
                responses=tuple(
                    TopicProduceResponse(
                        name=data.name,
                        topic_id=data.topic_id,
                        partition_responses=tuple(result for result in results if result is not None),
                    )
                    for data, results in zip(self._request.topic_data, self.slots, strict=True)
                )
            )
        )
