"""A member of a consumer group on a plain socket: every request is the test's own doing."""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_groups import DeleteGroupsRequest
from exactlog.core.protocol.messages.describe_groups import DescribeGroupsRequest
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from exactlog.core.protocol.messages.list_groups import ListGroupsRequest
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 10_000
CONSUMER = "consumer"
RANGE = (("range", b"range-metadata"),)


class Member:
    """One member, on a connection of its own; it remembers what it was told."""

    def __init__(self, raw, group_id, *, instance_id=None, protocols=RANGE, protocol_type=CONSUMER):
        self.raw = raw
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.member_id = ""
        self.generation_id = -1
        self.joined = None

    # --- joining ------------------------------------------------------------------------------------------------

    def send_join(self, *, version=9, member_id=None, **fields):
        protocols = tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in self.protocols)
        request = JoinGroupRequest(
            **{
                "group_id": self.group_id,
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "member_id": self.member_id if member_id is None else member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": self.protocol_type,
                "protocols": protocols,
            }
            | fields
        )
        self.raw.send(request, version)

    def receive_join(self):
        self.joined = self.raw.receive()
        if self.joined.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = self.joined.member_id
        if self.joined.error_code == ErrorCode.NONE:
            self.generation_id = self.joined.generation_id
        return self.joined

    def ask_to_join(self, **fields):
        """Sends a join; one that is only given its member id is sent again with it."""
        self.send_join(**fields)
        if not self.member_id and self.instance_id is None and fields.get("version", 9) >= 4:
            assert self.receive_join().error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.send_join(**fields)

    def join(self, **fields):
        self.ask_to_join(**fields)
        return self.receive_join()

    @property
    def is_leader(self):
        return self.joined.leader == self.member_id

    # --- the rest -----------------------------------------------------------------------------------------------

    def send_sync(self, assignments=None, *, version=5, **fields):
        given = tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        )
        request = SyncGroupRequest(
            **{
                "group_id": self.group_id,
                "generation_id": self.generation_id,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id if version >= 3 else None,
                "protocol_type": self.protocol_type,
                "protocol_name": self.joined.protocol_name if self.joined else self.protocols[0][0],
                "assignments": given,
            }
            | fields
        )
        self.raw.send(request, version)

    def sync(self, assignments=None, **fields):
        self.send_sync(assignments, **fields)
        return self.raw.receive()

    def heartbeat(self, *, version=4, **fields):
        request = HeartbeatRequest(
            **{
                "group_id": self.group_id,
                "generation_id": self.generation_id,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id if version >= 3 else None,
            }
            | fields
        )
        return ErrorCode(self.raw.ask(request, version).error_code)

    def leave(self, *, version=5):
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
            return ErrorCode(self.raw.ask(request, version).error_code)
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        answer = self.raw.ask(LeaveGroupRequest(group_id=self.group_id, members=(identity,)), version)
        return ErrorCode(answer.error_code or answer.members[0].error_code)

    def commit(self, topic, offset, *, partition=0, metadata="", version=9, **fields):
        return commit(
            self.raw,
            self.group_id,
            topic,
            offset,
            partition=partition,
            metadata=metadata,
            version=version,
            **{"generation_id_or_member_epoch": self.generation_id, "member_id": self.member_id} | fields,
        )


def form_group(*members, assignments=None):
    """Lets members join one after the other and then sync; the leader gives each what `assignments` says.

    Without them it gives each the bytes of its own member id. Gives what each got.
    """
    for count, newcomer in enumerate(members):
        newcomer.ask_to_join()
        there = members[:count]
        if there:
            while describe(there[0].raw, newcomer.group_id).group_state != "PreparingRebalance":
                pass  # the newcomer's join is on its way on another connection
        for member in there:
            member.send_join()
        for member in (*there, newcomer):
            assert member.receive_join().error_code == ErrorCode.NONE
    return assign(*members, assignments=assignments)


def assign(*members, assignments=None):
    """Lets members sync; gives what each got."""
    given = {member.member_id: member.member_id.encode() for member in members} if assignments is None else assignments
    for member in members:
        member.send_sync(given if member.is_leader else None)
    answers = [member.raw.receive() for member in members]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * len(members)
    return [answer.assignment for answer in answers]


# --- offsets ---------------------------------------------------------------------------------------------------


def commit(raw, group_id, topic, offset, *, partition=0, metadata="", leader_epoch=-1, version=9, **fields):
    """Commits one offset; from nobody who is a member, unless told."""
    part = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        committed_metadata=metadata,
    )
    named = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}
    asked = OffsetCommitRequestTopic(**named, partitions=(part,))
    answer = raw.ask(OffsetCommitRequest(group_id=group_id, topics=(asked,), **fields), version)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetch_offset(raw, group_id, topic, *, partition=0, version=9, require_stable=False):
    """One group's offset in one partition: the answer for it."""
    if version >= 8:
        named = {"topic_id": topic.topic_id} if version >= 10 else {"name": topic.name}
        asked = OffsetFetchRequestTopics(**named, partition_indexes=(partition,))
        group = OffsetFetchRequestGroup(group_id=group_id, topics=(asked,))
        (of_group,) = raw.ask(OffsetFetchRequest(groups=(group,), require_stable=require_stable), version).groups
        return of_group.topics[0].partitions[0]
    asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(partition,))
    request = OffsetFetchRequest(group_id=group_id, topics=(asked,), require_stable=require_stable)
    return raw.ask(request, version).topics[0].partitions[0]


def fetch_all_offsets(raw, group_id, *, version=9):
    """(topic, partition) -> offset, of all a group has committed."""
    request = (
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),))
        if version >= 8
        else OffsetFetchRequest(group_id=group_id, topics=None)
    )
    answer = raw.ask(request, version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    return {(topic.name, part.partition_index): part.committed_offset for topic in topics for part in topic.partitions}


def delete_offset(raw, group_id, topic, *, partition=0):
    """The error of the whole, or of the partition."""
    asked = OffsetDeleteRequestTopic(
        name=topic.name, partitions=(OffsetDeleteRequestPartition(partition_index=partition),)
    )
    answer = raw.ask(OffsetDeleteRequest(group_id=group_id, topics=(asked,)), 0)
    return ErrorCode(answer.error_code or answer.topics[0].partitions[0].error_code)


# --- groups ----------------------------------------------------------------------------------------------------


def describe(raw, group_id, *, version=6):
    (group,) = raw.ask(DescribeGroupsRequest(groups=(group_id,)), version).groups
    return group


def list_groups(raw, *, version=5, **fields):
    answer = raw.ask(ListGroupsRequest(**fields), version)
    assert answer.error_code == ErrorCode.NONE
    return {group.group_id: group for group in answer.groups}


def delete_group(raw, group_id, *, version=2):
    (result,) = raw.ask(DeleteGroupsRequest(groups_names=(group_id,)), version).results
    return ErrorCode(result.error_code)
