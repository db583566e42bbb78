"""Offsets that were committed inside transactions that are still open: they count once a marker says so.

When a transaction commits, each of its offsets becomes the group's, unless a later one stands there by then: what was
decided last wins, not what ended last. So a pending offset is superseded by every offset that becomes the group's and
was decided after it. Superseded or not, it makes its partition unstable until its transaction ends.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from exactlog.core.group.group_record import OffsetCommitRecord
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.model.ids import ProducerId, TopicPartition

_ENTRY_BYTES: Final = 600  # of memory, about, without the text
_NONE: Final[Mapping[TopicPartition, "Mapping[ProducerId, PendingOffset]"]] = MappingProxyType({})


def pending_bytes(metadata: str) -> int:
    """About how many bytes of memory a pending offset takes that comes with this text."""
    return _ENTRY_BYTES + len(metadata)


class PendingOffset(Struct, frozen=True):
    """An offset, and whether a later one has become the group's."""

    committed: CommittedOffset
    is_superseded: bool = False


class PendingOffsets:
    """By group and partition, of each producer one, in the order in which they were decided.

    Attributes:
        size_bytes: about how much memory they take.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._groups: dict[str, dict[TopicPartition, dict[ProducerId, PendingOffset]]] = {}
        """Every partition with at least one, of every group with at least one."""
        self._places: dict[ProducerId, dict[tuple[str, TopicPartition], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def groups(self) -> list[str]:
        """The groups that have any."""
        return list(self._groups)

    def of_group(self, group_id: str) -> Mapping[TopicPartition, Mapping[ProducerId, PendingOffset]]:
        """What is pending for a group; nothing for one that is not known."""
        return self._groups.get(group_id, _NONE)

    def add(
        self, producer_id: ProducerId, group_id: str, topic_partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        """An offset is decided, later than all others of its partition; or the same is said once more, and counts."""
        of_partition = self._groups.setdefault(group_id, {}).setdefault(topic_partition, {})
        known = of_partition.get(producer_id)
        if known is None:
            self._places.setdefault(producer_id, {})[group_id, topic_partition] = None
        elif known.committed != committed:
            del of_partition[producer_id]
        self.size_bytes += pending_bytes(committed.metadata)
        if known is not None:
            self.size_bytes -= pending_bytes(known.committed.metadata)
        of_partition[producer_id] = PendingOffset(committed)

    def supersede(self, group_id: str, topic_partition: TopicPartition) -> None:
        """Another offset, decided after all of these, is the group's now."""
        of_partition = self._groups.get(group_id, {}).get(topic_partition, {})
        for producer_id, pending in of_partition.items():
            of_partition[producer_id] = PendingOffset(pending.committed, is_superseded=True)

    def drop(self, group_id: str, topic_partition: TopicPartition) -> None:
        """The group is to have no offset in a partition, whatever the open transactions say."""
        for producer_id in list(self._groups.get(group_id, {}).get(topic_partition, ())):
            self._remove(producer_id, group_id, topic_partition)
            places = self._places[producer_id]
            del places[group_id, topic_partition]
            if not places:
                del self._places[producer_id]

    def end(self, producer_id: ProducerId, *, is_commit: bool) -> list[tuple[str, TopicPartition, CommittedOffset]]:
        """The producer's transaction ends: what becomes the groups' by that."""
        winners = []
        for group_id, topic_partition in self._places.pop(producer_id, {}):
            pending = self._groups[group_id][topic_partition][producer_id]
            if is_commit and not pending.is_superseded:
                winners.append((group_id, topic_partition, pending.committed))
                self._supersede_before(producer_id, self._groups[group_id][topic_partition])
            self._remove(producer_id, group_id, topic_partition)
        return winners

    def records(self) -> Iterator[tuple[ProducerId, OffsetCommitRecord]]:
        """What has to be said again behind the offsets of the groups, for the same to win.

        Those that are superseded need not be. By producer, but where several have one pending for the same partition.
        """
        for places in self._places.values():
            for group_id, topic_partition in places:
                of_partition = self._groups[group_id][topic_partition]
                if len(of_partition) == 1:
                    yield from _records(group_id, topic_partition, of_partition)
        for group_id, of_group in self._groups.items():
            for topic_partition, of_partition in of_group.items():
                if len(of_partition) > 1:
                    yield from _records(group_id, topic_partition, of_partition)

    def copy(self) -> "PendingOffsets":
        """A second one that shares the values and changes apart."""
        twin = PendingOffsets()
        twin.size_bytes = self.size_bytes
        twin._groups = {
            group_id: {topic_partition: dict(of_partition) for topic_partition, of_partition in of_group.items()}
            for group_id, of_group in self._groups.items()
        }
        twin._places = {producer_id: dict(places) for producer_id, places in self._places.items()}
        return twin

    def _supersede_before(self, producer_id: ProducerId, of_partition: dict[ProducerId, PendingOffset]) -> None:
        for earlier, pending in of_partition.items():
            if earlier == producer_id:
                break
            of_partition[earlier] = PendingOffset(pending.committed, is_superseded=True)

    def _remove(self, producer_id: ProducerId, group_id: str, topic_partition: TopicPartition) -> None:
        of_group = self._groups[group_id]
        of_partition = of_group[topic_partition]
        self.size_bytes -= pending_bytes(of_partition.pop(producer_id).committed.metadata)
        if not of_partition:
            del of_group[topic_partition]
        if not of_group:
            del self._groups[group_id]


def _records(
    group_id: str, topic_partition: TopicPartition, of_partition: Mapping[ProducerId, PendingOffset]
) -> Iterator[tuple[ProducerId, OffsetCommitRecord]]:
    for producer_id, pending in of_partition.items():
        if not pending.is_superseded:
            yield producer_id, OffsetCommitRecord(group_id, topic_partition, pending.committed)
