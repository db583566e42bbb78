"""What a group coordinator is asked, and what it answers: the requests of the protocol without their versions."""

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from exactlog.core.model.decisions import ProducerIdentity
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID, Offset, TopicPartition

NO_GENERATION = -1
"""The generation of a committer that is no member (KIP-211)."""

NO_EXPIRY = -1
"""No time of its own to expire at, or after: the broker's retention rules."""


class Client(Struct, frozen=True):
    """Who a request comes from, as DescribeGroups shows it."""

    client_id: str
    host: str
    """As Kafka writes it: a slash and the address."""


class JoinRequest(Struct, frozen=True, kw_only=True):
    """Asks to be a member (JoinGroup)."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the preferred one first."""
    needs_member_id: bool
    """Whether a first join without a member id is sent back with one (JoinGroup from version 4, KIP-394)."""
    may_skip_assignment: bool
    """Whether the leader understands that it need not assign (JoinGroup from version 9, KIP-814)."""


class JoinAnswer(Struct, frozen=True, kw_only=True):
    """The member's id, the generation, and for the leader the members."""

    error_code: ErrorCode = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Member id, group instance id, metadata."""


class SyncRequest(Struct, frozen=True, kw_only=True):
    """Asks for the assignment; from the leader, gives everybody's (SyncGroup)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class SyncAnswer(Struct, frozen=True, kw_only=True):
    """The assignment of one member."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """Says that a member is alive (Heartbeat)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class LeaveRequest(Struct, frozen=True, kw_only=True):
    """Takes members out (LeaveGroup)."""

    group_id: str
    members: tuple[tuple[str, str | None], ...]
    """Member id and group instance id; a static member is known by the second alone."""


class LeaveAnswer(Struct, frozen=True, kw_only=True):
    """One error for each member, in order; or one for all of it."""

    error_code: ErrorCode = ErrorCode.NONE
    members: tuple[ErrorCode, ...] = ()


class ErrorAnswer(Struct, frozen=True):
    """Whether it was done."""

    error_code: ErrorCode = ErrorCode.NONE


class NewOffset(Struct, frozen=True):
    """An offset to commit."""

    topic_partition: TopicPartition
    offset: Offset
    leader_epoch: int
    metadata: str
    topic_id: UUID = ZERO_UUID
    """Of the topic when it was committed to; all zeros where it is not known."""


class CommitRequest(Struct, frozen=True, kw_only=True):
    """Commits offsets for a group (OffsetCommit); of partitions that are known to exist."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int | None = None
    """How long to keep them, where the client says so (OffsetCommit versions 2 to 4); None: the broker does."""
    understands_missing_group: bool = False
    """Whether a generation of an unknown group is answered GROUP_ID_NOT_FOUND (OffsetCommit from version 9)."""
    offsets: tuple[NewOffset, ...]


class TransactionalCommitRequest(Struct, frozen=True, kw_only=True):
    """Commits offsets for a group as part of a producer's transaction (TxnOffsetCommit)."""

    group_id: str
    producer: ProducerIdentity
    """Whose transaction it is, which the coordinator of transactions has said is open."""
    generation_id: int
    member_id: str
    group_instance_id: str | None
    understands_missing_group: bool = False
    """As in `CommitRequest` (TxnOffsetCommit from version 6)."""
    offsets: tuple[NewOffset, ...]


class CommitAnswer(Struct, frozen=True):
    """One error for each offset, in order."""

    errors: tuple[ErrorCode, ...]


class DeleteOffsetsRequest(Struct, frozen=True):
    """Takes committed offsets away (OffsetDelete, KIP-496)."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


class DeleteOffsetsAnswer(Struct, frozen=True, kw_only=True):
    """One error for each partition, in order; or one for all of it."""

    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[ErrorCode, ...] = ()


class CommittedOffset(Struct, frozen=True):
    """What is committed for one partition; shared by head and committed."""

    offset: Offset
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: UUID = ZERO_UUID


class MemberDescription(Struct, frozen=True, kw_only=True):
    """One member, as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupOverview(Struct, frozen=True):
    """One group, as ListGroups shows it. `state` is Kafka's name of it: `Stable`, ..."""

    group_id: str
    state: str
    protocol_type: str


class GroupDescription(Struct, frozen=True, kw_only=True):
    """One group, as DescribeGroups shows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
