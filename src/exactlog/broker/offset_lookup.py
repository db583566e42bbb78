"""Which of the offsets that a client commits can be kept: those in partitions that exist, and that it may read."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import NewOffset
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.protocol.messages.offset_commit import OffsetCommitRequestTopic
from exactlog.core.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic

AskedTopic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic


class OffsetsAsked:
    """The offsets of one request: those to commit, and why the others are not.

    Attributes:
        offsets: those to commit, in the request's order.
    """

    def __init__(self, topics: Sequence[AskedTopic], context: RequestContext, *, by_id: bool) -> None:
        self._found = [list(_look_up(topic, context, by_id=by_id)) for topic in topics]
        self.offsets = tuple(found for of_topic in self._found for found in of_topic if isinstance(found, NewOffset))

    def merge(self, errors: Sequence[ErrorCode]) -> list[list[ErrorCode]]:
        """For each partition of each topic what came of it, given what came of those to commit, in order."""
        left = iter(errors)
        return [
            [next(left) if isinstance(found, NewOffset) else found for found in of_topic] for of_topic in self._found
        ]


def _look_up(topic: AskedTopic, context: RequestContext, *, by_id: bool) -> Iterator[NewOffset | ErrorCode]:
    topics = context.broker.topics
    known = topics.by_id(topic.topic_id) if by_id else topics.by_name(topic.name)
    name = known.name if known is not None else topic.name
    refusal = ErrorCode.NONE
    if by_id and known is None:
        refusal = ErrorCode.UNKNOWN_TOPIC_ID
    elif not context.allows(Operation.READ, ResourceType.TOPIC, name):
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for part in topic.partitions:
        if refusal is not ErrorCode.NONE:
            yield refusal
        elif known is None or not 0 <= part.partition_index < known.partition_count:
            yield ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            yield NewOffset(
                TopicPartition(name, part.partition_index),
                Offset(part.committed_offset),
                part.committed_leader_epoch,
                part.committed_metadata or "",
                known.topic_id,
            )
