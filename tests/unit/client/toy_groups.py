"""A toy cluster that coordinates groups: one member joins at a time, and others are only named."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from exactlog.core.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from exactlog.core.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from exactlog.core.protocol.messages.heartbeat import HeartbeatResponse
from exactlog.core.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from exactlog.core.protocol.messages.leave_group import LeaveGroupResponse
from exactlog.core.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from exactlog.core.protocol.messages.sync_group import SyncGroupResponse
from tests.unit.client.toy_broker import ToyCluster


@dataclass
class ToyGroup:
    """One group, and the codes that the next answers carry."""

    state: str = "Empty"
    protocol_type: str = "consumer"
    described_members: tuple = ()
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    generation: int = 0
    member_ids: list[str] = field(default_factory=list)
    others: tuple[JoinGroupResponseMember, ...] = ()
    leader: str | None = None  # None: whoever joins
    assignment: bytes | None = None  # None: what the leader says
    errors: dict[ApiKey, deque[int]] = field(default_factory=dict)


class GroupCluster(ToyCluster):
    """Broker `coordinator_id` coordinates every group; what other brokers are asked they refuse."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.group = ToyGroup()
        self.coordinator_id = 1
        self._was_asked = asyncio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits for something that comes with a request to the coordinator."""
        while not is_so():
            self._was_asked.clear()
            await self._was_asked.wait()

    def fail_next(self, key: ApiKey, *codes: int) -> None:
        """The next answers to that API carry these codes."""
        self.group.errors.setdefault(key, deque()).extend(codes)

    def _error(self, broker, key: ApiKey) -> int:
        self._was_asked.set()
        if broker.id != self.coordinator_id:
            return ErrorCode.NOT_COORDINATOR
        codes = self.group.errors.get(key)
        return codes.popleft() if codes else 0

    def answer_find_coordinator(self, broker, request, version):
        codes = self.group.errors.get(ApiKey.FIND_COORDINATOR)
        error_code = codes.popleft() if codes else 0
        port = next(member.port for member in self.brokers if member.id == self.coordinator_id)
        if version < 4:
            return FindCoordinatorResponse(
                error_code=error_code, node_id=self.coordinator_id, host="127.0.0.1", port=port
            )
        (key,) = request.coordinator_keys
        found = Coordinator(key=key, error_code=error_code, node_id=self.coordinator_id, host="127.0.0.1", port=port)
        return FindCoordinatorResponse(coordinators=(found,))

    def answer_join_group(self, broker, request, version):
        if error_code := self._error(broker, ApiKey.JOIN_GROUP):
            return JoinGroupResponse(error_code=error_code)
        group, member_id = self.group, request.member_id
        if not member_id:
            member_id = f"member-{len(group.member_ids)}"
            group.member_ids.append(member_id)
            if version >= 4:
                return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        group.generation += 1
        (protocol,) = request.protocols
        leader = group.leader or member_id
        us = JoinGroupResponseMember(member_id=member_id, metadata=protocol.metadata)
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=leader,
            member_id=member_id,
            members=(us, *group.others) if leader == member_id else (),
        )

    def answer_sync_group(self, broker, request, version):
        if error_code := self._error(broker, ApiKey.SYNC_GROUP):
            return SyncGroupResponse(error_code=error_code)
        given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
        mine = given.get(request.member_id, b"") if self.group.assignment is None else self.group.assignment
        return SyncGroupResponse(assignment=mine)

    def answer_heartbeat(self, broker, request, version):
        return HeartbeatResponse(error_code=self._error(broker, ApiKey.HEARTBEAT))

    def answer_leave_group(self, broker, request, version):
        return LeaveGroupResponse(error_code=self._error(broker, ApiKey.LEAVE_GROUP))

    def answer_offset_commit(self, broker, request, version):
        error_code = self._error(broker, ApiKey.OFFSET_COMMIT)
        for topic in request.topics:
            for partition in topic.partitions:
                if not error_code:
                    place = TopicPartition(topic.name, partition.partition_index)
                    self.group.committed[place] = partition.committed_offset
        return OffsetCommitResponse(
            topics=tuple(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error_code)
                        for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def answer_offset_fetch(self, broker, request, version):
        error_code = self._error(broker, ApiKey.OFFSET_FETCH)
        (asked,) = request.groups if version >= 8 else (request,)
        places = (
            sorted(self.group.committed)
            if asked.topics is None
            else [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]
        )
        of_topic, of_partition = (
            (OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
            if version >= 8
            else (OffsetFetchResponseTopic, OffsetFetchResponsePartition)
        )
        topics = tuple(
            of_topic(
                name=place.topic,
                partitions=(
                    of_partition(partition_index=place.partition, committed_offset=self.group.committed.get(place, -1)),
                ),
            )
            for place in places
        )
        if version >= 8:
            answered = OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error_code)
            return OffsetFetchResponse(groups=(answered,))
        return OffsetFetchResponse(topics=topics, error_code=error_code)

    def answer_offset_delete(self, broker, request, version):
        error_code = self._error(broker, ApiKey.OFFSET_DELETE)
        partition_errors = self.group.errors.get(ApiKey.OFFSET_COMMIT, deque())
        topics = []
        for topic in request.topics:
            answered = []
            for asked in topic.partitions:
                refused = partition_errors.popleft() if partition_errors else 0
                if not error_code and not refused:
                    del self.group.committed[TopicPartition(topic.name, asked.partition_index)]
                answered.append(
                    OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=refused)
                )
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(answered)))
        return OffsetDeleteResponse(error_code=error_code, topics=tuple(topics))

    def answer_list_groups(self, broker, request, version):
        listed = ListedGroup(
            group_id=f"g{broker.id}", protocol_type="consumer", group_state="Stable", group_type="classic"
        )
        return ListGroupsResponse(groups=(listed,))

    def answer_describe_groups(self, broker, request, version):
        error_code = self._error(broker, ApiKey.DESCRIBE_GROUPS)
        (group_id,) = request.groups
        described = DescribedGroup(
            error_code=error_code,
            group_id=group_id,
            group_state=self.group.state,
            protocol_type=self.group.protocol_type,
            protocol_data="range",
            members=self.group.described_members,
        )
        return DescribeGroupsResponse(groups=(described,))

    def answer_delete_groups(self, broker, request, version):
        error_code = self._error(broker, ApiKey.DELETE_GROUPS)
        (group_id,) = request.groups_names
        return DeleteGroupsResponse(results=(DeletableGroupResult(group_id=group_id, error_code=error_code),))
