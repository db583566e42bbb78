"""Consumer groups, seen from outside."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from exactlog.client.groups import CommittedOffset, GroupDescription, GroupListing, GroupMember
from exactlog.client.ports import ClientSettings
from exactlog.client.wire.cluster import Cluster
from exactlog.client.wire.coordinators import Coordinators
from exactlog.client.wire.offsets import committed_offsets, offset_commit_request
from exactlog.client.wire.refusals import as_error_code, check, refusal, the_only
from exactlog.client.wire.retries import retry
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, KafkaError, NotFoundError
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.consumer_protocol_format import PROTOCOL_TYPE, decode_assignment
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from exactlog.core.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from exactlog.core.protocol.messages.offset_commit import OffsetCommitResponse
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Result = TypeVar("Result")

_DEAD: Final = "Dead"
_LAST_VERSION_WITH_NAMES: Final = 9


class WireGroupAdmin:
    """The `GroupAdmin` port over the wire."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators, settings: ClientSettings) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._settings = settings

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """See `GroupAdmin`."""

        async def attempt() -> tuple[GroupListing, ...]:
            found: dict[str, GroupListing] = {}
            for connection in (await self._cluster.every_connection()).values():
                version = connection.versions.pick(ApiKey.LIST_GROUPS)
                response = await connection.request(ListGroupsRequest(), ListGroupsResponse, version=version)
                check(response.error_code, "list groups")
                for group in response.groups:
                    found[group.group_id] = GroupListing(
                        group.group_id, group.group_state or None, group.protocol_type, group.group_type or None
                    )
            return tuple(found[group_id] for group_id in sorted(found))

        return await self._retry("list groups", attempt)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """See `GroupAdmin`."""
        what = f"describe group {group_id}"

        async def attempt() -> GroupDescription:
            connection = await self._coordinators.connection(group_id)
            version = connection.versions.pick(ApiKey.DESCRIBE_GROUPS)
            request = DescribeGroupsRequest(groups=(group_id,))
            response = await self._coordinators.request(group_id, request, DescribeGroupsResponse, version=version)
            group = the_only(response.groups, what)
            if group.group_state == _DEAD or as_error_code(group.error_code) is ErrorCode.GROUP_ID_NOT_FOUND:
                raise group_not_found(group_id)
            self._coordinators.check(group_id, group.error_code, what, group.error_message)
            return _described(group, coordinator=str(connection.address))

        return await self._retry(what, attempt)

    async def delete_group(self, group_id: str) -> None:
        """See `GroupAdmin`."""
        what = f"delete group {group_id}"

        async def attempt() -> None:
            connection = await self._coordinators.connection(group_id)
            version = connection.versions.pick(ApiKey.DELETE_GROUPS)
            request = DeleteGroupsRequest(groups_names=(group_id,))
            response = await self._coordinators.request(group_id, request, DeleteGroupsResponse, version=version)
            result = the_only(response.results, what)
            code = as_error_code(result.error_code)
            if code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise group_not_found(group_id)
            if code is ErrorCode.NON_EMPTY_GROUP:
                raise has_members(what)
            self._coordinators.check(group_id, result.error_code, what, result.error_message)

        await self._retry(what, attempt)

    async def list_committed_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """See `GroupAdmin`."""
        what = f"list the offsets of group {group_id}"
        return await self._retry(what, lambda: committed_offsets(self._coordinators, group_id, what=what))

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """See `GroupAdmin`."""
        what = f"set offsets of group {group_id}"

        async def attempt() -> None:
            connection = await self._coordinators.connection(group_id)
            version = connection.versions.pick(ApiKey.OFFSET_COMMIT, at_most=_LAST_VERSION_WITH_NAMES)
            request = offset_commit_request(group_id, offsets)
            response = await self._coordinators.request(group_id, request, OffsetCommitResponse, version=version)
            for topic in response.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    if as_error_code(partition.error_code) is ErrorCode.UNKNOWN_MEMBER_ID:  # whoever is no member
                        raise has_members(what)
                    self._coordinators.check(group_id, partition.error_code, what, str(place))

        await self._retry(what, attempt)

    async def delete_offsets(self, group_id: str, places: Collection[TopicPartition]) -> None:
        """See `GroupAdmin`."""
        what = f"delete offsets of group {group_id}"

        async def attempt() -> None:
            connection = await self._coordinators.connection(group_id)
            version = connection.versions.pick(ApiKey.OFFSET_DELETE)
            request = _offset_delete_request(group_id, places)
            response = await self._coordinators.request(group_id, request, OffsetDeleteResponse, version=version)
            if as_error_code(response.error_code) is ErrorCode.GROUP_ID_NOT_FOUND:
                raise group_not_found(group_id)
            self._coordinators.check(group_id, response.error_code, what)
            for topic in response.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    self._coordinators.check(group_id, partition.error_code, what, str(place))

        await self._retry(what, attempt)

    async def _retry(self, what: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
        return await retry(what, attempt, self._settings)


def group_not_found(group_id: str) -> NotFoundError:
    """The exception for a group that is not there."""
    return NotFoundError(
        f"group {group_id} does not exist",
        kafka_error=ErrorCode.GROUP_ID_NOT_FOUND,
        hint="`exactlog group list` shows the groups",
    )


def has_members(what: str) -> KafkaError:
    """The exception for what can be done to a group without members alone."""
    return refusal(
        ErrorCode.NON_EMPTY_GROUP,
        what,
        "it has members",
        hint="stop its members first; one that has died is forgotten when its session times out",
    )


def _described(group: DescribedGroup, *, coordinator: str) -> GroupDescription:
    speaks_consumer_protocol = group.protocol_type == PROTOCOL_TYPE
    members = (_member(member, is_consumer=speaks_consumer_protocol) for member in group.members)
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def _member(member: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        assigned=_assigned(member.member_assignment) if is_consumer else None,
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        return tuple(sorted(decode_assignment(assignment)))
    except DecodeError:  # what members tell each other is their own affair; the rest of the group is shown
        return None


def _offset_delete_request(group_id: str, places: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    by_topic: defaultdict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for place in places:
        by_topic[place.topic].append(OffsetDeleteRequestPartition(partition_index=place.partition))
    topics = (OffsetDeleteRequestTopic(name=name, partitions=tuple(asked)) for name, asked in by_topic.items())
    return OffsetDeleteRequest(group_id=group_id, topics=tuple(topics))
