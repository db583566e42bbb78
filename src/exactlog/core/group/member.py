"""A member of a group, as a value: what it said of itself, and what it was given."""

from collections.abc import Collection

from msgspec import Struct

from exactlog.core.group.group_metadata_format import GroupMetadataMember
from exactlog.core.group.requests import Client, JoinRequest, MemberDescription
from exactlog.core.model.errors import InvariantError

Protocols = tuple[tuple[str, bytes], ...]
"""What a member can work with: name and metadata, the preferred one first."""


class Member(Struct, frozen=True, kw_only=True):
    """One member. A static one has a group instance id, and may come back under another member id (KIP-345)."""

    member_id: str
    group_instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""

    @property
    def protocol_names(self) -> frozenset[str]:
        """The protocols it can work with."""
        return frozenset(name for name, _ in self.protocols)

    @property
    def size_bytes(self) -> int:
        """How much of the group's bytes are its own; what it was assigned does not count."""
        return own_bytes(self.client, self.group_instance_id, self.protocols)

    def metadata_for(self, protocol_name: str | None) -> bytes | None:
        """What it sent for a protocol; None where it cannot work with it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), None)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate it prefers.

        Raises:
            InvariantError: it can work with none of them.
        """
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InvariantError(f"{self.member_id} can work with none of {sorted(candidates)}")

    def persisted(self, protocol_name: str | None) -> GroupMetadataMember:
        """How it stands in the log, in a group of that protocol."""
        return GroupMetadataMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata_for(protocol_name) or b"",
            assignment=self.assignment,
        )

    def described(self, protocol_name: str | None) -> MemberDescription:
        """How others see it; without a protocol, neither metadata nor assignment mean anything."""
        return MemberDescription(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client.client_id,
            client_host=self.client.host,
            metadata=self.metadata_for(protocol_name) or b"",
            assignment=b"" if protocol_name is None else self.assignment,
        )


def own_bytes(client: Client, group_instance_id: str | None, protocols: Protocols) -> int:
    """How much a member says of itself, in bytes or characters."""
    names = len(client.client_id) + len(client.host) + len(group_instance_id or "")
    return names + sum(len(name) + len(metadata) for name, metadata in protocols)


def joined_member(member_id: str, request: JoinRequest) -> Member:
    """The member that a JoinGroup speaks of."""
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client=request.client,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )


def restored_member(persisted: GroupMetadataMember, protocol_name: str, *, known: Member | None) -> Member:
    """The member that stands in the log.

    Only its metadata for the group's protocol is written; where `known` is the same member with the same metadata, what
    else it can work with is taken from there.
    """
    protocols: Protocols = ((protocol_name, persisted.subscription),)
    if known is not None and known.metadata_for(protocol_name) == persisted.subscription:
        protocols = known.protocols
    has_rebalance_timeout = persisted.rebalance_timeout >= 0
    return Member(
        member_id=persisted.member_id,
        group_instance_id=persisted.group_instance_id,
        client=Client(persisted.client_id, persisted.client_host),
        session_timeout_ms=persisted.session_timeout,
        rebalance_timeout_ms=persisted.rebalance_timeout if has_rebalance_timeout else persisted.session_timeout,
        protocols=protocols,
        assignment=persisted.assignment,
    )
