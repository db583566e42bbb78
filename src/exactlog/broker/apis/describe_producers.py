"""DescribeProducers (key 61), version 0.

Does: shows who produces to partitions, as of what is committed: each producer's epoch, its last sequence, and where its
open transaction began (KIP-664).
Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR,
LEADER_NOT_AVAILABLE.
"""

from collections.abc import Coroutine

from exactlog.broker.partition_lookup import closed_partitions, find_partition, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.core.log.producer_state import ProducerEntry
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.topic_name import reason_name_is_invalid
from exactlog.core.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)

NO_TRANSACTION = -1


def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | Coroutine[None, None, DescribeProducersResponse]:
    """Answers from the partitions' producer state."""
    closed = closed_partitions(
        context.broker.topics,
        (TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes),
    )
    return _answer_when_open(request, context, closed) if closed else _answer(request, context)


async def _answer_when_open(
    request: DescribeProducersRequest, context: RequestContext, closed: list[TopicPartition]
) -> DescribeProducersResponse:
    await open_partitions(context.broker.topics, closed)
    return _answer(request, context)


def _answer(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=tuple([_describe(context, topic.name, index) for index in topic.partition_indexes]),
            )
            for topic in request.topics
        )
    )


def _describe(context: RequestContext, topic: str, index: int) -> DescribeProducersPartitionResponse:
    try:
        _check_topic(context, topic)
    except KafkaError as error:
        return DescribeProducersPartitionResponse(
            partition_index=index, error_code=error.error_code, error_message=str(error)
        )
    partition = find_partition(context.broker.topics, topic, index)
    if isinstance(partition, ErrorCode):
        return DescribeProducersPartitionResponse(partition_index=index, error_code=partition)
    entries = partition.committed.producers.snapshot()
    return DescribeProducersPartitionResponse(
        partition_index=index, active_producers=tuple([_tell(entry) for entry in entries])
    )


def _check_topic(context: RequestContext, topic: str) -> None:
    fault = reason_name_is_invalid(topic)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
    if not context.allows(Operation.READ, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "You may not read this topic.")
    if context.broker.topics.by_name(topic) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic}'.")


def _tell(entry: ProducerEntry) -> ActiveProducer:
    return ActiveProducer(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_TRANSACTION if entry.txn_start_offset is None else entry.txn_start_offset,
    )
