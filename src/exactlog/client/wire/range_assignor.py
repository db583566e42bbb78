"""The assignor `range` of Kafka's consumer: each member gets a stretch of each topic it subscribes to."""

from collections.abc import Mapping
from typing import Final

import msgspec

from exactlog.core.model.ids import TopicPartition

NAME: Final = "range"


class Candidate(msgspec.Struct, frozen=True):
    """A member to be given partitions."""

    member_id: str
    group_instance_id: str | None
    topics: frozenset[str]

    @property
    def rank(self) -> tuple[bool, str]:
        """Its place among the members of a topic: static ones first, by their instance id, then by member id."""
        is_dynamic = self.group_instance_id is None
        return is_dynamic, self.member_id if self.group_instance_id is None else self.group_instance_id


def assign_ranges(
    candidates: list[Candidate], partition_counts: Mapping[str, int]
) -> dict[str, tuple[TopicPartition, ...]]:
    """What each member is to read, by member id.

    The partitions of each topic are dealt out in order, to the members that want it in the order of their rank; where
    they do not divide evenly the first ones get one more. A topic that is not there has no partitions.
    """
    assigned: dict[str, list[TopicPartition]] = {candidate.member_id: [] for candidate in candidates}
    for topic, count in sorted(partition_counts.items()):
        wanting = sorted((member for member in candidates if topic in member.topics), key=lambda member: member.rank)
        first = 0
        for index, member in enumerate(wanting):
            behind = first + count // len(wanting) + (index < count % len(wanting))
            assigned[member.member_id] += [TopicPartition(topic, partition) for partition in range(first, behind)]
            first = behind
    return {member_id: tuple(places) for member_id, places in assigned.items()}
