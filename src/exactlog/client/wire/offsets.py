"""The messages about committed offsets, which travel in more than one shape."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from exactlog.client.groups import CommittedOffset
from exactlog.client.wire.cluster import Lane
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.refusals import the_only
from exactlog.core.model.ids import LeaderEpoch, Offset, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

LAST_VERSION_WITH_NAMES: Final = 9
"""Of OffsetCommit and of OffsetFetch; later ones name topics by their ids, of which a group may hold old ones."""

_FIRST_VERSION_WITH_ALL: Final = 2
_FIRST_VERSION_WITH_STABLE: Final = 7
_FIRST_VERSION_WITH_GROUPS: Final = 8


class Generation(msgspec.Struct, frozen=True):
    """Who commits: a member, as of a generation of its group. The default is nobody, of a group without members."""

    member_id: str = ""
    generation_id: int = -1


NOBODY: Final = Generation()


def offset_commit_request(
    group_id: str, offsets: Mapping[TopicPartition, Offset], by: Generation = NOBODY
) -> OffsetCommitRequest:
    """The request that commits these offsets."""
    by_topic: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for place, offset in offsets.items():
        partition = OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)
        by_topic[place.topic].append(partition)
    topics = (OffsetCommitRequestTopic(name=name, partitions=tuple(found)) for name, found in by_topic.items())
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=by.generation_id,
        member_id=by.member_id,
        topics=tuple(topics),
    )


async def committed_offsets(
    coordinators: Coordinators,
    group_id: str,
    places: Collection[TopicPartition] | None = None,
    *,
    what: str,
    is_stable: bool = False,
    lane: Lane = Lane.GENERAL,
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that a group has committed, of these partitions or of all; those it has not are left out.

    Args:
        coordinators: to ask.
        group_id: the group.
        places: None: all.
        what: for messages.
        is_stable: whether an offset that an open transaction is about to commit is a retryable error (KIP-447).
        lane: of the connection.

    Raises:
        ExactlogError: one attempt has failed.
    """
    connection = await coordinators.connection(group_id, lane)
    at_least = max(_FIRST_VERSION_WITH_ALL * (places is None), _FIRST_VERSION_WITH_STABLE * is_stable)
    version = connection.versions.pick(ApiKey.OFFSET_FETCH, at_least=at_least, at_most=LAST_VERSION_WITH_NAMES)
    request = _offset_fetch_request(group_id, places, version=version, is_stable=is_stable)
    response = await coordinators.request(group_id, request, OffsetFetchResponse, version=version, lane=lane)
    answer = the_only(response.groups, what) if version >= _FIRST_VERSION_WITH_GROUPS else response
    coordinators.check(group_id, answer.error_code, what)
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            coordinators.check(group_id, partition.error_code, what, str(place))
            if partition.committed_offset >= 0:
                found[place] = _committed(partition)
    return found


def _committed(partition: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> CommittedOffset:
    return CommittedOffset(
        Offset(partition.committed_offset), LeaderEpoch(partition.committed_leader_epoch), partition.metadata or ""
    )


def _offset_fetch_request(
    group_id: str, places: Iterable[TopicPartition] | None, *, version: int, is_stable: bool
) -> OffsetFetchRequest:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for place in places or ():
        by_topic[place.topic].append(place.partition)
    if version < _FIRST_VERSION_WITH_GROUPS:
        asked = tuple(OffsetFetchRequestTopic(name=n, partition_indexes=tuple(p)) for n, p in by_topic.items())
        topics = None if places is None else asked
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=is_stable)
    named = tuple(OffsetFetchRequestTopics(name=n, partition_indexes=tuple(p)) for n, p in by_topic.items())
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None if places is None else named)
    return OffsetFetchRequest(groups=(group,), require_stable=is_stable)
