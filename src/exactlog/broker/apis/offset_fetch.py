"""OffsetFetch (key 9), versions 0 to 10.

Does: tells how far groups have read, as of all commits before it; -1 where nothing is committed. Topics null: all.
Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: to 1 errors stand in the partitions; 2 in front of them; 5 leader epochs; 8 several groups, each with its
error; 10 topic ids. Offsets of open transactions (7) do not exist yet, so all are stable.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from exactlog.broker.asking import Gathering, Later, read_when_committed
from exactlog.broker.coordinator.groups import Runner
from exactlog.broker.request_context import RequestContext
from exactlog.core.codec.message_schema import Message
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID, Offset, TopicPartition
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
ERROR_IN_FRONT_SINCE = 2

_NOTHING = CommittedOffset(Offset(-1), -1, "", -1)


class _Found(Struct, frozen=True):
    """The offsets of one group."""

    offsets: Mapping[TopicPartition, CommittedOffset]


def handle(request: OffsetFetchRequest, context: RequestContext) -> Later:
    """Reads them, group by group."""
    groups = _groups_of(request, context)

    def respond(outcomes: Sequence[Struct | ErrorCode]) -> Message:
        described = [_describe(group, outcome, context) for group, outcome in zip(groups, outcomes, strict=True)]
        if context.api_version >= SEVERAL_GROUPS_SINCE:
            return OffsetFetchResponse(groups=tuple(described))
        return _for_one_group(described[0], context)

    slots = Gathering(len(groups), context, respond).slots
    late = [
        (group, slot)
        for group, slot in zip(groups, slots, strict=True)
        if not _read(context.broker.groups.find(group.group_id), group, slot, context)
    ]
    return _read_when_loaded(late, context) if late else None


def _groups_of(request: OffsetFetchRequest, context: RequestContext) -> Sequence[OffsetFetchRequestGroup]:
    if context.api_version >= SEVERAL_GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        )
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _read(
    runner: Runner | ErrorCode | None, group: OffsetFetchRequestGroup, waiter: Waiter, context: RequestContext
) -> bool:
    """Reads the offsets of one group; False where its shard must be loaded first."""
    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        waiter.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif runner is None:
        return False
    elif isinstance(runner, ErrorCode):
        waiter.fail(runner)
    else:
        read_when_committed(runner, lambda shard: _Found(shard.offsets(group.group_id)), waiter)
    return True


async def _read_when_loaded(late: Iterable[tuple[OffsetFetchRequestGroup, Waiter]], context: RequestContext) -> None:
    for group, waiter in late:
        _read(await context.broker.groups.load(group.group_id), group, waiter, context)


def _describe(
    group: OffsetFetchRequestGroup, outcome: Struct | ErrorCode, context: RequestContext
) -> OffsetFetchResponseGroup:
    """One group's part of the answer, in its newest form."""
    if not isinstance(outcome, _Found):
        assert isinstance(outcome, ErrorCode)
        return OffsetFetchResponseGroup(
            group_id=group.group_id, topics=_refused_topics(group, outcome), error_code=outcome
        )
    if group.topics is None:
        topics = _all_topics(outcome.offsets, context)
    else:
        topics = tuple(_topic(topic, outcome.offsets, context) for topic in group.topics)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _refused_topics(group: OffsetFetchRequestGroup, error_code: ErrorCode) -> tuple[OffsetFetchResponseTopics, ...]:
    return tuple(
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(_partition(index, _NOTHING, error_code) for index in topic.partition_indexes),
        )
        for topic in group.topics or ()
    )


def _all_topics(
    offsets: Mapping[TopicPartition, CommittedOffset], context: RequestContext
) -> tuple[OffsetFetchResponseTopics, ...]:
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for key, offset in offsets.items():
        may_see = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, key.topic)
        if may_see and not _is_of_another(key, offset, context):
            by_topic.setdefault(key.topic, []).append(_partition(key.partition, offset, ErrorCode.NONE))
    topics = []
    for name, partitions in by_topic.items():
        found = context.broker.topics.by_name(name)
        if context.api_version < TOPIC_IDS_SINCE:
            topics.append(OffsetFetchResponseTopics(name=name, partitions=tuple(partitions)))
        elif found is not None:  # one that is being deleted has no id any more
            topics.append(OffsetFetchResponseTopics(topic_id=found.topic_id, partitions=tuple(partitions)))
    return tuple(topics)


def _topic(
    topic: OffsetFetchRequestTopics, offsets: Mapping[TopicPartition, CommittedOffset], context: RequestContext
) -> OffsetFetchResponseTopics:
    name, error_code = topic.name, ErrorCode.NONE
    if context.api_version >= TOPIC_IDS_SINCE:
        found = context.broker.topics.by_id(topic.topic_id)
        if found is None:
            error_code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            name = found.name
    if error_code is ErrorCode.NONE and not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            _partition(index, _find(offsets, TopicPartition(name, index), error_code, context), error_code)
            for index in topic.partition_indexes
        ),
    )


def _find(
    offsets: Mapping[TopicPartition, CommittedOffset],
    key: TopicPartition,
    error_code: ErrorCode,
    context: RequestContext,
) -> CommittedOffset:
    """What is committed for a partition; what was committed in a deleted topic of that name does not count."""
    found = offsets.get(key, _NOTHING)
    return _NOTHING if error_code is not ErrorCode.NONE or _is_of_another(key, found, context) else found


def _is_of_another(key: TopicPartition, offset: CommittedOffset, context: RequestContext) -> bool:
    """Whether it was committed in a deleted topic, and there is a new one of that name."""
    topic = context.broker.topics.by_name(key.topic)
    return topic is not None and offset.topic_id not in (ZERO_UUID, topic.topic_id)


def _partition(index: int, offset: CommittedOffset, error_code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=error_code,
    )


def _for_one_group(group: OffsetFetchResponseGroup, context: RequestContext) -> OffsetFetchResponse:
    """The form of the answer before there could be several groups."""
    in_front = context.api_version >= ERROR_IN_FRONT_SINCE
    topics = () if in_front and group.error_code != ErrorCode.NONE else group.topics
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=part.partition_index,
                        committed_offset=part.committed_offset,
                        committed_leader_epoch=part.committed_leader_epoch,
                        metadata=part.metadata,
                        error_code=part.error_code,
                    )
                    for part in topic.partitions
                ),
            )
            for topic in topics
        ),
        error_code=group.error_code,
    )
