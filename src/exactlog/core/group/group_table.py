"""What the log says of the groups: the newest record of every key. There are two of it, head and committed."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from exactlog.core.group.group_metadata_format import GroupMetadata
from exactlog.core.group.group_record import GroupMetadataRecord, GroupRecord, OffsetCommitRecord, UnknownRecord
from exactlog.core.group.requests import CommittedOffset
from exactlog.core.model.ids import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

_NO_OFFSETS: Final[Mapping[TopicPartition, CommittedOffset]] = MappingProxyType({})


class GroupTable:
    """Metadata and offsets by group. The values never change; two tables share them."""

    def __init__(self) -> None:
        self._metadata: dict[str, GroupMetadata] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._unknown: dict[bytes, bytes] = {}

    def replay(self, record: GroupRecord) -> None:
        """Takes a record in."""
        match record:
            case OffsetCommitRecord(group_id, topic_partition, committed):
                if committed is None:
                    self._remove_offset(group_id, topic_partition)
                else:
                    self._offsets.setdefault(group_id, {})[topic_partition] = committed
            case GroupMetadataRecord(group_id, metadata):
                _put(self._metadata, group_id, metadata)
            case UnknownRecord(key, value):
                _put(self._unknown, key, value)

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's offsets; none for one that is not known."""
        return self._offsets.get(group_id, _NO_OFFSETS)

    def groups_with_offsets(self) -> list[str]:
        """The groups that have any."""
        return list(self._offsets)

    def live_records(self) -> Iterator[GroupRecord]:
        """One record for each key that has a value: replayed, they give this table."""
        for group_id, metadata in self._metadata.items():
            yield GroupMetadataRecord(group_id, metadata)
        for group_id, offsets in self._offsets.items():
            for topic_partition, committed in offsets.items():
                yield OffsetCommitRecord(group_id, topic_partition, committed)
        for key, value in self._unknown.items():
            yield UnknownRecord(key, value)

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
