"""What is said of consumer groups: listings, descriptions, committed offsets, and how a member behaves."""

from typing import Final

import msgspec

from exactlog.core.model.ids import LeaderEpoch, Offset, TopicPartition

EMPTY: Final = "Empty"
"""The state of a group that has committed offsets and no members."""


class GroupListing(msgspec.Struct, frozen=True):
    """A group in short, in Kafka's words.

    Attributes:
        group_id: its name.
        state: `Stable`, `PreparingRebalance`, `CompletingRebalance`, `Empty`, `Dead`; None where the broker does not
            tell.
        protocol_type: what its members are: `consumer`, `connect`, ...; empty of a group that never had any.
        group_type: `classic` or `consumer` (KIP-848); None where the broker does not tell.
    """

    group_id: str
    state: str | None
    protocol_type: str
    group_type: str | None


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group.

    Attributes:
        member_id: as the coordinator calls it.
        group_instance_id: of a static member (KIP-345).
        client_id: what its client calls itself.
        client_host: where it connects from.
        assigned: the partitions it reads; None where its assignment is not one of the consumer protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assigned: tuple[TopicPartition, ...] | None


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its members by id; `protocol` is the assignor they agreed on, empty while there is none."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: str
    members: tuple[GroupMember, ...]


class CommittedOffset(msgspec.Struct, frozen=True):
    """How far a group has come in a partition: `offset` is the next one to read."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a member of a group behaves; the defaults are those of Kafka's consumer.

    Attributes:
        session_timeout_ms: silent for so long, it is taken for dead.
        rebalance_timeout_ms: how long a rebalance waits for it to join again.
        heartbeat_interval_ms: between two heartbeats.
        commit_interval_ms: between two commits while it reads.
        metadata_interval_ms: between two looks of the leader at whether topics have grown.
    """

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    commit_interval_ms: int = 5_000
    metadata_interval_ms: int = 300_000
