"""One group of the classic protocol: its state, its members, who of them waits for what.

                 a member joins           all have joined, or time is up          the leader's assignment
         Empty ────────────────► PreparingRebalance ────────────────► CompletingRebalance ──────────────► Stable
           ▲                       │   ▲                                      │                             │
           └──── nobody is left ───┘   └──────── a member comes, goes or changes its metadata ──────────────┘

What stands in the log are the groups that are Stable or Empty. All else is forgotten by a restart: the members then
find the generation that was, and rebalance again. A group that is deleted is no longer known: Kafka calls it Dead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from exactlog.core.group.group_metadata_format import GroupMetadata
from exactlog.core.group.group_record import GroupMetadataRecord
from exactlog.core.group.member import Member, restored_member
from exactlog.core.group.requests import GroupDescription, GroupOverview, JoinAnswer
from exactlog.core.model.decisions import Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, InvariantError
from exactlog.core.protocol.consumer_protocol_format import PROTOCOL_TYPE, decode_subscribed_topics

_GENERATION_MAX: Final = 2**31 - 1
_FIRST_GENERATION: Final = 1
NO_TIMESTAMP: Final = -1


class GroupState(StrEnum):
    """The states, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """A group. It is changed by the rules of joining, syncing and leaving, and by what is replayed.

    Attributes:
        group_id: its name.
        state: where it is in its life.
        state_timestamp_ms: since when; -1 where the log does not say.
        generation_id: counts the rebalances; what members hold of an earlier one is void.
        protocol_type: what its members are to each other, such as "consumer"; None until one has joined.
        protocol_name: what the members of this generation agreed on.
        leader_id: the member that assigns.
        members: by member id, the oldest first.
        static_members: the member ids of those that have a group instance id.
        pending: member ids that were given out and have not joined yet (KIP-394).
        joins: who waits for the end of a JoinGroup, by member id.
        syncs: who waits for the end of a SyncGroup.
        newcomers: those that never were told a generation.
        unsynced: those of this generation that have not asked for their assignment.
        initial_wait_left_ms: by how much the first rebalance of an empty group can still be put off; None in any other.
        has_more_members: whether somebody has joined since it was last put off.
        size_bytes: how much its members say of themselves.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending: set[str] = set()
        self.joins: dict[str, Waiter] = {}
        self.syncs: dict[str, Waiter] = {}
        self.newcomers: set[str] = set()
        self.unsynced: set[str] = set()
        self.initial_wait_left_ms: int | None = None
        self.has_more_members = False
        self.size_bytes = 0
        self._support: Counter[str] = Counter()

    # --- members ------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Takes a member in."""
        self.members[member.member_id] = member
        self._count(member)
        self.pending.discard(member.member_id)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def update(self, member: Member) -> None:
        """Takes what a member says of itself now."""
        self._discount(self.members[member.member_id])
        self._count(member)
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Lets a member go, or one that has only been given its id. The oldest one left leads if it did."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self.newcomers.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._discount(member)
        if member.group_instance_id is not None and self.static_members[member.group_instance_id] == member_id:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static_member(self, old_member_id: str, new: Member) -> None:
        """Puts the same instance under its new member id, at the head of the group if the old one led it."""
        is_leader = self.leader_id == old_member_id
        self.remove(old_member_id)
        self.add(new)
        if is_leader:
            self.leader_id = new.member_id

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether a request comes from a member, and from the one that bears that group instance id now."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is not None and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Sees to a leader that has joined: the present one, or the oldest; False where nobody has."""
        if self.leader_id not in self.joins:
            joined = next((member_id for member_id in self.members if member_id in self.joins), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    @property
    def have_all_joined(self) -> bool:
        """Whether the rebalance waits for nobody any more."""
        return len(self.joins) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def next_generation_id(self) -> int:
        """The generation behind this one: never negative, which would say "no member"."""
        return _FIRST_GENERATION if self.generation_id == _GENERATION_MAX else self.generation_id + 1

    # --- protocols ----------------------------------------------------------------------------------------------

    def can_work_with(self, protocol_type: str, protocol_names: frozenset[str]) -> bool:
        """Whether a member like that fits in: one of its protocols is one that all others can work with."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocol_names)
        return protocol_type == self.protocol_type and any(self._suits_all(name) for name in protocol_names)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all can work with."""
        candidates = {name for name in self._support if self._suits_all(name)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _suits_all(self, protocol_name: str) -> bool:
        return self._support[protocol_name] == len(self.members)

    def _count(self, member: Member) -> None:
        self.size_bytes += member.size_bytes
        self._support.update(member.protocol_names)

    def _discount(self, member: Member) -> None:
        self.size_bytes -= member.size_bytes
        for name in member.protocol_names:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members' metadata are subscriptions."""
        return self.protocol_type == PROTOCOL_TYPE

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that its members read; None where that cannot be told."""
        if not self.is_consumer_group:
            return None
        subscribed: set[str] = set()
        try:
            for member in self.members.values():
                subscribed |= decode_subscribed_topics(member.metadata_for(self.protocol_name) or b"")
        except DecodeError:
            return None
        return frozenset(subscribed)

    def topics_in_use(self, topics: Iterable[str]) -> set[str]:
        """Those among the topics that a member reads; a consumer group that does not tell may read any."""
        if not self.is_consumer_group:
            return set()
        subscribed = self.subscribed_topics()
        return {topic for topic in topics if subscribed is None or topic in subscribed}

    # --- the log ------------------------------------------------------------------------------------------------

    def record(self, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
        """The record by which this generation is kept, with everybody's assignment."""
        members = (
            replace(member, assignment=assignments.get(member.member_id, b"")) for member in self.members.values()
        )
        metadata = GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=tuple(member.persisted(self.protocol_name) for member in members),
        )
        return GroupMetadataRecord(self.group_id, metadata)

    def replay(self, metadata: GroupMetadata) -> None:
        """Becomes what stands in the log: Stable, or Empty without members.

        Raises:
            InvariantError: somebody would be left waiting for ever.
        """
        if self.joins or self.syncs:
            raise InvariantError(f"group {self.group_id} settles while {len(self.joins) + len(self.syncs)} wait")
        known, self.members = self.members, {}
        self.static_members = {}
        self.newcomers = set()
        self._support = Counter()
        self.size_bytes = 0
        self.leader_id = metadata.leader
        for persisted in metadata.members:
            protocol_name = metadata.protocol or ""
            self.add(restored_member(persisted, protocol_name, known=known.get(persisted.member_id)))
        self.unsynced &= self.members.keys()
        self.generation_id = metadata.generation
        self.protocol_type = metadata.protocol_type or None
        self.protocol_name = metadata.protocol
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_timestamp_ms = metadata.current_state_timestamp
        self.initial_wait_left_ms = None

    # --- answers ------------------------------------------------------------------------------------------------

    def join_answer(self, member_id: str, *, leader: str | None = None, skip_assignment: bool = False) -> JoinAnswer:
        """What a member of this generation is told; the leader, who the members are."""
        leader = leader or self.leader_id or ""
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if leader == member_id:
            members = tuple(
                (member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name) or b"")
                for member in self.members.values()
            )
        return JoinAnswer(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=members,
        )

    def overview(self) -> GroupOverview:
        """The group as it stands in a list."""
        return GroupOverview(self.group_id, self.state, self.protocol_type or "")

    def describe(self) -> GroupDescription:
        """The group as others see it: what was agreed on, only while it holds."""
        protocol_name = self.protocol_name if self.state is GroupState.STABLE else None
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol=protocol_name or "",
            members=tuple(member.described(protocol_name) for member in self.members.values()),
        )
