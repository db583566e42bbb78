"""OffsetFetch (key 9), versions 0 to 10.

Does: tells how far groups have read, as of all commits before it; -1 where nothing is committed. Topics null: all.
Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNSTABLE_OFFSET_COMMIT (an open
transaction has an offset of the partition, and only stable ones are asked for), NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: to 1 errors stand in the partitions; 2 in front of them; 5 leader epochs; 7 only stable offsets (KIP-447), on
demand; 8 several groups, each with its error; 10 topic ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from exactlog.broker.asking import Gathering, Later, read_when_committed
from exactlog.broker.coordinator.groups import Runner
from exactlog.broker.request_context import RequestContext
from exactlog.core.codec.message_schema import Message
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.group.shard import GroupShard
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
    """The offsets of one group, and where they are not to be told: there may soon be others."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    unstable: AbstractSet[TopicPartition] = frozenset()

    def tell(self, key: TopicPartition) -> tuple[CommittedOffset, ErrorCode]:
        """What is told of a partition."""
        if key in self.unstable:
            return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self.offsets.get(key, _NOTHING), ErrorCode.NONE


def handle(request: OffsetFetchRequest, context: RequestContext) -> Later:
    """Reads them, group by group."""
    groups, only_stable = _groups_of(request, context), request.require_stable

    def respond(outcomes: Sequence[Struct | ErrorCode]) -> Message:
        described = [_describe(group, outcome, context) for group, outcome in zip(groups, outcomes, strict=True)]
        if context.api_version >= SEVERAL_GROUPS_SINCE:
            return OffsetFetchResponse(groups=tuple(described))
        return _for_one_group(described[0], context)

    slots = Gathering(len(groups), context, respond).slots
    late = [
        (group, slot)
        for group, slot in zip(groups, slots, strict=True)
        if not _read(context.broker.groups.find(group.group_id), group, slot, context, only_stable=only_stable)
    ]
    return _read_when_loaded(late, context, only_stable=only_stable) if late else None


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
    runner: Runner | ErrorCode | None,
    group: OffsetFetchRequestGroup,
    waiter: Waiter,
    context: RequestContext,
    *,
    only_stable: bool,
) -> bool:
    """Reads the offsets of one group; False where its shard must be loaded first."""
    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        waiter.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif runner is None:
        return False
    elif isinstance(runner, ErrorCode):
        waiter.fail(runner)
    else:
        group_id = group.group_id

        def read(shard: GroupShard) -> _Found:
            unstable = shard.unstable_partitions(group_id) if only_stable else frozenset()
            return _Found(shard.offsets(group_id), unstable)

        read_when_committed(runner, read, waiter)
    return True


async def _read_when_loaded(
    late: Iterable[tuple[OffsetFetchRequestGroup, Waiter]], context: RequestContext, *, only_stable: bool
) -> None:
    for group, waiter in late:
        runner = await context.broker.groups.load(group.group_id)
        _read(runner, group, waiter, context, only_stable=only_stable)


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
        topics = _all_topics(outcome, context)
    else:
        topics = tuple(_topic(topic, outcome, context) for topic in group.topics)
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


def _all_topics(found_offsets: _Found, context: RequestContext) -> tuple[OffsetFetchResponseTopics, ...]:
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for key, offset in found_offsets.offsets.items():
        may_see = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, key.topic)
        if may_see and not _is_of_another(key, offset, context):
            by_topic.setdefault(key.topic, []).append(_partition(key.partition, *found_offsets.tell(key)))
    topics = []
    for name, partitions in by_topic.items():
        found = context.broker.topics.by_name(name)
        if context.api_version < TOPIC_IDS_SINCE:
            topics.append(OffsetFetchResponseTopics(name=name, partitions=tuple(partitions)))
        elif found is not None:  # one that is being deleted has no id any more
            topics.append(OffsetFetchResponseTopics(topic_id=found.topic_id, partitions=tuple(partitions)))
    return tuple(topics)


def _topic(
    topic: OffsetFetchRequestTopics, found_offsets: _Found, context: RequestContext
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
            _partition(index, *_find(found_offsets, TopicPartition(name, index), error_code, context))
            for index in topic.partition_indexes
        ),
    )


def _find(
    found_offsets: _Found, key: TopicPartition, error_code: ErrorCode, context: RequestContext
) -> tuple[CommittedOffset, ErrorCode]:
    """What is told of a partition; what was committed in a deleted topic of that name does not count."""
    if error_code is not ErrorCode.NONE:
        return _NOTHING, error_code
    offset, error_code = found_offsets.tell(key)
    return (_NOTHING if _is_of_another(key, offset, context) else offset), error_code


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
