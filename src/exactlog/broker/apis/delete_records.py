"""DeleteRecords (key 21), versions 0 to 2.

Does: moves the start of logs up to an offset, for good; -1 is the high watermark. Answers where each log begins now,
once the delta version that says so is published. An offset at or below the log start changes nothing. Where a partition
is named twice the last one counts, as in Kafka.
Errors: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION (a coordinator's topic),
OFFSET_OUT_OF_RANGE (above the high watermark, or negative), POLICY_VIOLATION (a topic that is only compacted),
KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE.
Versions: 2 flexible.
"""

from collections import defaultdict
from collections.abc import Coroutine

from exactlog.broker.partition_lookup import closed_partitions, find_partition, open_partitions
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.topic_name import is_internal
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from exactlog.storage.partition_log import PartitionLog

INVALID_LOW_WATERMARK = -1


def handle(request: DeleteRecordsRequest, context: RequestContext) -> Coroutine[None, None, None] | None:
    """Moves the log starts; the answer follows when the last of them is published."""
    deletion = _Deletion(request, context)
    closed = closed_partitions(context.broker.topics, deletion.offsets)
    if closed:
        return _handle_when_open(deletion, closed)
    deletion.carry_out()
    return None


async def _handle_when_open(deletion: "_Deletion", closed: list[TopicPartition]) -> None:
    await open_partitions(deletion.context.broker.topics, closed)
    deletion.carry_out()


class _Deletion:
    """One request on its way, answered when the last partition's result is known."""

    __slots__ = ("_results", "context", "offsets")

    def __init__(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        self.context = context
        self.offsets = {
            TopicPartition(topic.name, part.partition_index): part.offset
            for topic in request.topics
            for part in topic.partitions
        }
        self._results: dict[TopicPartition, DeleteRecordsPartitionResult] = {}

    def carry_out(self) -> None:
        """Moves the start of each log, in the order of the request."""
        if not self.offsets:
            self._answer()
        for place, offset in self.offsets.items():
            found = self._find(place)
            if isinstance(found, ErrorCode):
                self._put(place, INVALID_LOW_WATERMARK, found)
            else:
                self._move(place, found, offset)

    def _find(self, place: TopicPartition) -> PartitionLog | ErrorCode:
        topics = self.context.broker.topics
        if not self.context.allows(Operation.DELETE, ResourceType.TOPIC, place.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = find_partition(topics, place.topic, place.partition)
        topic = topics.by_name(place.topic)
        if topic is not None and isinstance(found, PartitionLog):
            if is_internal(topic.name):
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            policy = topic.config.cleanup_policy
            if "compact" in policy and "delete" not in policy:
                return ErrorCode.POLICY_VIOLATION
        return found

    def _move(self, place: TopicPartition, partition: PartitionLog, offset: int) -> None:
        outcome = partition.move_log_start(offset)

        def when_published(error: ErrorCode) -> None:
            refused = error if error is not ErrorCode.NONE else outcome
            low_watermark = partition.log_start_offset if refused is ErrorCode.NONE else INVALID_LOW_WATERMARK
            self.context.finish(lambda: self._put(place, low_watermark, refused))

        partition.when_published(when_published)

    def _put(self, place: TopicPartition, low_watermark: int, error_code: ErrorCode) -> None:
        """One partition's result is known."""
        self._results[place] = DeleteRecordsPartitionResult(
            partition_index=place.partition, low_watermark=low_watermark, error_code=error_code
        )
        if len(self._results) == len(self.offsets):
            self._answer()

    def _answer(self) -> None:
        by_topic: defaultdict[str, list[DeleteRecordsPartitionResult]] = defaultdict(list)
        for place in self.offsets:
            by_topic[place.topic].append(self._results[place])
        self.context.answer(
            DeleteRecordsResponse(
                topics=tuple(
                    DeleteRecordsTopicResult(name=name, partitions=tuple(results)) for name, results in by_topic.items()
                )
            )
        )
