"""WriteTxnMarkers (key 27), versions 0 to 2.

Does: writes the markers that end transactions into partitions, past the coordinator: for administrators who abort a
transaction that hangs (KIP-664). Offsets of groups that are part of it count, or are dropped, from then on.
Errors: CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, TRANSACTION_COORDINATOR_FENCED (the partition has a
marker of a newer coordinator), INVALID_PRODUCER_EPOCH, INVALID_REQUEST (no producer id or no epoch),
KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
Versions: 2 the transaction version: from 2 on a marker has an epoch above its transaction's (KIP-1228).
"""

from collections.abc import Sequence

from msgspec import Struct

from exactlog.broker.asking import Gathering
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from exactlog.core.record.control_record_format import TransactionMarker


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse | None:
    """Writes all markers in one turn, and answers when they are committed."""
    places = [
        (marker, TopicPartition(topic.name, index))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    if not _may_write(context):
        return _respond(request, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(places))
    writer = context.broker.transactions.markers
    await writer.make_ready([partition for _, partition in places])
    slots = Gathering(len(places), context, lambda outcomes: _respond(request, outcomes)).slots
    for (marker, partition), slot in zip(places, slots, strict=True):
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            slot.fail(ErrorCode.INVALID_REQUEST)
            continue
        writer.append(
            partition,
            TransactionMarker(is_commit=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch),
            ProducerIdentity(ProducerId(marker.producer_id), ProducerEpoch(marker.producer_epoch)),
            transaction_version=marker.transaction_version,
            then=slot.fail,
        )
    return None


def _may_write(context: RequestContext) -> bool:
    """Administrators may, and other brokers."""
    return context.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or context.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )


def _respond(request: WriteTxnMarkersRequest, outcomes: Sequence[Struct | ErrorCode]) -> WriteTxnMarkersResponse:
    """One result for each producer, as Apache Kafka gives: who asks takes them for a map."""
    errors = iter([outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE for outcome in outcomes])
    results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                results.setdefault(marker.producer_id, {}).setdefault(topic.name, {})[index] = next(errors)
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index, error in of_topic.items()
                        ),
                    )
                    for topic, of_topic in of_producer.items()
                ),
            )
            for producer_id, of_producer in results.items()
        )
    )
