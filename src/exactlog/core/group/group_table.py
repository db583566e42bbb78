"""What the log says of the groups: the newest record of every key. There are two of it, head and committed."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from exactlog.core.group.group_metadata_format import GroupMetadata
from exactlog.core.group.group_record import GroupMetadataRecord, GroupRecord, OffsetCommitRecord
from exactlog.core.group.pending_offsets import PendingOffsets
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.model.decisions import UnknownRecord
from exactlog.core.model.ids import ProducerId, TopicPartition

K = TypeVar("K")
V = TypeVar("V")

_NO_OFFSETS: Final[Mapping[TopicPartition, CommittedOffset]] = MappingProxyType({})


class GroupTable:
    """Metadata and offsets by group. The values never change; two tables share them.

    Attributes:
        pending: the offsets in open transactions.
    """

    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._metadata: dict[str, GroupMetadata] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._unknown: dict[bytes, bytes] = {}

    def replay(self, record: GroupRecord, *, producer_id: ProducerId | None = None) -> None:
        """Takes a record in; an offset with a producer id is pending until that producer's transaction ends."""
        match record:
            case OffsetCommitRecord(group_id, topic_partition, committed):
                if committed is None:
                    self._remove_offset(group_id, topic_partition)
                    self.pending.drop(group_id, topic_partition)
                elif producer_id is None:
                    self._put_offset(group_id, topic_partition, committed)
                else:
                    self.pending.add(producer_id, group_id, topic_partition, committed)
            case GroupMetadataRecord(group_id, metadata):
                _put(self._metadata, group_id, metadata)
            case UnknownRecord(key, value):
                _put(self._unknown, key, value)

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> list[str]:
        """What a producer has pending counts now, or never will: the groups that have another offset by that."""
        won = self.pending.end(producer_id, is_commit=is_commit)
        for group_id, topic_partition, committed in won:
            self._offsets.setdefault(group_id, {})[topic_partition] = committed
        return [group_id for group_id, _, _ in won]

    def copy(self) -> "GroupTable":
        """A second one that changes apart."""
        twin = GroupTable()
        twin.pending = self.pending.copy()
        twin._metadata = dict(self._metadata)
        twin._offsets = {group_id: dict(offsets) for group_id, offsets in self._offsets.items()}
        twin._unknown = dict(self._unknown)
        return twin

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's offsets; none for one that is not known."""
        return self._offsets.get(group_id, _NO_OFFSETS)

    def groups_with_offsets(self) -> list[str]:
        """The groups that have any, be they pending."""
        return [*self._offsets, *(group_id for group_id in self.pending.groups() if group_id not in self._offsets)]

    def partitions(self, group_id: str) -> Mapping[TopicPartition, None]:
        """Where a group has an offset, be it pending."""
        return dict.fromkeys((*self.offsets(group_id), *self.pending.of_group(group_id)))

    def live_records(self) -> Iterator[GroupRecord]:
        """One record for each key that has a value: replayed, they give this table but for what is pending."""
        for group_id, metadata in self._metadata.items():
            yield GroupMetadataRecord(group_id, metadata)
        for group_id, offsets in self._offsets.items():
            for topic_partition, committed in offsets.items():
                yield OffsetCommitRecord(group_id, topic_partition, committed)
        for key, value in self._unknown.items():
            yield UnknownRecord(key, value)

    def _put_offset(self, group_id: str, topic_partition: TopicPartition, committed: CommittedOffset) -> None:
        """The group's offset from now on. One that is there already is only said again, and later than nothing."""
        offsets = self._offsets.setdefault(group_id, {})
        if self.pending and offsets.get(topic_partition) != committed:
            self.pending.supersede(group_id, topic_partition)
        offsets[topic_partition] = committed

    def _remove_offset(self, group_id: str, topic_partition: TopicPartition) -> None:
        offsets = self._offsets.get(group_id)
        if offsets is not None:
            offsets.pop(topic_partition, None)
            if not offsets:
                del self._offsets[group_id]


def _put(values: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
